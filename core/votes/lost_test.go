package votes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// repair repairs a poll, which wants it to have lost so much.
func repair(t *testing.T, g *Guard, poll string, lost ...string) {
	t.Helper()
	r, err := g.Repair(t.Context(), poll)
	if err != nil || !slices.Equal(r.Lost, lost) || r.Consistent() != (len(lost) == 0) {
		t.Fatalf("want %q to be lost: %v%v", lost, r, err)
	}
	for _, what := range lost {
		if !strings.Contains(r.String(), "lost: "+what) {
			t.Errorf("%v does not say that the %s is lost", r, what)
		}
	}
	if r, err := g.Verify(t.Context(), poll); err != nil || !r.Consistent() || len(r.Lost) > 0 {
		t.Fatalf("after Repair: %v%v", r, err)
	}
}

// wantLost wants an error that says what is lost.
func wantLost(t *testing.T, err error, what string) {
	t.Helper()
	if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), what) {
		t.Errorf("%v: want an ErrLost that names the %s", err, what)
	}
}

// TestVotesOnALostTallyAreRefused: the tally of a hundred votes is lost, wholly or in part. The next vote
// does not begin a new one, Tally does not tell it, and Repair brings it back. Meanwhile votes can be
// taken back.
func TestVotesOnALostTallyAreRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		voters := 100
		if b.Mini != nil {
			voters = 20
		}
		for _, whole := range []bool{true, false} {
			e := guardtest.NewEngine(b, core.WithRefusalMemory(0))
			g := New(e, fmt.Sprintf("v-%t", whole), Options{
				Poll: Poll{Change: true, Retract: true}, Audit: true})
			var last core.Decision
			vote := func(voter int, item string) (core.Decision, error) {
				return g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(voter), Resource: "p", Item: item})
			}
			want := map[string]int64{}
			for i := range voters {
				item := []string{"red", "blue"}[i%2]
				d, err := vote(i, item)
				if err != nil || d.Reason != core.ReasonOK {
					t.Fatalf("%+v, %v", d, err)
				}
				last = d
				want[item]++
			}
			const changes = 0
			from, to := "red", "blue"
			key := g.Keys("p")[1]
			before := b.Client.HGetAll(t.Context(), key).Val()
			if whole {
				b.Client.Del(t.Context(), key)
			} else {
				b.Client.HDel(t.Context(), key, from)
			}
			maps.DeleteFunc(before, func(item, _ string) bool { return whole || item == from })

			_, err := vote(1000, from)
			wantLost(t, err, "tally")
			_, err = vote(changes, to) // the choice that it changes is lost
			wantLost(t, err, "tally")
			_, err = g.Tally(t.Context(), "p")
			wantLost(t, err, "tally")
			_, err = g.Top(t.Context(), "p", 1)
			wantLost(t, err, "tally")
			if after := b.Client.HGetAll(t.Context(), key).Val(); !maps.Equal(after, before) {
				t.Errorf("the tally had %v and has %v", before, after)
			}

			guardtest.Settle(t, g, last, core.Rollback)
			want[last.Attempt.Item]--
			retract(t, g, core.Attempt{Actor: fmt.Sprint(changes), Resource: "p", Item: from}, core.ReasonOK)
			want[from]--
			_, err = g.Tally(t.Context(), "p")
			wantLost(t, err, "tally")
			repair(t, g, "p", "tally")
			wantTally(t, g, "p", want)
			if d, err := vote(1000, from); err != nil || d.Reason != core.ReasonOK {
				t.Errorf("%+v, %v", d, err)
			}
			want[from]++
			wantVerified(t, g, "p", want)
			if err := b.Client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
			if r, err := g.Verify(t.Context(), "p"); err != nil || !slices.Equal(r.Lost, []string{"tally"}) {
				t.Errorf("%v%v", r, err)
			}
			repair(t, g, "p", "tally")
		}
	})
}

// TestVotesWithoutTheirAuditStreamAreRefused: the stream is lost. The next vote is refused, and what an
// operator asks for is no shorter list; what takes votes back goes on. Repair lets the stream begin anew.
//
// Promise: `Repair` restores a lost tally and begins a lost audit stream anew. It cannot restore the book.
func TestVotesWithoutTheirAuditStreamAreRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Retract: true}, Audit: true})
		failed := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red"})
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: "red"})
		b.Client.Del(t.Context(), g.auditKey("p"))
		check := func() {
			t.Helper()
			_, err := g.Check(t.Context(), core.Attempt{Actor: "cid", Resource: "p", Item: "red"})
			wantLost(t, err, "audit stream")
			_, _, err = g.Audit(t.Context(), "p", "", 10)
			wantLost(t, err, "audit stream")
			_, err = g.Void(t.Context(), "p", VoidOptions{Match: func(Event) bool { return true }})
			wantLost(t, err, "audit stream")
		}
		check()
		guardtest.Settle(t, g, failed, core.Rollback)
		retract(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: "red"}, core.ReasonOK)
		check() // what went on did not begin it anew
		wantTally(t, g, "p", map[string]int64{})
		repair(t, g, "p", "audit")
		guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "p", Item: "red"})
		if events := auditOf(t, g, "p", 10); len(events) != 1 || events[0].Voter != "cid" {
			t.Errorf("%+v", events)
		}
		if ttl := b.Client.PTTL(t.Context(), g.auditKey("p")).Val(); ttl <= 0 {
			t.Errorf("the stream expires in %v", ttl)
		}
	})
}

// TestVotesOnTheRemainsOfALostPollAreRefused: the book and the records are lost together. What is left, the
// tally or the audit stream, is no beginning of a new poll, and nothing is taken back without the book.
func TestVotesOnTheRemainsOfALostPollAreRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v",
			Options{Poll: Poll{Change: true, Retract: true}, Audit: true})
		for _, left := range []int{0, 1, 3} { // records, tally, audit stream
			poll := fmt.Sprint("poll ", left)
			ann := core.Attempt{Actor: "ann", Resource: poll, Item: "red"}
			cast := guardtest.Check(t, g, ann)
			keys := g.Keys(poll)
			for i, key := range keys {
				if i != left {
					b.Client.Del(t.Context(), key)
				}
			}
			for range 2 {
				_, err := g.Check(t.Context(), ann)
				wantLost(t, err, "book")
			}
			_, err := g.Retract(t.Context(), ann)
			wantLost(t, err, "book")
			if err := g.Settle(t.Context(), cast, core.Rollback); err == nil {
				t.Error("a vote was taken back without the book")
			}
			_, err = g.Tally(t.Context(), poll)
			wantLost(t, err, "book")
			if r, err := g.Verify(t.Context(), poll); err != nil || r.Consistent() || !slices.Equal(r.Lost,
				[]string{"book"}) {
				t.Errorf("%v%v", r, err)
			}
			b.Client.Del(t.Context(), keys...)
			b.Client.Del(t.Context(), g.operationKeys(poll, cast.Attempt.ID)[3])
		}
	})
}
