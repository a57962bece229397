package core

import (
	"context"
	"fmt"
	"slices"
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
// under Max is refused. It keeps a log of the units admitted, about 10 bytes each, in the server's clock.
//
// A refused attempt takes nothing. A check is sent to Redis at most once: where its reply is lost it returns an error,
// and a unit may have been taken.
//
// Per-IP limiting is this guard with the address as the Actor. Attempts with different Resources have separate budgets.
type SlidingWindow struct {
	guard
	limits  []Limit
	least   int      // index of the smallest limit
	windows []string // in milliseconds, as the logs are named by
	words   []any    // the limits as the script takes them
}

// SlidingWindow makes a rate limit. With several limits, such as PerSecond(10) and PerDay(1000), an attempt must fit all of
// them, and a refusal names the one that is full for the longest time. It panics when the name is taken or not a name, or
// the limits make no sense.
//
// Each window has a log of its own, so a limit whose Max is changed from one deployment to the next goes on counting.
func (e *Engine) SlidingWindow(name string, limit Limit, more ...Limit) *SlidingWindow {
	g := &SlidingWindow{limits: append([]Limit{limit}, more...)}
	for i, l := range g.limits {
		if err := l.check(); err != nil {
			panic(fmt.Sprintf("%v (guard %q)", err, name))
		}
		window := strconv.FormatInt(l.Window.Milliseconds(), 10)
		if slices.Contains(g.windows, window) {
			panic(fmt.Sprintf("core: two limits with the window %v: keep the smaller one (guard %q)", l.Window, name))
		}
		if l.Max < g.limits[g.least].Max {
			g.least = i
		}
		g.windows = append(g.windows, window)
		g.words = append(g.words, l.Max, window)
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

	args := slices.Clone(g.words)
	now := g.engine.now(time.Microsecond)
	if a.Cost != 1 || now != "" {
		args = append(args, a.Cost)
	}
	if now != "" {
		args = append(args, now)
	}
	value, err := g.engine.run(ctx, g.engine.deadline, slidingWindowScript, g.logKeys(a), args...)
	if err != nil {
		return d, err
	}
	r := readReply(value, 3, 4)
	allowed, remaining, moment := r.flag(), r.number(), r.number()
	which := int64(1)
	if r.more() {
		which = r.number()
	}
	if r.err == nil && (which < 1 || which > int64(len(g.limits))) {
		r.err = fmt.Errorf("unexpected reply: there is no limit %d", which)
	}
	if r.err != nil {
		return d, r.err
	}

	speaks := g.limits[which-1]
	d.Allowed, d.Limit, d.Window, d.Remaining = allowed, speaks.Max, speaks.Window, max(remaining, 0)
	if allowed {
		d.Reason, d.stamp, d.ResetAfter = ReasonOK, moment, speaks.Window
	} else {
		d.Reason = ReasonLimited
		d.RetryAfter = durationOf(moment, time.Microsecond)
		d.ResetAfter = d.RetryAfter
	}
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

// refundRemember is how long a refund is remembered, so that one that is sent again does not count again. It is longer than
// anybody sends it again, and short, because refused requests give back what earlier rules took: each leaves a mark.
const refundRemember = time.Minute

func (g *SlidingWindow) refund(ctx context.Context, d Decision) error {
	if d.stamp == 0 {
		return fmt.Errorf("%w: the decision is not one that this guard allowed", ErrInvalidAttempt)
	}
	mark := g.keys.key(g.tag(d.Attempt), "refund", strconv.FormatInt(d.stamp, 10), encode(d.Attempt.ID))
	args := []any{d.stamp, d.Attempt.Cost, refundRemember.Milliseconds()}
	for _, window := range g.windows {
		args = append(args, window)
	}
	_, err := g.engine.run(ctx, g.engine.settleLimit(), slidingWindowRefundScript,
		append([]string{mark}, g.logKeys(d.Attempt)...), args...)
	return err
}

// logKeys are the keys of the attempt's logs, one for each limit.
func (g *SlidingWindow) logKeys(a Attempt) []string {
	t := g.tag(a)
	keys := make([]string, len(g.windows))
	for i, window := range g.windows {
		keys[i] = g.keys.key(t, window)
	}
	return keys
}

func (g *SlidingWindow) tag(a Attempt) string {
	if a.Resource == "" {
		return encode(a.Actor)
	}
	return tag(encode(a.Resource), encode(a.Actor))
}
