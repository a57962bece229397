package delay_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// paperError is an error whose text cannot be read of a nil pointer.
type paperError struct{ printer string }

func (e *paperError) Error() string { return e.printer + " has no paper" }

// TestFunctionsOfTheApplicationThatDoNotReturn: an error without a text, and a Backoff that panics or ends
// the goroutine, end no process. The handler's place is free again, and the lease is not renewed any more.
func TestFunctionsOfTheApplicationThatDoNotReturn(t *testing.T) {
	for how, backoff := range map[string]func(int) time.Duration{
		"an error without a text": soon,
		"a Backoff that panics":   func(int) time.Duration { panic("of the application") },
		"a Backoff that exits":    func(int) time.Duration { runtime.Goexit(); return 0 },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			q := delay.New(guardtest.NewEngine(redistest.Single(t)), "tasks",
				delay.Options{MaxTries: 2})
			var tries atomic.Int64
			stop := working(t, q, delay.WorkOptions{Concurrency: 1, Backoff: backoff},
				func(_ context.Context, task delay.Task) error {
					switch {
					case task.ID == "fine":
						return nil
					case how == "an error without a text":
						tries.Add(1)
						return (*paperError)(nil)
					}
					tries.Add(1)
					return errors.New("no paper")
				})
			schedule(t, q, "fails", time.Time{})
			eventually(t, q, "fails", delay.Dead)
			if n := tries.Load(); n != 2 {
				t.Errorf("%d tries, want 2", n)
			}
			schedule(t, q, "fine", time.Time{})
			eventually(t, q, "fine", delay.Done)
			wantErr(t, stop(), nil)
		})
	}
}

// unobservant is an observer that panics.
type unobservant struct{}

func (unobservant) Observe(_ context.Context, e core.Event) { panic(e.Op) }

// TestAnObserverThatPanicsEndsNoWork: tasks run, and are done.
func TestAnObserverThatPanicsEndsNoWork(t *testing.T) {
	t.Parallel()
	q := delay.New(guardtest.NewEngine(redistest.Single(t), core.WithObserver(unobservant{})), "tasks",
		delay.Options{})
	stop := working(t, q, delay.WorkOptions{}, func(_ context.Context, task delay.Task) error {
		if task.ID == "fails" && task.Try == 1 {
			return errors.New("of the test")
		}
		return nil
	})
	for _, id := range []string{"one", "fails"} {
		schedule(t, q, id, time.Time{})
		eventually(t, q, id, delay.Done)
	}
	wantErr(t, stop(), nil)
}
