package limit

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// TestAFunctionOfLimitsThatEndsItsGoroutine: a line goes on after that, whoever was asking for it: the waiter
// who found no line, or the goroutine that serves it.
func TestAFunctionOfLimitsThatEndsItsGoroutine(t *testing.T) {
	for _, in := range []string{"the goroutine of a waiter", "the goroutine of the line"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls, exits atomic.Int64 // it exits in this call
				g := NewSlidingWindowBy(core.NewMemory(core.WithObserver(guardtest.Ignore{})), "tiers",
					func(context.Context, core.Attempt) ([]Limit, error) {
						if calls.Add(1) == exits.Load() {
							runtime.Goexit()
						}
						return []Limit{PerMinute(1)}, nil
					})
				if in == "the goroutine of a waiter" {
					exits.Store(2)
				} else {
					guardtest.Check(t, g, partner)
				}
				first, returned := error(nil), false
				go func() {
					_, first = g.Wait(t.Context(), partner)
					returned = true
				}()
				synctest.Wait()
				if in == "the goroutine of the line" {
					exits.Store(calls.Load() + 1)
					g.freed(kit.TagOf(partner))
					synctest.Wait()
					if !returned || first == nil || !strings.Contains(first.Error(), "goroutine") {
						t.Errorf("returned: %v, %v: want an error that says so", returned, first)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				if d, err := g.Wait(ctx, partner); err != nil || !d.Allowed {
					t.Errorf("the next one: %+v, %v", d, err)
				}
				synctest.Wait() // the goroutine of the line sees that nobody is left
				if n := g.waits.some.Load(); n != 0 {
					t.Errorf("%d lines are left", n)
				}
				if err := core.Drain(ctx); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
