package budget

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Settle implements [core.Guard]: core.Rollback gives all units back, core.CommitCost the difference to the
// attempt's real cost. Units beyond the estimate are charged whatever is left.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	actual, costs := end.Cost()
	if end.Commits() && !costs {
		return nil
	}
	return g.end(ctx, "settle", d, actual)
}

// Refund gives the units of an allowed attempt back, on all levels. Only the first of Settle, Refund and
// Spend has an effect.
func (g *Guard) Refund(ctx context.Context, d core.Decision) error { return g.end(ctx, "refund", d, 0) }

// Spend corrects the units of an allowed attempt to its real cost. A cost of more than core.MaxAmount / 16,
// the largest Max of a limit, is that.
func (g *Guard) Spend(ctx context.Context, d core.Decision, actual int64) error {
	return g.end(ctx, "spend", d, actual)
}

func (g *Guard) end(ctx context.Context, op string, d core.Decision, actual int64) error {
	if !d.Allowed {
		return nil
	}
	ctx = core.Settling(ctx)
	return g.Call(ctx, op, d.Attempt, func() error {
		t, err := kit.Claimed[*taken](&g.Base, d)
		if err != nil {
			return err
		}
		if actual = min(actual, mostUnits); actual < 0 {
			return fmt.Errorf("%w: an actual cost of %d", core.ErrInvalid, actual)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.ending == nil {
			t.ending = &ending{units: d.Attempt.Cost - actual, call: rand.Text()[:6]}
		}
		e, now := t.ending, g.Engine().Now()
		if e.done || e.units == 0 {
			return nil
		}
		if err := e.unknown(now); err != nil {
			return err
		}
		first := e.sent.IsZero()
		if first {
			e.sent = now
		}
		switch {
		case e.units < 0:
			err = g.charge(ctx, t, e, first)
		case first:
			err = g.refund(ctx, t, e.units, "first")
		default:
			err = g.refund(ctx, t, e.units, "again")
		}
		e.done = err == nil
		return err
	})
}

func (g *Guard) refund(ctx context.Context, t *taken, units int64, mode string) error {
	stamp, until := t.stamp, t.sequence
	if mode == "undo" {
		stamp, until = 0, 0 // when the call ran is not known here
	}
	args := []any{units, t.call, mode, stamp, g.Engine().ScriptNow(time.Microsecond), until}
	for _, n := range t.nodes {
		args = append(args, n.name)
	}
	_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), refundScript, t.keys, args...)
	return err
}

// errRolled means that the server's clock was in other periods than asked for, twice.
var errRolled = errors.New("the period changed between two calls")

// charge takes units that are spent already. The script knows an ending that it has seen by its name.
func (g *Guard) charge(ctx context.Context, t *taken, e *ending, first bool) error {
	now, force := g.Engine().Now().UnixMicro(), "1"
	charged := &taken{keys: t.keys, nodes: t.nodes, call: e.call, stamp: now, binding: -1}
	if !first {
		force = t.call // as long as Redis remembers it, it would remember the ending
	}
	for range 2 {
		value, err := g.send(ctx, charged, -e.units, force)
		if err != nil {
			return err
		}
		again, err := g.read(new(core.Decision), charged, value, -e.units)
		if err != nil || !again {
			return err
		}
	}
	return errRolled
}
