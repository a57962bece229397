package seckill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// ErrTooFewLeft is returned by Restock when fewer units are left than it is to take away.
var ErrTooFewLeft = core.NewError("seckill: too few units are left", core.ErrNotNow)

// Restock adds units to the stock of a sale, or takes units away that are left when units is negative, and
// returns where the sale stands. It does so once for each operation ID: calling again, because the reply was
// lost or the job is run again, changes nothing.
//
// ErrTooFewLeft says that fewer are left than are to be taken away; nothing is taken then, and held units are
// not left: Sweep gives back those whose time is over (with several buckets, Restock does so itself). An
// ErrInvalid says that the ID was used with other units, or that the stock would be more than 2^53-1.
// ErrNoSale: there is no such sale.
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
		return Status{}, fmt.Errorf("%w: a restock of %d: give it 1 to 2^53-1, or as many below 0",
			core.ErrInvalid, units)
	}
	var reason string
	var status Status
	err := g.locate(ctx, item, func(at stock) (found bool, err error) {
		reason, status, err = at.restock(ctx, id, units)
		return reason != "not_ready", err
	})
	if err != nil {
		return Status{}, err
	}
	switch reason {
	case "ok":
		return status, nil
	case "not_ready":
		return Status{}, ErrNoSale
	case "conflict":
		return status, fmt.Errorf("%w: restock %.100q was of other units than %d", core.ErrInvalid, id, units)
	case "too_few":
		return status, fmt.Errorf("%w: %d, and %d are to be taken away", ErrTooFewLeft, status.Left, -units)
	case "too_many":
		return status, fmt.Errorf("%w: a stock of %d and %d: at most 2^53-1 can be counted",
			core.ErrInvalid, status.Stock, units)
	}
	return Status{}, fmt.Errorf("unexpected reply: reason %.100q", reason)
}

// Close closes a sale now, by the server's clock. Reservations that were made in time can still be confirmed.
// Closing twice is closing once. ErrNoSale: there is no such sale.
func (g *Guard) Close(ctx context.Context, item string) error {
	return g.Call(ctx, "close", core.Attempt{}, func() error {
		return g.ofSale(ctx, item, func(at stock) (found bool, err error) { return at.close(ctx) })
	})
}

// SweepEvery sweeps the items that the function names, each about once an interval, until the context ends,
// and returns nil then: units of reservations whose time is over go back in time also where nobody asks for
// them. The function is called at the beginning of each round, so items can come and go. The calls are spread
// over the interval.
//
// It runs in the caller's goroutine, so that the program knows when it has ended, and does not give up: the
// observer hears of errors, and the next round tries again. Several processes may sweep the same items. An
// interval of less than a millisecond, and a nil function, are errors.
func (g *Guard) SweepEvery(ctx context.Context, interval time.Duration, items func() []string) error {
	if interval < time.Millisecond || items == nil {
		return fmt.Errorf("seckill: sweep %q every %v: give it a millisecond or more, "+
			"and a function that names the items", g.Name(), interval)
	}
	var due []string
	pause := interval
	timer := time.NewTimer(rand.N(interval)) // processes that start together do not sweep together
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if len(due) == 0 {
			due = items()
			pause = interval / time.Duration(max(len(due), 1))
		}
		if len(due) > 0 {
			g.sweepAll(ctx, due[0])
			due = due[1:]
		}
		timer.Reset(pause)
	}
}

// sweepAll sweeps until nothing is left to sweep, or an error ends it.
func (g *Guard) sweepAll(ctx context.Context, item string) {
	for {
		if swept, err := g.Sweep(ctx, item); err != nil || swept < sweepMost {
			return
		}
	}
}
