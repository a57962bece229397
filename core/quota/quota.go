package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	quotaScript     = script.New("quota", lua.Source("quota/quota"), script.Idempotent)
	quotaUndoScript = script.New("quota_undo", lua.Source("quota/undo"), script.Idempotent)
	quotaUsedScript = script.New("quota_used", lua.Source("quota/used"), script.Idempotent)
)

// Options configure a [Guard]. Both fields are required.
type Options struct {
	// Items is the number of different items that each actor may have per period, 1 to 10,000. After a
	// change, the items counted before still count.
	Items int
	// Period divides time into periods, such as period.Daily(time.UTC). After a change, a period that begins
	// at a new moment starts with no items.
	Period period.Period
}

// Guard limits the number of different items that each actor may have per period, such as points for at most
// 50 different articles per day. Make one with [New]. It is safe for concurrent use.
//
// # Attempts
//
// The Actor has the quota, the Item is counted, and the Resource names the kind of items. The Resource may
// be empty. The Cost is 1.
//
// The first attempt for an item counts it and gets core.ReasonOK. Later attempts for it in the same period
// are free and get core.ReasonAgain. An attempt for one item too many is denied with core.ReasonQuota.
//
// # Rollback
//
// An item is a claim: [Guard.Settle] with core.Rollback takes it back. When several attempts for one item
// were allowed, the item goes only when all of them are rolled back. Until then it counts, even if the
// attempt that got core.ReasonOK failed. When a ninth attempt shares an item, the item can no longer be
// taken back: however many attempts are allowed, the item counts for each of them.
//
// # Replays
//
// A command that the client library sends again, because its reply was lost, belongs to the same call of
// Check and gets the same answer. Another call of Check with the same operation ID, by the application or
// by its client, gets the stored answer with Replayed set. It does so also when the first call got an error
// and its item was not taken back yet. So Replayed is set exactly when Redis has granted an earlier call
// the item. An item that nobody can take back keeps no further operation IDs: there a ninth ID gets
// core.ReasonAgain without Replayed.
//
// # Memory
//
// The set of items is exact. Redis keeps it until its period is over, and up to one hour longer for a clock
// that is set back. It never has more items than the quota. An item with a short name takes about 100 bytes;
// a name takes at most 1024, and an item keeps up to eight operation IDs.
type Guard struct {
	kit.Base
	options Options
	clock   func() time.Time // guesses the period at first; the server's clock decides
}

const maxQuotaItems = 10_000

// New makes a guard with the given name. It panics when the name is taken or malformed, when the options are
// invalid, or when the engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	kit.NeedRedis(e, "quota", name)
	if options.Items < 1 || options.Items > maxQuotaItems {
		panic(fmt.Sprintf("quota: Items is %d: set 1 to %d (guard %q)", options.Items, maxQuotaItems, name))
	}
	if options.Period == nil {
		panic(fmt.Sprintf("quota: Period is missing: set one, such as period.Daily(time.UTC) (guard %q)", name))
	}
	if _, err := options.Period.At(time.Now().UnixMilli()); err != nil {
		panic(fmt.Sprintf("quota: %v (guard %q)", err, name))
	}
	return &Guard{
		Base:    kit.Register(e, "quota", name, quotaScript, quotaUndoScript, quotaUsedScript),
		options: options,
		clock:   e.Now,
	}
}

// Traits implements [core.Guard]: an attempt needs an item, and a failed request takes it back.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsItem: true, Outage: core.FailClosed, Unit: kit.UnitItems}
}

// Check implements [core.Guard]: it counts the item. ResetAfter is the time until the period ends by the
// server's clock. A decision with core.ReasonQuota has the same time as its RetryAfter.
//
// core.ReasonDayRolled, with a RetryAfter of one second, means that the server's clock left the period during
// both calls to Redis. That takes a period that ends at that very moment.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a, err := a.PrepareItem()
	// Without the name of the call: checking the decision's attempt again is another call.
	d := core.Decision{Guard: g.Name(), Attempt: a.WithoutCall()}
	if err != nil {
		return d, err
	}
	ctx, again := script.WatchSendings(ctx)
	ctx, cancel := g.Engine().WithinDeadline(ctx) // one deadline for up to two calls
	defer cancel()
	err = g.inPeriod(func(s period.Span) (int64, error) { return g.decide(ctx, &d, a, s, again) })
	switch {
	case errors.Is(err, errRolled):
		d.Reason, d.RetryAfter = core.ReasonDayRolled, time.Second
		return d, nil
	case err != nil:
		return core.Decision{Guard: g.Name(), Attempt: d.Attempt}, err
	}
	return d, nil
}

// errRolled means that the server's clock was outside of the period in both calls.
var errRolled = errors.New("the period changed between two calls")

// inPeriod calls ask for the period that this process's clock is in. When the server's time, which ask
// returns in milliseconds, is in another period, it calls ask once more for that one.
func (g *Guard) inPeriod(ask func(period.Span) (int64, error)) error {
	now := g.clock().UnixMilli()
	for range 2 {
		s, err := g.options.Period.At(now)
		if err != nil {
			return err
		}
		if now, err = ask(s); err != nil || s.Has(now) {
			return err
		}
	}
	return errRolled
}

// granted is the claim that a decision carries.
type granted struct {
	in   period.Span // in which the item was counted
	call string      // the name of the call that was granted it
	late bool        // the call, or a copy of it, may still arrive: its undo leaves a tombstone
}

// decide runs the script for one period, fills in the decision, and returns the server's time in
// milliseconds.
func (g *Guard) decide(
	ctx context.Context, d *core.Decision, a core.Attempt, s period.Span, again func() bool,
) (int64, error) {
	given := 1
	if a.MadeID() {
		given = 0
	}
	if err := kit.RoomToUndo(); err != nil {
		return 0, err
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), quotaScript, g.quotaKeys(a, s, a.Call()),
		s.Begins, s.Ends, s.KeptAfter(), g.options.Items, script.EncodeUpTo(script.MaxRecord, a.Item),
		script.Encode(a.ID), given, a.Call(), g.Engine().ScriptNow(time.Millisecond))
	undo := func(ctx context.Context) error { return g.undo(ctx, a, granted{s, a.Call(), true}) }
	if err != nil {
		g.UndoLater(err, undo)
		return 0, err
	}
	r := script.ReadReply(value, 4, 4)
	reason, replayed, count, now := r.Text(), r.Flag(), r.Number(), r.Number()
	if r.Err != nil || !s.Has(now) {
		return now, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.Allowed = d.Reason == core.ReasonOK || d.Reason == core.ReasonAgain
	if d.Allowed {
		d.SetClaim(granted{s, a.Call(), again()})
	} else if again() { // an earlier sending may still arrive, and find room by then
		g.UndoLater(nil, undo)
	}
	d.Limit = int64(g.options.Items)
	d.Remaining = max(d.Limit-count, 0)
	d.Window = script.DurationOf(s.Ends-s.Begins, time.Millisecond)
	d.ResetAfter = script.DurationOf(s.Ends-now, time.Millisecond)
	if d.Reason == core.ReasonQuota {
		d.RetryAfter = d.ResetAfter
	}
	return now, nil
}

// Settle implements [core.Guard]: core.Rollback takes the item back, once. The decision must come from this
// guard's Check in this process, or the error is core.ErrInvalid.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if end.Commits() || !d.Allowed {
		return nil
	}
	claim, err := kit.Claimed[granted](&g.Base, d)
	if err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	return g.undo(core.Settling(ctx), d.Attempt, claim)
}

// undo takes back the item that one call of Check was granted. If that call may still arrive, undo leaves a
// tombstone.
func (g *Guard) undo(ctx context.Context, a core.Attempt, claim granted) error {
	tombstone := time.Duration(0)
	if claim.late {
		tombstone = kit.TombstoneTTL
	}
	return g.Call(ctx, "settle", a, func() error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), quotaUndoScript,
			g.quotaKeys(a, claim.in, claim.call), script.EncodeUpTo(script.MaxRecord, a.Item), script.Encode(a.ID),
			claim.call, tombstone.Milliseconds())
		return err
	})
}

// Used returns the items that the attempt's Actor has for its Resource in the current period, in alphabetical
// order, and how many more it may have. It writes nothing and ignores the attempt's other fields.
//
// An item that is longer than 1024 bytes once encoded has the name by which Redis keeps it: '#' and its
// SHA-256 in unpadded base64url.
func (g *Guard) Used(ctx context.Context, a core.Attempt) (items []string, remaining int64, err error) {
	err = g.Call(ctx, "used", a, func() error {
		items, _, err = g.used(ctx, a)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return items, max(int64(g.options.Items-len(items)), 0), nil
}

func (g *Guard) used(ctx context.Context, a core.Attempt) (items []string, in period.Span, err error) {
	a.Cost = 1
	if a, err = a.Prepare(); err != nil {
		return nil, in, err
	}
	err = g.inPeriod(func(s period.Span) (int64, error) {
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), quotaUsedScript,
			g.quotaKeys(a, s, "")[:1], s.Begins, s.Ends, g.Engine().ScriptNow(time.Millisecond))
		if err != nil {
			return 0, err
		}
		r := script.ReadReply(value, 2, 2)
		now := r.Number()
		in, items = s, r.Texts()
		for i, item := range items {
			items[i] = script.Decode(item)
		}
		return now, r.Err
	})
	if err != nil {
		return nil, in, err
	}
	slices.Sort(items)
	return items, in, nil
}

// Reset deletes the items that the attempt's Actor has for its Resource in the current period. It ignores the
// attempt's other fields.
func (g *Guard) Reset(ctx context.Context, a core.Attempt) error {
	return g.Call(ctx, "reset", a, func() error {
		_, in, err := g.used(ctx, a)
		if err != nil {
			return err
		}
		return g.Delete(ctx, g.quotaKeys(a, in, "")[:2]...)
	})
}

// quotaKeys returns the keys in the order of the scripts' KEYS. The last one belongs to the named call.
func (g *Guard) quotaKeys(a core.Attempt, s period.Span, call string) []string {
	t, begins := kit.TagOf(a), strconv.FormatInt(s.Begins, 10)
	return []string{g.Key(t, "items", begins), g.Key(t, "operations", begins), g.Key(t, "void", call)}
}
