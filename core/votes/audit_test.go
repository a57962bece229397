package votes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// auditOf reads a whole audit stream, a given number of events at a time.
func auditOf(t rapid.TB, g *Guard, poll string, count int) (events []Event) {
	t.Helper()
	position := ""
	for {
		found, next, err := g.Audit(context.Background(), poll, position, count)
		if err != nil || len(found) > count || (len(found) == 0) != (next == position) {
			t.Fatalf("audit after %q: %d events, then %q, %v", position, len(found), next, err)
		}
		if len(found) == 0 {
			return events
		}
		events, position = append(events, found...), next
	}
}

// told returns the sums of the events.
func told(events []Event) map[string]int64 {
	sums := map[string]int64{}
	for _, e := range events {
		sign := int64(-1)
		if e.Kind == EventCast || e.Kind == EventChanged {
			sign = 1
		}
		sums[e.Choice] += sign * e.Weight
		sums[e.Former] -= sign * e.FormerWeight
	}
	maps.DeleteFunc(sums, func(_ string, sum int64) bool { return sum == 0 })
	return sums
}

// Promise: The audit stream has every change. `Void` takes votes out, each once.
func TestVotesAudit(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v",
			Options{Poll: Poll{Change: true, Retract: true, Choices: []string{"red", "blue", "green"}}, Audit: true})
		vote := func(item string, cost int64, id, origin string) core.Decision {
			return guardtest.Check(t, g,
				core.Attempt{Actor: "ann {1}", Resource: "p", Item: item, Cost: cost, ID: id, Origin: origin})
		}
		vote("red", 2, "op 1", "2001:db8::1")
		vote("red", 2, "op 1", "192.0.2.9") // replayed: nothing happens
		vote("red", 2, "", "192.0.2.9")     // refused: nothing happens
		guardtest.Settle(t, g, vote("blue", 3, "op 2", ""), core.Rollback)
		vote("green", 1, "op 3", "phone 7")
		if _, err := g.Retract(t.Context(),
			core.Attempt{Actor: "ann {1}", Resource: "p", Item: "green", ID: "op 4", Origin: "x"}); err != nil {
			t.Fatal(err)
		}
		vote("blue", 1, "op 5", "y")
		if r, err := g.Void(t.Context(), "p", VoidOptions{Match: func(Event) bool { return true }}); err != nil ||
			r.Matched != 4 || r.Voided != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		want := []Event{
			{Kind: EventCast, Choice: "red", Weight: 2, ID: "op 1", Origin: "2001:db8::1"},
			{Kind: EventChanged, Choice: "blue", Weight: 3, ID: "op 2", Former: "red", FormerWeight: 2},
			{Kind: EventUndone, Choice: "blue", Weight: 3, ID: "op 2", Former: "red", FormerWeight: 2},
			{Kind: EventChanged, Choice: "green", Weight: 1, ID: "op 3", Origin: "phone 7", Former: "red",
				FormerWeight: 2},
			{Kind: EventRetracted, Choice: "green", Weight: 1, ID: "op 4", Origin: "x"},
			{Kind: EventCast, Choice: "blue", Weight: 1, ID: "op 5", Origin: "y"},
			{Kind: EventVoided, Choice: "blue", Weight: 1, ID: "op 5", Origin: "y"},
		}
		for _, count := range []int{1, 2, 7, 1000} {
			events := auditOf(t, g, "p", count)
			if len(events) != len(want) {
				t.Fatalf("%d at a time: %d events, want %d", count, len(events), len(want))
			}
			for i, e := range events {
				want[i].Voter = "ann {1}"
				if e.At.Unix() < 1 {
					t.Errorf("%+v has no time", e)
				}
				e.At, e.Position, e.message = want[i].At, "", want[i].message
				if fmt.Sprint(e) != fmt.Sprint(want[i]) {
					t.Errorf("event %d: %+v, want %+v", i, e, want[i])
				}
			}
		}
		if got := auditOf(t, g, "unknown", 5); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		if ttl := b.Client.PTTL(t.Context(), g.auditKey("p")).Val(); ttl <= 0 {
			t.Errorf("the stream expires in %v", ttl)
		}
	})
}

// TestVotesVoid voids the votes of one address while others vote.
func TestVotesVoid(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for _, again := range []bool{false, true} {
			g := New(guardtest.NewEngine(b), fmt.Sprint("v", again),
				Options{Audit: true, Poll: Poll{PerVoter: 2}})
			vote := func(i int, origin, item string) core.Decision {
				t.Helper()
				return guardtest.Check(t, g,
					core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: item, Cost: int64(1 + i%2), Origin: origin})
			}
			var stuffed []core.Decision
			for i := range 60 {
				guardtest.WantReason(t, vote(i, fmt.Sprint("home ", i), "blue"), core.ReasonOK)
				if i < 40 {
					d := vote(i, "198.51.100.7", "red")
					guardtest.WantReason(t, d, core.ReasonOK)
					stuffed = append(stuffed, d)
				}
			}
			guardtest.Settle(t, g, stuffed[3], core.Rollback) // weight 2
			before := map[string]int64{"blue": 90, "red": 58}
			wantTally(t, g, "p", before)
			options := VoidOptions{VoteAgain: again, DryRun: true,
				Match: func(e Event) bool { return e.Origin == "198.51.100.7" }}
			want := func(r VoidResult, err error, matched, voided int64, weights map[string]int64) {
				t.Helper()
				if err != nil || r.Matched != matched || r.Voided != voided || !maps.Equal(r.Weights, weights) {
					t.Fatalf("%+v (%v), want %d, %d, %v", r, err, matched, voided, weights)
				}
			}
			r, err := g.Void(t.Context(), "p", options)
			want(r, err, 40, 39, map[string]int64{"red": 58})
			wantTally(t, g, "p", before)

			options.DryRun = false
			var all sync.WaitGroup
			all.Go(func() {
				for i := 100; i < 150; i++ {
					if _, err := g.Check(t.Context(),
						core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "green"}); err != nil {
						t.Error(err)
					}
				}
			})
			r, err = g.Void(t.Context(), "p", options)
			want(r, err, 40, 39, map[string]int64{"red": 58})
			r, err = g.Void(t.Context(), "p", options)
			want(r, err, 40, 0, map[string]int64{})
			all.Wait()
			for _, d := range stuffed { // their requests fail late: no vote is subtracted twice
				guardtest.Settle(t, g, d, core.Rollback)
			}
			wantTally(t, g, "p", map[string]int64{"blue": 90, "green": 50})
			wantVerified(t, g, "p", map[string]int64{"blue": 90, "green": 50})

			d := vote(5, "home", "red")
			if again {
				guardtest.WantReason(t, d, core.ReasonOK)
				r, err = g.Void(t.Context(), "p", options) // matches only earlier votes, no longer valid
				want(r, err, 40, 0, map[string]int64{})
			} else {
				guardtest.WantReason(t, d, core.ReasonDuplicate)
				if !slices.Equal(Choices(d), []string{"blue"}) {
					t.Errorf("%+v: a voided vote does not stand", d)
				}
				guardtest.WantReason(t, vote(5, "home", "pink"), core.ReasonQuota)
			}
			wantVerified(t, g, "p", tally(t, g, "p"))
			if sums := told(auditOf(t, g, "p", 100)); !maps.Equal(sums, tally(t, g, "p")) {
				t.Errorf("the events add up to %v, the tally is %v", sums, tally(t, g, "p"))
			}
		}
	})
}

// TestVotesVoidAfterChangeAndUndo: Void voids the vote that was cast then, not its successor.
func TestVotesVoidAfterChangeAndUndo(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Audit: true, Poll: Poll{Change: true, Retract: true}})
		vote := func(item, origin string) core.Decision {
			t.Helper()
			return guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: item, Origin: origin})
		}
		void := func(origin string, voided int64) {
			t.Helper()
			r, err := g.Void(t.Context(), "p",
				VoidOptions{VoteAgain: true, Match: func(e Event) bool { return e.Origin == origin }})
			if err != nil || r.Voided != voided {
				t.Fatalf("%s: %+v, %v", origin, r, err)
			}
		}
		vote("red", "bad")
		blue := vote("blue", "worse")
		void("bad", 0) // was changed
		guardtest.Settle(t, g, blue, core.Rollback)
		wantTally(t, g, "p", map[string]int64{"red": 1})
		vote("blue", "good")
		void("worse", 0) // was undone; this is another vote for the same choice
		wantTally(t, g, "p", map[string]int64{"blue": 1})
		back := vote("red", "good too")
		guardtest.Settle(t, g, back, core.Rollback)
		wantTally(t, g, "p", map[string]int64{"blue": 1})
		void("good", 1) // was restored
		wantTally(t, g, "p", map[string]int64{})
		guardtest.WantReason(t, vote("blue", "later"), core.ReasonOK)
		void("good", 0)
		retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue"}, core.ReasonOK)
		vote("blue", "last")
		void("later", 0)
		wantVerified(t, g, "p", map[string]int64{"blue": 1})

		// A voided vote that stays used can be neither changed nor retracted.
		if _, err := g.Void(t.Context(), "p", VoidOptions{Match: func(Event) bool { return true }}); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, vote("red", ""), core.ReasonDuplicate)
		guardtest.WantReason(t, vote("blue", ""), core.ReasonDuplicate)
		retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue"}, core.ReasonGone)
		wantVerified(t, g, "p", map[string]int64{})
	})
}

// TestVotesVoidHostileText: long voters, IDs, origins and choices are hashed in the stream and still found.
func TestVotesVoidHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v",
			Options{Audit: true, Poll: Poll{Choices: guardtest.Hostile}})
		for _, text := range guardtest.Hostile {
			guardtest.WantReason(t, guardtest.Check(t, g,
				core.Attempt{Actor: text, Resource: "p", Item: text, ID: text, Origin: text}), core.ReasonOK)
		}
		r, err := g.Void(t.Context(), "p",
			VoidOptions{Match: func(e Event) bool { return slices.Contains(guardtest.Hostile, e.Choice) }})
		if err != nil || r.Voided != int64(len(guardtest.Hostile)) || len(r.Weights) != len(guardtest.Hostile) {
			t.Errorf("%d of %d: %v", r.Voided, len(guardtest.Hostile), err)
		}
		wantVerified(t, g, "p", map[string]int64{})
	})
}

func TestVotesAuditMistakes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		plain, g := New(guardtest.NewEngine(b), "v", Options{}),
			New(guardtest.NewEngine(b), "w", Options{Audit: true})
		all := VoidOptions{Match: func(Event) bool { return true }}
		if _, _, err := plain.Audit(t.Context(), "p", "", 5); !errors.Is(err, ErrNoAudit) {
			t.Errorf("%v", err)
		}
		if _, err := plain.Void(t.Context(), "p", all); !errors.Is(err, ErrNoAudit) {
			t.Errorf("%v", err)
		}
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		for _, c := range []struct {
			poll, after string
			count       int
		}{{"", "", 5}, {"p", "", 0}, {"p", "", 1001}, {"p", "x", 5}, {"p", "1-2,3-4", 5}, {"p", "1", 5},
			{"p", "+", 5}, {"p", "1-", 5}} {
			if _, _, err := g.Audit(t.Context(), c.poll, c.after, c.count); !guardtest.IsInvalid(err) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		for _, o := range []VoidOptions{{}, all} {
			poll := map[bool]string{true: "p", false: ""}[o.Match == nil]
			if _, err := g.Void(t.Context(), poll, o); !guardtest.IsInvalid(err) {
				t.Errorf("%v", err)
			}
		}
		b.Client.XAdd(t.Context(), xadd(g.auditKey("p"), "event", "cast"))
		if _, _, err := g.Audit(t.Context(), "p", "", 5); err == nil ||
			!strings.Contains(err.Error(), "not an event") {
			t.Errorf("a message that is none: %v", err)
		}
		if _, err := g.Void(t.Context(), "p", all); err == nil || !strings.Contains(err.Error(), "not an event") {
			t.Errorf("a message that is none: %v", err)
		}
	})
}

func xadd(stream string, values ...any) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: stream, Values: values}
}

// TestVotersOfTheAuditStream: a voter's text in the stream leads to the same records.
func TestVotersOfTheAuditStream(t *testing.T) {
	for _, text := range append(guardtest.Hostile, "#"+strings.Repeat("A", 43), "#AAAA") {
		if encodedVoter(script.Encode(text)) != newVoter(text) {
			t.Errorf("%.40q is another voter in the stream", text)
		}
	}
	encodedVoter("#" + strings.Repeat("A", 100)) // no panic
	seen := map[string]string{}
	for _, text := range guardtest.Hostile {
		if other, taken := seen[newVoter(text).record()]; taken {
			t.Errorf("%.40q and %.40q are one voter", text, other)
		}
		seen[newVoter(text).record()] = text
	}
}
