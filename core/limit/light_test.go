package limit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// TestACheckInsideTheProcessAllocatesItsClaimOnly: each check allocated an operation ID, which hardly anybody
// reads.
func TestACheckInsideTheProcessAllocatesItsClaimOnly(t *testing.T) {
	for _, k := range kinds {
		for _, c := range []struct {
			name string
			cost int64
			most float64
		}{{"allowed", 1, 1}, {"refused", 1 << 9, 0}} {
			t.Run(k.name+"/"+c.name, func(t *testing.T) {
				now := time.Now()
				g := k.make(core.NewMemory(core.WithClock(func() time.Time { return now })), "w", Per(1<<9, time.Second))
				a := core.Attempt{Actor: "ann", Cost: 1}
				if _, err := g.Check(t.Context(), a); err != nil {
					t.Fatal(err)
				}
				a.Cost = c.cost
				n := testing.AllocsPerRun(500, func() {
					if c.cost == 1 {
						now = now.Add(2 * time.Millisecond)
					}
					if d, err := g.Check(t.Context(), a); err != nil || d.Allowed != (c.most > 0) || d.Attempt.ID == "" {
						t.Fatalf("%+v, %v", d, err)
					}
				})
				if n > c.most {
					t.Errorf("%v allocations, want %v at most", n, c.most)
				}
			})
		}
	}
}

// TestCountersOfActiveActorsStay: each check of an actor whose counter was full again made a new one, and
// removed those of two others.
func TestCountersOfActiveActorsStay(t *testing.T) {
	now := time.Now()
	gate := core.NewMemory(core.WithClock(func() time.Time { return now }))
	g := NewTokenBucket(gate, "w", Per(1000, time.Second))
	actors := make([]string, 1000)
	for i := range actors {
		actors[i] = fmt.Sprint("actor-", i)
	}
	check := func() {
		for _, actor := range actors { // each of them every 100 ms, and full again after 1 ms
			now = now.Add(100 * time.Microsecond)
			if d, err := g.Check(t.Context(), core.Attempt{Actor: actor}); err != nil || d.Remaining != 999 {
				t.Fatalf("%+v, %v", d, err)
			}
		}
	}
	check()
	// What other tests left running allocates as well, so not exactly 1. A check that makes its counter has 5.
	if n := testing.AllocsPerRun(5, check) / float64(len(actors)); n > 1.9 {
		t.Errorf("%v allocations per check, want 1", n)
	}
}

// TestKeysOfOneHashAreTold: two actors whose keys have the same hash have a counter each, and one that goes
// leaves the others.
func TestKeysOfOneHashAreTold(t *testing.T) {
	const keys = 4
	for gone := range keys {
		s := newStore(2 * keys)
		hold := func(i int, f func(counters) counters) {
			s.use(&memoryKey{actor: fmt.Sprint(i), hash: 7}, 0, f)
		}
		for i := range keys {
			hold(i, func(held counters) counters {
				if held != nil {
					t.Errorf("key %d has the counters %v", i, held)
				}
				return counters{{until: int64(i), counter: &fixedCount{over: 1}}}
			})
		}
		hold(gone, func(counters) counters { return nil })
		var found []int64
		for i := range keys {
			hold(i, func(held counters) counters {
				for _, c := range held {
					found = append(found, c.until)
				}
				return held
			})
		}
		want := []int64{0, 1, 2, 3}
		if want = slices.Delete(want, gone, gone+1); !slices.Equal(found, want) || s.size() != len(want) {
			t.Errorf("without key %d: %v, %d held; want %v", gone, found, s.size(), want)
		}
	}
}
