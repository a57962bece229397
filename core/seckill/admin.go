package seckill

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/saleops"
)

// ErrTooFewLeft is returned by [Guard.Restock] when fewer units are left than it is asked to take away. It
// matches [core.ErrNotNow].
var ErrTooFewLeft = kit.NewError("seckill: too few units are left", core.ErrNotNow)

// Restock adds units to the stock of a sale, or takes away units that are left when units is negative, and
// returns the state of the sale. It changes the stock once per operation ID: a repeated call, because the
// reply was lost or a job runs again, changes nothing.
//
// ErrTooFewLeft means that fewer units are left than Restock is asked to take away. Then it takes none.
// Held units do not count as left. Before it refuses, Restock itself returns the units of expired
// reservations to the stock. An ErrInvalid means that the ID was used with another number of units, or that
// the stock would exceed 2^53-1. ErrNoSale means that there is no such sale.
func (g *Guard) Restock(ctx context.Context, item, id string, units int64) (Status, error) {
	defer g.memory.restocked(item)
	begun := time.Now()
	status, err := g.restock(ctx, item, id, units)
	return status, g.Observe(ctx, "restock", begun, core.Decision{Guard: g.Name()}, err)
}

func (g *Guard) restock(ctx context.Context, item, id string, units int64) (Status, error) {
	switch {
	case item == "" || id == "":
		return Status{}, fmt.Errorf("%w: restock needs an item and an operation ID", core.ErrInvalid)
	case units == 0 || units < -core.MaxAmount || units > core.MaxAmount:
		return Status{}, fmt.Errorf("%w: a restock of %d units: pass 1 to 2^53-1, or -1 to -(2^53-1)",
			core.ErrInvalid, units)
	}
	reason, status, err := g.stockOf(item).restock(ctx, id, units)
	if err != nil {
		return Status{}, err
	}
	switch reason {
	case "ok":
		return status, nil
	case "not_ready":
		return Status{}, ErrNoSale
	case "conflict":
		return status, fmt.Errorf("%w: restock %.100q was made with a number of units other than %d",
			core.ErrInvalid, id, units)
	case "too_few":
		return status, fmt.Errorf("%w: %d, and %d are to be taken away", ErrTooFewLeft, status.Left, -units)
	case "too_many":
		return status, fmt.Errorf("%w: a stock of %d and %d: at most 2^53-1 can be counted",
			core.ErrInvalid, status.Stock, units)
	}
	return Status{}, fmt.Errorf("unexpected reply: reason %.100q", reason)
}

// Close closes a sale now, by the server's clock. Reservations made in time can still be confirmed. A second
// call changes nothing. A sale of which a part was lost closes too, and [Guard.Repair] leaves it closed.
// ErrNoSale means that there is no such sale.
func (g *Guard) Close(ctx context.Context, item string) error {
	return g.Call(ctx, "close", core.Attempt{}, func() error {
		if item == "" {
			return errNoItem
		}
		_, err := g.stockOf(item).close(ctx)
		return err
	})
}

// SweepEvery sweeps the items that the function returns, each about once per interval, and returns nil when
// the context ends. So the units of expired reservations return to the stock even when no buyer asks for
// them. SweepEvery calls the function at the start of each round, so items can come and go. It spreads the
// sweeps over the interval.
//
// It runs in the caller's goroutine, so that the program knows when it has ended. It does not stop at errors:
// the observer receives them, and the next round tries again. Several processes may sweep the same items. An
// interval of less than a millisecond and a nil function are errors.
func (g *Guard) SweepEvery(ctx context.Context, interval time.Duration, items func() []string) error {
	return saleops.SweepEvery(ctx, g.Name(), g.Sweep, interval, items)
}
