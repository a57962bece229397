package script

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Call is a call of a script, from when a guard has prepared it until the guard reads its reply. [Send] makes
// it.
type Call struct {
	// Runner makes the call.
	Runner *Runner
	// Script is what Redis runs, with these keys, which share a tag, and these arguments.
	Script *Script
	Keys   []string
	Args   []any
	// Limit is how long the call may take, such as [Runner.Deadline]. The time begins with Send.
	Limit time.Duration
	// Joint says how the call may be decided together with others of the same moment: see [Runner.RunJoined].
	// The zero value: it may not.
	Joint Joint
	// After is closed when the call may be sent. Send waits for that, for Limit at most. Nil: it may at once.
	After <-chan struct{}

	// What follows is set by Send.

	// Sent is when the call was sent, or a moment before.
	Sent time.Time
	// Resent reports whether the script was sent more than once: see [WatchSendings].
	Resent bool
	// Reply is what the script has replied, as go-redis decodes it, and Err the error of the call.
	Reply any
	Err   error

	maybe  bool            // a sending may have run
	group  *line[Joint]    // the line that the call leaves when it is over; or nil
	joined *waiting[Joint] // the call waits for others of its group; or nil
	trip   *trip           // of a call that is sent together with others; or nil
}

// trip is how a call goes together with others.
type trip struct {
	leg    leg
	waits  waiting[sending] // without a line: it goes by itself
	aboard bool             // it is in a pipeline, and has not come back
}

// Send makes calls, and returns when each of them has its Reply or its Err. Several calls go out together: in
// one pipeline per server, in their order, those whose scripts are [Script.Shared]. They may be of several
// engines. Apart from that each call is made as [Runner.RunWithin] and [Runner.RunJoined] make theirs: with a
// limit, a reply and an error of its own.
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
	depart(calls)
	for _, c := range calls {
		if c.Err == nil && c.joined == nil {
			c.Reply, c.Err = c.deliver(ctx)
			c.leave() // others may wait for it, while the caller waits for others
		}
	}
	for _, c := range calls {
		if c.joined != nil {
			c.Reply, c.Err = c.follow(ctx)
		}
	}
}

// send makes the call by itself, or has it decided with others of its group.
func (c *Call) send(ctx context.Context) {
	c.awaitTurn(ctx)
	if c.join(ctx) {
		c.Reply, c.Err = c.follow(ctx)
		return
	}
	defer c.leave()
	c.Reply, c.Err = c.deliver(ctx)
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

// join reports whether the call waits for others of its group.
func (c *Call) join(ctx context.Context) (waits bool) {
	c.Sent = time.Now()
	if c.Joint.Script == nil || c.Runner.joins == nil {
		return false
	}
	if c.Joint.Keys == nil {
		c.Joint.Keys = c.Keys
	}
	c.group, c.joined = c.Runner.joins.enter(ctx, c.Limit, &c.Joint)
	if c.joined != nil {
		c.group = nil
	}
	return c.joined != nil
}

// leave ends what others may wait for.
func (c *Call) leave() {
	if c.group != nil {
		c.group.leave()
		c.group = nil
	}
	if c.trip != nil {
		c.trip.leg.leave()
	}
}

// prepare does what comes before the call is sent together with others.
func (c *Call) prepare(ctx context.Context) {
	if c.join(ctx) || !c.shares() {
		return
	}
	t := &trip{}
	if err := t.leg.enter(ctx, c.Runner, c.Limit, c.Keys[0]); err != nil {
		c.Err = c.Runner.failed(ctx, c.Script, err)
		c.leave()
		return
	}
	t.leg.begin(t.leg.begun)
	c.trip = t
	t.waits.line, t.waits.what = c.Runner.shared.lineOf(t.leg.ctx, evalsha(ctx, c.Script, c.Keys, c.Args))
}

// shares reports whether the next sending of the call may share a pipeline.
func (c *Call) shares() bool {
	return c.Runner.shared != nil && c.Script.shares && len(c.Keys) > 0 && !c.Resent
}

// depart sends the calls that were prepared, in a pipeline per server. One alone goes by itself.
func depart(calls []*Call) {
	now, ready := time.Now(), 0
	for _, c := range calls {
		if c.trip != nil && c.trip.waits.line != nil {
			ready++
			c.trip.leg.beginAgain(now)
		}
	}
	if ready < 2 {
		return
	}
	for i, c := range calls {
		if c.trip == nil || c.trip.waits.line == nil || c.trip.aboard {
			continue
		}
		flight := make([]*waiting[sending], 0, ready)
		for _, other := range calls[i:] {
			if t := other.trip; t != nil && t.waits.line == c.trip.waits.line {
				t.aboard = true
				t.waits.ctx, t.waits.since, t.waits.done = t.leg.ctx, now, make(chan struct{}, 1)
				flight = append(flight, &t.waits)
			}
		}
		c.trip.waits.line.sendAll(flight, len(flight) == ready && c.Runner.obeysDeadline)
	}
}

// deliver makes the call. It repeats it while its slot moves, for the time of [Runner.SettleTimeout] in all.
// In a classic migration a cluster refuses scripts with several keys until the last key has moved, often for
// longer than the deadline. The server has not run the script, so the call may be sent again. That is for
// claims, which are Idempotent; a late check of a limit is better decided by the rule's outage policy.
func (c *Call) deliver(ctx context.Context) (any, error) {
	r := c.Runner
	if r.rdb == nil {
		return nil, fmt.Errorf("script %s: %w", c.Script.name, ErrNoRedis)
	}
	last := time.Now().Add(r.SettleTimeout() - c.Limit) // a call that begins later ends too late
	var reply any
	var err error
	for again := true; again; ctx, again = whileItMoves(ctx, c.Script, err, last) {
		reply, err = c.pass(ctx)
	}
	return reply, r.failed(ctx, c.Script, err)
}

// whileItMoves reports whether to repeat a call that ended with err because its slot moves, and returns the
// context for that.
func whileItMoves(ctx context.Context, s *Script, err error, last time.Time) (context.Context, bool) {
	if err == nil || s.delivery != Idempotent || !isMoving(err) || time.Now().After(last) {
		return ctx, false
	}
	if shared, _ := ctx.Value(checkKey{}).(*check); shared != nil {
		shared.moved.Store(true)
		ctx = shared.caller
	}
	return ctx, ctx.Err() == nil
}

// pass makes the call once through the breaker, unless it has passed that already. It sends the script again
// when the server refused to run it at all: that is no second run. It stops before the deadline, so that the
// error is the server's, and the breaker can tell a moving slot from a dead server.
func (c *Call) pass(ctx context.Context) (reply any, err error) {
	var own leg
	l := &own
	if c.trip != nil && c.trip.leg.ctx != nil {
		l = &c.trip.leg
	} else {
		key := ""
		if len(c.Keys) > 0 {
			key = c.Keys[0]
		}
		if err := l.enter(ctx, c.Runner, c.Limit, key); err != nil {
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
		var first processor = r
		if shares {
			first = r.shared
		}
		if t := c.trip; t != nil && t.aboard { // it is under way
			t.aboard = false
			reply, err = r.shared.arrived(ctx, &t.waits)
			reply, err = known(ctx, first, s, AtMostOnce, t.waits.what.cmd, reply, err)
		} else {
			reply, err = eval(ctx, first, s, AtMostOnce, c.Keys, c.Args)
		}
		if err == nil || s.delivery == AtMostOnce || !r.resends || ctx.Err() != nil || !worthAnotherTry(err) {
			return reply, err
		}
		c.Resent = true
		sentAgain(ctx)
	}
	c.maybe = true
	return eval(ctx, r, s, s.delivery, c.Keys, c.Args)
}

// follow waits for the run that decides the call together with others of its group. Where that fails, an
// Idempotent script then runs for this call alone: in the rest of its time, unless its slot moves.
func (c *Call) follow(ctx context.Context) (any, error) {
	r, w := c.Runner, c.joined
	c.joined = nil
	reply, left, err := w.wait()
	switch {
	case left:
		// Otherwise the run has done this itself.
		return nil, r.failed(ctx, c.Joint.Script, r.named("", notRun(err, false)))
	case err == nil || c.Script.delivery != Idempotent || ctx.Err() != nil:
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
	reply, again := c.deliver(ctx)
	if sent && errors.Is(again, ErrBreakerOpen) {
		again = err // the joint run may have run, so there is something to undo
	}
	return reply, again
}

// check is what the calls of one check have in common.
type check struct {
	caller context.Context // without the deadline of the check
	moved  atomic.Bool     // a slot has moved meanwhile, so the deadline has no meaning for the check any more
}

type checkKey struct{}

// WithinDeadline returns a context for a check that makes several calls, which together have the runner's
// deadline. When a call was refused because its slot moves, the deadline ends for it and for later calls:
// then each has its own limit, see [Runner.RunWithin].
func (r *Runner) WithinDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	limited, cancel := context.WithTimeout(ctx, r.deadline)
	return context.WithValue(limited, checkKey{}, &check{caller: ctx}), cancel
}

// leg is the way of one call through the breaker of the server that has its key, within a limit. All calls
// that a runner makes for its guards go this way.
type leg struct {
	entry
	runner *Runner
	node   string
	ctx    context.Context // of the call, once its time has begun; else nil
	cancel context.CancelFunc
}

// enter returns an error if the breaker of the server is open. Otherwise leave has to be called. A call
// without a key may go to any server.
func (l *leg) enter(caller context.Context, r *Runner, limit time.Duration, key string) error {
	if shared, ok := caller.Value(checkKey{}).(*check); ok && shared.moved.Load() {
		caller = shared.caller
	}
	*l = leg{runner: r, entry: entry{caller: caller, key: key, limit: limit}}
	if r.breakers == nil {
		l.begun = time.Now()
		return nil
	}
	if r.breakers.nodeOf != nil && key != "" {
		begun := time.Now()
		node, err := call(caller, r, limit, "",
			obeying(r, func(ctx context.Context) (string, error) { return r.breakers.nodeOf(ctx, key) }), nil)
		if err != nil {
			return err
		}
		l.node, l.limit = node, limit-time.Since(begun) // which hardly ever needs the network
	}
	b := r.breakers.of(caller, l.node)
	l.breaker = b
	err := l.entry.enter(r.deadline)
	if err != nil {
		l.breaker = nil
	}
	return err
}

// begin begins the time of the call.
func (l *leg) begin(now time.Time) {
	l.begun = now
	l.ctx, l.cancel = context.WithDeadline(l.caller, now.Add(l.limit))
}

// beginAgain begins the time of the call once more where some of it has passed before it was sent.
func (l *leg) beginAgain(now time.Time) {
	if now.Sub(l.begun) > l.limit/16 {
		l.cancel()
		l.begin(now)
	}
}

// ended notes how the call has ended, and returns its error as callers see it. If heard is not nil, it
// reports whether the server answered a call that ended with an error.
func (l *leg) ended(err error, heard func() bool) error {
	l.cancel()
	cause := l.runner.named(l.node, err)
	if l.breaker != nil {
		l.entry.ended(err, cause, heard)
	}
	return cause
}

// leave ends the way, if it was entered, also when a hook of the application panics.
func (l *leg) leave() {
	if l.cancel != nil {
		l.cancel()
	}
	if l.breaker != nil {
		l.entry.leave()
	}
	l.breaker, l.ctx, l.cancel = nil, nil, nil
}

// call makes one call to Redis within the limit: see leg. f returns when its context ends: see obeying.
func call[T any](
	caller context.Context, r *Runner, limit time.Duration, key string, f func(context.Context) (T, error),
	heard func() bool,
) (value T, err error) {
	var l leg
	if err = l.enter(caller, r, limit, key); err != nil {
		return value, err
	}
	defer l.leave()
	l.begin(l.begun)
	value, err = f(l.ctx)
	return value, l.ended(err, heard)
}

// named says in an error which server it is about. The texts of timeouts and of lost connections do not.
func (r *Runner) named(node string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || isAnswer(err) && !isUnready(err) {
		return err
	}
	if node == "" {
		node = r.address
	}
	if node == "" {
		return err
	}
	return fmt.Errorf("redis at %s: %w", node, err)
}

// obeying makes f return when its context ends, also where the client ignores it.
func obeying[T any](r *Runner, f func(context.Context) (T, error)) func(context.Context) (T, error) {
	if r.obeysDeadline {
		return f
	}
	return func(ctx context.Context) (T, error) { return detached(ctx, f) }
}

// detached calls f in a goroutine and returns its result, or the context's error as soon as the context ends.
// Then f continues until the client's own timeouts end it. It is for clients that ignore their context.
func detached[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		select {
		case r := <-done: // f ended at the same time
			return r.value, r.err
		default:
		}
		var zero T
		return zero, ctx.Err()
	}
}
