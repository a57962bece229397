package votes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestVotesManyVotersAndFaults: thousands of voters cast, change, undo, retract and repeat votes through
// several processes, while one reply in a hundred is lost and an operator voids votes. The tally equals the
// sum of the answers.
func TestVotesManyVotersAndFaults(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		voters := 1500
		switch {
		case b.Mini != nil:
			voters = 300 // each call of a miniredis scans all keys
		case guardtest.Soak():
			voters = 100_000
		}
		const processes, atOnce, spread = 6, 200, 5
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		faults := redistest.NewFaults(t)
		options := Options{Poll: Poll{Change: true, Retract: true}, Spread: spread, Audit: true}
		guards := make([]*Guard, processes)
		for i := range guards {
			e := core.New(b.NewClientWith(t, faults), core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
				core.WithObserver(guardtest.Ignore{}),
				core.WithRetryHorizon(2*time.Minute), // more than the deadline, on a machine that stands still
				core.WithRefusalMemory(0))
			guards[i] = New(e, "v", options)
			if err := e.Preload(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		faults.SwallowEvery("evalsha", 0.01, rand.New(rand.NewPCG(seed, 0)))

		var mu sync.Mutex
		want := map[string]int64{}
		stands := func(choice string, weight int64) {
			mu.Lock()
			defer mu.Unlock()
			want[choice] += weight
		}
		vote := func(
			rng *rand.Rand, voter, choice string, weight int64, reason core.Reason,
		) (told []core.Decision, ok bool) {
			a := core.Attempt{Actor: voter, Resource: "p", Item: choice, Cost: weight,
				Origin: fmt.Sprint("address ", rng.IntN(50))}
			if rng.IntN(2) == 0 {
				a.ID = voter + choice
			}
			d, err := guards[rng.IntN(processes)].Check(t.Context(), a)
			if again := rng.IntN(10) == 0; err != nil || again { // the outcome is unknown, or the client asks again
				if err == nil {
					told = append(told, d)
				}
				d, err = guards[rng.IntN(processes)].Check(t.Context(), d.Attempt)
			}
			if err != nil || d.Reason != reason {
				t.Errorf("voter %s for %s: %+v, %v", voter, choice, d, err)
				return told, false
			}
			return append(told, d), true
		}
		var all sync.WaitGroup
		slots := make(chan struct{}, atOnce)
		for i := range voters {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				rng := rand.New(rand.NewPCG(seed, uint64(i)+1))
				voter, first, weight := fmt.Sprint(i), fmt.Sprint("choice ", rng.IntN(4)), 1+rng.Int64N(3)
				_, ok := vote(rng, voter, first, weight, core.ReasonOK)
				if !ok {
					return
				}
				switch rng.IntN(6) {
				case 0: // changes, and the request fails or not
					told, ok := vote(rng, voter, "other", 1, core.ReasonChanged)
					if !ok || rng.IntN(2) == 0 {
						stands("other", 1)
						return
					}
					// Several calls have received a yes: all of their requests fail.
					again, err := guards[0].Check(t.Context(), told[0].Attempt)
					if err != nil || !again.Replayed {
						t.Errorf("%+v, %v", again, err)
					}
					for _, one := range append(told, again) {
						if err := guards[rng.IntN(processes)].Settle(t.Context(), one, core.Rollback); err != nil {
							t.Error(err)
						}
					}
					stands(first, weight)
				case 1:
					d, err := guards[rng.IntN(processes)].Retract(t.Context(),
						core.Attempt{Actor: voter, Resource: "p", Item: first})
					if err != nil || !d.Allowed || d.Attempt.Cost != weight {
						t.Errorf("retract: %+v, %v", d, err)
					}
				default:
					stands(first, weight)
				}
			})
		}
		all.Wait()

		// An operator voids the votes from some addresses, under the same faults.
		bad := func(e Event) bool { return e.Origin == "address 1" || e.Origin == "address 2" }
		result, err := guards[1].Void(t.Context(), "p", VoidOptions{Match: bad})
		if err != nil || result.Voided == 0 {
			t.Errorf("void: %+v, %v", result, err)
		}
		for choice, weight := range result.Weights {
			stands(choice, -weight)
		}
		faults.Heal()
		if faults.Swallowed() == 0 {
			t.Error("no reply was lost")
		}
		for _, e := range guards {
			redistest.Eventually(t, time.Minute, func() bool { return e.Engine().Pending() == 0 },
				"the undos have ended")
		}
		g := New(guardtest.NewEngine(b), "v", options)
		maps.DeleteFunc(want, func(_ string, sum int64) bool { return sum == 0 })
		wantTally(t, g, "p", want)
		wantVerified(t, g, "p", want)
		if sums := told(auditOf(t, g, "p", 1000)); !maps.Equal(sums, want) {
			t.Errorf("the events add up to %v, want %v", sums, want)
		}
		t.Logf("%d voters, %d replies lost, %d votes voided", voters, faults.Swallowed(), result.Voided)
	})
}

// TestVotesLostReplies loses the reply of each script once: the resend changes nothing and receives the same
// answer.
func TestVotesLostReplies(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		plain := b.Client
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		g := New(e, "v", Options{Poll: Poll{Change: true, Retract: true}, Spread: 2, Audit: true})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		lose := func(n int) {
			t.Helper()
			if lost := faults.Swallowed(); lost != n {
				t.Fatalf("%d replies lost, want %d", lost, n)
			}
		}
		a := core.Attempt{Actor: "ann", Resource: "p", Item: "red", Cost: 2}
		faults.SwallowReplies("evalsha", 2) // the number of parts, and the vote
		d := guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonOK)
		lose(2)
		a.Item = "blue"
		faults.SwallowReply("evalsha")
		d = guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonChanged)
		if d.Replayed {
			t.Errorf("%+v: the same call is no replay", d)
		}
		wantVerified(t, g, "p", map[string]int64{"blue": 2})
		faults.SwallowReply("evalsha")
		guardtest.Settle(t, g, d, false)
		wantVerified(t, g, "p", map[string]int64{"red": 2})
		faults.SwallowReply("evalsha")
		a.Item = "red"
		if d := retract(t, g, a, core.ReasonOK); d.Replayed || d.Attempt.Cost != 2 {
			t.Errorf("%+v", d)
		}
		wantVerified(t, g, "p", map[string]int64{})
		lose(5)

		for _, again := range []bool{false, true} {
			voter := fmt.Sprint(again)
			guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", Item: "red", Cost: 3})
			faults.SwallowReply("evalsha")
			r, err := g.Void(t.Context(), "p",
				VoidOptions{VoteAgain: again, Match: func(e Event) bool { return e.Voter == voter }})
			if err != nil || r.Matched != 1 || r.Voided != 1 || r.Weights["red"] != 3 {
				t.Errorf("%+v, %v", r, err)
			}
		}
		lose(7)
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: "red"})
		part := newVoter("bob").part(2)
		plain.HIncrBy(t.Context(), g.recordKeys("p", part)[1], "red", 7)
		faults.SwallowReply("evalsha")
		if _, err := g.Repair(t.Context(), "p"); err != nil {
			t.Error(err)
		}
		lose(8)
		wantVerified(t, g, "p", map[string]int64{"red": 1})
	})
}
