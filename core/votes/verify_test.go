package votes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// wantVerified fails the test unless records and tally agree and have the expected sums.
func wantVerified(t testing.TB, g *Guard, poll string, want map[string]int64) {
	t.Helper()
	r, err := g.Verify(t.Context(), poll)
	if err != nil || !r.Consistent() || !maps.Equal(r.Records, want) {
		t.Fatalf("want %v: %v%v", want, r, err)
	}
}

func TestVotesTop(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v",
			Options{Poll: Poll{Choices: []string{"e", "d", "c", "b", "a"}}})
		for i, item := range []string{"c", "b", "d", "d", "c", "a"} {
			guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: item})
		}
		all := []Rank{{"c", 2}, {"d", 2}, {"a", 1}, {"b", 1}, {"e", 0}}
		for n, want := range map[int][]Rank{-1: all, 0: all, 1: all[:1], 3: all[:3], 5: all, 9: all} {
			for range 3 {
				if got, err := g.Top(t.Context(), "p", n); err != nil || !slices.Equal(got, want) {
					t.Errorf("top %d: %v (%v), want %v", n, got, err, want)
				}
			}
		}
		if got, err := g.Top(t.Context(), "unknown", 2); err != nil ||
			!slices.Equal(got, []Rank{{"a", 0}, {"b", 0}}) {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestVotesVerify counts a poll, damages it, and repairs what can be repaired.
//
// Promise: `Verify` counts the records, and `Repair` corrects the tally.
func TestVotesVerify(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		long := strings.Repeat("{", 2000)
		g := New(guardtest.NewEngine(b), "v", Options{
			Poll: Poll{PerVoter: 2, Choices: []string{"red", "blue", "", long}}, Audit: true,
		})
		if r, err := g.Verify(t.Context(), "p"); err != nil || !r.Consistent() || r.Votes != 0 || r.Voters != 0 {
			t.Errorf("an unknown poll: %v%v", r, err)
		}
		const voters = 300
		for i := range voters {
			guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "red", Cost: 2})
			if i%2 == 0 {
				guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "p",
					Item: []string{"blue", "", long}[i%3]})
			}
		}
		if _, err := g.Void(t.Context(), "p",
			VoidOptions{Match: func(e Event) bool { return e.Voter == "7" }}); err != nil {
			t.Fatal(err)
		}
		sums := map[string]int64{"red": 2 * (voters - 1), "blue": 50, "": 50, long: 50}
		wantVerified(t, g, "p", sums)
		r, err := g.Verify(t.Context(), "p")
		if err != nil || r.Votes != voters-1+voters/2 || r.Voters != voters || r.Voided != 1 {
			t.Errorf("%v%v", r, err)
		}
		if text := r.String(); !strings.Contains(text, `poll "p": consistent`) ||
			!strings.Contains(text, "votes: 449, voided: 1, voters: 300") {
			t.Errorf("%s", text)
		}

		keys := g.Keys("p")
		b.Client.HIncrBy(t.Context(), keys[1], "red", 5)
		b.Client.HSet(t.Context(), keys[1], "pink", 3)
		b.Client.HDel(t.Context(), keys[1], "blue")
		wrong := tally(t, g, "p")
		maps.DeleteFunc(wrong, func(_ string, sum int64) bool { return sum == 0 })
		r, err = g.Verify(t.Context(), "p")
		if err != nil || r.Consistent() || !maps.Equal(r.Records, sums) || !maps.Equal(r.Tally, wrong) {
			t.Errorf("%v%v", r, err)
		}
		for _, line := range []string{"NOT consistent", `"pink": the tally has 3, the records have 0 (+3)`,
			`"red": the tally has 603, the records have 598 (+5)`} {
			if !strings.Contains(r.String(), line) {
				t.Errorf("no line %q in\n%s", line, r)
			}
		}
		ttl := b.Client.PTTL(t.Context(), keys[0]).Val()
		if r, err = g.Repair(t.Context(), "p"); err != nil || r.Consistent() || !maps.Equal(r.Tally, wrong) {
			t.Errorf("repair says what was wrong: %v%v", r, err)
		}
		wantVerified(t, g, "p", sums)
		wantTally(t, g, "p", sums)
		if left := b.Client.PTTL(t.Context(), keys[1]).Val(); left > ttl || left < ttl-time.Minute {
			t.Errorf("the tally expires in %v, the records in %v", left, ttl)
		}
		if r, err = g.Repair(t.Context(), "p"); err != nil || !r.Consistent() {
			t.Errorf("nothing to repair: %v%v", r, err)
		}

		// Lost records are no reason to remove their votes from the tally.
		for name, harm := range map[string]func(){
			"a bucket is gone":     func() { b.Client.HDel(t.Context(), keys[0], "1") },
			"the records are gone": func() { b.Client.Del(t.Context(), keys[0]) },
		} {
			harm()
			b.Client.HSet(t.Context(), keys[1], "pink", 3)
			r, err = g.Repair(t.Context(), "p")
			if !errors.Is(err, errDamaged) || r.Damaged == 0 || r.Consistent() {
				t.Errorf("%s: %v%v", name, r, err)
			}
			if got := tally(t, g, "p")["pink"]; got != 3 {
				t.Errorf("%s: the tally was changed", name)
			}
		}
		b.Client.HSet(t.Context(), keys[0], "0", "short")
		if _, err = g.Verify(t.Context(), "p"); err == nil {
			t.Error("a bucket that is none")
		}
		b.Client.Del(t.Context(), keys...)
		if _, err := g.Verify(t.Context(), ""); !guardtest.IsInvalid(err) {
			t.Errorf("no poll: %v", err)
		}
	})
}

// TestVotesVerifyWhileItMoves: a poll that changes meanwhile is either counted correctly or reported as
// changing, and repairing it does no harm.
func TestVotesVerifyWhileItMoves(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b, core.WithRetryHorizon(time.Second)), "v", Options{})
		voters := 3000
		if b.Mini != nil {
			voters = 300 // each call of a miniredis scans all keys
		}
		done := make(chan struct{})
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				for i := worker; i < voters; i += 4 {
					if _, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p"}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		go func() { all.Wait(); close(done) }()
		for moving := true; moving; {
			select {
			case <-done:
				moving = false
			default:
			}
			r, err := g.Repair(t.Context(), "p")
			if err != nil || !r.Moving && !r.Consistent() {
				t.Fatalf("%v%v", r, err)
			}
		}
		wantVerified(t, g, "p", map[string]int64{"": int64(voters)})
	})
}

// TestVotesBucketsSplit: every voter is found at every number of buckets, and the index is the one that Go
// computes.
func TestVotesBucketsSplit(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b, core.WithRefusalMemory(0), core.WithRetryHorizon(time.Second)), "v",
			Options{Poll: Poll{PerVoter: 2}})
		voters := 1200 // 1 to 38 buckets
		if b.Mini != nil {
			voters = 300 // each call of a miniredis scans all keys
		}
		for i := range voters {
			guardtest.WantReason(t, guardtest.Check(t, g,
				core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "red"}), core.ReasonOK)
			if i%100 == 99 {
				wantVerified(t, g, "p", map[string]int64{"red": int64(i + 1)})
			}
		}
		if n := b.Client.HLen(t.Context(), g.Keys("p")[0]).Val(); n != int64(voters-1)/32+1 {
			t.Errorf("%d buckets for %d voters", n, voters)
		}
		for i := range voters {
			guardtest.WantReason(t, guardtest.Check(t, g,
				core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "red"}), core.ReasonDuplicate)
		}
	})
}
