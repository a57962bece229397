package seckill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/keyed"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	seckillOpenScript    = core.NewScript("seckill_open", lua.SeckillOpen, core.Idempotent)
	seckillReserveScript = core.NewScript("seckill_reserve", lua.SeckillReserve, core.Idempotent)
	seckillConfirmScript = core.NewScript("seckill_confirm", lua.SeckillConfirm, core.Idempotent)
	seckillCancelScript  = core.NewScript("seckill_cancel", lua.SeckillCancel, core.Idempotent)
	seckillSweepScript   = core.NewScript("seckill_sweep", lua.SeckillSweep, core.Idempotent)
	seckillRestockScript = core.NewScript("seckill_restock", lua.SeckillRestock, core.Idempotent)
	seckillCloseScript   = core.NewScript("seckill_close", lua.SeckillClose, core.Idempotent)
)

// sweepMost is how many holds one call gives back at most, so that no call keeps Redis busy for long.
const sweepMost = 100

// Sale is how one item is sold.
type Sale struct {
	// Stock is how many units there are, 1 or more.
	Stock int64
	// PerBuyer is how many units one buyer may hold and have bought together. Zero means 1.
	PerBuyer int64
	// Opens and Closes bound the sale, to the millisecond. Zero: it is open already, it never closes. A
	// reservation that was made in time can be confirmed after the closing.
	Opens, Closes time.Time
	// Hold is how long a reservation waits to be confirmed before its units go back. Zero means 5 minutes.
	Hold time.Duration
	// Buckets is over how many slots of a Redis Cluster the sale is spread, 64 at most, for an item that is
	// too hot for one server. Zero means 1, which is right for nearly all sales. The number belongs to the
	// sale that is opened, and never changes.
	//
	// A buyer belongs to one bucket, so what one buyer may have is exact; stock that a bucket lacks it
	// borrows from the others, and sold out is what all of them together are. In the usual case a Check is
	// one call, with any number of buckets. But an item that is sold out, a Status and the like ask all
	// buckets. Operation IDs have to be unique in the sale if Confirm and Cancel are to find reservations by
	// them alone.
	Buckets int
}

// Status is where a sale stands. Left + Held + Sold = Stock, always. Held counts reservations whose time is
// over until a Check or a Sweep gives their units back; Left counts units on their way between buckets.
type Status struct {
	Stock int64 `json:"stock"`
	Left  int64 `json:"left"`
	Held  int64 `json:"held"`
	Sold  int64 `json:"sold"`
	// Epoch is when the sale was opened, in milliseconds since 1970 by the server's clock. It tells a sale
	// from an earlier one of the same item, which was lost or had come to its end.
	Epoch int64 `json:"epoch,omitempty"`
}

// Options are the options of a guard. The zero value is ready to use.
type Options struct {
	// Keep is how long a sale is kept after its last change, or after it closes, whichever is later. Zero
	// means 30 days. After that it is unknown: nothing can be bought.
	Keep time.Duration
	// NoOutbox keeps no record of what happens to the sales: see Events. All processes that share a guard
	// need the same, or there are gaps.
	NoOutbox bool

	// Durability is Fast, the default, or Acked: then a yes waits for replicas. That holds for Check, for the
	// confirming by Settle, and for Open, Confirm, Cancel, Restock and Close. Refusals wait for nobody. A
	// reservation that too few replicas have in time is refused as ReasonUnconfirmed, and calls by name
	// return an ErrUnconfirmed.
	//
	// All processes that share a guard need the same. Acked needs a client that can keep a connection:
	// *redis.Client, *redis.ClusterClient or *redis.Ring, and no proxy on the way that shares connections
	// among clients. While a cluster moves a slot, Acked sales in it cannot be decided.
	Durability core.Durability
	// Replicas is how many replicas have to have a change before an Acked guard says yes. Zero means 1.
	//
	// A yes survives the loss of the primary if a replica that has it is promoted. That is certain when
	// Replicas is the number of all replicas; with fewer it is likely, as Redis Sentinel and Redis Cluster
	// try to promote the one that has the most. It is no consensus: what was refused as ReasonUnconfirmed may
	// last all the same, and servers that all restart have what they wrote to disk. So many replicas have to
	// be there: one that was promoted confirms nothing until it has as many of its own.
	Replicas int
	// AckWithin is how long an Acked guard waits for replicas, in whole milliseconds and less than the
	// engine's deadline. Zero means half of that. Meanwhile a connection of the client's pool is taken.
	AckWithin time.Duration
}

// ErrNoSale is returned by calls by name, such as Status, for an item that is not on sale: never opened, or
// lost with its Redis.
var ErrNoSale = core.NewError("seckill: no such sale", core.ErrNotFound)

// errNoItem is for calls by name that name nothing: without a name the keys of a sale would have no tag.
var errNoItem = fmt.Errorf("%w: no item", core.ErrInvalid)

// State is what has become of a reservation.
type State string

// The states of a reservation. One that is cancelled has none.
const (
	// StateHeld: units are set aside until the reservation is confirmed, cancelled or its time is over.
	StateHeld State = "held"
	// StateSold: confirmed.
	StateSold State = "sold"
)

// Guard sells a limited stock and never more: the Actor is the buyer, the Resource the item on sale, the Cost
// the quantity, the ID the reservation. Each sale has to be opened once, by Open; an item that is not on sale
// is refused.
//
// Check reserves: units are held until the reservation is confirmed or cancelled, by Settle or by name, or
// its time is over. Left, held and sold units add up to the stock before and after every script.
type Guard struct {
	core.Base
	options   Options
	memory    *saleMemory
	places    *core.Recall[string, *spread] // of items with several buckets
	borrowing keyed.Mutex[lastBrought]      // see spread.borrow
}

// New makes a sale guard. It panics when the name is taken or not a name, the options make no sense, or the
// engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	e.NeedRedis("Seckill", name)
	if options.Keep == 0 {
		options.Keep = 30 * 24 * time.Hour
	}
	if options.Keep < time.Second {
		panic(fmt.Sprintf("seckill: sales kept for %v are soon forgotten: give Keep days (guard %q)",
			options.Keep, name))
	}
	scripts := []*core.Script{
		seckillOpenScript, seckillReserveScript, seckillConfirmScript, seckillCancelScript,
		seckillSweepScript, seckillRestockScript, seckillCloseScript,
		seckillBeginScript, seckillRootScript, seckillFindScript, seckillKeepScript, // of several buckets
		seckillLendScript, seckillAcceptScript, seckillFinishScript,
	}
	options = ackOptions(e, name, options)
	return &Guard{
		Base: e.Register("seckill", name, scripts...), options: options,
		memory: newSaleMemory(e.RefusalMemory()),
		places: core.NewRecall[string, *spread](placesKept, placeFor),
	}
}

// Traits implements Guard: a purchase needs an item, and its units go back when the request fails.
//
// A reservation needs its confirmation before anybody is told that it is theirs.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsResource: true, Confirms: true, Outage: core.FailClosed}
}

// Open puts an item on sale, and reports whether it did: a sale that exists stays as it is, whatever the
// arguments, so an application can call Open at every start.
//
// A sale of several buckets is opened in several calls, and ReasonNotReady until all have been made. The
// first caller decides how it is sold. Where that caller has not come to the end, because its process has
// died, the next Open completes it, and reports true.
func (g *Guard) Open(ctx context.Context, item string, sale Sale) (bool, error) {
	return core.Look(ctx, &g.Base, "open", core.Attempt{}, func() (bool, error) {
		return g.open(ctx, item, sale)
	})
}

func (g *Guard) open(ctx context.Context, item string, sale Sale) (bool, error) {
	if item == "" {
		return false, errNoItem
	}
	if sale.PerBuyer == 0 {
		sale.PerBuyer = 1
	}
	if sale.Hold == 0 {
		sale.Hold = 5 * time.Minute
	}
	if err := sale.check(g.options.Keep); err != nil {
		return false, fmt.Errorf("%w: %w", core.ErrInvalid, err)
	}
	return g.openStock(ctx, item, sale)
}

// check says what is wrong with a sale that is kept for so long.
func (s Sale) check(keep time.Duration) error {
	if s.Stock < 1 || s.Stock > core.MaxAmount {
		return fmt.Errorf("a stock of %d: give it 1 to 2^53-1", s.Stock)
	}
	if s.PerBuyer < 1 || s.PerBuyer > core.MaxAmount {
		return fmt.Errorf("%d units a buyer: give it 1 to 2^53-1", s.PerBuyer)
	}
	if s.Hold < time.Millisecond || s.Hold > keep {
		return fmt.Errorf("a hold of %v: give it 1 ms to %v, the time that sales are kept", s.Hold, keep)
	}
	if s.Buckets < 0 || s.Buckets > maxBuckets {
		return fmt.Errorf("%d buckets: give it 1 to %d", s.Buckets, maxBuckets)
	}
	if err := schedule.Check(s.Opens, s.Closes); err != nil {
		return fmt.Errorf("a sale that %w", err)
	}
	return nil
}

// Check implements Guard: it reserves units. The operation ID names the reservation.
//
// That an item is sold out, and that a buyer has all that one may have, is remembered by the process for 250
// ms at most (see WithRefusalMemory), and answered to attempts of as many units or more that come without an
// operation ID: so long units that another process gives back, or a hold that ends, are not seen. A buyer who
// has all that one may have hears ReasonSoldOut, in place of ReasonDuplicate, where only the former is
// remembered. In a sale of several buckets, attempts with an operation ID hear ReasonSoldOut from memory too,
// when their own bucket has been asked and has too little.
//
// In a sale of several buckets ReasonSoldOut says that all of them together had fewer units left than the
// attempt asks for, at one moment of the call or of those 250 ms. Where that cannot be found out in time,
// because a bucket cannot be asked or too many buyers move the last units about, it is an error; where a
// bucket is lost with its Redis, ReasonNotReady.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.reserve(ctx, a) })
}

func (g *Guard) reserve(ctx context.Context, a core.Attempt) (core.Decision, error) {
	// MadeID would not do: a caller that asks again with a decision's attempt has an ID that Redis may know.
	unasked := a.ID == ""
	a, err := a.PrepareClaim("the item on sale")
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, err
	}
	begun, now := time.Now(), g.Engine().Now()
	if unasked && g.memory.answer(&d, now) {
		return d, nil
	}
	asked := g.memory.ask(a, now)
	if err := core.RoomToUndo(); err != nil {
		return d, err
	}
	at := g.stockOf(a.Resource)
	d, then, err := at.reserve(ctx, a)
	if err == nil && then != decided {
		d, at, err = g.reserveAgain(ctx, begun, at, d, then)
	}
	switch {
	case errors.Is(err, core.ErrUnconfirmed):
		return g.unconfirmed(at, d), nil
	case err != nil:
		g.Engine().UndoLater(err, func(ctx context.Context) error {
			_, err := g.cancel(ctx, a) // observed
			return err
		})
		d.Attempt = d.Attempt.WithoutCall()
		return d, err
	}
	at.reserved(d, asked)
	return d, nil
}

// reserveAgain goes on with an attempt that one call could not decide, and returns the stock that has decided
// it.
func (g *Guard) reserveAgain(
	ctx context.Context, begun time.Time, at stock, d core.Decision, then next,
) (core.Decision, stock, error) {
	ctx, cancel := context.WithDeadline(ctx, begun.Add(g.Engine().Deadline()))
	defer cancel()
	undecided := core.Decision{Guard: d.Guard, Attempt: d.Attempt}
	for asked := begun; ; {
		var err error
		if then == wantsUnits {
			if then, err = at.borrow(ctx, &d, asked); err != nil {
				return undecided, at, err
			}
		}
		if then == decided {
			return d, at, nil
		}
		if then == askRoot {
			found, err := g.find(ctx, d.Attempt.Resource)
			if err != nil {
				return undecided, at, err
			}
			if found.same(at) {
				return d, at, nil
			}
			at = found
		}
		asked = time.Now()
		if d, then, err = at.reserve(ctx, d.Attempt); err != nil {
			return d, at, err
		}
	}
}

// Settle implements Guard: core.Commit confirms the reservation, core.Rollback cancels it. Confirming one
// that is over and whose units are taken is an ErrGone.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if !d.Allowed || StateOf(d) == StateSold {
		return nil
	}
	if _, err := core.Claimed[State](&g.Base, d); err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	if !end.Commits() {
		_, err := g.cancel(ctx, d.Attempt)
		return err
	}
	begun := time.Now()
	confirmed, err := g.confirm(ctx, d.Attempt)
	if err == nil && !confirmed.Allowed {
		// Somebody may have been told that they have bought: whoever watches has to know.
		err = fmt.Errorf("%w (%s)", core.ErrGone, confirmed.Reason)
		err = g.Observe(ctx, "settle", begun, confirmed, err)
	}
	return err
}

// StateOf returns what has become of a decision's reservation: empty where there is none.
func StateOf(d core.Decision) State {
	state, _ := core.ClaimOf[State](d)
	return state
}

// Confirm turns a reservation into a sale, by the item and the reservation's operation ID. One whose time is
// over is sold after all while units are left. The decision's reason is ReasonOK (replayed, when it was sold
// before), ReasonGone or ReasonNotReady. An ErrUnconfirmed says that too few replicas have the sale: it is
// sold when calling again says so.
//
// In a sale of several buckets all of them are asked whose reservation it is; Settle, which knows the buyer,
// spares that. An ID that buyers of different buckets have used is an ErrInvalid. The same holds for Cancel.
func (g *Guard) Confirm(ctx context.Context, item, id string) (core.Decision, error) {
	return g.confirm(ctx, core.Attempt{Resource: item, ID: id})
}

func (g *Guard) confirm(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.end(ctx, "confirm", a, ending{
		run: g.runYes, script: seckillConfirmScript, state: StateSold,
		args: []any{g.Engine().ScriptNow(time.Millisecond)},
	})
}

// Cancel gives a reservation's units back, once. The decision's reason is ReasonOK (replayed, when there was
// nothing to give back), ReasonConflict when the reservation is sold, or ReasonNotReady.
func (g *Guard) Cancel(ctx context.Context, item, id string) (core.Decision, error) {
	return g.cancelBy(ctx, g.runYes, core.Attempt{Resource: item, ID: id})
}

// cancel gives a reservation back only if the attempt's own call of Check made it, where the attempt knows
// its call. It waits for no replica: a hold that comes back by a failover ends by itself.
func (g *Guard) cancel(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.cancelBy(ctx, g.Engine().RunWithin, a)
}

func (g *Guard) cancelBy(ctx context.Context, run runScript, a core.Attempt) (core.Decision, error) {
	defer g.memory.gaveBack(a.Resource, a.Actor)
	return g.end(ctx, "cancel", a, ending{
		run: run, script: seckillCancelScript,
		args: []any{a.Call(), "", g.Engine().ScriptNow(time.Millisecond)},
	})
}

// runScript is [core.Engine.RunWithin], or [Guard.runYes].
type runScript func(
	ctx context.Context, limit time.Duration, s *core.Script, keys []string, args ...any,
) (any, error)

func (g *Guard) end(ctx context.Context, op string, a core.Attempt, e ending) (core.Decision, error) {
	begun := time.Now()
	d := core.Decision{Guard: g.Name(), Attempt: core.Attempt{Resource: a.Resource, ID: a.ID}}
	err := fmt.Errorf("%w: %s needs an item and an operation ID", core.ErrInvalid, op)
	if a.Resource != "" && a.ID != "" {
		err = g.locate(ctx, a.Resource, func(at stock) (found bool, err error) {
			d, err = at.end(ctx, e, a)
			return d.Reason != core.ReasonNotReady, err
		})
	}
	return d, g.Observe(ctx, op, begun, d, err)
}

// Sweep gives the units of reservations whose time is over back to the stock, at most 100 reservations of
// each bucket a call, and returns how many it found. What a dead process has left on its way between buckets
// it brings to its end. Selling does not need it: Check takes such units itself when it would refuse without
// them. Sweep makes them show in Status before that.
func (g *Guard) Sweep(ctx context.Context, item string) (int, error) {
	defer g.memory.gaveBack(item, "")
	return core.Look(ctx, &g.Base, "sweep", core.Attempt{}, func() (int, error) {
		var swept int64
		err := g.locate(ctx, item, func(at stock) (found bool, err error) {
			swept, found, err = at.sweep(ctx)
			return found, err
		})
		return int(swept), err
	})
}

// Status returns where a sale stands, or ErrNoSale.
func (g *Guard) Status(ctx context.Context, item string) (Status, error) {
	return core.Look(ctx, &g.Base, "status", core.Attempt{}, func() (status Status, err error) {
		err = g.ofSale(ctx, item, func(at stock) (found bool, err error) {
			status, found, err = at.status(ctx)
			return found, err
		})
		return status, err
	})
}
