//go:build unix

package delay_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// mortalOptions are those of the queue whose workers die.
var mortalOptions = delay.Options{Lease: time.Second, MaxTries: 4}

// TestMortalProcess is the process that crashLoop starts. A task whose ID begins with "poison" ends it after
// 30 ms; others take 150 ms.
func TestMortalProcess(t *testing.T) {
	var addr, prefix string
	if n, _ := fmt.Sscan(os.Getenv(processEnv), &addr, &prefix); n != 2 {
		return // runs in a process of its own
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	gate := core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Minute))
	q := delay.New(gate, "tasks", mortalOptions)
	_ = delay.Work(t.Context(), q, func(_ context.Context, task delay.Task) error {
		if strings.HasPrefix(task.ID, "poison") {
			<-time.After(30 * time.Millisecond)
			os.Exit(1)
		}
		<-time.After(150 * time.Millisecond)
		return nil
	}, delay.WorkOptions{Concurrency: 10, Poll: 50 * time.Millisecond})
}

// crashLoop runs a worker, and another when its process has died, until the test ends. It counts those that
// have died.
func crashLoop(t *testing.T, b redistest.Backend, died *atomic.Int64) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			err := processOf(t, b, "TestMortalProcess").Run()
			if t.Context().Err() != nil {
				return
			}
			if died.Add(1); !errors.As(err, new(*exec.ExitError)) {
				t.Errorf("the process: %v", err)
				return
			}
		}
	}()
	t.Cleanup(func() { <-over })
}

// TestATaskThatKillsItsProcessTakesNoOtherAlong: a process dies of a task that ran beside nine others, and so
// does each process that runs it again. The others are done, and that task is dead after its tries.
//
// Promise: A task that kills its process takes no other task down with it. It is dead after `MaxTries` of its
// own.
func TestATaskThatKillsItsProcessTakesNoOtherAlong(t *testing.T) {
	redistest.LeftToCI(t)
	for _, c := range []struct{ processes, poisons, others int }{{1, 1, 9}, {4, 1, 39}, {2, 6, 34}} {
		t.Run(fmt.Sprintf("%d processes, %d poisons", c.processes, c.poisons), func(t *testing.T) {
			t.Parallel()
			b := redistest.Single(t)
			q := delay.New(guardtest.NewEngine(b), "tasks", mortalOptions)
			at := time.Now().Add(-time.Minute)
			all := c.poisons + c.others
			for i := range all {
				kind := "task"
				if i%(all/c.poisons) == 4 {
					kind = "poison"
				}
				schedule(t, q, fmt.Sprintf("%s %d", kind, i), at.Add(time.Duration(i)*time.Millisecond))
			}
			var died atomic.Int64
			begun := time.Now()
			for range c.processes {
				crashLoop(t, b, &died)
			}
			var counts delay.Counts
			done := time.Duration(0)
			redistest.Eventually(t, 5*time.Minute, func() bool {
				counts, _ = q.Counts(t.Context())
				if done == 0 && ended(t, q, all) == c.others {
					done = time.Since(begun)
				}
				return counts.Pending == 0 && counts.Running == 0
			}, "the queue is not empty")
			over := time.Since(begun)
			if counts.Dead != int64(c.poisons) {
				t.Errorf("%d tasks are dead, want %d", counts.Dead, c.poisons)
			}
			dead, err := q.Peek(t.Context(), delay.Dead, 100)
			wantErr(t, err, nil)
			for _, s := range dead {
				if !strings.HasPrefix(s.ID, "poison") || s.Try != mortalOptions.MaxTries ||
					s.Reason != "the lease was over" {
					t.Errorf("dead: %+v", s)
				}
			}
			t.Logf("%d tasks were done after %v, the poison was dead after %v, %d processes died", c.others,
				done.Round(time.Millisecond), over.Round(time.Millisecond), died.Load())
		})
	}
}

// ended counts the tasks that are done.
func ended(t *testing.T, q *delay.Queue, all int) (n int) {
	t.Helper()
	for i := range all {
		if s, err := q.Find(t.Context(), fmt.Sprintf("task %d", i)); err == nil && s.State == delay.Done {
			n++
		}
	}
	return n
}
