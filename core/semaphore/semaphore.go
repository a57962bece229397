package semaphore

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"github.com/gatehouse-go/gatehouse/internal/inflight"
	"github.com/gatehouse-go/gatehouse/internal/leases"
)

// ErrLost is the cause with which the context of [Guard.Hold], and of a request, ends when the lease of its
// permits was lost: it was not renewed in time, or an operator has evicted the holder. It wraps core.ErrGone.
var ErrLost = kit.NewError("semaphore: the lease of the permits was lost", core.ErrGone)

// Options configure a [Guard].
type Options struct {
	// Max is the number of permits of each pool, 1 to 10,000. After a change, permits that are held stay held.
	Max int64
	// MaxOf returns the number of permits of the attempt's pool, by its tier for example. It replaces Max. All
	// processes must agree on it. It returns 0 to 10,000, and 0 refuses the attempt. When it fails, the rule's
	// outage policy decides. It is called within the engine's deadline, from many goroutines.
	MaxOf func(ctx context.Context, a core.Attempt) (int64, error)
	// Lease is how long the permits of a process that has died stay held, and how long a process may stand
	// still before it loses its permits. A process renews its leases three times in this time. It is 1 s to an
	// hour, 10 s by default. Processes with different leases may share a pool.
	Lease time.Duration
	// Wait is how long an attempt waits for permits before it is refused, up to a minute. Zero refuses at
	// once. Set it to less than the patience of clients and proxies. The end of the attempt's context ends the
	// wait too. In a middleware, a client that goes away does not end it.
	Wait time.Duration
	// Waiters is how many attempts of one actor wait for permits of a pool at a time, in each process, 1 to
	// 10,000. Further ones are denied with core.ReasonLimited, so that no user fills the line. The default is
	// 10: a browser has six connections to a host. Raise it where many share an actor.
	Waiters int64
}

const maxPermits = 10_000

// Guard lets at most Max permits of a pool be held at a time. A pool shares one number of permits: see
// Attempts. Make a Guard with [New]. It is safe for concurrent use.
//
// # Attempts
//
// The Actor holds the permits, and the Resource names the pool. Without a Resource the guard has a single
// pool. The Cost is the number of permits, all or none. The Item and the ID do not matter: two calls of
// Check hold two permits, also with one operation ID, since both run.
//
// An attempt for which too few permits are free is denied with core.ReasonBusy. Its RetryAfter is the time
// until the leases of enough permits are over, if nobody renews them or gives permits back before. An
// attempt that costs more permits than the pool has is denied with core.ReasonOverLimit.
//
// # Leases
//
// Check takes the permits for a lease, by the server's clock. The process renews the lease until Settle: in
// each third of the lease, one call renews the leases of up to 500 holders of a pool. A holder is one call
// of Check that has permits. The process also counts the lease by its own monotonic clock, from before it
// sent the call, and gives up a thousandth of it and a millisecond, so that it is the first to know. A
// lease that is over by this clock, or that a renewal finds lost, is never renewed again. Then the context
// of [Guard.Hold] ends with the cause [ErrLost].
//
// If the server's clock is set forward, leases end early. If it is set back, none keeps attempts out for
// longer than Lease. After a failover of Redis, permits whose grant was not replicated are lost. Their
// holders hear of it with the next renewal, and until then more than Max may run.
//
// # Waiting
//
// With Options.Wait, attempts stand in line: first come, first served, in all processes. No attempt
// overtakes waiting attempts, with two exceptions:
//
//   - An attempt that asks for more permits than are free holds up the attempts behind it for 300 ms. Then
//     they get the free permits, in their order. It is served when enough are free.
//   - A process that has died or stands still is passed by 25 ms after there are permits for its attempt.
//     When it goes on, the attempt is in front again, and is passed by after 300 ms the next time.
//
// A process is notified of free permits by PUBLISH to a channel below the engine's prefix. If its client
// cannot or may not subscribe, the process looks twice per second, and five times while one of its attempts
// is the first. The process that has notified another one checks that it has come. The Remaining of a
// decision after a wait is zero.
//
// # Endings
//
// Settle gives the permits back, with Commit and with Rollback. Permits that nobody settles stay held while
// the process lives.
//
// # Outages
//
// By default attempts are refused while Redis is unavailable. With core.FailLocal each process counts its
// own permits. Holders of permits go on until their lease is over.
//
// On an engine without Redis the pools are inside the process, and there are no leases.
type Guard struct {
	kit.Base
	options Options
	keeper  *leases.Keeper
	heard   *bounded.Map[string, int64] // by the tags of pools: how many permits are free
	// by the tags of pools: how many permits Redis was asked for and has not answered
	inFlight *inflight.Units
}

// New makes a guard with the given name. It panics when the name is taken or malformed, or when the options
// are invalid.
func New(e *core.Engine, name string, options Options) *Guard {
	switch {
	case options.MaxOf == nil && (options.Max < 1 || options.Max > maxPermits):
		panic(fmt.Sprintf("semaphore: Max is %d: set 1 to %d, or MaxOf (guard %q)", options.Max, maxPermits, name))
	case options.MaxOf != nil && options.Max != 0:
		panic(fmt.Sprintf("semaphore: Max and MaxOf are set: set one of them (guard %q)", name))
	}
	held := leases.Options{
		Lease: options.Lease, Wait: options.Wait, Waiters: options.Waiters, Lost: ErrLost,
	}.WithDefaults("semaphore", name)
	g := &Guard{
		Base:     kit.Register(e, "semaphore", name, leases.Scripts()...),
		options:  options,
		heard:    bounded.New[string, int64](poolsHeard),
		inFlight: inflight.New(),
	}
	g.keeper = leases.New(&g.Base, held)
	return g
}

// Traits implements [core.Guard]: a request gives its permits back when it ends. A guard without a Wait
// shares a round trip with limits next to it.
func (g *Guard) Traits() core.Traits {
	return core.Traits{Outage: core.FailClosed, Unit: kit.UnitConcurrentRequests}
}

// Phases implements [kit.Phased].
func (g *Guard) Phases() (self kit.Phased, joins bool) { return g, g.early() }

// Check implements [core.Guard]: it takes permits. Where Redis has given them, ResetAfter is the length of
// the lease.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	d, err := kit.InTurn(ctx, g.Begin(ctx, a, false, false))
	return d, g.Observe(ctx, "check", begun, d, err)
}

// undecided returns the decision without figures if there is an error.
func undecided(d core.Decision, err error) (core.Decision, error) {
	if err != nil {
		return core.Decision{Guard: d.Guard, Attempt: d.Attempt}, err
	}
	return d, nil
}

// Hold implements [kit.Holder]. It returns a context that ends when the lease of the decision's permits is
// lost, with the cause [ErrLost], or when ctx ends. The decision must come from this guard's Check in this
// process; otherwise the context is ctx. Call stop when the work is done, and then Settle:
//
//	d, err := exports.Check(ctx, core.Attempt{Actor: worker})
//	if err != nil {
//		return err
//	}
//	if !d.Allowed {
//		return fmt.Errorf("not now: %s", d.Reason)
//	}
//	defer exports.Settle(ctx, d, core.Commit)
//	ctx, stop := exports.Hold(ctx, d)
//	defer stop()
func (g *Guard) Hold(ctx context.Context, d core.Decision) (held context.Context, stop context.CancelFunc) {
	return g.keeper.Hold(ctx, d)
}

// begin prepares an attempt. The decision has a reason if it is final. The attempt beside it names the
// call.
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
	ctx, cancel := context.WithTimeout(ctx, g.Engine().Deadline())
	defer cancel()
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

// CheckLocal implements [kit.LocalGuard]. It is for an outage, after Check has returned an error. A rule
// calls it by itself. It decides by the permits that this process holds, whether it has them from Redis or
// from CheckLocal. So with n processes up to n times Max are held in an outage. When Redis is back, it does
// not know the permits from CheckLocal.
func (g *Guard) CheckLocal(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check_local", func() (core.Decision, error) {
		d, a, err := g.begin(ctx, a)
		if err == nil && d.Reason == "" {
			d = g.keeper.TakeLocal(ctx, tagOf(a), d, a, d.Limit)
		}
		return undecided(d, err)
	})
}

// Settle implements [core.Guard]: it gives the permits back, with each ending. The decision must come from
// this guard's Check in this process, or the error is core.ErrInvalid. Permits whose lease was lost are no
// error.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if !d.Allowed {
		return nil
	}
	begun := time.Now()
	_, err := kit.InTurn(ctx, g.BeginSettle(ctx, d, end))
	return g.Observe(ctx, "settle", begun, d, err)
}

// tagOf returns the tag of the attempt's pool. Encoded text is never "|".
func tagOf(a core.Attempt) string {
	if a.Resource == "" {
		return "|"
	}
	return script.Encode(a.Resource)
}
