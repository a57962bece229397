package delay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestATaskThatCannotRunYetBurnsNoTry: it waits more often than it may fail, and each time as long as it was
// told to.
func TestATaskThatCannotRunYetBurnsNoTry(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		q := delay.New(guardtest.NewEngine(b), "tasks", delay.Options{MaxTries: 1})
		if _, err := q.Schedule(t.Context(), "later", time.Time{}, []byte("x")); err != nil {
			t.Fatal(err)
		}
		const waits, wait = 3, 20 * time.Millisecond
		var dues []time.Time
		working(t, q, delay.WorkOptions{Concurrency: 1}, func(_ context.Context, task delay.Task) error {
			dues = append(dues, task.At) // one handler at a time
			if task.Try != 1 {
				t.Errorf("try %d", task.Try)
			}
			if len(dues) <= waits {
				return delay.Later(errors.New("no room"), wait)
			}
			return nil
		})
		eventually(t, q, "later", delay.Done)
		for i := 1; i < len(dues); i++ {
			if waited := dues[i].Sub(dues[i-1]); waited < wait {
				t.Errorf("due %v after the last time, want %v at least", waited, wait)
			}
		}
		if len(dues) != waits+1 {
			t.Errorf("ran %d times", len(dues))
		}
	})
}
