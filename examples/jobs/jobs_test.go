package jobs_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/examples/jobs"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// workers are a server of asynq with a Redis of its own, since its keys have no prefix.
type workers struct {
	t         *testing.T
	redis     *redistest.Server
	client    *asynq.Client
	inspector *asynq.Inspector
}

func newWorkers(t *testing.T) *workers {
	w := &workers{t: t, redis: redistest.StartServer(t)}
	w.client, w.inspector = asynq.NewClient(w.options()), asynq.NewInspector(w.options())
	t.Cleanup(func() { _ = w.client.Close(); _ = w.inspector.Close() })
	return w
}

func (w *workers) options() asynq.RedisClientOpt { return asynq.RedisClientOpt{Addr: w.redis.Addr()} }

// gate returns an engine on the same Redis.
func (w *workers) gate() *core.Engine {
	return core.New(w.redis.Client(w.t), core.WithDeadline(time.Minute))
}

// start runs the handler behind the rules, for the queues low and high.
func (w *workers) start(handle asynq.HandlerFunc, rules ...jobs.Rule) {
	w.t.Helper()
	mux := asynq.NewServeMux()
	for _, rule := range rules {
		mux.Use(jobs.Guarded(rule))
	}
	mux.HandleFunc("export", handle)
	server := asynq.NewServer(w.options(), jobs.PutBack(asynq.Config{
		Concurrency: 8, Queues: map[string]int{"low": 1, "high": 2}, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond },
	}))
	if err := server.Start(mux); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(server.Shutdown)
}

func (w *workers) enqueue(tenant, queue string, retries int) *asynq.TaskInfo {
	w.t.Helper()
	task := asynq.NewTaskWithHeaders("export", nil, map[string]string{"tenant": tenant})
	info, err := w.client.Enqueue(task, asynq.Queue(queue), asynq.MaxRetry(retries), asynq.Retention(time.Hour))
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// await waits until the job is in a state.
func (w *workers) await(job *asynq.TaskInfo, want asynq.TaskState) *asynq.TaskInfo {
	w.t.Helper()
	var info *asynq.TaskInfo
	redistest.Eventually(w.t, time.Minute, func() bool {
		var err error
		if info, err = w.inspector.GetTaskInfo(job.Queue, job.ID); err != nil {
			w.t.Fatal(err)
		}
		return info.State == want
	}, "the job to be "+want.String())
	return info
}

var (
	tenant = jobs.Header("tenant")
	nop    = func(context.Context, *asynq.Task) error { return nil }
)

func TestAJobOverItsTenantsLimitIsPutBack(t *testing.T) {
	w := newWorkers(t)
	w.start(nop, jobs.Rule{Guard: limit.NewSlidingWindow(w.gate(), "exports", limit.PerHour(2)), Who: tenant})
	for range 2 {
		w.await(w.enqueue("ann", "low", 5), asynq.TaskStateCompleted)
	}
	back := w.await(w.enqueue("ann", "low", 5), asynq.TaskStateRetry)
	wait := time.Until(back.NextProcessAt)
	if wait < 59*time.Minute || wait > time.Hour || !strings.Contains(back.LastErr, "limited") {
		t.Errorf("it runs in %v, %q: want that it runs when the limit has room", wait, back.LastErr)
	}
	if back.Retried != 0 {
		t.Errorf("%d retries: want that a wait is none", back.Retried)
	}
	w.await(w.enqueue("bob", "low", 5), asynq.TaskStateCompleted)
	queue, err := w.inspector.GetQueueInfo("low")
	if err != nil || queue.Failed != 0 {
		t.Errorf("%+v, %v: want that no job has failed", queue, err)
	}
}

func TestAJobThatWasPutBackRuns(t *testing.T) {
	w := newWorkers(t)
	window, begun := 2*time.Second, time.Now()
	runs := make(chan time.Time, 2)
	w.start(func(context.Context, *asynq.Task) error { runs <- time.Now(); return nil },
		jobs.Rule{Guard: limit.NewSlidingWindow(w.gate(), "exports", limit.Per(1, window)), Who: tenant})
	first, second := w.enqueue("ann", "low", 1), w.enqueue("ann", "high", 1)
	for _, job := range []*asynq.TaskInfo{first, second} {
		if info := w.await(job, asynq.TaskStateCompleted); info.Retried != 0 {
			t.Errorf("%d retries: want that a wait is none", info.Retried)
		}
	}
	<-runs // its unit was taken after it begun, and before it ran
	if after := (<-runs).Sub(begun); after < window {
		t.Errorf("the second job of a tenant ran after %v: want %v", after, window)
	}
}

func TestAQueueRunsOneJobAtATime(t *testing.T) {
	w := newWorkers(t)
	var running, most atomic.Int64
	met := make(chan bool)
	handle := func(ctx context.Context, _ *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		if queue == "high" {
			met <- true
			return nil
		}
		n := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); old < n && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		select {
		case <-met: // a job of the other queue runs beside it
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
	slots := semaphore.New(w.gate(), "slots", semaphore.Options{Max: 1, Lease: 3 * time.Second})
	w.start(handle, jobs.Rule{Guard: slots, Who: tenant, What: jobs.Queue})
	var all []*asynq.TaskInfo
	for range 3 {
		all = append(all, w.enqueue("ann", "low", 1), w.enqueue("ann", "high", 1))
	}
	for _, job := range all {
		w.await(job, asynq.TaskStateCompleted)
	}
	if most.Load() != 1 {
		t.Errorf("%d jobs of a queue ran side by side: want 1", most.Load())
	}
}

func TestAFailedJobGivesItsClaimBack(t *testing.T) {
	w := newWorkers(t)
	var runs atomic.Int64
	w.start(func(context.Context, *asynq.Task) error {
		switch runs.Add(1) {
		case 1:
			return errors.New("the disk is full")
		case 2:
			panic("of the job")
		}
		return nil
	}, jobs.Rule{Guard: votes.New(w.gate(), "polls", votes.Options{}), Who: tenant, What: jobs.Queue})
	done := w.await(w.enqueue("ann", "low", 5), asynq.TaskStateCompleted)
	if runs.Load() != 3 || done.Retried != 2 {
		t.Errorf("%d runs, %d retries: want 3 and 2", runs.Load(), done.Retried)
	}
	// Waiting does not help a second one, so it is not put back for ever.
	second := w.await(w.enqueue("ann", "low", 5), asynq.TaskStateArchived)
	if runs.Load() != 3 || second.Retried != 0 || !strings.Contains(second.LastErr, "duplicate") {
		t.Errorf("%d runs, %d retries, %q", runs.Load(), second.Retried, second.LastErr)
	}
	nobody := w.await(w.enqueue("", "low", 5), asynq.TaskStateArchived)
	if nobody.Retried != 0 || !strings.Contains(nobody.LastErr, "no header") {
		t.Errorf("%d retries, %q", nobody.Retried, nobody.LastErr)
	}
}

// TestAJobsOwnRefusal: a job that asks a guard itself is put back too, but not for ever where waiting does not
// help.
func TestAJobsOwnRefusal(t *testing.T) {
	w := newWorkers(t)
	gate := w.gate()
	guards := map[string]core.Guard{
		"low":  limit.NewSlidingWindow(gate, "exports", limit.PerHour(1)),
		"high": votes.New(gate, "polls", votes.Options{}),
	}
	w.start(func(ctx context.Context, _ *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		a := core.Attempt{Actor: "ann", Resource: "final"}
		return core.Do(ctx, guards[queue], a, func(context.Context) error { return nil })
	})
	w.await(w.enqueue("ann", "low", 1), asynq.TaskStateCompleted)
	back := w.await(w.enqueue("ann", "low", 1), asynq.TaskStateRetry)
	if wait := time.Until(back.NextProcessAt); wait < 59*time.Minute || back.Retried != 0 {
		t.Errorf("it runs in %v, after %d retries", wait, back.Retried)
	}
	w.await(w.enqueue("ann", "high", 1), asynq.TaskStateCompleted)
	if second := w.await(w.enqueue("ann", "high", 1), asynq.TaskStateArchived); second.Retried != 1 {
		t.Errorf("%d retries: want that the refusal is a failure", second.Retried)
	}
}

// TestARefusedJobWithoutARetryIsArchived: asynq cannot put it back, as PutBack says.
func TestARefusedJobWithoutARetryIsArchived(t *testing.T) {
	w := newWorkers(t)
	w.start(nop, jobs.Rule{Guard: limit.NewSlidingWindow(w.gate(), "exports", limit.PerHour(1)), Who: tenant})
	w.await(w.enqueue("ann", "low", 0), asynq.TaskStateCompleted)
	w.await(w.enqueue("ann", "low", 0), asynq.TaskStateArchived)
	w.await(w.enqueue("ann", "low", 1), asynq.TaskStateRetry)
}

func TestOutage(t *testing.T) {
	w := newWorkers(t)
	server := redistest.StartServer(t) // of the guards
	gate := core.New(server.Client(t), core.WithDeadline(time.Second), core.WithBreaker(5, 100*time.Millisecond))
	w.start(nop, jobs.Rule{Guard: semaphore.New(gate, "slots", semaphore.Options{Max: 9}), Who: tenant})
	server.Kill()
	job := w.enqueue("ann", "low", 1)
	redistest.Eventually(t, time.Minute, func() bool {
		info, err := w.inspector.GetTaskInfo(job.Queue, job.ID)
		return err == nil && strings.Contains(info.LastErr, "the guard cannot decide")
	}, "the job to be put back")
	server.Start()
	if done := w.await(job, asynq.TaskStateCompleted); done.Retried != 0 {
		t.Errorf("%d retries: want that an outage of the guard is none", done.Retried)
	}
}

// TestRulesAreAllOrNothing: a limit in front of one that refuses counts nothing.
func TestRulesAreAllOrNothing(t *testing.T) {
	who := func(context.Context, *asynq.Task) (string, error) { return "ann", nil }
	outer := limit.NewSlidingWindow(core.NewMemory(), "outer", limit.PerHour(9))
	inner := limit.NewSlidingWindow(core.NewMemory(), "inner", limit.PerHour(1))
	handle := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	chain := jobs.Guarded(jobs.Rule{Guard: inner, Who: who})(handle)
	chain = jobs.Guarded(jobs.Rule{Guard: outer, Who: who})(chain)
	for i := range 3 {
		err := chain.ProcessTask(t.Context(), asynq.NewTask("export", nil))
		if (i == 0) != (err == nil) {
			t.Errorf("job %d: %v", i, err)
		}
	}
	if d, err := outer.Peek(t.Context(), core.Attempt{Actor: "ann"}); err != nil || d.Remaining != 8 {
		t.Errorf("%d left of the outer limit, %v: want 8", d.Remaining, err)
	}
}
