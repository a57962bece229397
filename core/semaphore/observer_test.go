package semaphore_test

import (
	"context"
	"runtime"
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
