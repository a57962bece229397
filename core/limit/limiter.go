package limit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// algorithm is how a rate limit counts: the scripts, which take the same keys and arguments whatever the algorithm, and what
// is particular to it.
type algorithm struct {
	kind        string // a part of the keys, so that algorithms never read what another has written
	check, peek *core.Script
	one         *algorithm // decides a single limit that counts one by one, where there is a script for that alone
	refund      *core.Script
	newCounter  func() counter    // counts inside the process
	takes       func(Limit) error // finds limits that it can not keep
}

func newAlgorithm(kind, name, check, refund string, newCounter func() counter, takes func(Limit) error) *algorithm {
	return &algorithm{
		kind:       kind,
		check:      core.NewScript(name, check, core.AtMostOnce),
		peek:       core.NewScript(name, check, core.Idempotent), // without a cost the script only reads
		refund:     core.NewScript(name+"_refund", refund, core.Idempotent),
		newCounter: newCounter,
		takes:      takes,
	}
}

// upTo is for algorithms whose Max is bounded; holds says in the error whose bound it is.
func upTo(most int64, holds string) func(Limit) error {
	return func(l Limit) error {
		if l.Max > most {
			return fmt.Errorf("a limit of %d units: %s at most %d, so count larger units", l.Max, holds, most)
		}
		if l.Resolution != 0 {
			return fmt.Errorf("a resolution of %d: only a sliding window counts by parts", l.Resolution)
		}
		return nil
	}
}

// scripts returns what decides the limits.
func (alg *algorithm) scripts(limits *limitSet) *algorithm {
	if alg.one != nil && len(limits.limits) == 1 && limits.parts == nil {
		return alg.one
	}
	return alg
}

// limiter is what all rate limits are: limits, and an algorithm that counts by them.
type limiter struct {
	core.Base
	algorithm *algorithm
	limits    *limitSet // nil where by says
	by        Func      // nil where the limits are always the same
	local     func() *memory
	refusals  *refusals
}

// newLimiter makes a limiter with limits, or one that asks by. It panics on mistakes of set-up.
func newLimiter(e *core.Engine, alg *algorithm, name string, by Func, limits ...Limit) limiter {
	l := limiter{
		algorithm: alg, by: by, refusals: newRefusals(e.RefusalMemory()),
		local: sync.OnceValue(func() *memory { return newMemory(alg.newCounter, e.MemoryKeys()) }),
	}
	if len(limits) > 0 {
		var err error
		if l.limits, err = newLimitSet(limits, alg); err != nil {
			panic(fmt.Sprintf("core: %v (guard %q)", err, name))
		}
	} else if by == nil {
		panic(fmt.Sprintf("core: guard %q has no function for its limits: pass one that says which hold for an attempt", name))
	}
	scripts := []*core.Script{alg.check, alg.refund}
	if alg.one != nil {
		scripts = append(scripts, alg.one.check)
	}
	l.Base = e.Register(alg.kind, name, scripts...)
	return l
}

// Traits implements Guard: an attempt counts however its request ends.
func (l *limiter) Traits() core.Traits {
	return core.Traits{KeepsOnFailure: true, Outage: core.FailLocal, Unit: core.UnitRequests}
}

// CheckLocal implements LocalGuard: it decides exactly as Check does, but from what this process has let through by CheckLocal, and by
// the process's clock. It keeps that for as many actors as WithMemoryKeys says. In an engine without Redis it is Check.
func (l *limiter) CheckLocal(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	d, limits, err := l.begin(ctx, a)
	if limits != nil {
		l.decideLocal(&d, limits, begun, false)
	}
	return d, l.Observe(ctx, "check_local", begun, d, err)
}

// begin prepares an attempt and returns the limits that have to decide it: none beside an error, or when none is needed.
func (l *limiter) begin(ctx context.Context, a core.Attempt) (core.Decision, *limitSet, error) {
	a, err := a.Prepare()
	d := core.Decision{Guard: l.Name(), Attempt: a}
	if err != nil {
		return d, nil, err
	}
	limits, err := l.limitsOf(ctx, a)
	if err != nil {
		return d, nil, err
	}
	d.SetClaim(limits)
	if least := limits.least; a.Cost > least.Max {
		d.Reason, d.Limit, d.Window = core.ReasonOverLimit, least.Max, least.Window
		return d, nil, nil
	}
	return d, limits, nil
}

// decideLocal decides an attempt inside the process, as of the moment at which the call began.
func (l *limiter) decideLocal(d *core.Decision, limits *limitSet, begun time.Time, peek bool) {
	cost := d.Attempt.Cost
	if peek {
		cost = 0
	}
	v := l.local().decide(d.Attempt, limits.limits, cost, l.micros(begun))
	fill(d, v.allowed, v.remaining, v.moment, limits.limits[v.limit])
	d.Source = core.SourceLocal
	if !peek && v.allowed {
		d.SetClaim(&taken{limitSet: limits, stamp: v.moment, local: true})
	}
}

// micros is a moment that was read from the process's clock, as limits count inside the process.
func (l *limiter) micros(now time.Time) int64 {
	if l.Engine().HasClock() {
		now = l.Engine().Now()
	}
	return now.UnixMicro()
}

// Check implements Guard. The attempt's cost is how many units it takes; one that is more than the smallest limit is refused
// as ReasonOverLimit without asking Redis. A check is sent to Redis at most once: where its reply is lost it returns an
// error, and the units may have been taken. An attempt like one that was refused a moment ago may be refused without asking
// Redis: see WithRefusalMemory.
func (l *limiter) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	d, err := l.decide(ctx, begun, a, false)
	return d, l.Observe(ctx, "check", begun, d, err)
}

// Peek reports what Check would decide now for an attempt of one unit, whatever the attempt's Cost, without taking anything:
// whether it would be allowed, the units Remaining, and RetryAfter when there is none. It writes nothing. By the time that the
// caller acts, others may have taken what was left, so Peek is for showing; Check is for deciding.
func (l *limiter) Peek(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	a.Cost = 1
	d, err := l.decide(ctx, begun, a, true)
	return d, l.Observe(ctx, "peek", begun, d, err)
}

// Reset forgets what the attempt's actor has used of the attempt's resource, as if for the first time. With limits by
// attempt it does so for the limits that hold now. The attempt's other fields do not matter. This process sees it at once,
// others within the time of WithRefusalMemory; so it is with a Refund.
func (l *limiter) Reset(ctx context.Context, a core.Attempt) error {
	a.Cost = 1
	a, err := a.Prepare()
	return l.Call(ctx, "reset", a, func() error {
		if err != nil {
			return err
		}
		return l.reset(ctx, a)
	})
}

// Refund gives back what the attempt of an allowed decision took, as if it had not been made: once, however often it is
// called, and only as far as time has not given it back already; a fixed window, a token bucket and a sliding window by
// parts take it back within ten minutes of the attempt. The decision is one that this guard's Check returned in
// this process; another is an ErrInvalidAttempt. A refused decision took nothing, so nothing is done.
func (l *limiter) Refund(ctx context.Context, d core.Decision) error {
	return l.giveBack(ctx, "refund", d)
}

// Settle implements Guard: core.Rollback is Refund, core.Commit does nothing.
func (l *limiter) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if end.Commits() {
		return nil
	}
	return l.giveBack(ctx, "settle", d)
}

func (l *limiter) decide(ctx context.Context, begun time.Time, a core.Attempt, peek bool) (core.Decision, error) {
	if l.by != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.Engine().Deadline())
		defer cancel()
	}
	d, limits, err := l.begin(ctx, a)
	if limits == nil {
		return d, err
	}
	a = d.Attempt
	if !l.Engine().HasRedis() {
		l.decideLocal(&d, limits, begun, peek)
		return d, nil
	}

	var call core.Asked[string]
	if !peek {
		sent, key := l.Engine().Now(), core.TagOf(a)
		if r, ok := l.refusals.find(key, limits.limits, a.Cost, sent); ok {
			r.answer(&d, sent)
			return d, nil
		}
		call = l.refusals.ask(key, sent)
	}
	cost, script := a.Cost, l.algorithm.scripts(limits).check
	if peek {
		cost, script = 0, l.algorithm.scripts(limits).peek
	}
	args := slices.Clone(limits.words)
	now := l.Engine().ScriptNow(time.Microsecond)
	switch { // trailing arguments are left out where the script has a default
	case now != "" || limits.parts != nil:
		args = append(args, cost, now)
	case cost != 1:
		args = append(args, cost)
	}
	args = append(args, limits.parts...)
	value, err := l.Engine().RunWithin(ctx, l.Engine().Deadline(), script, l.keysOf(limits, a), args...)
	if err != nil {
		return d, err
	}
	stamp, err := readLimits(&d, value, limits)
	if err != nil || peek { // a peek has taken nothing, so there is nothing to give back
		return d, err
	}
	if d.Allowed {
		d.SetClaim(&taken{limitSet: limits, stamp: stamp})
	}
	l.refusals.hear(call, limits.limits, d, l.Engine().Now())
	return d, nil
}

// taken is what the limiter has to know of an allowed attempt to give its units back.
type taken struct {
	*limitSet
	stamp  int64 // when it took its units
	local  bool  // inside the process
	refund atomic.Bool
}

// readLimits fills in what a limit's script replied, and returns when an allowed attempt took its units.
func readLimits(d *core.Decision, value any, limits *limitSet) (stamp int64, err error) {
	r := core.ReadReply(value, 3, 4)
	allowed, remaining, moment := r.Flag(), r.Number(), r.Number()
	which := int64(1)
	if r.More() {
		which = r.Number()
	}
	if r.Err == nil && (which < 1 || which > int64(len(limits.limits))) {
		r.Err = fmt.Errorf("unexpected reply: there is no limit %d", which)
	}
	if r.Err != nil {
		return 0, r.Err
	}

	d.Source = core.SourceRedis
	fill(d, allowed, remaining, moment, limits.limits[which-1])
	return moment, nil
}

// fill fills in what the binding limit says: moment is the stamp when allowed, else how long to wait, in microseconds.
func fill(d *core.Decision, allowed bool, remaining, moment int64, speaks Limit) {
	d.Allowed, d.Limit, d.Window, d.Remaining = allowed, speaks.Max, speaks.Window, max(remaining, 0)
	if allowed {
		d.Reason, d.ResetAfter = core.ReasonOK, speaks.Window
	} else {
		d.Reason = core.ReasonLimited
		d.RetryAfter = core.DurationOf(moment, time.Microsecond)
		d.ResetAfter = d.RetryAfter
	}
}

func (l *limiter) reset(ctx context.Context, a core.Attempt) error {
	limits, err := l.limitsOf(ctx, a)
	if err != nil {
		return err
	}
	l.local().forget(a, limits.limits)
	if !l.Engine().HasRedis() {
		return nil
	}
	defer l.refusals.drop(core.TagOf(a)) // when it has been done, or may have been
	return l.Delete(ctx, l.keysOf(limits, a)...)
}

func (l *limiter) giveBack(ctx context.Context, op string, d core.Decision) error {
	if !d.Allowed {
		return nil
	}
	begun := time.Now()
	return l.Observe(ctx, op, begun, d, l.refund(ctx, begun, d))
}

func (l *limiter) refund(ctx context.Context, begun time.Time, d core.Decision) error {
	took, err := core.Claimed[*taken](&l.Base, d)
	if err != nil {
		return err
	}
	if took.local {
		if took.refund.CompareAndSwap(false, true) {
			l.local().giveBack(d.Attempt, took.limits, l.micros(begun), took.stamp)
		}
		return nil
	}
	defer l.refusals.drop(core.TagOf(d.Attempt)) // when it has been done, or may have been
	mark := l.Key(core.TagOf(d.Attempt), "refund", strconv.FormatInt(took.stamp, 10), core.Encode(d.Attempt.ID))
	args := append(slices.Clone(took.words), d.Attempt.Cost, took.stamp)
	if now := l.Engine().ScriptNow(time.Microsecond); now != "" || took.parts != nil {
		args = append(args, now)
	}
	args = append(args, took.parts...)
	_, err = l.Engine().RunWithin(ctx, l.Engine().SettleTimeout(), l.algorithm.refund,
		append([]string{mark}, l.keysOf(took.limitSet, d.Attempt)...), args...)
	return err
}

// limitsOf returns the limits that hold for the attempt.
func (l *limiter) limitsOf(ctx context.Context, a core.Attempt) (*limitSet, error) {
	if l.by == nil {
		return l.limits, nil
	}
	limits, err := l.by(ctx, a)
	if err == nil {
		err = ctx.Err() // limits that come too late decide nothing
	}
	if err != nil {
		return nil, fmt.Errorf("the attempt's limits: %w", err)
	}
	set, err := newLimitSet(limits, l.algorithm)
	if err != nil {
		return nil, fmt.Errorf("the attempt's limits: %w", err)
	}
	return set, nil
}

// keysOf are the keys in which the attempt's units are counted, one for each limit.
func (l *limiter) keysOf(limits *limitSet, a core.Attempt) []string {
	t := core.TagOf(a)
	keys := make([]string, len(limits.windows))
	for i, window := range limits.windows {
		keys[i] = l.Key(t, window)
	}
	return keys
}
