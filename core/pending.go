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
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// PendingMost is how many claims a process can have running or waiting to be settled at the same time. A
// claim takes a place before its guard is asked. During a long outage, new claims are therefore rejected, and
// no earlier claim is forgotten. Rate limits take no place: they continue, and what they cannot give back is
// reported to the engine's observer.
const PendingMost = 65536

const (
	// triesAtOnce is how many jobs of one engine run at the same time.
	triesAtOnce = 64
	// bodiesMost is how many bytes of response bodies can wait to be stored. Beyond it, an operation is
	// stored as done but without its response.
	bodiesMost = 64 << 20

	// A failed try is repeated after pauseFirst. The pause doubles after each failure, up to pauseLongest.
	pauseFirst   = 50 * time.Millisecond
	pauseLongest = 2 * time.Second
	// settleShortest and settleLongest bound how long tries are repeated: longer than a failover takes, but
	// not for hours, as claims end with their lease.
	settleShortest = 30 * time.Second
	settleLongest  = 10 * time.Minute
)

// ErrTooManyPending is returned when a claim is rejected because [PendingMost] attempts are running or
// waiting to be settled. Nothing was taken.
var ErrTooManyPending = errors.New("core: too many attempts are waiting to be settled")

// ErrUnsettled is wrapped by the error that an engine's observer gets when the engine gave up telling a guard
// how an attempt ended, or gave up undoing an attempt that may have been made.
var ErrUnsettled = errors.New("core: gave up settling the attempt")

// Place reserves room for one attempt whose ending may have to be told to its guard later. The zero value has
// no room yet. The methods of a Place must not be called concurrently.
//
// Place is for adapters: call Take before Guard.Check, and Settle, SettleLater or Free when the attempt has
// ended.
type Place struct{ taken bool }

// Take takes the place, or returns [ErrTooManyPending]. Taking a place twice has the effect of taking it
// once.
func (p *Place) Take() error {
	if !p.taken && !pending.take() {
		return ErrTooManyPending
	}
	p.taken = true
	return nil
}

// Free releases the place. It has no effect when the place is not taken.
func (p *Place) Free() {
	if p.taken {
		p.taken = false
		pending.places.Add(-1)
	}
}

// Settle tells the guard how an attempt ended, as Guard.Settle does, and releases the place. When the guard
// fails, Settle retries in the background, as [Place.SettleLater] describes.
func (p *Place) Settle(ctx context.Context, g Guard, d Decision, end Ending) {
	p.Settled(g, d, end, g.Settle(ctx, d, end))
}

// Settled is [Place.Settle] where the guard was told already, and has returned err.
func (p *Place) Settled(g Guard, d Decision, end Ending, err error) {
	if isFinal(err) {
		p.Free()
		return
	}
	p.settleLater(g, d, end, err)
}

// SettleLater tells the guard in the background how an attempt ended. It takes over the place, and releases
// it when the guard has answered.
//
// It retries for as long as the claim is held (Decision.ResetAfter), but for at least 30 seconds and at most
// 10 minutes; for a rate limit, for 30 seconds. After that, the observer of the guard's engine gets an
// [ErrUnsettled]; for an application's own guard without an engine, the error is logged. Retries are safe,
// because settling twice has the effect of settling once. [Drain] waits for them.
//
// When the place was not taken and none is free, SettleLater does not try, and reports the error at once.
func (p *Place) SettleLater(g Guard, d Decision, end Ending) { p.settleLater(g, d, end, nil) }

func (p *Place) settleLater(g Guard, d Decision, end Ending, err error) {
	if p.Take() != nil {
		unsettled(g, d, fmt.Errorf("%w: %w: %w", ErrUnsettled, ErrTooManyPending, err))
		return
	}
	p.taken = false // the job releases it
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

// patience returns how long to retry settling. A rate limit is not waited for: its units come back by
// themselves. A claim without an end of its own, such as a vote, gets the longest time.
func patience(g Guard, d Decision) time.Duration {
	switch {
	case g.Traits().KeepsOnFailure:
		return settleShortest
	case d.ResetAfter == 0:
		return settleLongest
	}
	return min(max(d.ResetAfter, settleShortest), settleLongest)
}

// isFinal reports whether a retry would get the same answer.
func isFinal(err error) bool {
	return err == nil || errors.Is(err, ErrGone) || errors.Is(err, ErrInvalid)
}

// laneOf returns the key of the lane for a guard's jobs. All guards of one engine, and so of one Redis, share
// a lane.
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

// unsettled reports that settling an attempt was given up. A guard without an engine has no observer, so the
// error is logged: by the guard's own logger, if it has a method Logger as Base has. Of each guard the first
// error is logged, and then one per minute, since an outage may end with thousands.
func unsettled(g Guard, d Decision, err error) {
	if own, ok := g.(interface{ unsettled(d Decision, err error) }); ok {
		own.unsettled(d, err)
		return
	}
	if skipped, ok := unsettledOf.Due(g.Name()); ok {
		LoggerOf(g).Error("gatehouse: gave up settling an attempt", "guard", g.Name(), "err", err,
			"attempts_not_logged", skipped)
	}
}

// unsettledOf says which errors are logged, by the names of guards without an engine.
var unsettledOf warn.Sample[string]

func (b *Base) unsettled(d Decision, err error) {
	b.engine.observer.Observe(context.Background(), Event{Guard: b.name, Op: "settle", Decision: d, Err: err})
}

// RoomToUndo returns [ErrTooManyPending] when more than [PendingMost] claims and jobs are pending. A guard
// calls it before a claim that it may have to undo. Undos themselves are never rejected.
func RoomToUndo() error {
	if pending.places.Load() > pending.most {
		return ErrTooManyPending
	}
	return nil
}

// pending is the one backlog of a process. It belongs to no engine, for three reasons: PendingMost bounds the
// memory of the process, attempts at an application's own guards belong to no engine, and Drain waits for all
// attempts at the end of the process. Engines do not hold each other up, as each has a lane.
var pending = newBacklog(PendingMost)

// backlog holds jobs that are retried until they are done. Each Redis has a lane of its own, so that one that
// hangs does not hold up another. A waiting job costs only its memory: goroutines exist only for the jobs
// that run.
type backlog struct {
	most   int64
	places atomic.Int64 // claims under way, and jobs
	bodies atomic.Int64 // bytes of response bodies that wait to be stored

	mu    sync.Mutex
	lanes map[any]*lane
}

// job is something to retry until it is done or its time is over.
type job struct {
	try         func(ctx context.Context) error
	lost        func(err error) // its time is over
	done        func()          // the job has ended, in whatever way; may be nil
	pause       time.Duration
	due, until  time.Time
	unimportant bool // tried once
	early       bool // Drain does not wait until it is due; it has no place
}

// lane is a queue of jobs.
type lane struct {
	jobs    jobs
	running int
	wake    chan struct{}
}

func newBacklog(most int64) *backlog { return &backlog{most: most, lanes: map[any]*lane{}} }

// take takes a place and reports whether there was one.
func (b *backlog) take() bool {
	if b.places.Add(1) > b.most {
		b.places.Add(-1)
		return false
	}
	return true
}

// hurry makes the jobs due that Drain does not wait for: those of one lane, or of all lanes if key is nil.
func (b *backlog) hurry(key any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for of, l := range b.lanes {
		if key != nil && of != key {
			continue
		}
		for _, j := range l.jobs {
			if j.early && j.due.After(now) {
				j.due = now
			}
		}
		heap.Init(&l.jobs)
		l.awake()
	}
}

// add queues a job, which must have a place unless it is early.
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

// size returns how many jobs a lane has.
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
	default: // it is already awake
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
		wait := time.Duration(-1) // until awake is called
		if len(l.jobs) > 0 && l.running < triesAtOnce {
			if wait = max(time.Until(l.jobs[0].due), 0); wait == 0 {
				j := heap.Pop(&l.jobs).(*job)
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

// try runs a job once, and queues it again if it must be repeated.
func (b *backlog) try(l *lane, j *job) {
	again := !j.attempt()
	if !again {
		if !j.early {
			b.places.Add(-1)
		}
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

// attempt runs the job and reports whether it is over.
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

// errPanicked marks a panic of an application's own guard, which must not end the process.
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

// jobs is a heap with the job that is due first at its top.
type jobs []*job

func (q jobs) Len() int           { return len(q) }
func (q jobs) Less(i, k int) bool { return q[i].due.Before(q[k].due) }
func (q jobs) Swap(i, k int)      { q[i], q[k] = q[k], q[i] }
func (q *jobs) Push(j any)        { *q = append(*q, j.(*job)) }

func (q *jobs) Pop() any {
	last := len(*q) - 1
	j := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return j
}
