package semaphore_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// unobservant is an observer that does not return when it is told of a check.
type unobservant struct{ does func() }

func (u *unobservant) Observe(_ context.Context, e core.Event) {
	if (e.Op == "check" || e.Op == "check_local") && u.does != nil {
		u.does()
	}
}

// TestAnObserverThatDoesNotReturn leaves no permit held, which nobody knows of: it would be renewed for ever.
func TestAnObserverThatDoesNotReturn(t *testing.T) {
	for how, does := range map[string]func(){
		"panics": func() { panic("of the observer") }, "exits": runtime.Goexit,
	} {
		t.Run(how, func(t *testing.T) {
			observer := &unobservant{}
			redis := guardtest.NewEngine(redistest.Single(t), core.WithObserver(observer))
			memory := core.NewMemory(core.WithObserver(observer))
			for where, e := range map[string]*core.Engine{"Redis": redis, "memory": memory} {
				g := semaphore.New(e, "exports", semaphore.Options{Max: 1, Lease: time.Minute})
				check := map[string]func(context.Context, core.Attempt) (core.Decision, error){
					"Check": g.Check, "CheckLocal": g.CheckLocal}
				for by, ask := range check {
					observer.does = does
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() { _ = recover() }()
						_, _ = ask(t.Context(), core.Attempt{Actor: "ann"})
						t.Error("it returns")
					}()
					<-ended
					observer.does = nil
					redistest.Eventually(t, 10*time.Second, func() bool {
						d, err := ask(t.Context(), core.Attempt{Actor: "bob"})
						return err == nil && d.Allowed && g.Settle(t.Context(), d, core.Commit) == nil
					}, where+", "+by+": the permit is held")
				}
			}
		})
	}
}

// absent is an observer that ends its goroutine when it is told of a call in the background, once.
type absent struct {
	op   string
	told atomic.Int64
}

func (a *absent) Observe(_ context.Context, e core.Event) {
	if e.Op == a.op && a.told.Add(1) == 1 {
		runtime.Goexit()
	}
}

// TestAnObserverThatEndsItsGoroutine: leases are renewed all the same, and waiters get their permits.
func TestAnObserverThatEndsItsGoroutine(t *testing.T) {
	b := redistest.Single(t)
	for _, op := range []string{"renew", "wait"} {
		t.Run(op, func(t *testing.T) {
			observer := &absent{op: op}
			g := semaphore.New(guardtest.NewEngine(b, core.WithObserver(observer)), op,
				semaphore.Options{Max: 1, Lease: 2 * time.Second, Wait: 20 * time.Second})
			first := guardtest.Check(t, g, core.Attempt{Actor: "ann"})
			held, stop := g.Hold(t.Context(), first)
			defer stop()
			if op == "renew" {
				redistest.Eventually(t, 20*time.Second, func() bool {
					return observer.told.Load() > 2 || held.Err() != nil
				}, "the lease is not renewed")
				if held.Err() != nil {
					t.Errorf("%v: the lease is lost", context.Cause(held))
				}
				return
			}
			second := make(chan core.Decision, 1)
			go func() {
				d, _ := g.Check(t.Context(), core.Attempt{Actor: "bob"})
				second <- d
			}()
			redistest.Eventually(t, 20*time.Second, func() bool { return observer.told.Load() > 0 }, "nobody waits")
			if err := g.Settle(t.Context(), first, core.Commit); err != nil {
				t.Error(err)
			}
			if d := <-second; !d.Allowed {
				t.Errorf("%+v: the waiter gets nothing", d)
			}
		})
	}
}
