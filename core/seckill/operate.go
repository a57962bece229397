package seckill

import (
	"context"
	"fmt"
	"github.com/gatehouse-go/gatehouse/core"
	"math/rand/v2"
	"strconv"
	"time"
)

// ErrTooFewLeft is returned by Restock when fewer units are left than it is to take away.
var ErrTooFewLeft = core.NewError("seckill: too few units are left", core.ErrNotNow)

// Restock adds units to the stock of a sale, or takes units away that are left when units is negative, and returns where the
// sale stands. It does so once for each operation ID: calling again, because the reply was lost or the job is run
// again, changes nothing.
//
// ErrTooFewLeft says that fewer are left than are to be taken away; nothing is taken then, and held units are not left: Sweep
// gives back those whose time is over (with several buckets, Restock does so itself). An ErrInvalidAttempt says that the ID was used with other units, or that the stock would be more
// than 2^53-1. ErrNoSale: there is no such sale.
func (g *Guard) Restock(ctx context.Context, item, id string, units int64) (Status, error) {
	defer g.memory.restocked(item, g.Engine().Now)
	begun := time.Now()
	status, err := g.restock(ctx, item, id, units)
	return status, g.Observe(ctx, "restock", begun, core.Decision{Guard: g.Name()}, err)
}

func (g *Guard) restock(ctx context.Context, item, id string, units int64) (Status, error) {
	switch {
	case item == "" || id == "":
		return Status{}, fmt.Errorf("%w: restock needs an item and an operation ID", core.ErrInvalid)
	case units == 0 || units < -core.MaxAmount || units > core.MaxAmount:
		return Status{}, fmt.Errorf("%w: a restock of %d: give it 1 to 2^53-1, or as many below 0", core.ErrInvalid, units)
	}
	var reason string
	var status Status
	err := g.locate(ctx, item, func(at place) (missing bool, err error) {
		if at.buckets > 1 {
			reason, status, err = g.restockBuckets(ctx, at, id, units)
		} else {
			reason, status, err = g.restockOnce(ctx, at, 0, id, units)
		}
		return reason == "not_ready", err
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
		return status, fmt.Errorf("%w: a stock of %d and %d: at most 2^53-1 can be counted", core.ErrInvalid, status.Stock, units)
	}
	return Status{}, fmt.Errorf("unexpected reply: reason %.100q", reason)
}

// restockOnce calls the script once. The status is that of the one bucket.
func (g *Guard) restockOnce(
	ctx context.Context, at place, bucket int, id string, units int64,
) (reason string, status Status, err error) {
	value, err := g.runYes(ctx, g.Engine().SettleTimeout(), seckillRestockScript, g.keysAt(at, bucket),
		core.Encode(id), units, g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return "", status, err
	}
	r := core.ReadReply(value, 6, 6)
	reason = r.Text()
	status = Status{Stock: r.Number(), Left: r.Number(), Held: r.Number(), Sold: r.Number()}
	status.Epoch, _ = strconv.ParseInt(r.Text(), 10, 64)
	return reason, status, r.Err
}

// Close closes a sale now, by the server's clock. Reservations that were made in time can still be confirmed. Closing
// twice is closing once. ErrNoSale: there is no such sale.
func (g *Guard) Close(ctx context.Context, item string) error {
	return g.Call(ctx, "close", core.Attempt{}, func() error { return g.close(ctx, item) })
}

func (g *Guard) close(ctx context.Context, item string) error {
	var missing bool
	err := g.locate(ctx, item, func(at place) (_ bool, err error) {
		if at.buckets > 1 {
			missing, err = g.closeBuckets(ctx, at)
			return missing, err
		}
		closed, err := g.closeOnce(ctx, at, 0)
		missing = closed < 0
		return missing, err
	})
	if err == nil && missing {
		err = ErrNoSale
	}
	return err
}

// closeOnce calls the script once; -1 when the bucket does not exist.
func (g *Guard) closeOnce(ctx context.Context, at place, bucket int) (int64, error) {
	value, err := g.runYes(ctx, g.Engine().SettleTimeout(), seckillCloseScript, g.keysAt(at, bucket), g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return 0, err
	}
	return core.ReadNumber(value)
}

// SweepEvery sweeps the items that the function names, each about once an interval, until the context ends, and
// returns nil then: units of reservations whose time is over go back in time also where nobody asks for them. The function is called
// at the beginning of each round, so items can come and go. The calls are spread over the interval.
//
// It runs in the caller's goroutine, so that the program knows when it has ended, and does not give up: the observer hears of
// errors, and the next round tries again. Several processes may sweep the same items. An interval of less than a
// millisecond, and a nil function, are errors.
func (g *Guard) SweepEvery(ctx context.Context, interval time.Duration, items func() []string) error {
	if interval < time.Millisecond || items == nil {
		return fmt.Errorf("core: sweep %q every %v: give it a millisecond or more, and a function that names the items",
			g.Name(), interval)
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
