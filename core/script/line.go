package script

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// flightsMost is how many pipelines, or calls by themselves, are under way to a server at a time. With one,
	// the server would be idle while an answer travels.
	flightsMost = 2
	// sharedMost is how many commands a pipeline has.
	sharedMost = 128
	// sharedWait is the longest that a call waits for those under way, if it is less than a quarter of the
	// deadline. Then it is sent nevertheless: they may be on connections that are dead.
	sharedWait = 25 * time.Millisecond
)

// line is what is under way to one place, such as a server, and what waits for it. A call that finds the line
// free goes by itself, in the goroutine of its caller, as if there were no line. The others wait, and go out
// together when one of those under way has come back. So a lone caller loses nothing, and the more callers
// there are, the less a call costs. W is what a call is about.
type line[W any] struct {
	name    string              // for idle
	longest time.Duration       // that a call waits
	send    func([]*waiting[W]) // sends calls together, and sets the reply or the error of each
	idle    func(*line[W])      // is called with mu held when nothing uses the line any more; or nil

	mu      *sync.Mutex
	flights int
	calls   []*waiting[W] // in the order of arrival
	armed   bool          // late will be called
	spare   sync.Pool     // of calls that were answered, with their channels
}

// waiting is a call that does not go by itself.
type waiting[W any] struct {
	what   W
	ctx    context.Context
	line   *line[W]
	since  time.Time
	end    time.Time     // of its time, if ctx does not end before
	left   bool          // it waits no more; written under line.mu
	flight *flight       // nil: it waits; written under line.mu
	done   chan struct{} // gets a value when reply and err are set
	reply  any
	err    error
}

// flight is a number of calls under way together.
type flight struct {
	told atomic.Bool // a breaker knows that it has failed
}

// enter returns nil if the caller has to go by itself, and leave the line then. Otherwise the caller has to
// wait, and its time ends with the context, or after the limit if that is not 0. The caller holds mu.
func (l *line[W]) enter(ctx context.Context, limit time.Duration, what W) *waiting[W] {
	if l.flights < flightsMost {
		l.flights++
		return nil
	}
	c, _ := l.spare.Get().(*waiting[W])
	if c == nil {
		c = &waiting[W]{line: l, done: make(chan struct{}, 1)}
	}
	c.what, c.ctx, c.since = what, ctx, time.Now()
	if limit > 0 {
		c.end = c.since.Add(limit)
	}
	l.calls = append(l.calls, c)
	l.arm(l.longest)
	return c
}

// isIdle reports whether nothing uses the line. The caller holds mu.
func (l *line[W]) isIdle() bool { return l.flights == 0 && !l.armed }

// arm has late called. The caller holds mu.
func (l *line[W]) arm(after time.Duration) {
	if !l.armed {
		l.armed = true
		time.AfterFunc(after, l.late)
	}
}

// late sends the calls that have waited for too long.
func (l *line[W]) late() {
	l.mu.Lock()
	l.armed = false
	var calls []*waiting[W]
	if len(l.calls) > 0 {
		if waited := time.Since(l.calls[0].since); waited < l.longest {
			l.arm(l.longest - waited)
		} else if calls = l.take(); len(calls) > 0 {
			l.flights++
		}
	}
	if len(l.calls) > 0 {
		l.arm(l.longest)
	}
	l.rest()
	l.mu.Unlock()
	l.fly(calls)
}

// rest gives the line up if it is idle. The caller holds mu.
func (l *line[W]) rest() {
	if l.idle != nil && l.isIdle() {
		l.idle(l)
	}
}

// leave ends a flight. The calls that wait get another, by a goroutine of their own: the caller has its
// answer.
func (l *line[W]) leave() {
	if calls := l.next(); len(calls) > 0 {
		go l.fly(calls)
	}
}

// next ends a flight, and returns the calls of one that takes its place.
func (l *line[W]) next() []*waiting[W] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights <= flightsMost {
		if calls := l.take(); len(calls) > 0 {
			return calls
		}
	}
	l.flights--
	l.rest()
	return nil
}

// take removes the calls of one flight from those that wait, and drops those whose callers have left. The
// caller holds mu.
func (l *line[W]) take() (calls []*waiting[W]) {
	if len(l.calls) == 0 {
		return nil
	}
	f, n := &flight{}, 0
	for _, c := range l.calls {
		if len(calls) == sharedMost {
			break
		}
		n++
		if !c.left && c.ctx.Err() == nil {
			c.flight = f
			calls = append(calls, c)
		}
	}
	left := copy(l.calls, l.calls[n:])
	clear(l.calls[left:])
	l.calls = l.calls[:left]
	return calls
}

// fly sends the calls, and then those that wait, until there are none.
func (l *line[W]) fly(calls []*waiting[W]) {
	for ; len(calls) > 0; calls = l.next() {
		l.try(calls)
		for _, c := range calls {
			c.done <- struct{}{}
		}
	}
}

// sendAll has calls sent together: at once if the line is free, else with those that wait. Their callers have
// to wait. If here is true, the goroutine may send them itself, and returns when they have come back.
func (l *line[W]) sendAll(calls []*waiting[W], here bool) {
	switch free := l.board(calls); {
	case free && here:
		l.try(calls)
		for _, c := range calls {
			c.done <- struct{}{}
		}
		l.leave()
	case free:
		go l.fly(calls)
	}
}

// board begins a flight of the calls if the line is free, or has them wait.
func (l *line[W]) board(calls []*waiting[W]) (free bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights >= flightsMost {
		l.calls = append(l.calls, calls...)
		l.arm(l.longest)
		return false
	}
	l.flights++
	f := &flight{}
	for _, c := range calls {
		c.flight = f
	}
	return true
}

// try sends the calls. A panic, as of a hook of the application, is their error.
func (l *line[W]) try(calls []*waiting[W]) {
	defer func() {
		if value := recover(); value != nil {
			for _, c := range calls {
				c.reply, c.err = nil, sharedError{fmt.Errorf("panic: %v", value), c.flight}
			}
		}
	}()
	l.send(calls)
}

// together returns a context for calls that are under way together. It lasts until the last of theirs ends:
// none of them may end the others' calls.
func together[W any](calls []*waiting[W]) (context.Context, context.CancelFunc) {
	var end time.Time
	var last context.Context
	for _, c := range calls {
		if own := c.ends(); own.After(end) {
			end, last = own, c.ctx
		}
	}
	if own, ok := last.(timed); ok && end.Equal(own.at) {
		return own, func() {} // nobody can end it
	}
	return context.WithDeadline(context.WithoutCancel(calls[0].ctx), end)
}

// ends returns when the time of the call ends.
func (c *waiting[W]) ends() time.Time {
	end, ok := c.ctx.Deadline()
	if !ok || !c.end.IsZero() && c.end.Before(end) {
		return c.end
	}
	return end
}

// reuse takes back a call that was answered, of which nobody knows any more.
func (l *line[W]) reuse(c *waiting[W]) {
	*c = waiting[W]{line: l, done: c.done}
	l.spare.Put(c)
}

// wait returns what came back for the call, or, where it has left, an error when its time ends.
func (c *waiting[W]) wait() (reply any, left bool, err error) {
	if err = c.answered(); err == nil {
		return c.reply, false, c.err
	}
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	c.left = true
	if c.flight == nil { // and will not have one
		return nil, true, notSentError{err}
	}
	return nil, true, sharedError{err, c.flight}
}

// timers are those that no call waits for, since a new one costs more.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

// answered waits until the reply or the error of the call is there. It returns an error when the call's time
// ends before.
func (c *waiting[W]) answered() error {
	var over <-chan time.Time
	if !c.end.IsZero() {
		timer := timers.Get().(*time.Timer)
		timer.Reset(c.end.Sub(c.since)) // mostly asked a moment later
		defer func() {
			timer.Stop()
			timers.Put(timer)
		}()
		over = timer.C
	}
	var err error
	select {
	case <-c.done:
		return nil
	case <-c.ctx.Done():
		err = c.ctx.Err()
	case <-over:
		err = context.DeadlineExceeded
	}
	select {
	case <-c.done:
		return nil
	default:
		return err
	}
}

// sharedError is the error of a call whose flight has failed, or was left.
type sharedError struct {
	error
	flight *flight
}

func (e sharedError) Unwrap() error { return e.error }

// isToldAgain reports whether a breaker has been told of the failure that err is about, by another call of
// the same flight.
func isToldAgain(err error) bool {
	var shared sharedError
	return errors.As(err, &shared) && !shared.flight.told.CompareAndSwap(false, true)
}

// notSentError is the error of a call that ended before it was sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }
