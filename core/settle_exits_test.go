package core_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// endless is a guard of an application whose Settle does not return as it should.
type endless struct {
	e      *core.Engine
	settle func() error
}

func (*endless) Name() string           { return "endless" }
func (*endless) Traits() core.Traits    { return core.Traits{} }
func (g *endless) Engine() *core.Engine { return g.e }

func (*endless) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	return core.Decision{Guard: "endless", Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
}

func (g *endless) Settle(context.Context, core.Decision, core.Ending) error { return g.settle() }

// unobservant is an observer that panics or exits when it is told of something.
type unobservant struct{ told atomic.Int64 }

func (u *unobservant) Observe(_ context.Context, e core.Event) {
	if u.told.Add(1)%2 == 0 {
		runtime.Goexit()
	}
	panic(e.Op)
}

// TestASettlingThatDoesNotReturn ends no process, holds no place, and does not keep others from being
// settled: a guard of an application that panics or ends the goroutine, and an observer that does so when it
// is told of that.
func TestASettlingThatDoesNotReturn(t *testing.T) {
	for how, settle := range map[string]func() error{
		"panics": func() error { panic("of the guard") },
		"exits":  func() error { runtime.Goexit(); return nil },
	} {
		t.Run(how, func(t *testing.T) {
			var observer unobservant
			e := core.NewMemory(core.WithObserver(&observer))
			g, settled := &endless{e: e, settle: settle}, atomic.Int64{}
			const many = 100 // more than are tried at once
			for range many {
				new(core.Place).SettleLater(g, core.Decision{Guard: "endless"}, core.Commit)
			}
			fine := &endless{e: e, settle: func() error { settled.Add(1); return nil }}
			new(core.Place).SettleLater(fine, core.Decision{Guard: "endless"}, core.Commit)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := errors.Join(e.Drain(ctx), core.Drain(ctx)); err != nil {
				t.Error(err)
			}
			if n := settled.Load(); n != 1 {
				t.Errorf("the other one was settled %d times", n)
			}
			if n := observer.told.Load(); n != many {
				t.Errorf("the observer was told of %d that were given up, want %d", n, many)
			}
			if n := e.Pending(); n != 0 {
				t.Errorf("%d are pending", n)
			}
		})
	}
}
