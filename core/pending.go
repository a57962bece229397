package core

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/background"
)

// PendingMost is how many claims a process has under way or waiting to be settled at the same time. A claim takes its place before
// its guard is asked, so a long outage turns new claims away and forgets none of those that were made before. Rate limits take no
// place: they go on, and what of theirs cannot be given back is reported to the engine's observer.
const PendingMost = 65536

const (
	// triesAtOnce is how many attempts of one engine are tried again at the same time.
	triesAtOnce = 64
	// bodiesMost is how many bytes of answers wait to be kept. Beyond it an operation is kept as done, without its answer.
	bodiesMost = 64 << 20

	// A try that failed is repeated after pauseFirst, then after twice as long and so on, up to pauseLongest.
	pauseFirst   = 50 * time.Millisecond
	pauseLongest = 2 * time.Second
	// settleShortest and settleLongest are how long tries are repeated at least and at most: longer than a failover takes, and not
	// for hours what ends by itself.
	settleShortest = 30 * time.Second
	settleLongest  = 10 * time.Minute
)

// ErrTooManyPending is returned where a claim is refused because PendingMost attempts are under way or wait to be settled. Nothing
// was taken.
var ErrTooManyPending = errors.New("core: too many attempts wait to be settled")

// ErrUnsettled is wrapped by the error that an engine's observer hears when it was given up to tell a guard how an attempt ended, or
// to undo an attempt that may have been made.
var ErrUnsettled = errors.New("core: given up, an attempt is not settled")

// Place is room for one attempt whose end may have to be told to its guard later than now. Its methods may not be called at the same
// time. The zero value has no room yet.
//
// It is for adapters: take a place before Guard.Check, and call Settle, SettleLater or Free when the attempt has ended.
type Place struct{ taken bool }

// Take takes the place, or returns ErrTooManyPending. A place that is taken stays taken.
func (p *Place) Take() error {
	if !p.taken && !pending.take() {
		return ErrTooManyPending
	}
	p.taken = true
	return nil
}

// Free gives the place back. One that is not taken stays as it is.
func (p *Place) Free() {
	if p.taken {
		p.taken = false
		pending.places.Add(-1)
	}
}

// Settle tells the guard how an attempt ended, as Guard.Settle does, and frees the place. Where the guard could not be asked it is
// asked again in the background, as SettleLater describes.
func (p *Place) Settle(ctx context.Context, g Guard, d Decision, end Ending) {
	err := g.Settle(ctx, d, end)
	if isFinal(err) {
		p.Free()
		return
	}
	p.settleLater(g, d, end, err)
}

// SettleLater tells the guard in the background how an attempt ended, as often as it takes, and takes over the place, which is free when
// the guard has answered. It is tried for as long as the claim is held (Decision.ResetAfter), 30 seconds at least and 10
// minutes at most; a rate limit for 30 seconds. Then the observer of the guard's engine hears of an ErrUnsettled; for a guard of the
// application's own it is logged. Settling twice is settling once, so that is safe. Drain waits for it.
//
// Where the place was not taken and there is none, nothing is tried, and that is reported at once.
func (p *Place) SettleLater(g Guard, d Decision, end Ending) { p.settleLater(g, d, end, nil) }

func (p *Place) settleLater(g Guard, d Decision, end Ending, err error) {
	if p.Take() != nil {
		unsettled(g, d, fmt.Errorf("%w: %w: %w", ErrUnsettled, ErrTooManyPending, err))
		return
	}
	p.taken = false // the job's
	kept := 0
	if o := end.outcome; o != nil && len(o.Body) > 0 {
		if kept = len(o.Body); pending.bodies.Add(int64(kept)) > bodiesMost {
			pending.bodies.Add(-int64(kept))
			kept, end.outcome = 0, &Outcome{Status: o.Status, Header: o.Header, Incomplete: true}
		}
	}
	pending.add(laneOf(g), &job{
		try:   func(ctx context.Context) error { return g.Settle(ctx, d, end) },
		due:   time.Now().Add(pauseFirst),
		until: time.Now().Add(patience(g, d)),
		lost:  func(err error) { unsettled(g, d, fmt.Errorf("%w: %w", ErrUnsettled, err)) },
		done:  func() { pending.bodies.Add(-int64(kept)) },
	})
}

// patience is how long settling is tried again. A rate limit is not waited for: its ResetAfter is a window, and units come back by
// themselves. What has no end of its own, such as a vote, can matter for as long as anything.
func patience(g Guard, d Decision) time.Duration {
	switch {
	case g.Traits().KeepsOnFailure:
		return settleShortest
	case d.ResetAfter == 0:
		return settleLongest
	}
	return min(max(d.ResetAfter, settleShortest), settleLongest)
}

// isFinal reports whether asking again would give the same answer.
func isFinal(err error) bool {
	return err == nil || errors.Is(err, ErrGone) || errors.Is(err, ErrInvalid)
}

// laneOf is whose attempts wait in one queue: those of one Redis.
func laneOf(g Guard) any {
	if own, ok := g.(interface{ lane() any }); ok {
		return own.lane()
	}
	if reflect.ValueOf(g).Comparable() {
		return g
	}
	return nil
}

func (b *Base) lane() any { return b.engine }

// unsettled tells whoever watches that an attempt is given up. Of a guard that has no engine nobody else
// hears, so it is logged: by the guard's own logger, if it has a method Logger as Base has.
func unsettled(g Guard, d Decision, err error) {
	if own, ok := g.(interface{ unsettled(d Decision, err error) }); ok {
		own.unsettled(d, err)
		return
	}
	LoggerOf(g).Error("gatehouse: an attempt is not settled", "guard", g.Name(), "err", err)
}

func (b *Base) unsettled(d Decision, err error) {
	b.engine.observer.Observe(context.Background(), Event{Guard: b.name, Op: "settle", Decision: d, Err: err})
}

// hasRoomToUndo returns an error where a claim is better not made, because what might have to be undone would have to wait with too
// many others. Undos themselves are never turned away.
func RoomToUndo() error {
	if pending.places.Load() > pending.most {
		return ErrTooManyPending
	}
	return nil
}

// pending is the one backlog of a process. It is not an engine's: what is bounded by PendingMost is the
// memory of the process, attempts at guards of an application's own belong to no engine, and Drain, at the
// end of the process, waits for all of them. Engines do not hold each other up, as each has a lane.
var pending = newBacklog(PendingMost)

// backlog has what is tried again until it is done: jobs in lanes, a lane for each Redis, so that one that hangs does not hold up
// another. A job costs its memory only; goroutines are there for those that are tried just now.
type backlog struct {
	most   int64
	places atomic.Int64 // claims under way, and jobs
	bodies atomic.Int64 // bytes of answers that wait to be kept

	mu    sync.Mutex
	lanes map[any]*lane
}

// job is one thing that is tried until it is done or its time is over.
type job struct {
	try         func(ctx context.Context) error
	lost        func(err error) // its time is over
	done        func()          // it has left, however it ended; may be nil
	pause       time.Duration
	due, until  time.Time
	unimportant bool // tried once
}

// lane is a queue of jobs.
type lane struct {
	jobs    jobs
	running int
	wake    chan struct{}
}

func newBacklog(most int64) *backlog { return &backlog{most: most, lanes: map[any]*lane{}} }

// take takes a place, unless there is none.
func (b *backlog) take() bool {
	if b.places.Add(1) > b.most {
		b.places.Add(-1)
		return false
	}
	return true
}

// add queues a job that has a place.
func (b *backlog) add(key any, j *job) {
	background.Begin()
	b.mu.Lock()
	l := b.lanes[key]
	if l == nil {
		l = &lane{wake: make(chan struct{}, 1)}
		b.lanes[key] = l
		go b.run(key, l)
	}
	heap.Push(&l.jobs, j)
	b.mu.Unlock()
	l.awake()
}

// size is how many jobs a lane has.
func (b *backlog) size(key any) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lanes[key]; l != nil {
		return len(l.jobs) + l.running
	}
	return 0
}

func (l *lane) awake() {
	select {
	case l.wake <- struct{}{}:
	default: // it is
	}
}

// run starts the jobs of a lane when they are due, until none is left.
func (b *backlog) run(key any, l *lane) {
	for {
		b.mu.Lock()
		if len(l.jobs)+l.running == 0 {
			delete(b.lanes, key)
			b.mu.Unlock()
			return
		}
		wait := time.Duration(-1) // until somebody wakes it
		if len(l.jobs) > 0 && l.running < triesAtOnce {
			if wait = max(time.Until(l.jobs[0].due), 0); wait == 0 {
				j := heap.Pop(&l.jobs).(*job) //nolint:errcheck,forcetypeassert // it has nothing else
				l.running++
				go b.try(l, j)
			}
		}
		b.mu.Unlock()
		switch {
		case wait < 0:
			<-l.wake
		case wait > 0:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-l.wake:
			}
			timer.Stop()
		}
	}
}

// try tries a job once, and puts it back where that has to be repeated.
func (b *backlog) try(l *lane, j *job) {
	again := !j.attempt()
	if !again {
		b.places.Add(-1)
		if j.done != nil {
			j.done()
		}
	}
	b.mu.Lock()
	l.running--
	if again {
		heap.Push(&l.jobs, j)
	}
	b.mu.Unlock()
	l.awake()
	if !again {
		background.End()
	}
}

// attempt tries the job and reports whether that was the end of it.
func (j *job) attempt() (over bool) {
	err := j.call()
	switch {
	case isFinal(err) || j.unimportant:
		return true
	case errors.Is(err, redis.ErrClosed) || errors.Is(err, errPanicked):
		j.lost(err)
		return true
	}
	j.pause = min(max(2*j.pause, pauseFirst), pauseLongest)
	if j.due = time.Now().Add(j.pause); !j.due.Before(j.until) {
		j.lost(err)
		return true
	}
	return false
}

// errPanicked is for guards of the application's own: their mistakes must not end the process.
var errPanicked = errors.New("panic")

func (j *job) call() (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%w: %v", errPanicked, value)
		}
	}()
	ctx, cancel := context.WithDeadline(context.Background(), j.until)
	defer cancel()
	return j.try(ctx)
}

// jobs is a heap, the one that is due first at its top.
type jobs []*job

func (q jobs) Len() int           { return len(q) }
func (q jobs) Less(i, k int) bool { return q[i].due.Before(q[k].due) }
func (q jobs) Swap(i, k int)      { q[i], q[k] = q[k], q[i] }
func (q *jobs) Push(j any)        { *q = append(*q, j.(*job)) } //nolint:errcheck,forcetypeassert // it has nothing else

func (q *jobs) Pop() any {
	last := len(*q) - 1
	j := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return j
}
