package parts

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesManyVotersAndFaults: thousands of voters cast, change, undo, retract and repeat votes through
// several processes, while one reply in a hundred is lost and an operator voids votes. The tally equals the
// sum of the answers. So it is in polls of one slot and in parts.
func TestVotesManyVotersAndFaults(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for _, of := range []int{0, 5} {
			t.Run(fmt.Sprint("parts ", of), func(t *testing.T) {
				b := b
				b.Prefix += fmt.Sprint(of)
				manyVotersAndFaults(t, b, of)
			})
		}
	})
}

func manyVotersAndFaults(t *testing.T, b redistest.Backend, of int) {
	voters, loses := 1000, 0.01
	switch {
	case b.Mini != nil:
		voters, loses = 200, 0.1 // each call of a miniredis scans all keys
	case guardtest.Soak():
		voters = 50_000
	}
	const processes, atOnce = 6, 200
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	faults := redistest.NewFaults(t)
	again := func(o *redis.UniversalOptions) { // a call whose replies are all lost fails
		o.MaxRetries, o.MaxRedirects = 12, 12
	}
	options := votes.Options{Poll: votes.Poll{Change: true, Retract: true}, Audit: true}
	guards := make([]ballots, processes)
	for i := range guards {
		e := core.New(b.NewClientWith(t, faults, again), core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
			core.WithObserver(guardtest.Ignore{}),
			core.WithRetryHorizon(2*time.Minute), // more than the deadline, on a machine that stands still
			core.WithRefusalMemory(0))
		guards[i] = newBallots(e, of, options)
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	faults.SwallowEvery("evalsha", loses, rand.New(rand.NewPCG(seed, 0)))

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
	bad := func(e votes.Event) bool { return e.Origin == "address 1" || e.Origin == "address 2" }
	result, err := guards[1].Void(t.Context(), "p", votes.VoidOptions{Match: bad})
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
	g := newBallots(guardtest.NewEngine(b), of, options)
	maps.DeleteFunc(want, func(_ string, sum int64) bool { return sum == 0 })
	wantTally(t, g, "p", want)
	wantVerified(t, g, "p", want)
	if sums := told(auditOf(t, g, "p", 1000)); !maps.Equal(sums, want) {
		t.Errorf("the events add up to %v, want %v", sums, want)
	}
	t.Logf("%d voters, %d replies lost, %d votes voided", voters, faults.Swallowed(), result.Voided)
}
