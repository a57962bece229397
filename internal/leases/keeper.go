// Package leases is the common part of guards whose claims are held under a lease: semaphores and locks. A
// [Keeper] takes permits by the scripts in lua/semaphore and renews them while their attempts run. It ends
// the contexts of lost permits, lets attempts stand in line, and gives permits back. On an engine without
// Redis it does so inside the process.
//
// A pool is the set of permits of one name, as of a semaphore. A lock is a pool of one permit whose grants
// have fences.
package leases

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// Options configure a [Keeper].
type Options struct {
	// Lease is how long a claim is held without a renewal.
	Lease time.Duration
	// Wait is how long an attempt stands in line. Zero: not at all.
	Wait time.Duration
	// Waiters is how many attempts of an actor stand in line for a pool at a time, in this process.
	Waiters int64
	// Lost is the cause with which contexts end whose lease was lost.
	Lost error
	// Fences reports whether grants have fences. A pool with fences has one permit.
	Fences bool
}

var (
	acquireScript = script.New("semaphore_acquire", lua.Source("semaphore/acquire"),
		script.Idempotent).Shared()
	waitScript    = script.New("semaphore_wait", lua.Source("semaphore/wait"), script.Idempotent)
	releaseScript = script.New("semaphore_release", lua.Source("semaphore/release"), script.Idempotent)
	renewScript   = script.New("semaphore_renew", lua.Source("semaphore/renew"), script.Idempotent)
	evictScript   = script.New("semaphore_evict", lua.Source("semaphore/evict"), script.Idempotent)
	peekScript    = script.New("semaphore_peek", lua.Source("semaphore/peek"), script.Idempotent)
)

// Scripts returns the scripts that a keeper runs.
func Scripts() []*script.Script {
	return []*script.Script{acquireScript, waitScript, releaseScript, renewScript, evictScript, peekScript}
}

// keepFence is how long the last fence of a pool is kept after a lease: a clock that is set back by less
// takes no fence back.
const keepFence = 24 * time.Hour

// Limits of the options of guards.
const (
	DefaultLease = 10 * time.Second
	MinLease     = time.Second
	MaxLease     = time.Hour
	MaxWait      = time.Minute

	// DefaultWaiters is more than a page asks for at once: a browser has six connections to a host.
	DefaultWaiters = 10
	MaxWaiters     = 10_000
)

// LocalRetry is the RetryAfter of a refusal inside the process, where no lease says when a claim is over.
const LocalRetry = time.Second

// WithDefaults returns the options with their defaults. It panics when Lease or Wait is invalid, in the name
// of the package and its guard.
func (o Options) WithDefaults(pkg, guard string) Options {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Waiters == 0 {
		o.Waiters = DefaultWaiters
	}
	switch {
	case o.Lease < MinLease || o.Lease > MaxLease:
		panic(fmt.Sprintf("%s: Lease is %v: set %v to %v (guard %q)", pkg, o.Lease, MinLease, MaxLease, guard))
	case o.Wait < 0 || o.Wait > MaxWait:
		panic(fmt.Sprintf("%s: Wait is %v: set 0 to %v (guard %q)", pkg, o.Wait, MaxWait, guard))
	case o.Waiters < 0 || o.Waiters > MaxWaiters:
		panic(fmt.Sprintf("%s: Waiters is %d: set 1 to %d (guard %q)", pkg, o.Waiters, MaxWaiters, guard))
	}
	return o
}

// Keeper takes, renews and gives back the claims of one guard. Make one with [New].
type Keeper struct {
	base    *kit.Base
	options Options
	pools   pools
	lines   lines
	crowd   crowd
}

// New returns a keeper for the guard with this base.
func New(base *kit.Base, options Options) *Keeper {
	k := &Keeper{base: base, options: options,
		lines: lines{process: rand.Text()[:10], pause: stepMost, pauseFirst: stepFirst, byTag: map[string]*line{},
			looks: map[string]time.Time{}}}
	k.crowd = crowd{most: options.Waiters, waiting: map[spot]int64{}}
	k.pools = pools{lease: options.Lease, cause: options.Lost, renew: k.renew, crowd: &k.crowd,
		byTag: map[string]*pool{}}
	return k
}

// Holder is what one call of Check holds: the claim of its decision.
type Holder struct {
	Attempt core.Attempt // without its call
	Tag     string       // of the pool
	Call    string
	Name    string        // as the scripts know it: "cost|call|lease|actor"
	Most    int64         // permits of the pool
	Fence   int64         // if the pool has fences
	Lease   time.Duration // zero: the claim is this process's own
	Late    bool          // the call, or a copy of it, may still arrive: its release leaves a tombstone

	process string // that has waited for the claim; empty: nobody has

	lost context.Context // ends when the lease is lost, with the cause of Options
	lose context.CancelCauseFunc

	expiry *time.Timer // of pools: at the end of the lease by the clock of the process
}

// NewHolder returns a holder for an attempt that names its call, in a pool with so many permits.
func NewHolder(tag string, a core.Attempt, most int64, lease time.Duration) *Holder {
	h := &Holder{
		Attempt: a.WithoutCall(), Tag: tag, Call: a.Call(), Most: most, Lease: lease,
		Name: strconv.FormatInt(a.Cost, 10) + "|" + a.Call() + "|" +
			strconv.FormatInt(lease.Milliseconds(), 10) + "|" + script.Encode(a.Actor),
	}
	h.lost, h.lose = context.WithCancelCause(context.Background())
	return h
}

// Claim returns what a decision of the guard holds, or core.ErrInvalid.
func (k *Keeper) Claim(d core.Decision) (*Holder, error) { return kit.Claimed[*Holder](k.base, d) }

// Hold implements [kit.Holder].
func (k *Keeper) Hold(ctx context.Context, d core.Decision) (held context.Context, stop context.CancelFunc) {
	h, err := k.Claim(d)
	if err != nil {
		return ctx, func() {}
	}
	held, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(h.lost, func() { cancel(context.Cause(h.lost)) })
	return held, func() {
		release()
		cancel(nil)
	}
}

// Take asks for a claim for an attempt that names its call: Redis, and then it stands in line until the
// context ends, or Options.Wait is over. On an engine without Redis it does all inside the process. The
// decision comes with what the guard has filled in. Its Remaining says how many permits are left.
func (k *Keeper) Take(ctx context.Context, tag string, d core.Decision, a core.Attempt, most int64,
) (core.Decision, error) {
	if !k.base.Engine().HasRedis() {
		return k.TakeLocal(ctx, tag, d, a, most), nil
	}
	if k.TooMany(tag, &d) {
		return d, nil
	}
	if err := kit.RoomToUndo(); err != nil {
		return d, err
	}
	h, c := k.Asking(tag, a, most, k.base.Engine().Deadline())
	script.Send(ctx, &c)
	return k.Asked(ctx, h, &c, d)
}

// TakeLocal asks for a claim inside the process, for an attempt that names its call.
func (k *Keeper) TakeLocal(ctx context.Context, tag string, d core.Decision, a core.Attempt,
	most int64) core.Decision {
	h := NewHolder(tag, a, most, 0)
	held, reason := k.pools.take(ctx, h, k.options.Wait)
	d.Allowed, d.Reason, d.Source = reason == core.ReasonOK, reason, core.SourceLocal
	d.Remaining = max(most-held, 0)
	if d.Allowed {
		d.SetClaim(h)
	} else {
		d.RetryAfter = LocalRetry
	}
	return d
}

// allow completes the decision of an attempt that has its claim.
func (k *Keeper) allow(d *core.Decision, h *Holder) {
	d.Allowed, d.Reason, d.Source, d.ResetAfter = true, core.ReasonOK, core.SourceRedis, k.options.Lease
	d.SetClaim(h)
}

// Asking returns the call that asks Redis for a claim, and its future holder. Call [kit.RoomToUndo] first.
func (k *Keeper) Asking(tag string, a core.Attempt, most int64, limit time.Duration) (*Holder, script.Call) {
	h := NewHolder(tag, a, most, k.options.Lease)
	return h, script.Call{Runner: k.base.Engine().Runner, Script: acquireScript, Limit: limit, Keys: k.KeysOf(h),
		Args: []any{h.Most, k.options.Lease.Milliseconds(), h.Name, k.keep(), k.now()}}
}

// Asked reads what a call of Asking that was sent was answered. Then the attempt stands in line, if it may.
func (k *Keeper) Asked(
	ctx context.Context, h *Holder, c *script.Call, d core.Decision,
) (core.Decision, error) {
	d, err := k.answered(h, c, d)
	if err != nil || d.Reason != core.ReasonBusy || k.options.Wait == 0 {
		return d, err
	}
	h = NewHolder(h.Tag, h.Attempt.WithCall(), h.Most, k.options.Lease)
	if !k.crowd.enter(h) {
		d.Reason = core.ReasonLimited
		return d, nil
	}
	defer k.crowd.leave(h)
	if k.Await(ctx, h) {
		k.allow(&d, h)
		d.Remaining, d.RetryAfter = 0, 0 // as far as this process knows, the waiters took all permits
	}
	return d, nil
}

func (k *Keeper) answered(h *Holder, c *script.Call, d core.Decision) (core.Decision, error) {
	if c.Err != nil { // the script may have run
		h.Late = true
		k.base.UndoLater(c.Err, func(ctx context.Context) error { return k.Give(ctx, h) })
		return d, c.Err
	}
	h.Late = c.Resent
	r := script.ReadReply(c.Reply, 3, 4)
	reason, left, wait := core.Reason(r.Text()), r.Number(), r.Duration(time.Millisecond)
	h.Fence = fenceOf(r)
	if r.Err != nil {
		return d, r.Err
	}
	d.Reason, d.Source, d.Remaining = reason, core.SourceRedis, left
	switch {
	case reason == core.ReasonOK:
		k.allow(&d, h)
		k.pools.add(h, c.Sent)
		return d, nil
	case h.Late: // an earlier sending may still arrive, and find a free place by then
		k.base.UndoLater(nil, func(ctx context.Context) error { return k.Give(ctx, h) })
	}
	d.RetryAfter = wait
	return d, nil
}

// fenceOf returns the fence at the end of a reply, or 0.
func fenceOf(r *script.Reply) int64 {
	if !r.More() {
		return 0
	}
	return r.Number()
}

// now returns the moment that the scripts are given.
func (k *Keeper) now() any { return k.base.Engine().ScriptNow(time.Microsecond) }

// keep returns how long a pool keeps its last fence. Empty: it has no fences.
func (k *Keeper) keep() any {
	if k.options.Fences {
		return (k.options.Lease + keepFence).Milliseconds()
	}
	return ""
}

// Settle gives a claim back, with each ending. A lease that was lost is no error. The observer is not told.
func (k *Keeper) Settle(ctx context.Context, d core.Decision) error {
	h, err := k.Claim(d)
	if err != nil {
		return err
	}
	k.pools.remove(h)
	if h.Lease == 0 {
		return nil
	}
	return k.release(core.Settling(ctx), h)
}

// Give gives back what a call of Check has taken, and tells the observer.
func (k *Keeper) Give(ctx context.Context, h *Holder) error {
	return k.base.Call(ctx, "settle", h.Attempt, func() error { return k.release(ctx, h) })
}

// release gives back what a call of Check has taken. If that call may still arrive, it leaves a tombstone.
func (k *Keeper) release(ctx context.Context, h *Holder) error {
	tombstone := time.Duration(0)
	if h.Late {
		tombstone = kit.TombstoneTTL
	}
	keys := []string{k.key(h.Tag), k.base.Key(h.Tag, "void", h.Call), k.base.Key(h.Tag, "line"),
		k.base.Key(h.Tag, "present")}
	value, err := k.base.Engine().RunWithin(ctx, k.base.Engine().SettleTimeout(), releaseScript, keys,
		h.Name, h.Most, tombstone.Milliseconds(), h.process, k.keep(), k.now())
	if err != nil {
		return err
	}
	return k.released(h.Tag, value)
}

// released reads the reply of a release, and tells the process that is next. If that stays silent, this one
// sees to it that others are told.
func (k *Keeper) released(tag string, value any) error {
	r := script.ReadReply(value, 2, 2)
	first, wait := r.Text(), r.Duration(time.Millisecond)
	if k.tell(first, tag); first != "" && first != k.lines.process {
		k.look(tag, wait+time.Millisecond)
	}
	return r.Err
}

// Extend renews the lease of a decision's claim at once. The error wraps Options.Lost when the claim was lost
// or given back, and core.ErrInvalid when the decision is not one of the guard.
func (k *Keeper) Extend(ctx context.Context, d core.Decision) error {
	h, err := k.Claim(d)
	if err != nil {
		return k.base.Observe(ctx, "renew", time.Now(), d, err)
	}
	if h.Lease > 0 && k.pools.holds(h) {
		if err := k.pools.renewSome(ctx, []*Holder{h}); err != nil {
			return err
		}
	}
	if !k.pools.holds(h) {
		return k.options.Lost
	}
	return nil
}

// renew renews the leases of holders of one pool, and returns those that have lost their claims.
func (k *Keeper) renew(ctx context.Context, holders []*Holder) (lost []*Holder, err error) {
	tag := holders[0].Tag
	args := []any{k.options.Lease.Milliseconds(), k.keep(), k.now()}
	for _, h := range holders {
		args = append(args, h.Name)
	}
	err = k.base.Call(ctx, "renew", core.Attempt{Resource: holders[0].Attempt.Resource}, func() error {
		value, err := k.base.Engine().RunWithin(ctx, min(k.base.Engine().SettleTimeout(), k.options.Lease/3),
			renewScript, []string{k.key(tag)}, args...)
		if err != nil {
			return err
		}
		r := script.ReadReply(value, 0, math.MaxInt)
		for r.More() {
			if i := r.Number(); i >= 1 && i <= int64(len(holders)) {
				lost = append(lost, holders[i-1])
			}
		}
		return r.Err
	})
	return lost, err
}

// key returns the key that has a pool's holders.
func (k *Keeper) key(tag string) string { return k.base.Key(tag, "permits") }

// KeysOf returns the keys of the call that takes a claim.
func (k *Keeper) KeysOf(h *Holder) []string {
	return []string{k.key(h.Tag), k.base.Key(h.Tag, "void", h.Call), k.base.Key(h.Tag, "present")}
}
