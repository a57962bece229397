package script

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Call is a call of a script, from when a guard has prepared it until the guard reads its reply. [Send]
// makes it.
type Call struct {
	// Runner makes the call.
	Runner *Runner
	// Script is what Redis runs, with these keys, which share a tag, and these arguments.
	Script *Script
	Keys   []string
	Args   []any
	// Limit is how long the call may take, such as [Runner.Deadline]. The time begins with Send.
	Limit time.Duration
	// Join says how the call may be decided together with others of the same moment: see [Runner.RunJoined].
	// The zero value: it may not.
	Join Join
	// After is closed when the call may be sent. Send waits for that, for Limit at most. Nil: it may at once.
	After <-chan struct{}

	// Send sets these.

	// Sent is when the call was sent, or a moment before.
	Sent time.Time
	// Resent reports whether the script was sent more than once: see [WatchSendings].
	Resent bool
	// Reply is what the script has replied, as go-redis decodes it, and Err the error of the call.
	Reply any
	Err   error

	maybe   bool          // a sending may have run
	queue   *queue[Join]  // the queue that the call leaves when it is over; or nil
	joined  *queued[Join] // the call waits for others of its group; or nil
	batched *batched      // of a call that is sent together with others; or nil
}

// batched is a call that goes out in a batch with others of its caller.
type batched struct {
	round   round
	item    queued[sending] // without a queue: it goes by itself
	inBatch bool            // it is in a pipeline, and has not come back
}

// Send makes calls, and returns when each of them has its Reply or its Err. Several calls go out together:
// in one pipeline per server, in their order, those whose scripts are [Script.Shared]. They may be of
// several engines. Apart from that each call is made as [Runner.RunWithin] and [Runner.RunJoined] make
// theirs: with a limit, a reply and an error of its own.
func Send(ctx context.Context, calls ...*Call) {
	if len(calls) == 1 {
		calls[0].send(ctx)
		return
	}
	defer func() { // also if a hook of the client panics
		for _, c := range calls {
			c.leave()
		}
	}()
	for _, c := range calls {
		c.awaitTurn(ctx)
	}
	for _, c := range calls {
		c.prepare(ctx)
	}
	dispatch(calls)
	for _, c := range calls {
		if c.Err == nil && c.joined == nil {
			c.Reply, c.Err = c.deliver(ctx, time.Now())
			c.leave() // others may wait for it, while the caller waits for others
		}
	}
	for _, c := range calls {
		if c.joined != nil {
			c.Reply, c.Err = c.awaitJoined(ctx)
		}
	}
}

// send makes the call by itself, or has it decided with others of its group.
func (c *Call) send(ctx context.Context) {
	c.awaitTurn(ctx)
	if c.enqueue(ctx) {
		c.Reply, c.Err = c.awaitJoined(ctx)
		return
	}
	defer c.leave()
	c.Reply, c.Err = c.deliver(ctx, c.Sent)
}

// awaitTurn waits until the call may be sent.
func (c *Call) awaitTurn(ctx context.Context) {
	if c.After == nil {
		return
	}
	patience := time.NewTimer(c.Limit)
	defer patience.Stop()
	select {
	case <-c.After:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// enqueue reports whether the call waits for others of its group.
func (c *Call) enqueue(ctx context.Context) (waits bool) {
	c.Sent = time.Now()
	if c.Join.Script == nil || c.Runner.joins == nil {
		return false
	}
	if c.Join.Keys == nil {
		c.Join.Keys = c.Keys
	}
	c.queue, c.joined = c.Runner.joins.enter(ctx, c.Limit, &c.Join)
	if c.joined != nil {
		c.queue = nil
	}
	return c.joined != nil
}

// leave ends what others may wait for.
func (c *Call) leave() {
	if c.queue != nil {
		c.queue.leave()
		c.queue = nil
	}
	if c.batched != nil {
		c.batched.round.leave()
	}
}

// prepare does what comes before the call is sent together with others.
func (c *Call) prepare(ctx context.Context) {
	if c.enqueue(ctx) || !c.shares() {
		return
	}
	t := &batched{}
	if err := t.round.enter(ctx, c.Runner, c.Sent, c.Limit, c.Keys[0]); err != nil {
		c.Err = c.Runner.failed(ctx, c.Script, err)
		c.leave()
		return
	}
	t.round.begin(t.round.begun)
	c.batched = t
	t.item.queue, t.item.what = c.Runner.pipelines.queueOf(t.round.ctx, evalsha(ctx, c.Script, c.Keys, c.Args))
}

// shares reports whether the next sending of the call may share a pipeline.
func (c *Call) shares() bool {
	return c.Runner.pipelines != nil && c.Script.shares && len(c.Keys) > 0 && !c.Resent
}

// dispatch sends the calls that were prepared, in a pipeline per server. One alone goes by itself.
func dispatch(calls []*Call) {
	now, ready := time.Now(), 0
	for _, c := range calls {
		if c.batched != nil && c.batched.item.queue != nil {
			ready++
			c.batched.round.beginAgain(now)
		}
	}
	if ready < 2 {
		return
	}
	for i, c := range calls {
		if c.batched == nil || c.batched.item.queue == nil || c.batched.inBatch {
			continue
		}
		batch := make([]*queued[sending], 0, ready)
		for _, other := range calls[i:] {
			if t := other.batched; t != nil && t.item.queue == c.batched.item.queue {
				t.inBatch = true
				t.item.ctx, t.item.since, t.item.done = t.round.ctx, now, make(chan struct{}, 1)
				batch = append(batch, &t.item)
			}
		}
		c.batched.item.queue.dispatchAll(batch, len(batch) == ready && c.Runner.obeysDeadline)
	}
}

// deliver makes the call, which begins now. It repeats it while its slot moves, for the time of
// [Runner.SettleTimeout] in all. In a classic migration a cluster refuses scripts with several keys until
// the last key has moved, often for longer than the deadline. The server has not run the script, so the
// call may be sent again. Only claims, which are Idempotent, do so. A late check of a limit is better
// decided by the rule's outage policy.
func (c *Call) deliver(ctx context.Context, now time.Time) (any, error) {
	r := c.Runner
	if r.rdb == nil {
		return nil, fmt.Errorf("script %s: %w", c.Script.name, ErrNoRedis)
	}
	last := now.Add(r.SettleTimeout() - c.Limit) // a call that begins later ends too late
	reply, err := c.sendRound(ctx, now)
	for err != nil {
		var again bool
		if ctx, again = whileItMoves(ctx, c.Script, err, last); !again {
			break
		}
		reply, err = c.sendRound(ctx, time.Now())
	}
	return reply, r.failed(ctx, c.Script, err)
}

// whileItMoves reports whether to repeat a call that ended with err because its slot moves, and returns the
// context for that.
func whileItMoves(ctx context.Context, s *Script, err error, last time.Time) (context.Context, bool) {
	if s.delivery != Idempotent || !isMoving(err) || time.Now().After(last) {
		return ctx, false
	}
	if shared, _ := ctx.Value(checkKey{}).(*check); shared != nil {
		shared.moved.Store(true)
		ctx = shared.caller
	}
	return ctx, ctx.Err() == nil
}

// sendRound makes the call once through the breaker, unless it has passed that already. It sends the script
// again when the server refused to run it at all: that is no second run. It stops before the deadline, so
// that the error is the server's, and the breaker can tell a moving slot from a dead server.
func (c *Call) sendRound(ctx context.Context, now time.Time) (reply any, err error) {
	var own round
	l := &own
	if c.batched != nil && c.batched.round.ctx != nil {
		l = &c.batched.round
	} else {
		key := ""
		if len(c.Keys) > 0 {
			key = c.Keys[0]
		}
		if err := l.enter(ctx, c.Runner, now, c.Limit, key); err != nil {
			return nil, err
		}
		l.begin(l.begun)
	}
	defer l.leave()
	var longest time.Duration
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, longest) {
		if reply, err = c.try(l.ctx); err == nil {
			return reply, l.ended(nil, nil)
		}
		end, _ := l.ctx.Deadline() // begin sets one
		rest := time.Until(end)
		if !refusedForNow(err) || rest < 2*pause {
			return reply, l.ended(notRun(err, c.maybe), nil)
		}
		if longest == 0 {
			longest = rest / 8
		}
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
			return nil, l.ended(notRun(err, c.maybe), nil)
		}
	}
}

// try runs the script once, or as often as go-redis may resend it. The first sending is one of its own, so
// that the answer to it is known to be the answer to the only one.
func (c *Call) try(ctx context.Context) (reply any, err error) {
	r, s := c.Runner, c.Script
	shares := c.shares()
	if s.delivery == AtMostOnce || r.resends || r.sendsOnce || shares {
		first := manner{r, s, AtMostOnce}
		if shares {
			first.by = r.pipelines
		}
		if t := c.batched; t != nil && t.inBatch { // it is under way
			t.inBatch = false
			reply, err = r.pipelines.arrived(ctx, &t.item)
			reply, err = first.known(ctx, t.item.what.cmd, reply, err)
		} else {
			reply, err = first.eval(ctx, c.Keys, c.Args)
		}
		if err == nil || s.delivery == AtMostOnce || !r.resends || ctx.Err() != nil || !worthAnotherTry(err) {
			return reply, err
		}
		c.Resent = true
		sentAgain(ctx)
	}
	c.maybe = true
	first := err
	reply, err = manner{r, s, s.delivery}.eval(ctx, c.Keys, c.Args)
	if errors.Is(err, context.DeadlineExceeded) && isDial(first) {
		err = fmt.Errorf("%w; and again: %w", first, err) // go-redis dials until time is over, and says only that
	}
	return reply, err
}

// awaitJoined waits for the run that decides the call together with others of its group. Where that fails,
// an Idempotent script then runs for this call alone: in the rest of its time, unless its slot moves.
func (c *Call) awaitJoined(ctx context.Context) (any, error) {
	r, w := c.Runner, c.joined
	c.joined = nil
	reply, left, err := w.wait()
	switch {
	case left:
		// Otherwise the run has done this itself.
		return nil, r.failed(ctx, c.Join.Script, r.named("", notRun(err, false)))
	case err == nil:
		w.queue.reuse(w)
		return reply, nil
	case c.Script.delivery != Idempotent || ctx.Err() != nil:
		return reply, err
	}
	sent := !errors.As(err, new(notRunError))
	switch {
	case errors.Is(err, ErrBreakerOpen), sent && (!r.resends || !worthAnotherTry(err)):
		return nil, err
	case sent:
		c.Resent, c.maybe = true, true
		sentAgain(ctx)
	}
	if isMoving(err) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, w.end.Add(r.SettleTimeout()-c.Limit))
		defer cancel()
	} else if c.Limit = time.Until(w.end); c.Limit <= 0 {
		return nil, err
	}
	reply, again := c.deliver(ctx, time.Now())
	if sent && errors.Is(again, ErrBreakerOpen) {
		again = err // the joined run may have run, so there is something to undo
	}
	return reply, again
}
