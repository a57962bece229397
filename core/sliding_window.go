package core

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	slidingWindowScript = NewScript("sliding_window", lua.SlidingWindow, Once)
	// A refund marks itself, so it can be sent again.
	slidingWindowRefundScript = NewScript("sliding_window_refund", lua.SlidingWindowRefund, Replayable)
)

// SlidingWindow is the exact rate limit: never more than Max units in any window of the given length, and nobody who is
// under Max is refused. It keeps a log of the units admitted, 7 bytes each, in the server's clock.
//
// A refused attempt takes nothing. A check is sent to Redis at most once: where its reply is lost it returns an error,
// and a unit may have been taken.
//
// Per-IP limiting is this guard with the address as the Actor. Attempts with different Resources have separate budgets.
type SlidingWindow struct {
	guard
	limits  []Limit
	longest time.Duration
	least   int // index of the smallest limit
	words   []any
}

// SlidingWindow makes a rate limit. With several limits, such as PerSecond(10) and PerDay(1000), an attempt must fit all of
// them, and a refusal names the one that is full for the longest time. It panics when the name is taken or not a name, or
// a limit makes no sense.
func (e *Engine) SlidingWindow(name string, limit Limit, more ...Limit) *SlidingWindow {
	g := &SlidingWindow{limits: append([]Limit{limit}, more...)}
	for i, l := range g.limits {
		if err := l.check(); err != nil {
			panic(fmt.Sprintf("%v (guard %q)", err, name))
		}
		if l.Max < g.limits[g.least].Max {
			g.least = i
		}
		g.longest = max(g.longest, l.Window)
		g.words = append(g.words, l.Max, l.Window.Milliseconds())
	}
	g.guard = e.register("window", name, slidingWindowScript, slidingWindowRefundScript)
	return g
}

// Traits implements Guard: an attempt counts however its request ends.
func (g *SlidingWindow) Traits() Traits {
	return Traits{KeepsOnFailure: true, Outage: OutageClosed}
}

// Check implements Guard. The attempt's cost is how many units it takes; one that is more than the smallest limit is refused
// as ReasonOverLimit without asking Redis.
func (g *SlidingWindow) Check(ctx context.Context, a Attempt) (Decision, error) {
	begun := time.Now()
	d, err := g.check(ctx, a)
	return d, g.observe(ctx, "check", begun, d, err)
}

func (g *SlidingWindow) check(ctx context.Context, a Attempt) (Decision, error) {
	a, err := a.prepare()
	d := Decision{Guard: g.name, Attempt: a}
	if err != nil {
		return d, err
	}
	if least := g.limits[g.least]; a.Cost > least.Max {
		d.Reason, d.Limit, d.Window = ReasonOverLimit, least.Max, least.Window
		return d, nil
	}

	args := append([]any{a.Cost, g.engine.now(time.Microsecond)}, g.words...)
	value, err := g.engine.run(ctx, g.engine.deadline, slidingWindowScript, []string{g.logKey(a)}, args...)
	if err != nil {
		return d, err
	}
	r := readReply(value, 6)
	allowed, which := r.flag(), r.number()
	remaining, retry, reset := r.number(), r.duration(time.Microsecond), r.duration(time.Microsecond)
	stamp := r.number()
	if r.err == nil && (which < 1 || which > int64(len(g.limits))) {
		r.err = fmt.Errorf("unexpected reply: there is no limit %d", which)
	}
	if r.err != nil {
		return d, r.err
	}

	speaks := g.limits[which-1]
	d.Allowed, d.Reason = allowed, ReasonOK
	if !allowed {
		d.Reason = ReasonLimited
	}
	d.Limit, d.Window, d.Remaining = speaks.Max, speaks.Window, remaining
	d.RetryAfter, d.ResetAfter, d.stamp = retry, reset, stamp
	return d, nil
}

// Settle implements Guard: not ok takes the attempt's units out of the log again, the very ones, once.
func (g *SlidingWindow) Settle(ctx context.Context, d Decision, ok bool) error {
	if ok || !d.Allowed {
		return nil
	}
	begun := time.Now()
	return g.observe(ctx, "settle", begun, d, g.refund(ctx, d))
}

func (g *SlidingWindow) refund(ctx context.Context, d Decision) error {
	if d.stamp == 0 {
		return fmt.Errorf("%w: the decision is not one that this guard allowed", ErrInvalidAttempt)
	}
	mark := g.keys.key(g.tag(d.Attempt), "refund", strconv.FormatInt(d.stamp, 10), encode(d.Attempt.ID))
	keys := []string{g.logKey(d.Attempt), mark}
	_, err := g.engine.run(ctx, g.engine.settleLimit(), slidingWindowRefundScript, keys,
		d.stamp, d.Attempt.Cost, g.longest.Milliseconds(), g.engine.now(time.Microsecond))
	return err
}

func (g *SlidingWindow) logKey(a Attempt) string { return g.keys.key(g.tag(a)) }

func (g *SlidingWindow) tag(a Attempt) string {
	if a.Resource == "" {
		return encode(a.Actor)
	}
	return tag(encode(a.Resource), encode(a.Actor))
}
