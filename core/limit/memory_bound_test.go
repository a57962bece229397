package limit

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// TestMemoryKeepsAsManyActorsAsItWasTold: parts of the store were full before the whole was, and forgot
// actors. With 65,536 keys and as many actors, each with one unit per day, 30,535 were admitted twice.
//
// Promise: The memory engine keeps exactly `WithMemoryKeys` keys. It evicts full keys first, then those that
// are full soonest.
func TestMemoryKeepsAsManyActorsAsItWasTold(t *testing.T) {
	for _, c := range []struct{ keys, actors int }{{1, 1}, {5, 5}, {64, 16}, {1000, 900}, {1000, 1000},
		{1 << 13, 1 << 13}} {
		for _, k := range kinds {
			if c.keys > 1000 && k.name != "FixedWindow" {
				continue // the counters are kept alike
			}
			g := k.make(core.NewMemory(core.WithMemoryKeys(c.keys)), "w", PerDay(1))
			for round, want := range []int{c.actors, 0} {
				admitted := 0
				for i := range c.actors {
					if guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i)}).Allowed {
						admitted++
					}
				}
				if admitted != want {
					t.Errorf("%s, %d keys: %d of %d actors were admitted in round %d, want %d", k.name, c.keys, admitted,
						c.actors, round+1, want)
				}
			}
		}
	}
}

// TestAsManyAnswersAreKeptAsActorsAreCounted: in an outage the process goes on from what it has heard about
// each of them.
func TestAsManyAnswersAreKeptAsActorsAreCounted(t *testing.T) {
	sizes := []int{1, 5, 64, 1 << 13, 1 << 16}
	for range 200 { // each map spreads its keys in another way
		sizes = append(sizes, 500, 1000)
	}
	for _, keys := range sizes {
		last := newLastAnswers(keys)
		for i := range keys {
			last.note(fmt.Sprint("actor ", i), PerDay(9), verdict{allowed: true, remaining: 8}, 1, int64(1e15+i))
		}
		for i := range keys {
			if h := last.find(fmt.Sprint("actor ", i)); h.left != 8 {
				t.Fatalf("%d keys: actor %d is forgotten", keys, i)
			}
		}
	}
}

// TestActorsThatAreFullAgainGiveWayFirst: actors who come and go do not evict those who have used up their
// limit, even if these were seen first.
func TestActorsThatAreFullAgainGiveWayFirst(t *testing.T) {
	const keys = 300
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			clock := guardtest.NewClock()
			g := k.by(core.NewMemory(core.WithMemoryKeys(keys), guardtest.WithClock(clock),
				core.WithDeadline(time.Minute)), "w",
				func(_ context.Context, a core.Attempt) ([]Limit, error) {
					if a.Resource == "day" {
						return []Limit{PerDay(1)}, nil
					}
					return []Limit{PerSecond(1)}, nil
				})
			all := func(resource string, actors int, want core.Reason) {
				t.Helper()
				for i := range actors {
					a := core.Attempt{Actor: fmt.Sprint(i), Resource: resource}
					guardtest.WantReason(t, guardtest.Check(t, g, a), want)
				}
			}
			all("day", keys-10, core.ReasonOK)
			for round := range 100 {
				all(fmt.Sprint("second ", round), 10, core.ReasonOK)
				clock.Advance(time.Second + time.Millisecond)
			}
			all("day", keys-10, core.ReasonLimited)
		})
	}
}

// TestBeyondItsBoundTheMemoryForgetsWhatIsFullSoonest: what an actor too many costs is one other, the one
// with the shortest wait.
func TestBeyondItsBoundTheMemoryForgetsWhatIsFullSoonest(t *testing.T) {
	const keys = 200
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			clock := guardtest.NewClock()
			g := k.make(core.NewMemory(core.WithMemoryKeys(keys), guardtest.WithClock(clock)), "w", PerDay(1))
			take := func(from, to int, want core.Reason) {
				t.Helper()
				for i := from; i < to; i++ {
					clock.Advance(time.Second)
					guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i)}), want)
				}
			}
			take(0, keys, core.ReasonOK)
			take(0, keys, core.ReasonLimited)
			take(keys, keys+50, core.ReasonOK)
			take(50, keys+50, core.ReasonLimited) // 0 to 49 were forgotten
			if n := limiterOf(g).local().store.size(); n != keys {
				t.Errorf("%d keys", n)
			}
		})
	}
}

// TestManyGoroutinesMakeRoom is for the race detector, and for bounds so small that all places are taken by
// goroutines that are about to add their counters.
func TestManyGoroutinesMakeRoom(t *testing.T) {
	for _, keys := range []int{1, 3, 100} {
		m := newMemory(newFixedCount, keys, false)
		limits := []Limit{PerDay(1)}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := range 300 {
					a := core.Attempt{Actor: fmt.Sprint(i, n%7, n), Cost: 1}
					v := m.decide(&a, limits, 1, int64(n))
					if !v.allowed {
						t.Errorf("%v: %+v", a, v)
					}
					if held := m.store.size(); held > keys {
						t.Errorf("%d keys, want %d at most", held, keys)
					}
					if n%5 == 0 {
						m.forget(&a, limits, int64(n))
					}
				}
			})
		}
		all.Wait()
		found := 0
		for i := range m.store.parts {
			p := &m.store.parts[i]
			if len(p.of) != len(p.order) {
				t.Errorf("part %d: %d keys, %d in order", i, len(p.of), len(p.order))
			}
			found += len(p.of)
		}
		if found != m.store.size() || found > keys {
			t.Errorf("%d keys, %d counted, %d at most", found, m.store.size(), keys)
		}
	}
}

// TestAKeyTakesWhatTheDocumentsSay measures core.WithMemoryKeys: bytes per key, with actors like
// addresses.
func TestAKeyTakesWhatTheDocumentsSay(t *testing.T) {
	const actors = 60_000 // so many that what other tests have left, and what goes meanwhile, hardly counts
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, k := range kinds {
		var each []int64 // of three, since what other tests have left may go meanwhile
		for range 3 {
			before := heap()
			alg := limiterOf(k.make(core.NewMemory(), "w", PerDay(9))).algorithm
			m := newMemory(alg.newCounter, actors, alg.log)
			for i := range actors {
				actor := fmt.Sprintf("2001:db8:%x:%x::", i/256, i%256)
				m.decide(&core.Attempt{Actor: actor}, []Limit{PerDay(9)}, 1, int64(1e15+i))
			}
			each = append(each, (int64(heap())-int64(before))/actors)
			runtime.KeepAlive(m)
		}
		slices.Sort(each)
		t.Logf("%s: %d bytes per key", k.name, each)
		if each[1] < 165 || each[1] > 350 {
			t.Errorf("%s: %d bytes per key: core.WithMemoryKeys says otherwise", k.name, each[1])
		}
	}
}

func BenchmarkMemoryWithNewActors(b *testing.B) {
	for _, keys := range []int{1 << 16, 1 << 30} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			m := newMemory(newSlidingLog, keys, true)
			limits := []Limit{PerDay(9)}
			b.ReportAllocs()
			for i := range b.N {
				m.decide(&core.Attempt{Actor: fmt.Sprint(i)}, limits, 1, int64(1e15+i))
			}
		})
	}
}
