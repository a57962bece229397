package delay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

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
	redistest.Eventually(t, time.Minute, func() bool {
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

// still is a hook of a client whose Redis can stand still: calls wait until it goes on.
type still struct {
	mu sync.Mutex
	on chan struct{} // closed when it goes on
}

// stand lets Redis stand still until it is told to go on.
func (s *still) stand() (goOn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = make(chan struct{})
	return sync.OnceFunc(func() { close(s.on) })
}

func (s *still) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *still) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.mu.Lock()
		on := s.on
		s.mu.Unlock()
		if on != nil {
			select {
			case <-on:
			case <-ctx.Done():
				cmd.SetErr(ctx.Err())
				return ctx.Err()
			}
		}
		return next(ctx, cmd)
	}
}

func (s *still) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// bubble runs a test in the fake time of testing/synctest: with a queue for a worker, whose Redis can stand
// still, and the same queue for the test.
func bubble(
	t *testing.T, o delay.Options, f func(t *testing.T, q, calm *delay.Queue, redis *still), more ...core.Option,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		defer m.Close()
		made := func(hook ...redis.Hook) *delay.Queue {
			rdb := redis.NewClient(&redis.Options{Addr: "redis", DisableIdentity: true, ContextTimeoutEnabled: true,
				Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
			for _, h := range hook {
				rdb.AddHook(h)
			}
			gate := core.New(rdb, append([]core.Option{core.WithClock(time.Now), core.WithObserver(guardtest.Ignore{}),
				core.WithLogger(slog.New(slog.DiscardHandler))}, more...)...)
			t.Cleanup(func() {
				wantErr(t, gate.Drain(context.Background()), nil)
				wantErr(t, rdb.Close(), nil)
			})
			return delay.New(gate, "tasks", o)
		}
		server := &still{}
		f(t, made(server), made(), server)
	})
}

// TestWorkRenewsLeases of tasks that take longer than one.
func TestWorkRenewsLeases(t *testing.T) {
	bubble(t, delay.Options{}, func(t *testing.T, q, calm *delay.Queue, _ *still) {
		stop := working(t, q, delay.WorkOptions{}, func(ctx context.Context, _ delay.Task) error {
			select {
			case <-time.After(time.Minute): // twice the lease
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		schedule(t, calm, "long", time.Time{})
		for range 11 {
			<-time.After(5 * time.Second)
			claim(t, calm, 1)
			wantStatus(t, calm, "long", delay.Running, 1, "")
		}
		<-time.After(10 * time.Second)
		wantStatus(t, calm, "long", delay.Done, 1, "")
		wantErr(t, stop(), nil)
	})
}

// TestAHandlerWhoseLeaseIsLostIsTold: when a renewal finds it lost, and when Redis stands still.
//
// Promise: A worker renews leases, and ends the context of a handler whose lease is lost. It recovers panics.
func TestAHandlerWhoseLeaseIsLostIsTold(t *testing.T) {
	bubble(t, delay.Options{}, func(t *testing.T, q, calm *delay.Queue, redis *still) {
		begun, causes := make(chan delay.Task, 1), make(chan error, 1)
		working(t, q, delay.WorkOptions{}, func(ctx context.Context, task delay.Task) error {
			if task.ID == "last" || task.Suspect { // a suspect's try before did not count
				return nil
			}
			begun <- task
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		schedule(t, calm, "acked", time.Time{})
		task := <-begun
		wantErr(t, calm.Ack(t.Context(), task, nil), nil) // by somebody else
		wantErr(t, <-causes, delay.ErrLost)
		if !time.Now().Before(task.Deadline) {
			t.Error("the lease was over")
		}

		schedule(t, calm, "paused", time.Time{})
		task = <-begun
		goOn := redis.stand()
		wantErr(t, <-causes, delay.ErrLost)
		if late := time.Since(task.Deadline); late < 0 || late > 10*time.Second { // it may have been renewed once
			t.Errorf("told %v after the end of the lease", late)
		}
		goOn()
		schedule(t, calm, "last", time.Time{})
		eventually(t, calm, "last", delay.Done)
	})
}

// TestWorkStopsGracefully: it claims no more, lets handlers end, and gives back what it cannot wait for.
//
// Promise: A worker that stops claims no more, waits for its handlers, and gives back tasks that it stopped.
// They cost no try.
func TestWorkStopsGracefully(t *testing.T) {
	bubble(t, delay.Options{}, func(t *testing.T, q, calm *delay.Queue, _ *still) {
		begun, leave := make(chan string, 3), make(chan struct{})
		var stopped atomic.Int64
		stop := working(t, q, delay.WorkOptions{Stop: time.Minute, Concurrency: 3},
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
				case "quick":
					<-time.After(59 * time.Second)
				}
				return nil
			})
		for _, id := range []string{"obeys", "quick", "stubborn"} {
			schedule(t, calm, id, time.Time{})
		}
		for range 3 {
			<-begun
		}
		if err := stop(); err == nil || !strings.Contains(err.Error(), "1 handlers") {
			t.Errorf("%v: want one handler that has not returned", err)
		}
		wantStatus(t, calm, "quick", delay.Done, 1, "")
		s := wantStatus(t, calm, "obeys", delay.Pending, 0, "context canceled")
		if stopped.Load() != 1 || s.At.After(time.Now()) {
			t.Errorf("%+v, stopped %d: want it due again at once", s, stopped.Load())
		}
		schedule(t, calm, "later", time.Time{})
		wantStatus(t, calm, "stubborn", delay.Running, 1, "")
		close(leave)
		eventually(t, calm, "stubborn", delay.Done) // its handler told the queue
		wantStatus(t, calm, "later", delay.Pending, 0, "")
	})
}

// TestWorkTellsLater what became of a task, when Redis is back before the lease is over.
func TestWorkTellsLater(t *testing.T) {
	bubble(t, delay.Options{}, func(t *testing.T, q, calm *delay.Queue, redis *still) {
		runs, begun, leave := atomic.Int64{}, make(chan struct{}), make(chan struct{})
		working(t, q, delay.WorkOptions{}, func(context.Context, delay.Task) error {
			runs.Add(1)
			close(begun)
			<-leave
			return nil
		})
		schedule(t, calm, "a", time.Time{})
		<-begun
		goOn := redis.stand()
		close(leave)
		<-time.After(20 * time.Second)
		wantStatus(t, calm, "a", delay.Running, 1, "")
		goOn()
		eventually(t, calm, "a", delay.Done)
		if runs.Load() != 1 {
			t.Errorf("it ran %d times", runs.Load())
		}
	})
}

// TestWorkAsksWhenTheNextTaskIsDue, although its polls are rare.
func TestWorkAsksWhenTheNextTaskIsDue(t *testing.T) {
	bubble(t, delay.Options{}, func(t *testing.T, q, calm *delay.Queue, _ *still) {
		at := time.Now().Add(time.Minute)
		schedule(t, calm, "a", at)
		ran := make(chan time.Time, 1)
		working(t, q, delay.WorkOptions{Poll: time.Hour}, func(context.Context, delay.Task) error {
			ran <- time.Now()
			return nil
		})
		if late := (<-ran).Sub(at); late < 0 || late > 2*time.Millisecond {
			t.Errorf("it ran %v late", late)
		}
	})
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
