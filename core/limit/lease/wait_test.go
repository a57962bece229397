package lease

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestWaitersGetUnitsInHand: two processes, whose attempts wait for more than the limit admits.
//
// Promise: Wait hands out what the process has in hand, and waits for the rest.
func TestWaitersGetUnitsInHand(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		const n, window, many = 400, 500 * time.Millisecond, 500
		var all sync.WaitGroup
		var inHand atomic.Int64
		begun := time.Now()
		for range 2 {
			g := newLeasing(b, "tenants", limit.Per(n, window))
			for range 10 {
				all.Go(func() {
					for range many / 10 {
						d, err := g.Wait(t.Context(), tenant)
						if err != nil || !d.Allowed {
							t.Errorf("%+v, %v", d, err)
							return
						}
						if d.Source == core.SourceLease {
							inHand.Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		took := time.Since(begun)
		if took < 2*window { // the last 200 units fit two windows after the first 400
			t.Errorf("%d units of %d per %v in %v", 2*many, n, window, took)
		}
		t.Logf("%d units in %v, %d of them from what was in hand", 2*many, took, inHand.Load())
	})
}
