package semaphore

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	acquireScript = core.NewScript("semaphore_acquire", lua.SemaphoreAcquire, core.Idempotent)
	releaseScript = core.NewScript("semaphore_release", lua.SemaphoreRelease, core.Idempotent)
	waitScript    = core.NewScript("semaphore_wait", lua.SemaphoreWait, core.Idempotent)
	renewScript   = core.NewScript("semaphore_renew", lua.SemaphoreRenew, core.Idempotent)
	evictScript   = core.NewScript("semaphore_evict", lua.SemaphoreEvict, core.Idempotent)
	peekScript    = core.NewScript("semaphore_peek", lua.SemaphorePeek, core.Idempotent)
)

// ErrLost is the cause with which the context of [Guard.Hold], and of a request, ends when the lease of its
// permits was lost: it was not renewed in time, or an operator has evicted the holder. It wraps core.ErrGone.
var ErrLost = core.NewError("semaphore: the lease of the permits was lost", core.ErrGone)

// Options configure a [Guard].
type Options struct {
	// Max is the number of permits of each pool, 1 to 10,000. After a change, permits that are held stay held.
	Max int64
	// MaxOf returns the number of permits of the attempt's pool, by its tier for example. It replaces Max. All
	// processes must agree on it. It returns 0 to 10,000; 0 refuses the attempt. When it fails, the rule's
	// outage policy decides. It is called within the engine's deadline, from many goroutines.
	MaxOf func(ctx context.Context, a core.Attempt) (int64, error)
	// Lease is how long the permits of a process that has died stay held, and how long a process may stand
	// still before it loses its permits. A process renews its leases three times in this time. It is 1 s to an
	// hour; the default is 10 s. Processes with different leases may share a pool.
	Lease time.Duration
	// Wait is how long an attempt waits for permits before it is refused, up to a minute. Zero refuses at once.
	// Set it to less than the patience of clients and proxies. The end of the attempt's context ends the wait
	// too; that of a client that goes away does not, in a middleware.
	Wait time.Duration
}

const (
	maxPermits   = 10_000
	defaultLease = 10 * time.Second
	minLease     = time.Second
	maxLease     = time.Hour
	maxWait      = time.Minute

	// localRetry is the RetryAfter of a refusal inside the process, where no lease says when permits are free.
	localRetry = time.Second
)

// Guard lets at most Max permits of a pool be held at a time. A pool is what shares one number of permits:
// see Attempts. Make a Guard with [New]. It is safe for concurrent use.
//
// # Attempts
//
// The Actor is who holds the permits, and the Resource names the pool; without one the guard has a single
// pool. The Cost is the number of permits, all or none. The Item and the ID do not matter: two calls of Check
// hold two permits, also with one operation ID, since both run.
//
// An attempt for which too few permits are free is denied with core.ReasonBusy. Its RetryAfter is the time
// until the leases of enough permits are over, if nobody renews them or gives permits back before. An attempt
// that costs more than there are is denied with core.ReasonOverLimit.
//
// # Leases
//
// Check takes the permits for a lease, by the server's clock. The process renews the lease until Settle: in
// each third of the lease, one call renews those of up to 500 holders of a pool. A holder is one call of
// Check that has permits. The process also counts the lease by its own monotonic clock, from before it sent
// the call. A lease that is over by this clock, or that a renewal finds lost, is never renewed again. Then
// the context of [Guard.Hold] ends with the cause [ErrLost].
//
// If the server's clock is set forward, leases end early. If it is set back, none lasts longer than Lease.
// After a failover of Redis, permits whose grant was not replicated are lost. Their holders hear of it with
// the next renewal, and until then more than Max may run.
//
// # Waiting
//
// With Options.Wait, attempts stand in line: first come, first served, in all processes, whatever number of
// permits they ask for. Nobody overtakes those who wait. A process is told when permits are free, by PUBLISH
// to a channel below the engine's prefix. Where its client cannot subscribe, or may not, the process looks
// twice per second. Attempts of a process that has died lose their places within three seconds. The Remaining
// of a decision after a wait is zero.
//
// # Endings
//
// Settle gives the permits back, with Commit and with Rollback. Permits that nobody settles stay held while
// the process lives.
//
// # Outages
//
// By default attempts are refused while Redis is unavailable. With core.FailLocal each process counts what it
// holds itself. Those who hold permits go on until their lease is over.
//
// On an engine without Redis the pools are inside the process, and there are no leases.
type Guard struct {
	core.Base
	options Options
	pools   pools
	lines   lines
}

// New makes a guard with the given name. It panics when the name is taken or malformed, or when the options
// are invalid.
func New(e *core.Engine, name string, options Options) *Guard {
	if options.Lease == 0 {
		options.Lease = defaultLease
	}
	switch {
	case options.MaxOf == nil && (options.Max < 1 || options.Max > maxPermits):
		panic(fmt.Sprintf("semaphore: Max is %d: set 1 to %d, or MaxOf (guard %q)", options.Max, maxPermits, name))
	case options.MaxOf != nil && options.Max != 0:
		panic(fmt.Sprintf("semaphore: Max and MaxOf are set: set one of them (guard %q)", name))
	case options.Lease < minLease || options.Lease > maxLease:
		panic(fmt.Sprintf("semaphore: Lease is %v: set %v to %v (guard %q)", options.Lease, minLease, maxLease,
			name))
	case options.Wait < 0 || options.Wait > maxWait:
		panic(fmt.Sprintf("semaphore: Wait is %v: set 0 to %v (guard %q)", options.Wait, maxWait, name))
	}
	g := &Guard{
		Base: e.Register("semaphore", name, acquireScript, waitScript, releaseScript, renewScript, evictScript,
			peekScript),
		options: options,
		lines:   lines{process: rand.Text()[:10], pause: stepMost, byTag: map[string]*line{}},
	}
	g.pools = pools{lease: options.Lease, renew: g.renew, byTag: map[string]*pool{}}
	return g
}

// Traits implements [core.Guard]: a request gives its permits back when it ends.
func (g *Guard) Traits() core.Traits {
	return core.Traits{Outage: core.FailClosed, Unit: core.UnitConcurrentRequests}
}

// Check implements [core.Guard]: it takes permits. Where Redis has given them, ResetAfter is the length of
// the lease.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return undecided(g.check(ctx, a)) })
}

// undecided returns the decision without figures if there is an error.
func undecided(d core.Decision, err error) (core.Decision, error) {
	if err != nil {
		return core.Decision{Guard: d.Guard, Attempt: d.Attempt}, err
	}
	return d, nil
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	within, cancel := g.Engine().WithinDeadline(ctx) // also for MaxOf
	defer cancel()
	d, a, err := g.begin(within, a)
	switch {
	case err != nil || d.Reason != "":
		return d, err
	case !g.Engine().HasRedis():
		g.takeLocal(ctx, &d, a)
		return d, nil
	}
	d, err = g.take(within, d, a)
	if err != nil || d.Reason != core.ReasonBusy || g.options.Wait == 0 {
		return d, err
	}
	h := newHolder(tagOf(a), a.WithoutCall().WithCall(), g.options.Lease)
	if g.await(ctx, h, d.Limit) {
		g.allow(&d, h)
		d.Remaining, d.RetryAfter = 0, 0 // who waited took what there was, as far as this process knows
	}
	return d, nil
}

// allow completes the decision of an attempt that has its permits.
func (g *Guard) allow(d *core.Decision, h *holder) {
	d.Allowed, d.Reason, d.Source, d.ResetAfter = true, core.ReasonOK, core.SourceRedis, g.options.Lease
	d.SetClaim(h)
}

// take asks Redis for permits, and does not wait.
func (g *Guard) take(ctx context.Context, d core.Decision, a core.Attempt) (core.Decision, error) {
	if err := core.RoomToUndo(); err != nil {
		return d, err
	}
	ctx, again := core.WatchSendings(ctx)
	h := newHolder(tagOf(a), a, g.options.Lease)
	sent := time.Now()
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), acquireScript,
		append(g.keysOf(h), g.Key(h.tag, "present")),
		d.Limit, h.cost, g.options.Lease.Milliseconds(), h.name, g.Engine().ScriptNow(time.Millisecond))
	if err != nil { // the script may have run
		h.late = true
		g.Engine().UndoLater(err, func(ctx context.Context) error { return g.release(ctx, d.Attempt, h) })
		return d, err
	}
	h.late = again()
	r := core.ReadReply(value, 3, 3)
	reason, left, wait := core.Reason(r.Text()), r.Number(), r.Duration(time.Millisecond)
	if r.Err != nil {
		return d, r.Err
	}
	d.Reason, d.Source, d.Remaining = reason, core.SourceRedis, left
	switch {
	case reason == core.ReasonOK:
		g.allow(&d, h)
		g.pools.add(h, sent)
		return d, nil
	case h.late: // an earlier sending may still arrive, and find permits by then
		g.Engine().UndoLater(nil, func(ctx context.Context) error { return g.release(ctx, d.Attempt, h) })
	}
	d.RetryAfter = wait
	return d, nil
}

// begin prepares an attempt. The decision has a reason if it is final; the attempt beside it names the call.
func (g *Guard) begin(ctx context.Context, a core.Attempt) (core.Decision, core.Attempt, error) {
	a, err := a.Prepare()
	d := core.Decision{Guard: g.Name(), Attempt: a.WithoutCall(), Limit: g.options.Max}
	if err == nil && g.options.MaxOf != nil {
		d.Limit, err = g.maxOf(ctx, d.Attempt)
	}
	if err != nil {
		return d, a, err
	}
	if a.Cost > d.Limit {
		d.Reason = core.ReasonOverLimit
	}
	return d, a.WithCall(), nil
}

func (g *Guard) maxOf(ctx context.Context, a core.Attempt) (int64, error) {
	most, err := g.options.MaxOf(ctx, a)
	if err == nil {
		err = ctx.Err() // the function may have ignored the deadline
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("the permits of the attempt's pool: %w", err)
	case most < 0 || most > maxPermits:
		return 0, fmt.Errorf("the permits of the attempt's pool: MaxOf returned %d: return 0 to %d", most,
			maxPermits)
	}
	return most, nil
}

// CheckLocal implements [core.LocalGuard]. It decides by the permits that this process holds, whether it has
// them from Redis or from CheckLocal. So with n processes up to n times Max are held in an outage, and those
// that CheckLocal has given are unknown to Redis when it is back.
func (g *Guard) CheckLocal(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check_local", func() (core.Decision, error) {
		within, cancel := g.Engine().WithinDeadline(ctx)
		defer cancel()
		d, a, err := g.begin(within, a)
		if err == nil && d.Reason == "" {
			g.takeLocal(ctx, &d, a)
		}
		return undecided(d, err)
	})
}

// takeLocal decides an attempt inside the process.
func (g *Guard) takeLocal(ctx context.Context, d *core.Decision, a core.Attempt) {
	h := newHolder(tagOf(a), a, 0)
	held, ok := g.pools.take(ctx, h, d.Limit, g.options.Wait)
	d.Allowed, d.Source, d.Remaining = ok, core.SourceLocal, max(d.Limit-held, 0)
	if ok {
		d.Reason = core.ReasonOK
		d.SetClaim(h)
	} else {
		d.Reason, d.RetryAfter = core.ReasonBusy, localRetry
	}
}

// Settle implements [core.Guard]: it gives the permits back, with each ending. The decision must come from
// this guard's Check in this process; otherwise the error is core.ErrInvalid. Permits whose lease was lost
// are no error.
func (g *Guard) Settle(ctx context.Context, d core.Decision, _ core.Ending) error {
	if !d.Allowed {
		return nil
	}
	h, err := core.Claimed[*holder](&g.Base, d)
	if err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	g.pools.remove(h)
	if h.lease == 0 {
		return g.Observe(ctx, "settle", time.Now(), d, nil)
	}
	return g.release(ctx, d.Attempt, h)
}

// release gives back what a call of Check has taken. If that call may still arrive, release leaves a
// tombstone.
func (g *Guard) release(ctx context.Context, a core.Attempt, h *holder) error {
	tombstone := time.Duration(0)
	if h.late {
		tombstone = core.TombstoneTTL
	}
	return g.Call(ctx, "settle", a, func() error {
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), releaseScript,
			append(g.keysOf(h), g.Key(h.tag, "line"), g.Key(h.tag, "present")),
			h.name, h.cost, tombstone.Milliseconds(), h.process, g.Engine().ScriptNow(time.Millisecond))
		if err != nil {
			return err
		}
		r := core.ReadReply(value, 2, 2)
		_, first := r.Number(), r.Text()
		g.tell(first, h.tag)
		return r.Err
	})
}

// renew renews the leases of holders of one pool, and returns those that have lost their permits.
func (g *Guard) renew(ctx context.Context, holders []*holder) (lost []*holder, err error) {
	tag := holders[0].tag
	args := []any{g.options.Lease.Milliseconds(), g.Engine().ScriptNow(time.Millisecond)}
	for _, h := range holders {
		args = append(args, h.name, h.cost)
	}
	about := core.Attempt{Resource: holders[0].resource}
	err = g.Call(ctx, "renew", about, func() error {
		value, err := g.Engine().RunWithin(ctx, min(g.Engine().SettleTimeout(), g.options.Lease/3), renewScript,
			[]string{g.Key(tag, "permits")}, args...)
		if err != nil {
			return err
		}
		r := core.ReadReply(value, 0, math.MaxInt)
		for r.More() {
			if i := r.Number(); i >= 1 && i <= int64(len(holders)) {
				lost = append(lost, holders[i-1])
			}
		}
		return r.Err
	})
	return lost, err
}

// keysOf returns the keys of the calls that take and give back a holder's permits.
func (g *Guard) keysOf(h *holder) []string {
	return []string{g.Key(h.tag, "permits"), g.Key(h.tag, "void", h.call)}
}

// tagOf returns the tag of the attempt's pool. Encoded text is never "|".
func tagOf(a core.Attempt) string {
	if a.Resource == "" {
		return "|"
	}
	return core.Encode(a.Resource)
}
