package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/leases"
)

var (
	// ErrLost is the cause with which the context of [Guard.Hold], and of a request, ends when the lock was
	// lost: its lease was not renewed in time, or an operator has broken it. It wraps core.ErrGone.
	ErrLost = kit.NewError("lock: the lock was lost", core.ErrGone)
	// ErrBusy is the error of [Guard.Do] when somebody else holds the lock, or others wait for it. It wraps
	// core.ErrNotNow.
	ErrBusy = kit.NewError("lock: somebody else holds the lock", core.ErrNotNow)
)

// Options configure a [Guard].
type Options struct {
	// Lease is how long the lock of a process that has died stays held, and how long a process may stand still
	// before it loses its locks. A process renews its leases three times in this time. It is 1 s to an hour,
	// 10 s by default. Processes with different leases may share a lock.
	Lease time.Duration
	// Wait is how long an attempt waits for the lock before it is refused, up to a minute. Zero refuses at
	// once. Set it to less than the patience of clients and proxies. The end of the attempt's context ends the
	// wait too. In a middleware, a client that goes away does not end it.
	Wait time.Duration
	// Waiters is how many attempts of one actor wait for a lock at a time, in each process, 1 to 10,000.
	// Further ones are denied with core.ReasonLimited, so that no user fills the line. The default is
	// 10: a browser has six connections to a host. Raise it where many share an actor.
	Waiters int64
}

// Guard lets one holder at a time have the lock of a thing. Make it with [New]. It is safe for concurrent
// use. It uses the scripts of semaphores, in lua/semaphore: the lock is a pool's only permit, and its grant
// has a fence.
//
// # Attempts
//
// The Actor is the owner, and the Resource names the thing. The Item, the Cost and the ID do not matter: a
// call of Check that has the lock is its holder, and nobody else is. So the lock is not re-entrant. A
// second call of the same owner is refused like any other, also with the same operation ID, since both
// calls would work at the same time.
//
// An attempt for a thing whose lock is held is denied with core.ReasonBusy. Its RetryAfter is the time until
// the lease is over, if nobody renews it or gives the lock back before.
//
// # Fences
//
// The fence of a holder is greater than the fences of all holders of the same thing before: one more than the
// last fence, or the server's time in microseconds since 1970 where that is more. It is positive, and below
// 2^53 until the year 2255. A command that the client library sends again gets the same fence.
//
// Redis keeps the last fence of a thing for a day after the last lease. When it is lost, with its key or in
// a failover, the next fence is the time. It is greater all the same, since a fence is ahead of the time
// only where the clock was set back. So fences fall only if the last fence is lost and the clock then goes
// back behind the moment when it was given. An example is a new primary whose clock is behind the old one's
// by more than the failover took. Storage that compares fences then refuses writes until the clock has
// caught up. It never lets an older holder overwrite a newer one that has written.
//
// # Leases
//
// Check takes the lock for a lease, by the server's clock. The process renews the lease until Settle, three
// times in its length. It also counts the lease by its own monotonic clock, from before it sent the call. A
// lease that is over by this clock, or that a renewal finds lost, is never renewed again. Then the context of
// [Guard.Hold] ends with the cause [ErrLost].
//
// If the server's clock is set forward, leases end early. If it is set back, none lasts longer than Lease.
// After a failover of Redis, a lock whose grant was not replicated is free. Its holder hears of it with the
// next renewal, and until then two may work. The second has the greater fence.
//
// # Waiting
//
// With Options.Wait, attempts stand in line: first come, first served, in all processes. No attempt
// overtakes waiting attempts. A process is notified of a free lock by PUBLISH to a channel below the
// engine's prefix. If its client cannot or may not subscribe, the process looks twice per second, and five
// times while one of its attempts is the first. A process that has died or stands still is passed by 25 ms
// after the lock is free for its attempt. When it goes on, the attempt is in front again, and is passed by
// after 300 ms the next time.
//
// # Endings
//
// Settle gives the lock back, with Commit and with Rollback, if the attempt still has it. A lock that nobody
// settles stays held while the process lives.
//
// # Outages
//
// Attempts are refused while Redis is unavailable, unless the rule fails open. An attempt that passes then
// has no lock and no fence. The guard cannot decide locally: a lock inside one process does not exclude the
// others.
//
// On an engine without Redis the locks are inside the process, for applications of one process. There are no
// leases, and fences come from the clock of the process.
type Guard struct {
	kit.Base
	keeper *leases.Keeper

	mu   sync.Mutex
	last int64 // the last fence, on an engine without Redis
}

// New makes a guard with the given name. It panics when the name is taken or malformed, or when the options
// are invalid.
func New(e *core.Engine, name string, options Options) *Guard {
	held := leases.Options{
		Lease: options.Lease, Wait: options.Wait, Waiters: options.Waiters, Lost: ErrLost, Fences: true,
	}.WithDefaults("lock", name)
	g := &Guard{Base: kit.Register(e, "lock", name, leases.Scripts()...)}
	g.keeper = leases.New(&g.Base, held)
	return g
}

// Traits implements [core.Guard]: a request gives its lock back when it ends.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsResource: true, Outage: core.FailClosed}
}

// Check implements [core.Guard]: it takes the lock of the attempt's Resource. Where Redis has given it,
// ResetAfter is the length of the lease. [Guard.Fence] returns the fence of the decision.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a, err := a.PrepareClaim("the thing")
	d := core.Decision{Guard: g.Name(), Attempt: a.WithoutCall()}
	if err != nil {
		return d, err
	}
	a.Cost = 1
	d, err = g.keeper.Take(ctx, script.Encode(a.Resource), d, a, 1)
	if h, _ := g.keeper.Claim(d); h != nil && h.Lease == 0 {
		h.Fence = g.nextFence()
	}
	d.Remaining = 0 // is for decisions with a Limit
	return d, err
}

// nextFence returns the fence of a lock inside the process.
func (g *Guard) nextFence() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = max(g.last+1, g.Engine().Now().UnixMicro())
	return g.last
}

// Settle implements [core.Guard]: it gives the lock back, with each ending. The decision must come from
// this guard's Check in this process, or the error is core.ErrInvalid. A lost lock is no error, and stays
// with its present holder.
func (g *Guard) Settle(ctx context.Context, d core.Decision, _ core.Ending) error {
	if !d.Allowed {
		return nil
	}
	begun := time.Now()
	return g.Observe(ctx, "settle", begun, d, g.keeper.Settle(ctx, d))
}

// fenceKey is the key of the fence in a context.
type fenceKey struct{}

// Hold implements [kit.Holder]. It returns a context that has the fence of the decision, see [Fence]. It
// ends when the lock is lost, with the cause [ErrLost], or when ctx ends. The decision must come from this
// guard's Check in this process; otherwise the context is ctx. Call stop when the work is done, and then
// Settle. [Guard.Do] does all this.
func (g *Guard) Hold(ctx context.Context, d core.Decision) (held context.Context, stop context.CancelFunc) {
	held, stop = g.keeper.Hold(ctx, d)
	if fence, ok := g.Fence(d); ok {
		held = context.WithValue(held, fenceKey{}, fence)
	}
	return held, stop
}

// Fence returns the fence of a decision that has the lock, and reports whether it has one: it must come from
// this guard's Check in this process.
func (g *Guard) Fence(d core.Decision) (fence int64, ok bool) {
	h, err := g.keeper.Claim(d)
	if err != nil {
		return 0, false
	}
	return h.Fence, true
}

// Fence returns the fence of the lock under which the context's work runs, and reports whether there is
// one. There is none where a rule failed open, or is in the shadow. With several locks it is the fence of
// the last one. [Guard.Fence] returns each.
func Fence(ctx context.Context) (fence int64, ok bool) {
	fence, ok = ctx.Value(fenceKey{}).(int64)
	return fence, ok
}

// Extend renews the lease of a decision's lock at once, for a whole lease from now on. A process does so by
// itself while the lock is held: call Extend before a step that must not begin without the lock. The error is
// [ErrLost] when the lock was lost or given back. It wraps core.ErrInvalid when the decision does not come
// from this guard's Check in this process. After any other error it is unknown whether the lock is held.
func (g *Guard) Extend(ctx context.Context, d core.Decision) error { return g.keeper.Extend(ctx, d) }

// Do runs f while the owner has the lock of the thing, and then gives it back, also when f panics. The
// context of f ends with the cause [ErrLost] when the lock is lost, and the fence is greater than those of
// all earlier holders: see the package's documentation for its use.
//
// Do returns the error of f. If f has not run, the error is [ErrBusy] when somebody else holds the lock for
// longer than Options.Wait. It wraps core.ErrInvalid without an owner or a thing, and is Redis's error when
// Redis does not answer. When f returned nil although the lock was lost meanwhile, the error is [ErrLost].
func (g *Guard) Do(ctx context.Context, owner, thing string,
	f func(ctx context.Context, fence int64) error) error {
	d, err := g.Check(ctx, core.Attempt{Actor: owner, Resource: thing})
	switch {
	case err != nil:
		return err
	case !d.Allowed:
		return ErrBusy
	}
	defer g.giveBack(ctx, d)
	held, stop := g.Hold(ctx, d)
	defer stop()
	fence, _ := g.Fence(d)
	err = f(held, fence)
	if cause := context.Cause(held); err == nil && errors.Is(cause, ErrLost) {
		return ErrLost
	}
	return err
}

// giveBack gives a lock back, if need be by further tries in the background.
func (g *Guard) giveBack(ctx context.Context, d core.Decision) {
	if err := g.Settle(ctx, d, core.Commit); err != nil {
		g.UndoLater(nil, func(ctx context.Context) error { return g.Settle(ctx, d, core.Commit) })
	}
}
