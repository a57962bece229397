package seckill

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// A stock holds the units of one sale. Nearly all sales have a [bucket], in one slot of Redis; a sale that is
// too hot for one server has a [spread] of several. A guard does everything with a sale through this
// interface.
//
// found is false if Redis has no such sale, or has lost a part of it. The context of borrow needs a deadline.
type stock interface {
	// same reports whether the other stock has the same keys.
	same(other stock) bool
	// reserve holds units, in one call of a script, and returns how the attempt goes on.
	reserve(ctx context.Context, a core.Attempt) (core.Decision, next, error)
	// borrow is called after reserve returned wantsUnits. It moves units to where the attempt looks for them.
	// asked is when reserve was called. If borrow returns decided, d is the decision.
	borrow(ctx context.Context, d *core.Decision, asked time.Time) (next, error)
	// reserved is called with the final decision, and with what ask returned before the attempt's first call.
	reserved(d core.Decision, asked saleAsked)
	// end confirms or cancels a reservation.
	end(ctx context.Context, e ending, a core.Attempt) (core.Decision, error)
	// sweep takes back expired holds, and returns their number.
	sweep(ctx context.Context) (swept int64, found bool, err error)
	// status returns the state of the sale.
	status(ctx context.Context) (status Status, found bool, err error)
	// terms returns what the sale was opened with, as its hash has it: see seckill/open.lua.
	terms(ctx context.Context) (terms string, found bool, err error)
	// restock changes the stock, once per ID. The reason is that of the script.
	restock(ctx context.Context, id string, units int64) (reason string, status Status, err error)
	// close ends the sale now.
	close(ctx context.Context) (found bool, err error)
	// events reads the outbox after a position.
	events(ctx context.Context, after string, count int) ([]Event, error)
	// outboxes returns the keys of the outboxes, one for each slot.
	outboxes(ctx context.Context) (keys []string, found bool, err error)
	// count counts the sale's records once.
	count(ctx context.Context) (v Verification, found bool, err error)
}

// next is how an attempt goes on after a call that tried to reserve units.
type next int

const (
	// decided: the decision stands.
	decided next = iota
	// askAgain: the same call may find more units, since a script takes back a bounded number of expired
	// holds.
	askAgain
	// askRoot: there is no such sale here. The item's root knows whether it is elsewhere.
	askRoot
	// wantsUnits: too few units are here, and there may be more elsewhere.
	wantsUnits
)

// ending is a way to end a reservation: to confirm it, or to cancel it.
type ending struct {
	run    runScript
	script *script.Script
	state  State                      // of the reservation afterwards
	args   func(a core.Attempt) []any // of the script, after the ID
}

// locate calls f with the stock of an item. If f finds nothing there, and the root says that the sale is
// elsewhere, locate calls f again.
func (g *Guard) locate(ctx context.Context, item string, f func(at stock) (found bool, err error)) error {
	if item == "" {
		return errNoItem
	}
	at := g.stockOf(item)
	for {
		found, err := f(at)
		if err != nil || found {
			return err
		}
		now, err := g.find(ctx, item)
		if err != nil || now.same(at) {
			return err
		}
		at = now
	}
}

// ofSale is locate for a sale that must exist: it returns ErrNoSale if f finds nothing.
func (g *Guard) ofSale(ctx context.Context, item string, f func(at stock) (found bool, err error)) error {
	there := false
	err := g.locate(ctx, item, func(at stock) (found bool, err error) {
		there, err = f(at)
		return there, err
	})
	if err == nil && !there {
		err = ErrNoSale
	}
	return err
}
