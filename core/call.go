package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// check is what the calls of one check have in common.
type check struct {
	caller context.Context // without the deadline of the check
	moved  atomic.Bool     // a slot has moved meanwhile, so the deadline has no meaning for the check any more
}

type checkKey struct{}

// WithinDeadline returns a context for a check that makes several calls, which together have the engine's
// deadline. When a call was refused because its slot moves, the deadline ends for it and for later calls:
// then each has its own limit, see [Engine.RunWithin].
func (e *Engine) WithinDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	limited, cancel := context.WithTimeout(ctx, e.deadline)
	return context.WithValue(limited, checkKey{}, &check{caller: ctx}), cancel
}

// outlastMove repeats a call while its slot moves, for the time of [Engine.SettleTimeout] in all. In a
// classic migration a cluster refuses scripts with several keys until the last key has moved, often for
// longer than the deadline. The server has not run the script, so the call may be sent again. It is for
// claims, which are Idempotent; a late check of a limit is better decided by the rule's outage policy.
func (e *Engine) outlastMove(
	ctx context.Context, s *Script, limit time.Duration, send func() (any, error),
) (any, error) {
	if s.delivery != Idempotent {
		return send()
	}
	last := time.Now().Add(e.SettleTimeout() - limit) // a call that begins later ends too late
	shared, _ := ctx.Value(checkKey{}).(*check)
	for {
		reply, err := send()
		if err == nil || !isMoving(err) || time.Now().After(last) {
			return reply, err
		}
		if shared != nil {
			shared.moved.Store(true)
			ctx = shared.caller
		}
		if ctx.Err() != nil {
			return reply, err
		}
	}
}

// call makes one call to Redis within the limit, unless the breaker of the server that has the key is open.
// All calls that an engine makes for its guards go through it. f returns when its context ends: see obeying.
// A call without a key may go to any server. If heard is not nil, it reports whether the server answered a
// call that ended with an error.
func call[T any](
	caller context.Context, e *Engine, limit time.Duration, key string, f func(context.Context) (T, error),
	heard func() bool,
) (value T, err error) {
	if c, ok := caller.Value(checkKey{}).(*check); ok && c.moved.Load() {
		caller = c.caller
	}
	ctx := caller
	node := ""
	var through *entry
	var begun time.Time
	if e.breakers != nil {
		if e.breakers.nodeOf != nil && key != "" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit) // for both calls; the first hardly ever needs the network
			defer cancel()
			node, err = call(ctx, e, limit, "",
				obeying(e, func(ctx context.Context) (string, error) { return e.breakers.nodeOf(ctx, key) }), nil)
			if err != nil {
				return value, err
			}
		}
		if through, err = e.breakers.of(caller, node).enter(caller, key, limit, e.deadline); err != nil {
			return value, err
		}
		limit, begun = through.limit, through.begun
		defer through.leave() // also when a hook of the application panics
	} else {
		begun = time.Now()
	}
	ctx, cancel := context.WithDeadline(ctx, begun.Add(limit))
	value, err = f(ctx)
	cancel()
	cause := e.named(node, err)
	if through != nil {
		through.ended(err, cause, heard)
	}
	return value, cause
}

// named says in an error which server it is about. The texts of timeouts and of lost connections do not.
func (e *Engine) named(node string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || isAnswer(err) && !isUnready(err) {
		return err
	}
	if node == "" {
		node = e.address
	}
	if node == "" {
		return err
	}
	return fmt.Errorf("redis at %s: %w", node, err)
}

// obeying makes f return when its context ends, also where the client ignores it.
func obeying[T any](e *Engine, f func(context.Context) (T, error)) func(context.Context) (T, error) {
	if e.obeysDeadline {
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
