package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	quotaScript     = NewScript("quota", lua.Quota, Replayable)
	quotaUndoScript = NewScript("quota_undo", lua.QuotaUndo, Replayable)
	quotaUsedScript = NewScript("quota_used", lua.QuotaUsed, Replayable)
)

// QuotaOptions are what a Quota has to be told.
type QuotaOptions struct {
	// Items is how many different items each actor may have in a period, 1 to 10,000. Required. Where it is changed, what was
	// counted before still counts.
	Items int
	// Period says which periods there are, such as Daily(time.UTC). Required. Where it is changed, a period that begins at another
	// moment than before begins with nothing counted.
	Period Period
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
type Quota struct {
	Base
	options QuotaOptions
	clock   func() time.Time // this process's: a first guess at the period; the server's decides
}

const maxQuotaItems = 10_000

// Quota makes a guard for different items. It panics when the name is taken or not a name, or the options make no sense.
func (e *Engine) Quota(name string, options QuotaOptions) *Quota {
	e.NeedRedis("Quota", name)
	if options.Items < 1 || options.Items > maxQuotaItems {
		panic(fmt.Sprintf("core: a quota of %d items: give Items 1 to %d (guard %q)", options.Items, maxQuotaItems, name))
	}
	if options.Period == nil {
		panic(fmt.Sprintf("core: a quota without a Period: give it one, such as core.Daily(time.UTC) (guard %q)", name))
	}
	if _, err := options.Period.at(time.Now().UnixMilli()); err != nil {
		panic(fmt.Sprintf("core: %v (guard %q)", err, name))
	}
	return &Quota{
		Base:    e.Register("quota", name, quotaScript, quotaUndoScript, quotaUsedScript),
		options: options,
		clock:   time.Now,
	}
}

// Traits implements Guard: a quota needs an item, and takes it back when the request fails.
func (g *Quota) Traits() Traits {
	return Traits{NeedsItem: true, Outage: OutageClosed, Unit: UnitItems}
}

// Check implements Guard. RetryAfter, when refused as ReasonQuota, and ResetAfter are the time until the period ends, by the
// server's clock. ReasonDayRolled, with RetryAfter of a second, is all but impossible: it needs a period that ends while
// it is being asked about.
func (g *Quota) Check(ctx context.Context, a Attempt) (Decision, error) {
	return g.Decide(ctx, "check", func() (Decision, error) { return g.check(ctx, a) })
}

func (g *Quota) check(ctx context.Context, a Attempt) (Decision, error) {
	a, err := a.prepareItem()
	d := Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.Engine().Deadline()) // for both times that the server may be asked
	defer cancel()
	err = g.inPeriod(func(s span) (int64, error) { return g.decide(ctx, &d, s) })
	switch {
	case errors.Is(err, errRolled):
		d.Reason, d.RetryAfter = ReasonDayRolled, time.Second
		return d, nil
	case err != nil:
		return Decision{Guard: g.Name(), Attempt: d.Attempt}, err
	}
	return d, nil
}

// errRolled says that the server's clock was in another period than the one that it was asked about.
var errRolled = errors.New("the period has changed between two calls")

// inPeriod asks the server for the period that this process's clock is in and, where the server says that it is
// another time, once more for the period of that. ask returns the server's time, in milliseconds.
func (g *Quota) inPeriod(ask func(span) (int64, error)) error {
	now := g.clock().UnixMilli()
	for range 2 {
		s, err := g.options.Period.at(now)
		if err != nil {
			return err
		}
		if now, err = ask(s); err != nil || s.has(now) {
			return err
		}
	}
	return errRolled
}

// decide asks for one period. It fills in the decision, and returns the server's time.
func (g *Quota) decide(ctx context.Context, d *Decision, s span) (int64, error) {
	a, given := d.Attempt, 1
	if a.MadeID() {
		given = 0
	}
	if err := hasRoomToUndo(); err != nil {
		return 0, err
	}
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), quotaScript, g.quotaKeys(a, s), s.begins, s.ends, s.keep(),
		g.options.Items, encodeUpTo(maxRecord, a.Item), encode(a.ID), given, a.Call(), g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		g.Engine().undoLater(err, func(ctx context.Context) error { return g.undo(ctx, a, s, TombstoneTTL) }) // observed
		d.Attempt = d.Attempt.WithoutCall()
		return 0, err
	}
	r := readReply(value, 4, 4)
	reason, replayed, count, now := r.text(), r.flag(), r.number(), r.number()
	if r.err != nil || !s.has(now) {
		return now, r.err
	}
	d.Reason, d.Replayed, d.Source = Reason(reason), replayed, SourceRedis
	d.Allowed = d.Reason == ReasonOK || d.Reason == ReasonAgain
	if d.Allowed {
		d.SetClaim(s)
	}
	d.Limit = int64(g.options.Items)
	d.Remaining = max(d.Limit-count, 0)
	d.Window = durationOf(s.ends-s.begins, time.Millisecond)
	d.ResetAfter = durationOf(s.ends-now, time.Millisecond)
	if d.Reason == ReasonQuota {
		d.RetryAfter = d.ResetAfter
	}
	return now, nil
}

// Settle implements Guard: not ok takes the item back, once. The decision is one that this guard's Check returned in this process;
// another is an ErrInvalidAttempt.
func (g *Quota) Settle(ctx context.Context, d Decision, ok bool) error {
	if ok || !d.Allowed {
		return nil
	}
	in, err := Claimed[span](&g.Base, d)
	if err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	return g.undo(ctx, d.Attempt, in, 0)
}

// undo takes back the item that the attempt's own call of Check was told of. If that call has not come yet, it shall not
// count when it comes within the time given.
func (g *Quota) undo(ctx context.Context, a Attempt, s span, void time.Duration) error {
	return g.Call(ctx, "settle", a, func() error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), quotaUndoScript, g.quotaKeys(a, s),
			encodeUpTo(maxRecord, a.Item), encode(a.ID), a.Call(), void.Milliseconds())
		return err
	})
}

// Used returns the different items that the attempt's actor has of the attempt's resource in this period, in alphabetical order,
// and how many more there may be. It writes nothing; the attempt's other fields do not matter. A very long item, 1024 bytes
// once encoded, has the name by which it is kept: '#' and its SHA-256 in unpadded base64url.
func (g *Quota) Used(ctx context.Context, a Attempt) (items []string, remaining int64, err error) {
	err = g.Call(ctx, "used", a, func() error {
		items, _, err = g.used(ctx, a)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return items, max(int64(g.options.Items-len(items)), 0), nil
}

func (g *Quota) used(ctx context.Context, a Attempt) (items []string, in span, err error) {
	a.Cost = 1
	if a, err = a.prepare(); err != nil {
		return nil, in, err
	}
	err = g.inPeriod(func(s span) (int64, error) {
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), quotaUsedScript, g.quotaKeys(a, s)[:1],
			s.begins, s.ends, g.Engine().ScriptNow(time.Millisecond))
		if err != nil {
			return 0, err
		}
		r := readReply(value, 2, 2)
		now := r.number()
		in, items = s, r.texts()
		for i, item := range items {
			items[i] = decode(item)
		}
		return now, r.err
	})
	if err != nil {
		return nil, in, err
	}
	slices.Sort(items)
	return items, in, nil
}

// Reset forgets what the attempt's actor has had of the attempt's resource in this period, as if for the first time. The
// attempt's other fields do not matter.
func (g *Quota) Reset(ctx context.Context, a Attempt) error {
	return g.Call(ctx, "reset", a, func() error {
		_, in, err := g.used(ctx, a)
		if err != nil {
			return err
		}
		return g.Delete(ctx, g.quotaKeys(a, in)[:2]...)
	})
}

func (g *Quota) quotaKeys(a Attempt, s span) []string {
	t, begins := limitTag(a), strconv.FormatInt(s.begins, 10)
	return []string{g.Key(t, "items", begins), g.Key(t, "operations", begins), g.Key(t, "void", a.Call())}
}
