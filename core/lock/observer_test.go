package lock

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// unobservant is an observer that panics when it is told of a check.
type unobservant struct{}

func (unobservant) Observe(_ context.Context, e core.Event) {
	if e.Op == "check" {
		panic("of the observer")
	}
}

// TestAnObserverThatPanics leaves no lock held, which nobody knows of: it would be renewed for ever.
func TestAnObserverThatPanics(t *testing.T) {
	for where, e := range map[string]*core.Engine{
		"Redis":  guardtest.NewEngine(redistest.Single(t), core.WithObserver(unobservant{})),
		"memory": core.NewMemory(core.WithObserver(unobservant{})),
	} {
		g := New(e, "files", Options{Lease: time.Minute})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			_, _ = g.Check(t.Context(), ann)
		}()
		redistest.Eventually(t, 10*time.Second, func() bool {
			s, err := g.Peek(t.Context(), "p")
			return err == nil && !s.Held
		}, where+": the lock is held")
	}
}
