package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Wait is [SlidingWindow.Check] for a caller that can wait, such as a worker or a client of a partner's API:
// it returns when the attempt has its units. It is not for requests of clients, which would hold connections.
//
// A process has one line per actor and resource. The first in line is asked about when its units are free, at
// the moment that the last answer named, and all others sleep. So nobody asks while nothing is free.
// Within the process they are served as they come: a large cost is not overtaken by small ones. Between
// processes the order is not kept. Check knows no line, and may take what others wait for.
//
// Wait returns a [core.Refused] when the attempt cannot be allowed before the deadline of ctx, with the
// earliest moment at which it could be, as soon as it knows that. It does so for a Cost above the limit, too.
// When ctx ends first, it returns that cause, and no unit is taken. When Redis does not answer, it returns
// the error; see WaitLocal. [core.Drain] ends all waits with [core.ErrDrained].
//
// Units that another process gives back, and limits that were changed, are seen within 10 seconds, and those
// of this process at once. The observer gets one event, check_wait, whose Took includes the wait.
func (l *limiter) Wait(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return l.waits.wait(ctx, a)
}

// WaitLocal implements [kit.Waiter]. It is Wait by the rules of CheckLocal: for an outage, after Wait has
// returned an error.
func (l *limiter) WaitLocal(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return l.waitsHere.wait(ctx, a)
}

// ready sets the guard itself, and how its attempts are decided.
func (l *limiter) ready(self kit.Phased) {
	l.phases = self
	l.waits = newLines(l, func(ctx context.Context, a core.Attempt) (core.Decision, error) {
		return l.decide(ctx, present(), a)
	})
	if l.Engine().HasRedis() {
		l.waits.turns = sync.OnceValue(newTurns)
	}
	l.waitsHere = newLines(l, func(ctx context.Context, a core.Attempt) (core.Decision, error) {
		d := core.Decision{Attempt: a}
		limits, err := l.begin(ctx, &d)
		if limits != nil {
			l.decideLocal(&d, limits, present(), false)
		}
		return d, err
	})
}

// freed is called when units of an actor may have come back.
func (l *limiter) freed(tag string) {
	l.refusals.drop(tag)
	l.waits.freed(tag)
	l.waitsHere.freed(tag)
}

// wait lets the attempt stand in line until it is decided.
func (s *lines) wait(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := present()
	d := core.Decision{Attempt: a}
	err := s.decided(ctx, &d)
	ended := context.Cause(ctx)
	if errors.Is(err, core.ErrDrained) {
		ended, err = err, nil
	}
	err = s.l.Observe(ctx, "check_wait", begun, d, err)
	switch {
	case err != nil || d.Allowed:
		return d, err
	case d.Reason == "": // it does not wait any longer
		return d, fmt.Errorf("core: check_wait %q: %w", d.Guard, ended)
	}
	return d, &core.Refused{Decision: d}
}

// decided writes the decision into d. It has no Reason if the context has ended.
func (s *lines) decided(ctx context.Context, d *core.Decision) error {
	d.Guard = s.l.Name()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // wait returns the cause
	}
	limits, err := s.l.begin(ctx, d)
	if limits == nil {
		return err
	}
	a := &d.Attempt
	w := &waiter{ctx: ctx, cost: a.Cost, came: elapsed(present()), deadline: never}
	if deadline, ok := ctx.Deadline(); ok {
		w.deadline = elapsed(deadline)
	}
	if s.l.by != nil {
		w.own = &ownLimits{*a, limits}
	}
	d.SetClaim(nil)
	n, alone := s.enter(kit.TagOf(*a), a, w)
	if !alone || !s.askAlone(n, w) {
		select {
		case <-w.ready:
		case <-ctx.Done():
			if left, retry := s.leave(n, w); left {
				d.RetryAfter = retry
				return nil
			}
		}
	}
	attempt := d.Attempt
	*d = *w.answer
	d.Guard, d.Attempt = s.l.Name(), attempt
	return w.err
}

// never is a deadline that does not come.
const never = math.MaxInt64

// elapsed is a moment as lines count: by the monotonic clock, if it has a reading of that.
func elapsed(t time.Time) int64 { return t.Sub(processBegun).Microseconds() }
