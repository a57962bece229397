package limit

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// exactWindow is a sliding window's definition, fast: the moments of the last units admitted, rounded up as
// the limit does, of which only the moment max units ago matters.
type exactWindow struct {
	limit Limit
	last  []int64
	n     int64
}

func newExactWindow(l Limit) *exactWindow { return &exactWindow{limit: l, last: make([]int64, l.Max)} }

func (w *exactWindow) allow(now int64) bool {
	oldest := &w.last[w.n%w.limit.Max]
	if w.n >= w.limit.Max && now-*oldest < w.limit.Window.Microseconds() {
		return false
	}
	grain := w.limit.grain()
	*oldest = ceilDiv(now, grain) * grain
	w.n++
	return true
}

// TestLimiterUnderTraffic sends random traffic for many keys: slightly under a limit of 100, slightly over
// it, and far over it. No decision may differ from the definition.
func TestLimiterUnderTraffic(t *testing.T) {
	const windows = 1.5
	keys := map[int64]int{0: 32, 60: 32} // by the resolution
	if guardtest.Soak() {
		keys = map[int64]int{0: 1400, 60: 400} // a million checks
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := redistest.Single(t)
	start := guardtest.NewClock().Now()
	for _, limit := range []Limit{PerMinute(100), PerMinute(100).WithResolution(60)} {
		for _, load := range []float64{0.9, 1.1, 2} {
			t.Run(fmt.Sprintf("%v at %v times the limit", limit, load), func(t *testing.T) {
				var work sync.WaitGroup
				var checks, refused, wrongAllows, wrongRefusals, failures atomic.Int64
				key := make(chan int)
				name := fmt.Sprintf("w%d-%v", limit.Resolution, load)
				for range 16 {
					// The keys are independent, so each worker moves its own clock.
					clock := guardtest.NewClock()
					g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)),
						name, limit)
					work.Go(func() {
						for key := range key {
							rng := rand.New(rand.NewPCG(seed, uint64(key)))
							exact := newExactWindow(limit)
							gap := limit.Window.Seconds() / (float64(limit.Max) * load) // on average, between two attempts
							for at := rng.ExpFloat64() * gap; at < limit.Window.Seconds()*windows; at += rng.ExpFloat64() * gap {
								clock.Set(start.Add(time.Duration(at * float64(time.Second))))
								d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(key)})
								want := exact.allow(clock.Now().UnixMicro())
								checks.Add(1)
								switch {
								case err != nil:
									failures.Add(1)
								case d.Allowed && !want:
									wrongAllows.Add(1)
								case !d.Allowed && want:
									wrongRefusals.Add(1)
								case !want:
									refused.Add(1)
								}
							}
						}
					})
				}
				for i := range keys[limit.Resolution] {
					key <- i
				}
				close(key)
				work.Wait()
				t.Logf("%d keys, %d checks, %d refused", keys[limit.Resolution], checks.Load(), refused.Load())
				if wrongAllows.Load() != 0 || wrongRefusals.Load() != 0 || failures.Load() != 0 {
					t.Errorf("%d wrong allows, %d wrong refusals, %d errors", wrongAllows.Load(), wrongRefusals.Load(),
						failures.Load())
				}
				if load > 1 && refused.Load() == 0 {
					t.Error("nothing was refused: this test could not have failed")
				}
			})
		}
	}
}
