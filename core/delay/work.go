package delay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// ErrStopped is the cause with which the context of a handler ends when [Work] has stopped waiting for it.
var ErrStopped = errors.New("delay: the worker stops")

// WorkOptions configure [Work]. The zero value is valid.
type WorkOptions struct {
	// Concurrency is how many handlers run at a time, 1 to [MaxClaim]. The default is 10. No task is claimed
	// before there is a handler for it.
	Concurrency int
	// Lease is the lease of the tasks, as [Queue.Claim] takes it. It is renewed three times in its length. The
	// default is the queue's lease.
	Lease time.Duration
	// Poll is the longest pause between two claims while no task is due, 10 ms to an hour. The default is one
	// second. A worker claims a task that it knows when the task is due. Poll is for tasks that are scheduled
	// meanwhile.
	Poll time.Duration
	// Backoff returns how long a task waits that has failed in its try, from 1 on. The default has full jitter:
	// a random time up to a second, which doubles with each try up to an hour. It is called from many
	// goroutines.
	Backoff func(try int) time.Duration
	// Stop is how long Work waits for running handlers when its context has ended. The default is 30 s. Below
	// zero it does not wait.
	Stop time.Duration
}

const (
	pollFirst  = 10 * time.Millisecond
	backoffMax = time.Hour
	tellFirst  = 50 * time.Millisecond
	tellMax    = 2 * time.Second
	stopGrace  = time.Second
)

// check fills in the defaults.
func (o *WorkOptions) check(q *Queue) (err error) {
	if o.Concurrency == 0 {
		o.Concurrency = 10
	}
	if o.Poll == 0 {
		o.Poll = time.Second
	}
	if o.Backoff == nil {
		o.Backoff = fullJitter
	}
	if o.Stop == 0 {
		o.Stop = 30 * time.Second
	}
	switch {
	case o.Concurrency < 1 || o.Concurrency > MaxClaim:
		return fmt.Errorf("%w: Concurrency is %d: set 1 to %d", core.ErrInvalid, o.Concurrency, MaxClaim)
	case o.Poll < pollFirst || o.Poll > time.Hour:
		return fmt.Errorf("%w: Poll is %v: set %v to an hour", core.ErrInvalid, o.Poll, pollFirst)
	}
	o.Lease, err = q.leaseOf(o.Lease)
	return err
}

// fullJitter is the default of WorkOptions.Backoff.
func fullJitter(try int) time.Duration {
	most := min(time.Second<<min(max(try-1, 0), 12), backoffMax)
	return time.Duration(rand.Int64N(int64(most)) + 1)
}

// Work claims tasks and runs the handler for each, until ctx ends. A handler that returns nil has done its
// task. See [Result] for a result. After an error, a panic and runtime.Goexit the task is tried again
// later, or is dead: at once after an error that [SkipRetry] made, else when it has had Options.MaxTries
// tries. After an error that [Later] made it waits, and the try does not count. A panic is logged and
// reported to the observer as Op panic, and the process goes on.
//
// The context of a handler has the values of ctx. It ends with the cause [ErrLost] when the lease of its
// task is lost: then somebody else may run the task. Leases are renewed by one call for up to 500 tasks of
// a slot. While Redis is away, the end of a task is reported again and again until its lease is over.
//
// Tasks with Suspect set (see [Queue]) run while no call of Work on the engine runs other tasks. Suspects
// and other tasks take turns. To that end the workers of the engine claim nothing while running tasks end,
// and while the suspects run: each for the length of a lease at most. After that other tasks may run beside
// the suspects, but no further suspects.
//
// When ctx ends, Work claims no more tasks, and waits for the running handlers up to WorkOptions.Stop. Then
// their contexts end with the cause [ErrStopped], and it waits a second more. A task whose handler then
// returns an error goes back at once, and the try does not count. Work returns nil, or an error that says
// how many handlers still run. Their tasks are delivered again when their leases are over.
//
// Errors of options are core.ErrInvalid. Several calls of Work, in one process or in many, share the tasks of
// a queue.
func Work(
	ctx context.Context, q *Queue, handler func(ctx context.Context, t Task) error, o WorkOptions,
) error {
	if handler == nil {
		return fmt.Errorf("%w: delay: Work needs a handler", core.ErrInvalid)
	}
	if err := o.check(q); err != nil {
		return err
	}
	w := &worker{q: q, handler: handler, options: o, runs: map[*run]struct{}{}, crew: join(q.Engine())}
	defer w.crew.leave()
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		w.beat(beating)
	}()
	w.claimAll(ctx)
	err := w.stop()
	stopBeating()
	<-beats
	return err
}

// worker is one call of Work.
type worker struct {
	q       *Queue
	handler func(ctx context.Context, t Task) error
	options WorkOptions
	crew    *crew
	runs    map[*run]struct{} // under the lock of the crew
}

// run is one run of the handler.
type run struct {
	q      *Queue
	task   Task
	slot   int
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc
	lost   context.Context // ends when the lease is lost
	lose   context.CancelCauseFunc
	expiry *time.Timer // when the lease is over by the clock of the process

	mu     sync.Mutex
	result []byte
}

type runKey struct{}

// Result sets the result of the task whose handler has this context, in place of an earlier one. It is kept
// when the handler returns nil: see [Queue.Ack]. It returns a core.ErrInvalid for a result that is too long,
// and for a context that is not a handler's.
func Result(ctx context.Context, result []byte) error {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		return fmt.Errorf("%w: delay: Result needs the context of a handler", core.ErrInvalid)
	}
	if err := r.q.checkSize("result", result); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result = slices.Clone(result)
	return nil
}

// SkipRetry returns an error for a handler to return: its task is dead at once, with the text of err as its
// reason. It wraps err.
func SkipRetry(err error) error { return &deadError{err} }

type deadError struct{ error }

func (e *deadError) Unwrap() error { return e.error }

// Later returns an error for a handler to return whose task cannot run yet: it is due again when the time has
// passed, and the try does not count. It wraps err.
func Later(err error, in time.Duration) error { return &laterError{err, in} }

type laterError struct {
	error
	in time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// claimAll claims tasks and starts their handlers until the context ends. Suspects take turns with other
// tasks, which begin. So a process that dies of each suspect gets something done.
func (w *worker) claimAll(ctx context.Context) {
	idle := pollFirst
	for {
		free := w.room(ctx)
		if free == 0 {
			return
		}
		// A claim under way ends, so that its tasks do not wait for their leases to end.
		got, err := w.q.claim(context.WithoutCancel(ctx), free, w.options.Lease, false)
		for _, t := range got.tasks {
			w.start(ctx, t)
		}
		w.crew.change(func() { w.crew.busy-- })
		suspect := got.slot >= 0 && w.runApart(ctx, got.slot)
		if len(got.tasks) > 0 || suspect {
			idle = pollFirst
		}
		if len(got.tasks) > 0 && got.next == 0 || suspect {
			continue
		}
		pause := idle/2 + rand.N(idle/2+1)
		if err == nil && got.next >= 0 {
			pause = min(pause, max(got.next, time.Millisecond))
		}
		idle = min(2*idle, w.options.Poll)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// room waits until other handlers can run, and returns how many: 0 when the context has ended. The claim that
// follows makes the crew busy.
func (w *worker) room(ctx context.Context) (free int) {
	w.crew.await(ctx, nil, func() bool {
		if ctx.Err() != nil || w.crew.alone != nil {
			return false
		}
		if free = w.options.Concurrency - len(w.runs); free > 0 {
			w.crew.busy++
		}
		return free > 0
	})
	return free
}

// start runs the handler for a task.
func (w *worker) start(ctx context.Context, t Task) {
	r := &run{q: w.q, task: t, slot: w.q.slotOf(t.ID)}
	values := context.WithValue(context.WithoutCancel(ctx), runKey{}, r)
	r.lost, r.lose = context.WithCancelCause(values)
	r.ctx, r.cancel = context.WithCancelCause(r.lost)
	r.expiry = time.AfterFunc(t.Deadline.Sub(w.q.Engine().Now()), func() { r.lose(ErrLost) })
	w.crew.change(func() {
		w.runs[r] = struct{}{}
		w.crew.busy++
		if t.Suspect {
			w.crew.apart++
		}
	})
	go w.run(r)
}

// end ends a run.
func (w *worker) end(r *run) {
	r.expiry.Stop()
	r.cancel(nil)
	r.lose(nil)
	w.crew.change(func() {
		delete(w.runs, r)
		w.crew.busy--
		if r.task.Suspect {
			w.crew.apart--
		}
	})
}

var errExited = errors.New("the handler ended its goroutine")

func (w *worker) run(r *run) {
	err := errExited // by runtime.Goexit, unless the handler returns or panics
	defer func() {
		if value := recover(); value != nil {
			err = w.panicked(r, value)
		}
		w.finish(r, err)
	}()
	err = w.handler(r.ctx, r.task)
}

// panics says which panics are logged, by the queue.
var panics warn.Sample[string]

// panicked reports a panic of the handler.
func (w *worker) panicked(r *run, value any) error {
	err := fmt.Errorf("the handler panicked: %v", value)
	if skipped, ok := panics.Due(w.q.Name()); ok {
		w.q.Logger().Error("gatehouse: the handler of a task panicked", "queue", w.q.Name(), "task", r.task.ID,
			"panic", value, "stack", string(debug.Stack()), "panics_not_logged", skipped)
	}
	ctx := context.WithoutCancel(r.ctx)
	_ = w.q.Call(ctx, "panic", about(r.task.ID), func() error { return err }) // the observer has it
	return err
}

// finish ends a run. It tells the queue how the handler has ended, also if Backoff or the text of an error
// panics or ends the goroutine.
func (w *worker) finish(r *run, ended error) {
	defer w.end(r)
	f := failed{in: fullJitter(r.task.Try), tries: w.q.options.MaxTries, reason: "the error has no text"}
	defer func() { w.tellAll(r, ended == nil, f) }()
	if ended != nil {
		w.judge(r, ended, &f)
	}
}

// judge says what becomes of a task whose handler has failed.
func (w *worker) judge(r *run, ended error, f *failed) {
	defer func() {
		if value := recover(); value != nil {
			_ = w.panicked(r, value) // reported; the task waits as without a Backoff
		}
	}()
	f.reason = fmt.Sprint(ended) // also of an error that panics, as one that is a nil pointer
	var later *laterError
	switch {
	case errors.As(ended, new(*deadError)):
		f.tries = 0
	case errors.As(ended, &later):
		f.in, f.unused = max(later.in, time.Millisecond), true
		return
	case errors.Is(context.Cause(r.ctx), ErrStopped):
		f.in, f.unused = 0, true
		return
	}
	f.in = w.options.Backoff(r.task.Try)
}

// tellAll tells the queue how a run has ended, until Redis has answered or the lease is over.
func (w *worker) tellAll(r *run, done bool, f failed) {
	ctx := context.WithoutCancel(r.ctx)
	for pause := tellFirst; ; pause = min(2*pause, tellMax) {
		over := r.lost.Err() != nil
		err := w.tell(ctx, r, done, f)
		if err == nil || over || errors.Is(err, ErrLost) || errors.Is(err, core.ErrInvalid) {
			return // observed
		}
		select {
		case <-time.After(pause):
		case <-r.lost.Done(): // once more
		}
	}
}

func (w *worker) tell(ctx context.Context, r *run, done bool, f failed) error {
	if !done {
		return w.q.nack(ctx, r.task, f)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return w.q.Ack(ctx, r.task, r.result)
}

// beat renews the leases of the running tasks until the context ends: a third of the lease after the last
// time, and sooner after a failure.
func (w *worker) beat(ctx context.Context) {
	pause := w.options.Lease / 3
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = w.options.Lease / 3
		bySlot := map[int][]*run{}
		w.crew.mu.Lock()
		for r := range w.runs {
			bySlot[r.slot] = append(bySlot[r.slot], r)
		}
		w.crew.mu.Unlock()
		var all sync.WaitGroup
		failed := make(chan struct{}, len(bySlot))
		for _, runs := range bySlot { // a server that is silent does not hold up others
			all.Go(func() {
				for some := range slices.Chunk(runs, chunk) {
					if !w.renew(ctx, some) {
						failed <- struct{}{}
						return
					}
				}
			})
		}
		all.Wait()
		if len(failed) > 0 {
			pause = w.options.Lease / 10
		}
	}
}

// renew renews the leases of runs of one slot, and reports whether Redis has answered.
func (w *worker) renew(ctx context.Context, runs []*run) bool {
	tasks := make([]Task, len(runs))
	for i, r := range runs {
		tasks[i] = r.task
	}
	sent := time.Now()
	lost, err := w.q.extend(ctx, runs[0].slot, w.options.Lease, tasks)
	if err != nil {
		return false // observed; expired leases end by their timers
	}
	for i, r := range runs {
		if slices.Contains(lost, i) {
			r.lose(ErrLost)
		} else {
			r.expiry.Reset(schedule.Sure(w.options.Lease) - time.Since(sent))
		}
	}
	return true
}

// stop waits for the handlers.
func (w *worker) stop() error {
	if w.wait(w.options.Stop) == 0 {
		return nil
	}
	w.crew.mu.Lock()
	for r := range w.runs {
		r.cancel(ErrStopped)
	}
	w.crew.mu.Unlock()
	if n := w.wait(stopGrace); n > 0 {
		return fmt.Errorf("delay: %d handlers of the queue %q have not returned", n, w.q.Name())
	}
	return nil
}

// wait waits until no handler runs, or for a time. It returns how many run.
func (w *worker) wait(most time.Duration) (n int) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	w.crew.await(context.Background(), timer.C, func() bool {
		n = len(w.runs)
		return n == 0
	})
	return n
}
