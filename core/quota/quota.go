package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	quotaScript     = core.NewScript("quota", lua.Quota, core.Idempotent)
	quotaUndoScript = core.NewScript("quota_undo", lua.QuotaUndo, core.Idempotent)
	quotaUsedScript = core.NewScript("quota_used", lua.QuotaUsed, core.Idempotent)
)

// QuotaOptions are what a Quota has to be told.
type Options struct {
	// Items is how many different items each actor may have in a period, 1 to 10,000. Required. Where it is changed, what was
	// counted before still counts.
	Items int
	// Period says which periods there are, such as Daily(time.UTC). Required. Where it is changed, a period that begins at another
	// moment than before begins with nothing counted.
	Period period.Period
}

// Quota lets each actor have so many different items a period, such as points for reading different articles, at most 50 a
// day: the Actor is who, the Item the different thing, the Resource what is counted; it may be empty. The Cost is 1.
//
// An item counts when it comes first, and is free for the rest of the period: the reason is ReasonOK the first time, then
// ReasonAgain. An item is a claim: Settle with ok false takes it back. Where several attempts for one item were allowed it goes
// when all of them have failed, so it may still be counted when the one that heard ReasonOK has failed. When a
// ninth attempt shares an item, it can not be taken back any more.
//
// The set of items is exact, and lives in Redis until its period is over. It has no more items than the quota, so its memory is
// bounded: about 100 bytes for an item with a short name, at most 1024 for the name, and as much as eight operation IDs.
type Guard struct {
	core.Base
	options Options
	clock   func() time.Time // this process's: a first guess at the period; the server's decides
}

const maxQuotaItems = 10_000

// Quota makes a guard for different items. It panics when the name is taken or not a name, or the options make no sense.
func New(e *core.Engine, name string, options Options) *Guard {
	e.NeedRedis("Quota", name)
	if options.Items < 1 || options.Items > maxQuotaItems {
		panic(fmt.Sprintf("core: a quota of %d items: give Items 1 to %d (guard %q)", options.Items, maxQuotaItems, name))
	}
	if options.Period == nil {
		panic(fmt.Sprintf("core: a quota without a Period: give it one, such as core.Daily(time.UTC) (guard %q)", name))
	}
	if _, err := options.Period.At(time.Now().UnixMilli()); err != nil {
		panic(fmt.Sprintf("core: %v (guard %q)", err, name))
	}
	return &Guard{
		Base:    e.Register("quota", name, quotaScript, quotaUndoScript, quotaUsedScript),
		options: options,
		clock:   time.Now,
	}
}

// Traits implements Guard: a quota needs an item, and takes it back when the request fails.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsItem: true, Outage: core.FailClosed, Unit: core.UnitItems}
}

// Check implements Guard. RetryAfter, when refused as ReasonQuota, and ResetAfter are the time until the period ends, by the
// server's clock. ReasonDayRolled, with RetryAfter of a second, is all but impossible: it needs a period that ends while
// it is being asked about.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a, err := a.PrepareItem()
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.Engine().Deadline()) // for both times that the server may be asked
	defer cancel()
	err = g.inPeriod(func(s period.Span) (int64, error) { return g.decide(ctx, &d, s) })
	switch {
	case errors.Is(err, errRolled):
		d.Reason, d.RetryAfter = core.ReasonDayRolled, time.Second
		return d, nil
	case err != nil:
		return core.Decision{Guard: g.Name(), Attempt: d.Attempt}, err
	}
	return d, nil
}

// errRolled says that the server's clock was in another period than the one that it was asked about.
var errRolled = errors.New("the period has changed between two calls")

// inPeriod asks the server for the period that this process's clock is in and, where the server says that it is
// another time, once more for the period of that. ask returns the server's time, in milliseconds.
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

// decide asks for one period. It fills in the decision, and returns the server's time.
func (g *Guard) decide(ctx context.Context, d *core.Decision, s period.Span) (int64, error) {
	a, given := d.Attempt, 1
	if a.MadeID() {
		given = 0
	}
	if err := core.RoomToUndo(); err != nil {
		return 0, err
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), quotaScript, g.quotaKeys(a, s), s.Begins, s.Ends, s.Keep(),
		g.options.Items, core.EncodeUpTo(core.MaxRecord, a.Item), core.Encode(a.ID), given, a.Call(), g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		g.Engine().UndoLater(err, func(ctx context.Context) error { return g.undo(ctx, a, s, core.TombstoneTTL) }) // observed
		d.Attempt = d.Attempt.WithoutCall()
		return 0, err
	}
	r := core.ReadReply(value, 4, 4)
	reason, replayed, count, now := r.Text(), r.Flag(), r.Number(), r.Number()
	if r.Err != nil || !s.Has(now) {
		return now, r.Err
	}
	d.Reason, d.Replayed, d.Source = core.Reason(reason), replayed, core.SourceRedis
	d.Allowed = d.Reason == core.ReasonOK || d.Reason == core.ReasonAgain
	if d.Allowed {
		d.SetClaim(s)
	}
	d.Limit = int64(g.options.Items)
	d.Remaining = max(d.Limit-count, 0)
	d.Window = core.DurationOf(s.Ends-s.Begins, time.Millisecond)
	d.ResetAfter = core.DurationOf(s.Ends-now, time.Millisecond)
	if d.Reason == core.ReasonQuota {
		d.RetryAfter = d.ResetAfter
	}
	return now, nil
}

// Settle implements Guard: core.Rollback takes the item back, once. The decision is one that this guard's Check returned in this process;
// another is an ErrInvalidAttempt.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if end.Commits() || !d.Allowed {
		return nil
	}
	in, err := core.Claimed[period.Span](&g.Base, d)
	if err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	return g.undo(ctx, d.Attempt, in, 0)
}

// undo takes back the item that the attempt's own call of Check was told of. If that call has not come yet, it shall not
// count when it comes within the time given.
func (g *Guard) undo(ctx context.Context, a core.Attempt, s period.Span, void time.Duration) error {
	return g.Call(ctx, "settle", a, func() error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), quotaUndoScript, g.quotaKeys(a, s),
			core.EncodeUpTo(core.MaxRecord, a.Item), core.Encode(a.ID), a.Call(), void.Milliseconds())
		return err
	})
}

// Used returns the different items that the attempt's actor has of the attempt's resource in this period, in alphabetical order,
// and how many more there may be. It writes nothing; the attempt's other fields do not matter. A very long item, 1024 bytes
// once encoded, has the name by which it is kept: '#' and its SHA-256 in unpadded base64url.
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
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), quotaUsedScript, g.quotaKeys(a, s)[:1],
			s.Begins, s.Ends, g.Engine().ScriptNow(time.Millisecond))
		if err != nil {
			return 0, err
		}
		r := core.ReadReply(value, 2, 2)
		now := r.Number()
		in, items = s, r.Texts()
		for i, item := range items {
			items[i] = core.Decode(item)
		}
		return now, r.Err
	})
	if err != nil {
		return nil, in, err
	}
	slices.Sort(items)
	return items, in, nil
}

// Reset forgets what the attempt's actor has had of the attempt's resource in this period, as if for the first time. The
// attempt's other fields do not matter.
func (g *Guard) Reset(ctx context.Context, a core.Attempt) error {
	return g.Call(ctx, "reset", a, func() error {
		_, in, err := g.used(ctx, a)
		if err != nil {
			return err
		}
		return g.Delete(ctx, g.quotaKeys(a, in)[:2]...)
	})
}

func (g *Guard) quotaKeys(a core.Attempt, s period.Span) []string {
	t, begins := core.TagOf(a), strconv.FormatInt(s.Begins, 10)
	return []string{g.Key(t, "items", begins), g.Key(t, "operations", begins), g.Key(t, "void", a.Call())}
}
