package seckill

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Parts are sales that package buckets makes one sale of. Only that package needs them. An item is the tag of
// its keys, and the calls are not observed, since those of the whole sale are.
type Parts struct{ *Guard }

// Moved returns the units of an item's stock that came from other parts, minus those that went there, and
// the fields of its hash that say so. [Guard.Repair] restores a lost hash with them.
type Moved func(ctx context.Context, item string) (units int64, fields map[string]string, err error)

// notMoved is the Moved of a sale that is no part of another.
func notMoved(context.Context, string) (int64, map[string]string, error) {
	return 0, map[string]string{}, nil
}

// NewParts makes parts, and registers the guard of whole sales, with scripts of its own. It returns the Base
// of that guard.
func NewParts(
	e *core.Engine, name string, options Options, moved Moved, scripts ...*script.Script,
) (Parts, kit.Base) {
	g := newGuard(e, name, options, scripts...)
	whole := g.Base
	g.Base, g.missed, g.moved = whole.Within(), nil, moved
	g.tagOf = func(item string) string { return item }
	return Parts{g}, whole
}

// Terms returns the terms of a sale as the scripts take them: stock, opens, closes, per_buyer, hold, keep.
func (p Parts) Terms(sale Sale) ([]int64, error) { return p.terms(sale) }

// Open opens a part, once, with its share of the stock and the other terms, and reports whether it did. An
// epoch names the opening.
func (p Parts) Open(ctx context.Context, item string, terms []any, epoch string) (bool, error) {
	return p.stockOf(item).open(ctx, terms, epoch)
}

// Close is [Guard.Close]. It reports whether this call closed the part.
func (p Parts) Close(ctx context.Context, item string) (bool, error) {
	return p.stockOf(item).close(ctx)
}

// TakeBack is [Guard.Settle] for an attempt that was allowed and does not commit. It reports what became of
// the reservation.
func (p Parts) TakeBack(ctx context.Context, a core.Attempt, end core.Ending) (core.Decision, error) {
	return p.takeBack(ctx, a, end)
}

// Keys returns the keys of a part, as the scripts take them: sale, buyers, holds, reservations, and outbox
// unless there is none.
func (p Parts) Keys(item string) []string { return p.stockOf(item).keys() }

// Run runs a script of package buckets. If the guard is Acked, it waits for replicas where lasts reports true
// of the reply. A nil lasts means that nobody relies on it.
func (p Parts) Run(
	ctx context.Context, lasts func(reply any) bool, s *script.Script, keys []string, args ...any,
) (any, error) {
	if lasts == nil {
		return p.Engine().RunWithin(ctx, p.Engine().SettleTimeout(), s, keys, args...)
	}
	c := script.Call{Limit: p.Engine().SettleTimeout(), Script: s, Keys: keys, Args: args}
	return p.runUntil(ctx, lasts, &c)
}

// Shown returns the operator's view of a whole sale with this status. The item is one of its parts.
func (p Parts) Shown(ctx context.Context, item string, whole Status) (any, error) {
	now, err := p.stockOf(item).look(ctx)
	if err != nil {
		return nil, err
	}
	now.Status = whole
	return p.shown(item, now)
}
