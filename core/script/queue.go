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
	// batchesMost is how many batches, or calls by themselves, are under way to a server at a time. With one,
	// the server would be idle while an answer travels.
	batchesMost = 2
	// batchMost is how many calls a batch has.
	batchMost = 128
	// longestWait is the longest that a call waits for those under way, if it is less than a quarter of the
	// deadline. Then it is sent nevertheless: they may be on connections that are dead.
	longestWait = 25 * time.Millisecond
)

// queue has the calls to one place, such as a server, both under way and waiting. It knows nothing of
// Redis. A call that finds fewer than batchesMost under way is sent alone, in the goroutine of its caller,
// as if there were no queue. The others wait, and are sent in a batch when a call under way has come back.
// So a lone caller loses nothing, and a call costs less the more callers there are. W is the subject of a
// call.
type queue[W any] struct {
	name        string             // for idle
	longestWait time.Duration      // that a call waits
	send        func([]*queued[W]) // sends calls together, and sets the reply or the error of each
	unused      func(*queue[W])    // is called with mu held when nothing uses the queue any more; or nil

	mu       *sync.Mutex
	underWay int
	calls    []*queued[W] // in the order of arrival
	armed    bool         // late will be called
	spare    sync.Pool    // of calls that were answered, with their channels
}

// queued is a call that does not go by itself.
type queued[W any] struct {
	what  W
	ctx   context.Context
	queue *queue[W]
	since time.Time
	end   time.Time     // of its time, if ctx does not end before
	left  bool          // no longer waits; written under queue.mu
	batch *batch        // nil: it waits; written under queue.mu
	done  chan struct{} // gets a value when reply and err are set
	reply any
	err   error
}

// batch is a number of calls that are under way together.
type batch struct {
	reported atomic.Bool // a breaker knows that it has failed
}

// enter returns nil if the caller has to go by itself, and leave the queue then. Otherwise the caller has
// to wait, and its time ends with the context, or after the limit if that is not 0. The caller holds mu.
func (q *queue[W]) enter(ctx context.Context, limit time.Duration, what W) *queued[W] {
	if q.underWay < batchesMost {
		q.underWay++
		return nil
	}
	c, _ := q.spare.Get().(*queued[W])
	if c == nil {
		c = &queued[W]{queue: q, done: make(chan struct{}, 1)}
	}
	c.what, c.ctx, c.since = what, ctx, time.Now()
	if limit > 0 {
		c.end = c.since.Add(limit)
	}
	q.calls = append(q.calls, c)
	q.arm(q.longestWait)
	return c
}

// isIdle reports whether nothing uses the queue. The caller holds mu.
func (q *queue[W]) isIdle() bool { return q.underWay == 0 && !q.armed }

// arm has late called. The caller holds mu.
func (q *queue[W]) arm(after time.Duration) {
	if !q.armed {
		q.armed = true
		time.AfterFunc(after, q.late)
	}
}

// late sends the calls that have waited for too long.
func (q *queue[W]) late() {
	q.mu.Lock()
	q.armed = false
	var calls []*queued[W]
	if len(q.calls) > 0 {
		if waited := time.Since(q.calls[0].since); waited < q.longestWait {
			q.arm(q.longestWait - waited)
		} else if calls = q.dequeue(); len(calls) > 0 {
			q.underWay++
		}
	}
	if len(q.calls) > 0 {
		q.arm(q.longestWait)
	}
	q.dropIfIdle()
	q.mu.Unlock()
	q.dispatch(calls)
}

// dropIfIdle gives the queue up if it is idle. The caller holds mu.
func (q *queue[W]) dropIfIdle() {
	if q.unused != nil && q.isIdle() {
		q.unused(q)
	}
}

// leave ends a batch, or a call that went by itself. Calls that wait become the next batch, which a
// goroutine of its own dispatches: the caller has its answer.
func (q *queue[W]) leave() {
	if calls := q.next(); len(calls) > 0 {
		go q.dispatch(calls)
	}
}

// next ends a batch, and returns the calls of the next one.
func (q *queue[W]) next() []*queued[W] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) > 0 && q.underWay <= batchesMost {
		if calls := q.dequeue(); len(calls) > 0 {
			return calls
		}
	}
	q.underWay--
	if q.unused != nil {
		q.dropIfIdle()
	}
	return nil
}

// dequeue removes the calls of one batch from those that wait, and drops those whose callers have left. The
// caller holds mu.
func (q *queue[W]) dequeue() (calls []*queued[W]) {
	f, n := &batch{}, 0
	for _, c := range q.calls {
		if len(calls) == batchMost {
			break
		}
		n++
		if !c.left && c.ctx.Err() == nil {
			c.batch = f
			calls = append(calls, c)
		}
	}
	left := copy(q.calls, q.calls[n:])
	clear(q.calls[left:])
	q.calls = q.calls[:left]
	return calls
}

// dispatch sends a batch, and then those that have waited meanwhile, until there are none.
func (q *queue[W]) dispatch(calls []*queued[W]) {
	for ; len(calls) > 0; calls = q.next() {
		q.sendBatch(calls)
		for _, c := range calls {
			c.done <- struct{}{}
		}
	}
}

// dispatchAll has calls sent together: at once if a batch may begin, else with those that wait. Their
// callers have to wait. If here is true, the goroutine may send them itself, and returns when they have
// come back.
func (q *queue[W]) dispatchAll(calls []*queued[W], here bool) {
	switch free := q.beginBatch(calls); {
	case free && here:
		q.sendBatch(calls)
		for _, c := range calls {
			c.done <- struct{}{}
		}
		q.leave()
	case free:
		go q.dispatch(calls)
	}
}

// beginBatch begins a batch of the calls if fewer than batchesMost are under way, or has them wait.
func (q *queue[W]) beginBatch(calls []*queued[W]) (free bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.underWay >= batchesMost {
		q.calls = append(q.calls, calls...)
		q.arm(q.longestWait)
		return false
	}
	q.underWay++
	f := &batch{}
	for _, c := range calls {
		c.batch = f
	}
	return true
}

// sendBatch sends the calls. A panic, as of a hook of the application, is their error.
func (q *queue[W]) sendBatch(calls []*queued[W]) {
	defer func() {
		if value := recover(); value != nil {
			for _, c := range calls {
				c.reply, c.err = nil, batchError{fmt.Errorf("panic: %v", value), c.batch}
			}
		}
	}()
	q.send(calls)
}

// contextOf returns a context for the calls of a batch. It lasts until the last of theirs ends:
// none of them may end the others' calls.
func contextOf[W any](calls []*queued[W]) (context.Context, context.CancelFunc) {
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
func (c *queued[W]) ends() time.Time {
	end, ok := c.ctx.Deadline()
	if !ok || !c.end.IsZero() && c.end.Before(end) {
		return c.end
	}
	return end
}

// reuse takes back an answered call without references.
func (q *queue[W]) reuse(c *queued[W]) {
	*c = queued[W]{queue: q, done: c.done}
	q.spare.Put(c)
}

// wait returns what came back for the call, or, where it has left, an error when its time ends.
func (c *queued[W]) wait() (reply any, left bool, err error) {
	if err = c.answered(); err == nil {
		return c.reply, false, c.err
	}
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	c.left = true
	if c.batch == nil { // and will not have one
		return nil, true, notSentError{err}
	}
	return nil, true, batchError{err, c.batch}
}

// timers are those that no call waits for, since a new one costs more.
var timers = sync.Pool{New: func() any { return time.NewTimer(time.Hour) }}

// answered waits until the reply or the error of the call is there. It returns an error when the call's
// time ends before.
func (c *queued[W]) answered() error {
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

// batchError is the error of a call whose batch has failed, or was left.
type batchError struct {
	error
	batch *batch
}

func (e batchError) Unwrap() error { return e.error }

// isReported reports whether a breaker has been told of the failure that err is about, by another call of
// the same batch.
func isReported(err error) bool {
	var shared batchError
	return errors.As(err, &shared) && !shared.batch.reported.CompareAndSwap(false, true)
}

// notSentError is the error of a call that ended before it was sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }
