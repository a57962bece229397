package script

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// This file takes a call through the breaker of its server, within its time.

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

// round is one call through the breaker of the server that has its key, within a limit. All calls that a
// runner makes for its guards go this way. A call whose slot moves takes several rounds.
type round struct {
	entry
	runner *Runner
	node   string
	ctx    context.Context // of the call, once its time has begun; else nil
	cancel context.CancelFunc
}

// enter returns an error if the breaker of the server is open. Otherwise leave has to be called. A call
// without a key may go to any server.
func (rd *round) enter(
	caller context.Context, r *Runner, now time.Time, limit time.Duration, key string,
) error {
	if shared, ok := caller.Value(checkKey{}).(*check); ok && shared.moved.Load() {
		caller = shared.caller
	}
	*rd = round{runner: r, entry: entry{caller: caller, key: key, limit: limit}}
	if r.breakers == nil {
		rd.begun = now
		return nil
	}
	if r.breakers.nodeOf != nil && key != "" {
		node, err := call(caller, r, limit, "",
			obeying(r.connection, func(ctx context.Context) (string, error) {
				return r.breakers.nodeOf(ctx, key)
			}), nil)
		if err != nil {
			return err
		}
		begun := now
		now = time.Now()
		rd.node, rd.limit = node, limit-now.Sub(begun) // which hardly ever needs the network
	}
	b := r.breakers.of(caller, rd.node)
	rd.breaker = b
	err := rd.entry.enter(now, r.deadline)
	if err != nil {
		rd.breaker = nil
	}
	return err
}

// begin begins the time of the call.
func (rd *round) begin(now time.Time) {
	rd.begun = now
	rd.ctx, rd.cancel = rd.runner.within(rd.caller, now, rd.limit)
}

// beginAgain begins the time of the call once more where some of it has passed before it was sent.
func (rd *round) beginAgain(now time.Time) {
	if now.Sub(rd.begun) > rd.limit/16 {
		rd.cancel()
		rd.begin(now)
	}
}

// ended notes how the call has ended, and returns its error as callers see it. If heard is not nil, it
// reports whether the server answered a call that ended with an error.
func (rd *round) ended(err error, heard func() bool) error {
	rd.cancel()
	cause := rd.runner.named(rd.node, err)
	if rd.breaker != nil {
		rd.entry.ended(err, cause, heard)
	}
	return cause
}

// leave ends the way, if it was entered, also when a hook of the application panics.
func (rd *round) leave() {
	if rd.cancel != nil {
		rd.cancel()
	}
	if rd.breaker != nil {
		rd.entry.leave()
	}
	rd.breaker, rd.ctx, rd.cancel = nil, nil, nil
}

// call makes one call to Redis within the limit: see round. f returns when its context ends: see obeying.
func call[T any](
	caller context.Context, r *Runner, limit time.Duration, key string, f func(context.Context) (T, error),
	heard func() bool,
) (value T, err error) {
	var rd round
	if err = rd.enter(caller, r, time.Now(), limit, key); err != nil {
		return value, err
	}
	defer rd.leave()
	rd.begin(rd.begun)
	value, err = f(rd.ctx)
	return value, rd.ended(err, heard)
}

// failed names the script in an error, and reloads the topology if the error suggests that it has changed.
func (r *Runner) failed(ctx context.Context, s *Script, err error) error {
	if err == nil {
		return nil
	}
	r.suspectTopology(ctx, err)
	return fmt.Errorf("script %s: %w", s.name, err)
}
