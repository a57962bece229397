package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// call makes one call to Redis within the limit, unless the breaker of the server that has the key is open.
// All calls that an engine makes for its guards go through it. A call without a key may go to any server. If
// heard is not nil, it reports whether the server answered a call that ended with an error.
func call[T any](
	caller context.Context, e *Engine, limit time.Duration, key string, f func(context.Context) (T, error),
	heard func() bool,
) (value T, err error) {
	ctx := caller
	node := ""
	var through *entry
	if e.breakers != nil {
		if e.breakers.nodeOf != nil && key != "" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit) // for both calls; the first hardly ever needs the network
			defer cancel()
			node, err = call(ctx, e, limit, "",
				func(ctx context.Context) (string, error) { return e.breakers.nodeOf(ctx, key) }, nil)
			if err != nil {
				return value, err
			}
		}
		if through, err = e.breakers.of(caller, node).enter(caller, key, limit, e.deadline); err != nil {
			return value, err
		}
		limit = through.limit
		defer through.leave() // also when a hook of the application panics
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	if e.obeysDeadline {
		value, err = f(ctx)
		cancel()
	} else {
		value, err = detached(ctx, cancel, f)
	}
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

// detached calls f in a goroutine and returns its result, or the context's error as soon as the context ends.
// Then f continues until the client's own timeouts end it. It is for clients that ignore their context.
func detached[T any](
	ctx context.Context, cancel context.CancelFunc, f func(context.Context) (T, error),
) (T, error) {
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
		case r := <-done: // f ended first and cancelled the context
			return r.value, r.err
		default:
		}
		var zero T
		return zero, ctx.Err()
	}
}
