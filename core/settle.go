package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/backlog"
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// This file tells guards how attempts ended, and undoes what may have been done: in the background where
// Redis does not answer.

const (
	// settleShortest and settleLongest bound how long tries are repeated: longer than a failover takes, but
	// not for hours, as claims end with their lease.
	settleShortest = 30 * time.Second
	settleLongest  = 10 * time.Minute
	// bodiesMost is how many bytes of response bodies can wait to be stored. Beyond it, an operation is
	// stored as done but without its response.
	bodiesMost = 64 << 20
)

// bodies is how many bytes of response bodies wait to be stored.
var bodies atomic.Int64

// Place reserves room for one attempt whose ending may have to be told to its guard later. The zero value has
// no room yet. The methods of a Place must not be called concurrently.
//
// Place is for adapters: call Take before Guard.Check, and Settle, SettleLater or Free when the attempt has
// ended.
type Place struct{ taken bool }

// Take takes the place, or returns [ErrTooManyPending]. Taking a place twice has the effect of taking it
// once.
func (p *Place) Take() error {
	if !p.taken && !backlog.Take() {
		return ErrTooManyPending
	}
	p.taken = true
	return nil
}

// Free releases the place. It has no effect when the place is not taken.
func (p *Place) Free() {
	if p.taken {
		p.taken = false
		backlog.Free()
	}
}

// Settling returns a context for settling: ctx without its end. The caller may have left when the work is
// over, and the claim is settled all the same. A guard's Settle begins with it. The calls to Redis have
// limits of their own: see [script.Runner.SettleTimeout].
func Settling(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// Settle tells the guard how an attempt ended, as Guard.Settle does, whether or not ctx has ended, and
// releases the place. When the guard fails, Settle retries in the background, as [Place.SettleLater]
// describes.
func (p *Place) Settle(ctx context.Context, g Guard, d Decision, end Ending) {
	p.Settled(g, d, end, g.Settle(Settling(ctx), d, end))
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
// It retries for as long as the claim is held (Decision.ResetAfter), but for at least 30 seconds and at
// most 10 minutes. For a rate limit, it retries for 30 seconds. After that, the observer of the guard's
// engine gets an [ErrUnsettled]. If an application's own guard has no engine, the error is logged.
// Retries are safe, because settling twice has the effect of settling once. [Drain] waits for them.
//
// When the place was not taken and none is free, SettleLater does not try, and reports the error at once.
func (p *Place) SettleLater(g Guard, d Decision, end Ending) {
	p.settleLater(g, d, end, nil)
}

func (p *Place) settleLater(g Guard, d Decision, end Ending, err error) {
	if p.Take() != nil {
		unsettled(g, d, fmt.Errorf("%w: %w: %w", ErrUnsettled, ErrTooManyPending, err))
		return
	}
	p.taken = false // the job releases it
	kept := 0
	if o := end.Outcome(); o != nil && len(o.Body) > 0 {
		if kept = len(o.Body); bodies.Add(int64(kept)) > bodiesMost {
			bodies.Add(-int64(kept))
			kept, end = 0, CommitWith(&Outcome{Status: o.Status, Header: o.Header, Incomplete: true})
		}
	}
	now := time.Now()
	backlog.Add(laneOf(g), &backlog.Job{
		Try: func(ctx context.Context) error { return unlessFinal(g.Settle(ctx, d, end)) },
		Due: now.Add(backlog.FirstPause), Until: now.Add(patience(g, d)),
		Lost: func(err error) { unsettled(g, d, fmt.Errorf("%w: %w", ErrUnsettled, err)) },
		Done: func() { bodies.Add(-int64(kept)) },
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

// unlessFinal returns the error if a retry may get another answer.
func unlessFinal(err error) error {
	if isFinal(err) {
		return nil
	}
	return err
}

// laneOf returns the key of the lane for a guard's jobs. All guards of one engine, and so of one Redis, share
// a lane.
func laneOf(g Guard) any {
	if own, ok := g.(interface{ Engine() *Engine }); ok && own.Engine() != nil {
		return own.Engine()
	}
	if reflect.ValueOf(g).Comparable() {
		return g
	}
	return nil
}

// unsettled reports that settling an attempt was given up. A guard without an engine has no observer, so
// the error is logged: by the guard's own logger, if it has a method Logger as Base has. Each guard's first
// error is logged, and then one per minute, since an outage may end with thousands.
func unsettled(g Guard, d Decision, err error) {
	if own, ok := g.(interface{ Engine() *Engine }); ok && own.Engine() != nil {
		own.Engine().Observe(context.Background(),
			Event{Guard: g.Name(), Op: "settle", Decision: d, Err: err})
		return
	}
	if skipped, ok := unsettledOf.Due(g.Name()); ok {
		LoggerOf(g).Error("gatehouse: gave up settling an attempt", "guard", g.Name(), "err", err,
			"attempts_not_logged", skipped)
	}
}

// unsettledOf says which errors are logged, by the names of guards without an engine.
var unsettledOf warn.Sample[string]

// LoggerOf returns the logger for messages about a guard: the result of its method Logger, which kit.Base
// has, or slog.Default.
func LoggerOf(guard any) *slog.Logger {
	if own, ok := guard.(interface{ Logger() *slog.Logger }); ok {
		if logger := own.Logger(); logger != nil {
			return logger
		}
	}
	return slog.Default()
}
