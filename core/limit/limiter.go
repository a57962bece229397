package limit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/inflight"
	"github.com/gatehouse-go/gatehouse/lua"
)

// algorithm is how a rate limit counts. The scripts of all algorithms take the same keys and arguments.
type algorithm struct {
	kind       string            // a part of the keys, so that no algorithm reads what another has written
	log        bool              // all limits of an actor are views of one log: see log.go. Else each has a key
	decide     *scripts          // of an algorithm without a log
	settle     *script.Script    // sent once; an argument says whether an earlier call may have run
	newCounter func() counter    // counts inside the process
	accepts    func(Limit) error // returns an error for a limit that the algorithm cannot keep
}

// scripts are two uses of one script.
type scripts struct {
	check, peek *script.Script
}

func (s *scripts) of(peek bool) *script.Script {
	if peek {
		return s.peek
	}
	return s.check
}

func newScripts(name, source string) *scripts {
	return &scripts{
		check: script.New(name, source, script.AtMostOnce).Shared(),
		peek:  script.New(name, source, script.Idempotent).Shared(), // with a cost of 0 the script only reads
	}
}

// newAlgorithm returns an algorithm without a log, with the scripts of that name.
func newAlgorithm(kind, name string, newCounter func() counter, accepts func(Limit) error) *algorithm {
	source := lua.Source("limit/" + name + "_settle")
	return &algorithm{
		kind:       kind,
		decide:     newScripts(name, lua.Source("limit/"+name)),
		settle:     script.New(name+"_settle", source, script.AtMostOnce).Shared(), // a late one finds its name
		newCounter: newCounter,
		accepts:    accepts,
	}
}

// upTo returns the accepts function of an algorithm that counts up to most units and has no resolution. The
// error names the algorithm with holds.
func upTo(most int64, holds string) func(Limit) error {
	return func(l Limit) error {
		if l.Max > most {
			return fmt.Errorf("a limit of %d units: %s at most %d, so count in larger units", l.Max, holds, most)
		}
		if l.Resolution != 0 {
			return fmt.Errorf("a resolution of %d: only a sliding window has one, so leave it out", l.Resolution)
		}
		return nil
	}
}

// limiter is the common part of all rate limits.
type limiter struct {
	kit.Base
	algorithm *algorithm
	limits    *limitSet     // nil if by returns the limits
	by        Func          // nil if the limits are fixed
	tiers     func() []Tier // the choices of by, for operators; or nil
	local     func() *memory
	last      *lastAnswers // of Redis, from which local goes on; nil on an engine without
	refusals  *refusals
	inFlight  *inflight.Units // by tags: asked for and not answered by Redis
	ahead     *Ahead          // of package lease; or nil
	askLong   *askLong
	phases    kit.Phased // the guard itself
	waits     *lines     // of Wait
	waitsHere *lines     // of WaitLocal
}

// newLimiter returns a limiter with fixed limits, or with those that by returns. It panics on setup mistakes.
func newLimiter(e *core.Engine, alg *algorithm, name string, by Func, limits ...Limit) limiter {
	var said *lastAnswers
	if e.HasRedis() {
		said = newLastAnswers(e.MemoryKeys())
	}
	l := limiter{
		algorithm: alg, by: by, last: said, refusals: newRefusals(e.RefusalMemory()),
		inFlight: inflight.New(), askLong: new(askLong),
		local: sync.OnceValue(func() *memory {
			m := newMemory(alg.newCounter, e.MemoryKeys(), alg.log && !e.HasRedis())
			m.store.ordered = !e.HasClock() // else a test may set it back
			m.last = said
			return m
		}),
	}
	if len(limits) > 0 {
		var err error
		if l.limits, err = newLimitSet(limits, alg); err != nil {
			panic(fmt.Sprintf("limit: %v (guard %q)", err, name))
		}
	} else if by == nil {
		panic(fmt.Sprintf("limit: guard %q has no function for its limits: "+
			"pass one that returns the limits of an attempt", name))
	}
	sent := []*script.Script{slidingWindowScript.check, slidingPartsScript.check, slidingLogScript.check,
		slidingSettleScript, turnScript}
	if !alg.log {
		sent = []*script.Script{alg.decide.check, alg.settle, turnScript}
	}
	l.Base = kit.Register(e, alg.kind, name, sent...)
	return l
}

// Override has another function choose the limits of attempts. The function must not wait for anything. by
// makes it from the present one. Call Override before the guard is used. Package control does so.
func (l *limiter) Override(by func(own Func) Func) {
	own := l.by
	if own == nil {
		own = func(context.Context, core.Attempt) ([]Limit, error) { return l.limits.limits, nil }
	}
	l.by = by(own)
}

// Accepts returns an error for limits that the guard cannot keep. No limits are none.
func (l *limiter) Accepts(limits ...Limit) error {
	_, err := newLimitSet(limits, l.algorithm)
	return err
}

// Traits implements [core.Guard]. An attempt counts whatever the outcome of its request, its cost may be an
// estimate, and the outage policy is [core.FailLocal] unless a rule sets another.
func (l *limiter) Traits() core.Traits {
	return core.Traits{KeepsOnFailure: true, Spends: true, Outage: core.FailLocal, Unit: kit.UnitRequests}
}

// Phases implements [kit.Phased].
func (l *limiter) Phases() (self kit.Phased, joins bool) { return l.phases, l.Engine().SharesCalls() }

// CheckLocal implements [kit.LocalGuard]. It is for an outage, after Check has returned an error. A rule
// calls it by itself. It decides as Check does, but inside the process, by its clock. It begins with the
// units left of the attempt's binding limit in Redis's last answer to this process, and counts the units
// that it admits. So in an outage each process admits as many units as it last heard were left, and then
// those that come back. It never admits more than Max in a window, where the algorithm promises that. An
// actor for whom the process has not asked within a window has the whole limit, and so has a limit that was
// not binding.
//
// Units that it admits are unknown to Redis. They count in a second outage, until their window is over.
// [core.WithMemoryKeys] bounds the number of actors that it counts. On an engine without Redis it shares its
// counts with Check.
func (l *limiter) CheckLocal(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	d := core.Decision{Attempt: a}
	limits, err := l.begin(ctx, &d)
	if limits != nil {
		l.decideLocal(&d, limits, begun, false)
	}
	return d, l.Observe(ctx, "check_local", begun, d, err)
}

// begin prepares the attempt of a decision, which has nothing else so far, and returns the limits that have
// to decide it. They are nil beside an error, and when the decision is final.
func (l *limiter) begin(ctx context.Context, d *core.Decision) (*limitSet, error) {
	d.Guard = l.Name()
	if err := d.Attempt.PrepareInPlace(); err != nil {
		return nil, err
	}
	limits := l.limits
	if l.by != nil {
		if limits == nil { // else it is no function of the application, which may take its time
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, l.Engine().Deadline())
			defer cancel()
		}
		var err error
		if limits, err = l.limitsBy(ctx, d.Attempt); err != nil {
			return nil, err
		}
	}
	if len(limits.limits) == 0 {
		d.Allowed, d.Reason = true, core.ReasonOK
		d.SetClaim(&taken{limitSet: limits})
		return nil, nil
	}
	d.SetClaim(limits)
	if least := &limits.least; d.Attempt.Cost > least.Max {
		d.Reason, d.Limit, d.Window = core.ReasonOverLimit, least.Max, least.Window
		return nil, nil
	}
	return limits, nil
}

// decideLocal decides an attempt inside the process, as of the begin of the call.
func (l *limiter) decideLocal(d *core.Decision, limits *limitSet, begun time.Time, peek bool) {
	cost := d.Attempt.Cost
	if peek {
		cost = 0
	}
	v := l.local().decide(&d.Attempt, limits.limits, cost, l.micros(begun))
	fill(d, v.allowed, v.remaining, v.moment, limits.limits[v.binding])
	if v.allowed {
		d.ResetAfter = script.DurationOf(v.resets, time.Microsecond)
	}
	d.Source = core.SourceLocal
	if !peek && v.allowed {
		d.SetClaim(&taken{limitSet: limits, stamp: v.moment, local: true})
	}
}

// micros converts the begin of a call to the microseconds by which limits count inside the process. They are
// the time that has passed since the process began, so the wall clock may be set while units count. The
// clock of the engine, if it has one, takes precedence.
func (l *limiter) micros(now time.Time) int64 {
	if l.Engine().HasClock() {
		return l.Engine().Now().UnixMicro()
	}
	return processBegunMicros + now.Sub(processBegun).Microseconds()
}

// present returns the microseconds of now.
func (l *limiter) present() int64 { return l.micros(present()) }

// processBegun has a monotonic reading, by which Sub measures.
var (
	processBegun       = time.Now()
	processBegunMicros = processBegun.UnixMicro()
)

// present returns a time for measuring how long a call takes, at half the cost of time.Now: it reads the
// monotonic clock alone, so its wall clock does not know that the process's was set.
func present() time.Time { return processBegun.Add(time.Since(processBegun)) }

// Check implements [core.Guard]: it decides the attempt, and it takes the attempt's Cost in units when it
// admits it. A Cost above the smallest limit is refused with [core.ReasonOverLimit], without asking Redis. An
// attempt like one that was refused a moment ago may be refused without asking Redis: see
// [core.WithRefusalMemory].
//
// A check is sent to Redis at most once. If the reply is lost, Check returns an error, and the units may have
// been taken. An invalid attempt is a [core.ErrInvalid].
func (l *limiter) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := present()
	d, err := l.decide(ctx, begun, a)
	return d, l.Observe(ctx, "check", begun, d, err)
}

// decide decides an attempt, and tells no observer.
func (l *limiter) decide(ctx context.Context, begun time.Time, a core.Attempt) (d core.Decision, err error) {
	if !l.Engine().HasRedis() {
		d.Attempt = a
		err = l.decideHere(ctx, begun, false, &d)
		return d, err
	}
	q := questions.Get().(*question)
	q.l, q.d.Attempt = l, a
	if d, err = kit.InTurn(ctx, q.begin(ctx, begun, false, false)); err == nil { // else its keys may be in use
		*q = question{}
		questions.Put(q)
	}
	return d, err
}

// decideHere decides an attempt on an engine without Redis.
func (l *limiter) decideHere(ctx context.Context, begun time.Time, peek bool, d *core.Decision) error {
	limits, err := l.begin(ctx, d)
	if limits != nil {
		l.decideLocal(d, limits, begun, peek)
	}
	return err
}

// Recall implements [kit.Recaller], for refusals that the process remembers and for costs that exceed a
// limit.
func (l *limiter) Recall(ctx context.Context, a core.Attempt) (core.Decision, bool) {
	if l.by != nil && !l.refusals.knows(kit.TagOf(a)) {
		return core.Decision{}, false // most attempts are spared a second call of the function
	}
	begun := time.Now()
	d := core.Decision{Attempt: a}
	limits, err := l.begin(ctx, &d)
	if err != nil || d.Allowed {
		return d, false
	}
	if limits != nil {
		now := l.Engine().Now()
		r, ok := l.refusals.find(kit.TagOf(d.Attempt), limits.limits, d.Attempt.Cost, now)
		if !ok {
			return d, false
		}
		r.answer(&d, now)
	}
	return d, l.Observe(ctx, "check", begun, d, nil) == nil
}

// Peek reports what Check would decide now about an attempt of one unit, whatever the attempt's Cost: whether
// it would be allowed, the Remaining units, and RetryAfter when there are none. It takes nothing and writes
// nothing. Other attempts may take the remaining units at any time, so use Peek to display them, and Check to
// decide.
func (l *limiter) Peek(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := present()
	a.Cost = 1
	d := core.Decision{Attempt: a}
	err := l.peek(ctx, begun, &d)
	return d, l.Observe(ctx, "peek", begun, d, err)
}

func (l *limiter) peek(ctx context.Context, begun time.Time, d *core.Decision) error {
	if !l.Engine().HasRedis() {
		return l.decideHere(ctx, begun, true, d)
	}
	limits, err := l.begin(ctx, d)
	if limits == nil {
		return err
	}
	c := script.Call{Limit: l.Engine().Deadline() - time.Since(begun)}
	l.prepare(&c, asked{limits: limits, tag: kit.TagOf(d.Attempt), cost: d.Attempt.Cost, peek: true})
	script.Send(ctx, &c)
	value, err := l.replyTo(ctx, &c, limits, &d.Attempt, true)
	if err != nil {
		return err
	}
	_, err = readLimits(d, value, limits) // it took nothing, so it needs no claim and no memory
	return err
}

// Reset forgets the units that the attempt's Actor has used of the attempt's Resource. It ignores the other
// fields of the attempt. With a [Func], it resets the limits that the function returns now. This process
// sees a Reset at once, and other processes see it within the time of [core.WithRefusalMemory].
//
// A Reset is sent to Redis at most once, so that it never forgets units that were taken after it. If the
// reply is lost, it returns an error although it may have been done: call it again.
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

// Refund returns the units that the attempt of an allowed decision took. It does so once, however often it is
// called, and only for units that still count. Other processes see it within the time of
// [core.WithRefusalMemory].
//
// After an error the units may have been returned, so call it again, within a minute. Redis remembers the
// last 60 to 120 refunds of an actor, for two minutes at most. When Redis may have forgotten a failed call,
// Refund returns a [core.ErrGone], and the units count until they leave by themselves.
//
// A failover of Redis may lose a check that was answered: see seckill.Fast. Its refund may then give back
// units of other attempts, at most as many as the check took. It does where Redis cannot tell them from the
// lost ones: in a fixed window that began before the check, and in a token bucket that was last full before
// it and has been used since. In a sliding window it does so for units of the same part or moment.
//
// The decision must come from a check by this guard in this process; any other is a [core.ErrInvalid]. For a
// refused decision Refund does nothing.
func (l *limiter) Refund(ctx context.Context, d core.Decision) error {
	return l.end(ctx, "refund", d, 0)
}

// Spend reports the real cost of the attempt of an allowed decision, in units, if its Cost was an estimate
// made before the work. Unused units go back, as Refund returns them. Units beyond the estimate are charged
// now, even if more than Max then count. Attempts are refused until there is room again, and their
// RetryAfter is exact:
//
//   - A [SlidingWindow] counts the charged units as taken now, for a window.
//   - A [FixedWindow] counts them in the window that is open now, or begins one with them. They are forgotten
//     when it ends.
//   - A [TokenBucket] owes missing units until as many have flowed in, for 366 days at most.
//
// So the sum of the real costs keeps the limit's promise wherever no estimate was too low.
//
// The first call of Spend or Refund for a decision counts. The others repeat it, as is necessary after an
// error, within the minute of Refund. For a refused decision, and for a decision without limits, Spend does
// nothing. A decision that was made inside the process, in an outage, is settled there. An actual cost of
// more than [core.MaxAmount] is MaxAmount. A negative one is a [core.ErrInvalid], and so is a decision of
// another guard or process. Spend is safe for concurrent use.
func (l *limiter) Spend(ctx context.Context, d core.Decision, actual int64) error {
	return l.end(ctx, "spend", d, min(actual, core.MaxAmount))
}

// Settle implements [core.Guard]. On [core.Rollback] it does what Refund does, on [core.CommitCost] what
// Spend does, and on [core.Commit] nothing.
func (l *limiter) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	actual, known := end.Cost()
	if end.Commits() && !known {
		return nil
	}
	return l.end(ctx, "settle", d, actual)
}

// asked is what a script decides about an attempt of the tag.
type asked struct {
	limits *limitSet
	tag    string
	cost   int64
	peek   bool // it says what it would decide
	long   bool // by the long script of a log, to which the short one leaves rare cases
}

// prepare prepares a call by which a script decides.
func (l *limiter) prepare(c *script.Call, q asked) {
	c.Runner = l.Engine().Runner
	if q.peek {
		q.cost = 0
	}
	now := l.Engine().ScriptNow(time.Microsecond)
	if l.algorithm.log {
		q.long = q.long || l.askLong.has(q.tag, l.present)
		l.prepareLog(c, q, now)
		return
	}
	c.Script, c.Keys = l.algorithm.decide.of(q.peek), l.addKeys(c.Keys, q.limits, q.tag)
	c.Args = q.limits.args
	switch { // trailing arguments are left out where the script has a default
	case now != "":
		c.Args = slices.Concat(c.Args, []any{q.cost, now})
	case q.cost != 1:
		c.Args = slices.Concat(c.Args, []any{q.cost})
	}
}

// replyTo returns the reply to a call of prepare that was sent, or to the call of the long script.
func (l *limiter) replyTo(
	ctx context.Context, c *script.Call, limits *limitSet, a *core.Attempt, peek bool,
) (any, error) {
	if !isUndecided(c.Reply) {
		return c.Reply, c.Err
	}
	tag := kit.TagOf(*a)
	l.askLong.add(tag, l.present())
	second := script.Call{Limit: c.Limit - time.Since(c.Sent)}
	l.prepare(&second, asked{limits: limits, tag: tag, cost: a.Cost, peek: peek, long: true})
	script.Send(ctx, &second)
	return second.Reply, second.Err
}

// isUndecided reports whether a short script has left the decision to the long one.
func isUndecided(value any) bool {
	reply, ok := value.([]any)
	return ok && len(reply) == 1 && reply[0] == int64(2)
}

// readLimits reads a script's reply into d, and returns it.
func readLimits(d *core.Decision, value any, limits *limitSet) (verdict, error) {
	if wait, ok := value.(int64); ok && wait < 0 { // a single limit refuses, and no unit is left: see its script
		value = []any{int64(0), int64(0), -wait}
	}
	var r *script.Reply
	_, allowed := value.(string)
	if allowed {
		r = script.ReadWords(value, 3)
	} else if r = script.ReadReply(value, 3, 4); r.Number() != 0 {
		r.Err = fmt.Errorf("unexpected reply %.100q", fmt.Sprint(value))
	}
	remaining, moment := r.Number(), r.Number()
	which, resets, rest := int64(1), int64(0), int64(0)
	if allowed {
		resets = r.Number()
	}
	if r.More() {
		which = r.Number()
	}
	if r.More() {
		rest = r.Number()
	}
	if r.Err == nil && (which < 1 || which > int64(len(limits.limits))) {
		r.Err = fmt.Errorf("unexpected reply: the binding limit is number %d of %d", which, len(limits.limits))
	}
	if r.Err != nil {
		return verdict{}, r.Err
	}

	d.Source = core.SourceRedis
	fill(d, allowed, remaining, moment, limits.limits[which-1])
	if allowed {
		d.ResetAfter = script.DurationOf(resets, time.Microsecond)
	}
	return verdict{allowed, int(which - 1), remaining, moment, resets, rest}, nil
}

// fill writes what the binding limit says into d. For an allowed attempt moment is the stamp, else the wait,
// in microseconds.
func fill(d *core.Decision, allowed bool, remaining, moment int64, binding Limit) {
	d.Allowed, d.Limit, d.Window, d.Remaining = allowed, binding.Max, binding.Window, max(remaining, 0)
	if allowed {
		d.Reason = core.ReasonOK
	} else {
		d.Reason = core.ReasonLimited
		d.RetryAfter = script.DurationOf(moment, time.Microsecond)
		d.ResetAfter = d.RetryAfter
	}
}

func (l *limiter) reset(ctx context.Context, a core.Attempt) error {
	limits, err := l.limitsOf(ctx, a)
	if err != nil {
		return err
	}
	l.local().forget(&a, limits.limits, l.micros(time.Now()))
	if !l.Engine().HasRedis() || len(limits.limits) == 0 {
		l.freed(kit.TagOf(a))
		return nil
	}
	defer l.freed(kit.TagOf(a)) // also after an error, since the server may have done it
	_, err = l.Engine().RunWithin(ctx, l.Engine().SettleTimeout(), forget, l.keysOf(limits, a))
	return err
}

// forget deletes the units of an actor. A repetition would delete those that were taken meanwhile as well.
var forget = script.New("delete", lua.Source("core/delete"), script.AtMostOnce)

// limitsOf returns the limits of the attempt.
func (l *limiter) limitsOf(ctx context.Context, a core.Attempt) (*limitSet, error) {
	if l.by == nil {
		return l.limits, nil
	}
	return l.limitsBy(ctx, a)
}

// errLimits is wrapped by the errors of a function that returns limits, and of limits that are invalid.
var errLimits = errors.New("the attempt's limits")

// limitsBy returns the limits that the limiter's function has for the attempt.
func (l *limiter) limitsBy(ctx context.Context, a core.Attempt) (*limitSet, error) {
	limits, err := l.by(ctx, a)
	if err == nil {
		err = ctx.Err() // the function may have ignored the deadline
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLimits, err)
	}
	if l.limits != nil && len(limits) > 0 && &limits[0] == &l.limits.limits[0] { // as it was made
		return l.limits, nil
	}
	set, err := newLimitSet(limits, l.algorithm)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLimits, err)
	}
	return set, nil
}

// keysOf returns the keys that count the attempt's units: those of the logs, or one per limit.
func (l *limiter) keysOf(limits *limitSet, a core.Attempt) []string {
	return l.addKeys(nil, limits, kit.TagOf(a))
}

func (l *limiter) addKeys(keys []string, limits *limitSet, tag string) []string {
	if l.algorithm.log {
		return append(keys, l.keysOfLogs(tag)...)
	}
	keys = slices.Grow(keys, len(limits.windows))
	for _, window := range limits.windows {
		keys = append(keys, l.Key(tag, window))
	}
	return keys
}
