package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Do does work that a guard allows: a call of a tool, a job, a request to a partner. It checks the attempt,
// calls work, and tells the guard how it ended.
//
//	err := core.Do(ctx, slots, core.Attempt{Actor: tenant, Resource: "exports"}, func(ctx context.Context) error {
//		return export(ctx, tenant)
//	})
//
// An attempt that is not allowed returns a [*Refused], and work is not called. Nor is it called, and the
// error is nil, for an attempt that is a replay of one whose work is done.
//
// When work returns nil, the attempt is committed. Where the guard must confirm it (see [Traits]) and cannot,
// that is the error. When work returns an error, panics or ends its goroutine, the attempt is rolled back, as
// it is in a rule: what a rate limit has counted still counts. What Redis does not hear is told it in the
// background: see [Drain].
//
// The context of work ends, with a cause that says so, when a claim is lost that the guard holds under a
// lease. Then the error is that cause, if work returns nil.
//
// When the guard cannot decide, its [Outage] policy does: the check is local, the work runs unguarded, or Do
// returns an [ErrUndecided].
//
// Work may call Do with another guard. If that refuses, and work returns its error, the attempt here is
// rolled back as well, also what a rate limit has counted.
func Do(ctx context.Context, g Guard, a Attempt, work func(ctx context.Context) error) error {
	t := g.Traits()
	var place Place
	if !t.KeepsOnFailure {
		if err := place.Take(); err != nil {
			return err
		}
		defer place.Free()
	}
	d, err := decide(ctx, g, a, t.Outage)
	switch {
	case errors.Is(err, ErrUndecided) && t.Outage == FailOpen:
		return work(ctx)
	case err != nil:
		return err
	case d.Reason == ReasonDone, d.Allowed && d.Kept:
		return nil
	case !d.Allowed && !a.Shadow:
		return &Refused{Decision: d}
	case !d.Allowed:
		return work(ctx)
	}
	one := &doing{guard: g, decision: d, place: &place, traits: &t, outer: doingOf(ctx)}
	return one.do(context.WithValue(ctx, doingKey{}, one), work)
}

// Spend says what the work of the innermost [Do] of this guard has really cost, in the units of Attempt.Cost.
// Several calls add up. The guard gives back the rest of the estimate, or charges what is missing, also if
// the work fails: see [CommitCost]. It reports whether the work runs. ctx is that of the work.
func Spend(ctx context.Context, guard string, units int64) bool {
	for one := doingOf(ctx); one != nil; one = one.outer {
		if one.guard.Name() == guard && units >= 0 {
			return one.spend(units)
		}
	}
	return false
}

// decide asks the guard, or what its policy for outages names.
func decide(ctx context.Context, g Guard, a Attempt, policy Outage) (Decision, error) {
	d, err := g.Check(ctx, a)
	if err == nil || errors.Is(err, ErrInvalid) || ctx.Err() != nil {
		return d, err
	}
	local, ok := g.(interface {
		CheckLocal(ctx context.Context, a Attempt) (Decision, error)
	})
	if ok && policy == FailLocal {
		return local.CheckLocal(ctx, a)
	}
	return d, fmt.Errorf("%w: %w", ErrUndecided, err)
}

// doing is work that an attempt allows.
type doing struct {
	guard    Guard
	decision Decision
	place    *Place
	traits   *Traits
	outer    *doing

	mu    sync.Mutex
	spent int64
	told  bool // spent is the real cost
	over  bool // it is too late to say more
}

// spend adds units to the real cost, if it is not too late.
func (one *doing) spend(units int64) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	if !one.over {
		one.told, one.spent = true, min(one.spent+min(units, MaxAmount), MaxAmount)
	}
	return !one.over
}

// end returns the real cost, if the work has told it. It is too late to say more.
func (one *doing) end() (spent int64, told bool) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.over = true
	return one.spent, one.told
}

type doingKey struct{}

func doingOf(ctx context.Context) *doing {
	one, _ := ctx.Value(doingKey{}).(*doing)
	return one
}

func (one *doing) do(ctx context.Context, work func(ctx context.Context) error) error {
	held, stop, returned := ctx, context.CancelFunc(func() {}), false
	defer func() {
		defer stop()
		if !returned { // it panics, or ends its goroutine, or the guard does in Hold
			_ = one.settle(ctx, errUnknownEnd) // nobody hears of it
		}
	}()
	if holder, ok := one.guard.(interface {
		Hold(ctx context.Context, d Decision) (held context.Context, stop context.CancelFunc)
	}); ok {
		held, stop = holder.Hold(ctx, one.decision)
	}
	err := work(held)
	returned = true
	if err == nil && held.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("core: guard %q: %w", one.decision.Guard, context.Cause(held))
	}
	if failed := one.settle(ctx, err); err == nil {
		err = failed
	}
	return err
}

// errUnknownEnd is the end of work that did not return.
var errUnknownEnd = errors.New("core: the work did not return")

// settle tells the guard how the work has ended. Only a failure of a claim that has to be confirmed is an
// error.
func (one *doing) settle(ctx context.Context, err error) error {
	spent, told := one.end()
	var refused *Refused // by another guard: nothing was done
	end := Rollback
	switch {
	case told && one.traits.Spends:
		end = CommitCost(spent)
	case err == nil, one.traits.KeepsOnFailure && !errors.As(err, &refused):
		end = Commit
	}
	if !one.traits.Confirms || !end.Commits() {
		one.place.Settle(ctx, one.guard, one.decision, end)
		return nil
	}
	err = one.guard.Settle(Settling(ctx), one.decision, end)
	switch {
	case err == nil || isFinal(err):
	case one.traits.KeepsOutcome: // it has been done, whatever Redis says
		one.place.SettleLater(one.guard, one.decision, end)
	default:
		one.place.SettleLater(one.guard, one.decision, Rollback)
	}
	return err
}
