package core

import (
	"context"
	"time"
)

// call makes one call to Redis within the limit, unless the breaker before the server that has the key is open. All that an engine
// sends for its guards goes through it. A call without a key may go to any server. heard, where it is given, reports that a call
// that has ended with an error was answered by its server all the same.
func call[T any](
	caller context.Context, e *Engine, limit time.Duration, key string, f func(context.Context) (T, error), heard func() bool,
) (value T, err error) {
	ctx := caller
	var through *entry
	if e.breakers != nil {
		node := ""
		if e.breakers.nodeOf != nil && key != "" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit) // for both calls, the first of which hardly ever needs the network
			defer cancel()
			node, err = call(ctx, e, limit, "", func(ctx context.Context) (string, error) { return e.breakers.nodeOf(ctx, key) }, nil)
			if err != nil {
				return value, err
			}
		}
		if through, err = e.breakers.of(caller, node).enter(caller, limit, e.deadline); err != nil {
			return value, err
		}
		limit = through.limit
		defer through.leave() // also should the call panic, in a hook of the application's
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	if e.obeysDeadline {
		value, err = f(ctx)
		cancel()
	} else {
		value, err = detached(ctx, cancel, f)
	}
	if through != nil {
		through.ended(err, heard)
	}
	return value, err
}

// detached calls f and returns what it returns, or the context's error as soon as the context is over: f goes on in its goroutine until the
// client's own time-outs end it. It is for clients that do not obey their context.
func detached[T any](ctx context.Context, cancel context.CancelFunc, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer cancel()
		value, err := f(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		select {
		case r := <-done: // f ended first and cancelled the context itself
			return r.value, r.err
		default:
		}
		var zero T
		return zero, ctx.Err()
	}
}
