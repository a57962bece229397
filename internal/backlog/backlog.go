// Package backlog repeats jobs in the background until they are done, such as settlements that Redis has not
// answered. A process has one backlog, which bounds what all engines and guards of the process may leave
// unfinished, and for which the process waits at its end. Each Redis has a lane of its own, so that one that
// hangs does not hold up another.
package backlog

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/background"
)

// Most is how many places there are: for jobs, and for what may become a job.
const Most = 65536

const (
	// triesAtOnce is how many jobs of a lane run at the same time.
	triesAtOnce = 64

	// FirstPause is when a failed try is repeated. The pause doubles after each failure, up to pauseLongest.
	FirstPause   = 50 * time.Millisecond
	pauseLongest = 2 * time.Second
)

// Take takes a place for a job to come, and reports whether there was one.
func Take() bool { return process.take() }

// Free gives a place back that no job has taken over.
func Free() { process.places.Add(-1) }

// Force takes a place whether there is one or not: for what must not be forgotten.
func Force() { process.places.Add(1) }

// Full reports whether all places are taken.
func Full() bool { return process.places.Load() > process.most }

// Add queues a job, which takes over a place unless it is Early.
func Add(lane any, j *Job) { process.add(lane, j) }

// Size returns how many jobs a lane has, waiting and running, with what is held.
func Size(lane any) int { return process.size(lane) }

// Hurry makes the Early jobs of a lane due, and calls what Hold was given; nil stands for all lanes.
func Hurry(lane any) { process.hurry(lane) }

// Hold counts something as pending in a lane until release is called. Hurry calls end for it, each time.
func Hold(lane any, end func()) (release func()) { return process.hold(lane, end) }

// process is the backlog of the process. It belongs to no engine: guards of an application may have none.
var process = newBacklog(Most)

// backlog holds jobs that are repeated until they are done. A waiting job costs only its memory: goroutines
// exist only for the jobs that run.
type backlog struct {
	most   int64
	places atomic.Int64

	mu    sync.Mutex
	lanes map[any]*lane
	held  map[*holding]struct{}
}

// holding is what Hold counts.
type holding struct {
	lane any
	end  func()
}

// Job is something to repeat until it is done or its time is over.
type Job struct {
	// Try does it. Any error is repeated, but for a panic, runtime.Goexit, and a client that was closed.
	Try func(ctx context.Context) error
	// Lost is told that it was given up.
	Lost func(err error)
	// Done is told that it has ended, in whatever way. Nil: nobody is.
	Done func()
	// Due is when to try it first, and Until when to give it up.
	Due, Until time.Time
	// Once has it tried only once.
	Once bool
	// Early has [Hurry] make it due. It has no place.
	Early bool

	pause time.Duration
}

// lane is a queue of jobs.
type lane struct {
	jobs    jobs
	running int
	wake    chan struct{}
}

func newBacklog(most int64) *backlog {
	return &backlog{most: most, lanes: map[any]*lane{}, held: map[*holding]struct{}{}}
}

// take takes a place and reports whether there was one.
func (b *backlog) take() bool {
	if b.places.Add(1) > b.most {
		b.places.Add(-1)
		return false
	}
	return true
}

func (b *backlog) hold(key any, end func()) (release func()) {
	h := &holding{lane: key, end: end}
	background.Begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[h] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.held, h)
		background.End()
	}
}

// hurry ends what is held, and makes the jobs due that Drain does not wait for: those of one lane, or of all
// lanes if key is nil.
func (b *backlog) hurry(key any) {
	for _, h := range b.hurryJobs(key) {
		h.end()
	}
}

// hurryJobs makes the jobs due, and returns what is held.
func (b *backlog) hurryJobs(key any) (held []*holding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for h := range b.held {
		if key == nil || h.lane == key {
			held = append(held, h)
		}
	}
	for of, l := range b.lanes {
		if key != nil && of != key {
			continue
		}
		for _, j := range l.jobs {
			if j.Early && j.Due.After(now) {
				j.Due = now
			}
		}
		heap.Init(&l.jobs)
		l.awake()
	}
	return held
}

// add queues a job, which must have a place unless it is early.
func (b *backlog) add(key any, j *Job) {
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
func (b *backlog) size(key any) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lanes[key]; l != nil {
		n = len(l.jobs) + l.running
	}
	for h := range b.held {
		if h.lane == key {
			n++
		}
	}
	return n
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
			if wait = max(time.Until(l.jobs[0].Due), 0); wait == 0 {
				j := heap.Pop(&l.jobs).(*Job)
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
func (b *backlog) try(l *lane, j *Job) {
	err := errExited // by runtime.Goexit, unless the job returns or panics
	defer func() { b.tried(l, j, err) }()
	err = j.call()
}

// tried ends a try, also if an observer that is told of it ends the goroutine.
func (b *backlog) tried(l *lane, j *Job, err error) {
	again := false
	defer func() {
		if !again {
			if !j.Early {
				b.places.Add(-1)
			}
			if j.Done != nil {
				j.Done()
			}
			defer background.End()
		}
		b.mu.Lock()
		l.running--
		if again {
			heap.Push(&l.jobs, j)
		}
		b.mu.Unlock()
		l.awake()
	}()
	again = !j.over(err)
}

// over reports whether the job is over after a try that returned err.
func (j *Job) over(err error) bool {
	switch {
	case err == nil || j.Once:
		return true
	case errors.Is(err, redis.ErrClosed) || errors.Is(err, errPanicked) || errors.Is(err, errExited):
		j.Lost(err)
		return true
	}
	j.pause = min(max(2*j.pause, FirstPause), pauseLongest)
	if j.Due = time.Now().Add(j.pause); !j.Due.Before(j.Until) {
		j.Lost(err)
		return true
	}
	return false
}

// A panic or an exit, as of an application's own guard, must not end the process, and is not repeated.
var (
	errPanicked = errors.New("panic")
	errExited   = errors.New("it ended its goroutine")
)

func (j *Job) call() (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%w: %v", errPanicked, value)
		}
	}()
	ctx, cancel := context.WithDeadline(context.Background(), j.Until)
	defer cancel()
	return j.Try(ctx)
}

// jobs is a heap with the job that is due first at its top.
type jobs []*Job

func (q jobs) Len() int           { return len(q) }
func (q jobs) Less(i, k int) bool { return q[i].Due.Before(q[k].Due) }
func (q jobs) Swap(i, k int)      { q[i], q[k] = q[k], q[i] }
func (q *jobs) Push(j any)        { *q = append(*q, j.(*Job)) }

func (q *jobs) Pop() any {
	last := len(*q) - 1
	j := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return j
}
