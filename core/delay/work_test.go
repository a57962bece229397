package delay_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// working runs Work until the test, or stop, ends it. Stop returns its error.
func working(
	t *testing.T, q *delay.Queue, o delay.WorkOptions, handler func(ctx context.Context, task delay.Task) error,
) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- delay.Work(ctx, q, handler, o) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func soon(int) time.Duration { return time.Millisecond }

// eventually wants a task to get into a state.
func eventually(t *testing.T, q *delay.Queue, id string, want delay.State) delay.Status {
	t.Helper()
	var s delay.Status
	redistest.Eventually(t, 20*time.Second, func() bool {
		var err error
		s, err = q.Find(t.Context(), id)
		return err == nil && s.State == want
	}, fmt.Sprintf("%s is not %s", id, want))
	return s
}

func TestWorkRunsTasksAndKeepsTheirResults(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		events := &guardtest.Recorder{}
		q := delay.New(guardtest.NewEngine(b, core.WithObserver(events)), "tasks",
			delay.Options{MaxTries: 3, Spread: 3})
		var tries sync.Map
		stop := working(t, q, delay.WorkOptions{Concurrency: 3, Backoff: soon},
			func(ctx context.Context, task delay.Task) error {
				tries.Store(task.ID, task.Try)
				switch task.ID {
				case "fails":
					return errors.New("no paper")
				case "dies":
					return fmt.Errorf("wrapped: %w", delay.SkipRetry(errors.New("no printer")))
				case "panics":
					panic("out of ink")
				case "exits":
					runtime.Goexit()
				}
				return delay.Result(ctx, []byte("result of "+task.ID))
			})
		for _, id := range []string{"fails", "dies", "panics", "exits", "works"} {
			schedule(t, q, id, time.Now().Add(5*time.Millisecond))
		}
		if s := eventually(t, q, "works", delay.Done); string(s.Result) != "result of works" {
			t.Errorf("%+v", s)
		}
		for id, want := range map[string]string{"fails": "no paper", "dies": "wrapped: no printer",
			"panics": "the handler panicked: out of ink", "exits": "the handler ended its goroutine"} {
			s, n := eventually(t, q, id, delay.Dead), 3
			if id == "dies" {
				n = 1
			}
			if last, _ := tries.Load(id); s.Reason != want || s.Try != n || last != n {
				t.Errorf("%+v: want %d tries, %q", s, n, want)
			}
		}
		wantErr(t, stop(), nil)
		ops := map[string]int{}
		for _, e := range events.Events {
			ops[e.Op] += int(max(e.Decision.Attempt.Cost, 1))
		}
		for op, n := range map[string]int{"schedule": 5, "ack": 1, "nack": 10, "dead": 4, "panic": 3} {
			if ops[op] != n {
				t.Errorf("%d events %q, want %d", ops[op], op, n)
			}
		}
	})
}

// TestWorkRenewsLeases of tasks that take longer than one.
func TestWorkRenewsLeases(t *testing.T) {
	t.Parallel()
	b, clock := redistest.Single(t), guardtest.NewClock()
	options := delay.Options{Lease: 3 * time.Second} // for the worker real: a busy machine may be late by two
	q := delay.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "tasks", options)
	other := delay.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "tasks", options)
	leave := make(chan struct{})
	stop := working(t, q, delay.WorkOptions{}, func(ctx context.Context, _ delay.Task) error {
		select {
		case <-leave:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	schedule(t, q, "long", time.Time{})
	eventually(t, q, "long", delay.Running)
	for range 3 { // twice the lease in all
		clock.Advance(options.Lease * 2 / 3)
		redistest.Eventually(t, 20*time.Second, func() bool {
			claim(t, other, 1)
			ends := wantStatus(t, q, "long", delay.Running, 1, "").Ends
			return ends.Equal(clock.Now().Add(options.Lease))
		}, "the lease is not renewed")
	}
	close(leave)
	eventually(t, q, "long", delay.Done)
	wantErr(t, stop(), nil)
}

// TestAHandlerWhoseLeaseIsLostIsTold: when a renewal finds it lost, and when Redis stands still.
//
// Promise: A worker renews leases, and ends the context of a handler whose lease is lost. It recovers panics.
func TestAHandlerWhoseLeaseIsLostIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	q, calm := hasty(t, server, delay.Options{Lease: 2 * time.Second})
	begun, causes := make(chan delay.Task, 1), make(chan error, 1)
	working(t, q, delay.WorkOptions{Backoff: soon}, func(ctx context.Context, task delay.Task) error {
		if task.ID == "last" || task.Try > 1 || task.Suspect { // a suspect's try before did not count
			return nil
		}
		begun <- task
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	})
	schedule(t, calm, "acked", time.Time{})
	wantErr(t, calm.Ack(t.Context(), <-begun, nil), nil) // by somebody else
	wantErr(t, <-causes, delay.ErrLost)

	schedule(t, calm, "paused", time.Time{})
	task := <-begun
	server.Pause()
	wantErr(t, <-causes, delay.ErrLost)
	if time.Now().Before(task.Deadline) {
		t.Error("the lease was not over")
	}
	server.Resume()
	schedule(t, calm, "last", time.Time{})
	eventually(t, calm, "last", delay.Done)
}

// hasty returns a queue whose calls end soon when Redis is silent, for a worker, and the same queue with
// patience, for the test.
func hasty(t *testing.T, server *redistest.Server, o delay.Options) (q, calm *delay.Queue) {
	t.Helper()
	made := func(deadline time.Duration) *delay.Queue {
		return delay.New(core.New(server.Client(t), core.WithDeadline(deadline),
			core.WithObserver(guardtest.Ignore{})), "tasks", o)
	}
	return made(50 * time.Millisecond), made(10 * time.Second)
}

// TestWorkStopsGracefully: it claims no more, lets handlers end, and gives back what it cannot wait for.
//
// Promise: A worker that stops claims no more, waits for its handlers, and gives back tasks that it stopped.
// They cost no try.
func TestWorkStopsGracefully(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		q := delay.New(guardtest.NewEngine(b), "tasks", delay.Options{})
		begun, leave := make(chan string, 3), make(chan struct{})
		var stopped atomic.Int64
		stop := working(t, q, delay.WorkOptions{Stop: 50 * time.Millisecond, Concurrency: 3},
			func(ctx context.Context, task delay.Task) error {
				begun <- task.ID
				switch task.ID {
				case "stubborn":
					<-leave
				case "obeys":
					<-ctx.Done()
					if errors.Is(context.Cause(ctx), delay.ErrStopped) {
						stopped.Add(1)
					}
					return ctx.Err()
				}
				return nil
			})
		for _, id := range []string{"obeys", "quick", "stubborn"} {
			schedule(t, q, id, time.Time{})
		}
		for range 3 {
			<-begun
		}
		if err := stop(); err == nil || !strings.Contains(err.Error(), "1 handlers") {
			t.Errorf("%v: want one handler that has not returned", err)
		}
		wantStatus(t, q, "quick", delay.Done, 1, "")
		s := wantStatus(t, q, "obeys", delay.Pending, 0, "context canceled")
		if stopped.Load() != 1 || s.At.After(time.Now()) {
			t.Errorf("%+v, stopped %d: want it due again at once", s, stopped.Load())
		}
		schedule(t, q, "later", time.Time{})
		wantStatus(t, q, "stubborn", delay.Running, 1, "")
		close(leave)
		eventually(t, q, "stubborn", delay.Done) // its handler told the queue
		wantStatus(t, q, "later", delay.Pending, 0, "")
	})
}

// TestWorkTellsLater what became of a task, when Redis is back before the lease is over.
func TestWorkTellsLater(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	q, calm := hasty(t, server, delay.Options{Lease: time.Minute})
	runs, begun, leave := atomic.Int64{}, make(chan struct{}), make(chan struct{})
	working(t, q, delay.WorkOptions{}, func(context.Context, delay.Task) error {
		runs.Add(1)
		close(begun)
		<-leave
		return nil
	})
	schedule(t, calm, "a", time.Time{})
	<-begun
	server.Pause()
	close(leave)
	redistest.Eventually(t, 20*time.Second, func() bool {
		_, err := q.Find(t.Context(), "a")
		return err != nil
	}, "Redis answers")
	server.Resume()
	eventually(t, calm, "a", delay.Done)
	if runs.Load() != 1 {
		t.Errorf("it ran %d times", runs.Load())
	}
}

// TestWorkAsksWhenTheNextTaskIsDue, although its polls are rare.
func TestWorkAsksWhenTheNextTaskIsDue(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	q := delay.New(guardtest.NewEngine(b), "tasks", delay.Options{})
	at := time.Now().Add(300 * time.Millisecond)
	schedule(t, q, "a", at)
	ran := make(chan time.Time, 1)
	working(t, q, delay.WorkOptions{Poll: time.Hour}, func(context.Context, delay.Task) error {
		ran <- time.Now()
		return nil
	})
	redistest.Eventually(t, 20*time.Second, func() bool { return len(ran) == 1 }, "the task did not run")
	when := <-ran
	if when.Before(at) {
		t.Error("it ran early")
	}
	t.Logf("%v late", when.Sub(at))
}

func TestWorkWithWrongOptions(t *testing.T) {
	q := delay.New(guardtest.NewEngine(redistest.Mini(t)), "tasks", delay.Options{MaxPayload: 3})
	nothing := func(context.Context, delay.Task) error { return nil }
	wantErr(t, delay.Work(t.Context(), q, nil, delay.WorkOptions{}), core.ErrInvalid)
	for _, o := range []delay.WorkOptions{
		{Concurrency: -1}, {Concurrency: delay.MaxClaim + 1}, {Poll: time.Millisecond}, {Poll: 2 * time.Hour},
		{Lease: time.Millisecond},
	} {
		wantErr(t, delay.Work(t.Context(), q, nothing, o), core.ErrInvalid)
	}
	wantErr(t, delay.Result(t.Context(), nil), core.ErrInvalid)
	results := make(chan error, 1)
	working(t, q, delay.WorkOptions{}, func(ctx context.Context, _ delay.Task) error {
		results <- delay.Result(ctx, []byte("1234"))
		return nil
	})
	if _, err := q.Schedule(t.Context(), "a", time.Time{}, nil); err != nil {
		t.Fatal(err)
	}
	wantErr(t, <-results, core.ErrInvalid)
}
