package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	seckillOpenScript    = NewScript("seckill_open", lua.SeckillOpen, Replayable)
	seckillReserveScript = NewScript("seckill_reserve", lua.SeckillReserve, Replayable)
	seckillConfirmScript = NewScript("seckill_confirm", lua.SeckillConfirm, Replayable)
	seckillCancelScript  = NewScript("seckill_cancel", lua.SeckillCancel, Replayable)
	seckillSweepScript   = NewScript("seckill_sweep", lua.SeckillSweep, Replayable)
	seckillRestockScript = NewScript("seckill_restock", lua.SeckillRestock, Replayable)
	seckillCloseScript   = NewScript("seckill_close", lua.SeckillClose, Replayable)
)

// sweepMost is how many holds one call gives back at most, so that no call keeps Redis busy for long.
const sweepMost = 100

// Sale is how one item is sold.
type Sale struct {
	// Stock is how many units there are, 1 or more.
	Stock int64
	// PerBuyer is how many units one buyer may hold and have bought together. Zero means 1.
	PerBuyer int64
	// Opens and Closes bound the sale, to the millisecond. Zero: it is open already, it never closes. A reservation that
	// was made in time can be confirmed after the closing.
	Opens, Closes time.Time
	// Hold is how long a reservation waits to be confirmed before its units go back. Zero means 5 minutes.
	Hold time.Duration
}

// SaleStatus is where a sale stands. Left + Held + Sold = Stock, always. Held counts reservations whose time is over
// until a Check or a Sweep gives their units back.
type SaleStatus struct {
	Stock int64 `json:"stock"`
	Left  int64 `json:"left"`
	Held  int64 `json:"held"`
	Sold  int64 `json:"sold"`
}

// SeckillOptions are what Seckill may be told.
type SeckillOptions struct {
	// Keep is how long a sale is kept after its last change, or after it closes, whichever is later. Zero means 30 days.
	// After that it is unknown: nothing can be bought.
	Keep time.Duration
	// NoOutbox keeps no record of what happens to the sales: see Events. All processes that share a guard need the same, or
	// there are gaps.
	NoOutbox bool

	// Durability is Fast, the default, or Acked: then a yes waits for replicas. That holds for Check, for the confirming by Settle, and
	// for Open, Confirm, Cancel, Restock and Close. Refusals wait for nobody. A reservation that too few replicas have in time is
	// refused as ReasonUnconfirmed, and calls by name return an ErrUnconfirmed.
	//
	// All processes that share a guard need the same. Acked needs a client that can keep a connection: *redis.Client,
	// *redis.ClusterClient or *redis.Ring, and no proxy on the way that shares connections among clients. While a cluster moves a
	// slot, Acked sales in it can not be decided.
	Durability Durability
	// Replicas is how many replicas have to have a change before an Acked guard says yes. Zero means 1.
	//
	// A yes survives the loss of the primary if a replica that has it is promoted. That is certain when Replicas is the number of all
	// replicas; with fewer it is likely, as Redis Sentinel and Redis Cluster try to promote the one that has the most. It is no
	// consensus: what was refused as ReasonUnconfirmed may last all the same, and servers that all restart have what they wrote to
	// disk. So many replicas have to be there: one that was promoted confirms nothing until it has as many of its own.
	Replicas int
	// AckWithin is how long an Acked guard waits for replicas, in whole milliseconds and less than the engine's deadline. Zero means
	// half of that. Meanwhile a connection of the client's pool is taken.
	AckWithin time.Duration
}

// ErrNoSale is returned by calls by name, such as Status, for an item that is not on sale: never opened, or lost with its Redis.
var ErrNoSale = errors.New("core: no such sale")

// ErrGone is returned by Settle when a reservation can not be confirmed any more, or an operation has been begun anew by another.
var ErrGone = errors.New("core: the reservation is gone")

// errNoItem is for calls by name that name nothing: without a name the keys of a sale would have no tag.
var errNoItem = fmt.Errorf("%w: no item", ErrInvalidAttempt)

// Seckill sells a limited stock and never more: the Actor is the buyer, the Resource the item on sale, the Cost the quantity,
// the ID the reservation. Each sale has to be opened once, by Open; an item that is not on sale is refused.
//
// Check reserves: units are held until the reservation is confirmed or cancelled, by Settle or by name, or its time is over.
// Left, held and sold units add up to the stock before and after every script.
type Seckill struct {
	guard
	options SeckillOptions
	memory  *saleMemory
}

// Seckill makes a sale guard. It panics when the name is taken or not a name, the options make no sense, or the engine has
// no Redis.
func (e *Engine) Seckill(name string, options SeckillOptions) *Seckill {
	e.needRedis("Seckill", name)
	if options.Keep == 0 {
		options.Keep = 30 * 24 * time.Hour
	}
	if options.Keep < time.Second {
		panic(fmt.Sprintf("core: sales kept for %v are soon forgotten: give Keep days (guard %q)", options.Keep, name))
	}
	scripts := []*Script{
		seckillOpenScript, seckillReserveScript, seckillConfirmScript, seckillCancelScript, seckillSweepScript,
		seckillRestockScript, seckillCloseScript,
	}
	options = e.ackOptions(name, options)
	return &Seckill{guard: e.register("seckill", name, scripts...), options: options, memory: newSaleMemory()}
}

// Traits implements Guard: a purchase needs an item, and its units go back when the request fails.
func (g *Seckill) Traits() Traits { return Traits{NeedsResource: true, Outage: OutageClosed} }

// Open puts an item on sale, and reports whether it did: a sale that exists stays as it is, whatever the arguments, so an
// application can call Open at every start.
func (g *Seckill) Open(ctx context.Context, item string, sale Sale) (opened bool, err error) {
	begun := time.Now()
	opened, err = g.open(ctx, item, sale)
	return opened, g.observe(ctx, "open", begun, Decision{Guard: g.name}, err)
}

func (g *Seckill) open(ctx context.Context, item string, sale Sale) (bool, error) {
	if sale.PerBuyer == 0 {
		sale.PerBuyer = 1
	}
	if sale.Hold == 0 {
		sale.Hold = 5 * time.Minute
	}
	switch {
	case item == "":
		return false, errNoItem
	case sale.Stock < 1 || sale.Stock > maxAmount:
		return false, fmt.Errorf("%w: a stock of %d: give it 1 to 2^53-1", ErrInvalidAttempt, sale.Stock)
	case sale.PerBuyer < 1 || sale.PerBuyer > maxAmount:
		return false, fmt.Errorf("%w: %d units a buyer: give it 1 to 2^53-1", ErrInvalidAttempt, sale.PerBuyer)
	case sale.Hold < time.Millisecond || sale.Hold > g.options.Keep:
		return false, fmt.Errorf("%w: a hold of %v: give it 1 ms to %v, the time that sales are kept",
			ErrInvalidAttempt, sale.Hold, g.options.Keep)
	}
	if err := checkTimes(sale.Opens, sale.Closes); err != nil {
		return false, fmt.Errorf("%w: a sale that %w", ErrInvalidAttempt, err)
	}
	value, err := g.runYes(ctx, g.engine.settleLimit(), seckillOpenScript, g.saleKeys(item),
		sale.Stock, unixMilli(sale.Opens), unixMilli(sale.Closes), sale.PerBuyer, sale.Hold.Milliseconds(),
		g.options.Keep.Milliseconds(), g.engine.now(time.Millisecond))
	if err != nil {
		return false, err
	}
	opened, err := readNumber(value)
	return opened == 1, err
}

// Check implements Guard: it reserves units. The operation ID names the reservation.
//
// That an item is sold out, and that a buyer has all that one may have, is remembered by the process for 250 ms at most, and answered to
// attempts of as many units or more that come without an operation ID: so long units that another process gives back, or a hold
// that ends, are not seen. A buyer who has all that one may have hears ReasonSoldOut, in place of ReasonDuplicate, where only the
// former is remembered.
func (g *Seckill) Check(ctx context.Context, a Attempt) (Decision, error) {
	begun := time.Now()
	d, err := g.reserve(ctx, a)
	return d, g.observe(ctx, "check", begun, d, err)
}

func (g *Seckill) reserve(ctx context.Context, a Attempt) (Decision, error) {
	unasked := a.ID == "" // madeID would not do: who asks again with a Decision's attempt has an ID that Redis may know
	a, err := a.prepareClaim("the item on sale")
	d := Decision{Guard: g.name, Attempt: a}
	if err != nil {
		return d, err
	}
	begun, sent := time.Now(), g.engine.moment()
	if unasked && g.memory.answer(&d, sent) {
		return d, nil
	}
	d, more, err := g.reserveOnce(ctx, a)
	if more { // the script takes back only so many holds whose time is over
		ctx, cancel := context.WithDeadline(ctx, begun.Add(g.engine.deadline))
		defer cancel()
		for more && err == nil {
			d, more, err = g.reserveOnce(ctx, a)
		}
	}
	if errors.Is(err, ErrUnconfirmed) {
		return g.unconfirmed(d), nil
	}
	if err != nil {
		g.engine.undoLater(err, func(ctx context.Context) error { _, err := g.cancel(ctx, a); return err }) // observed
		d.Attempt.call = ""
		return d, err
	}
	g.memory.hear(d, sent)
	return d, nil
}

// reserveOnce calls the script once. more reports that it refuses, and might not when asked again.
func (g *Seckill) reserveOnce(ctx context.Context, a Attempt) (d Decision, more bool, err error) {
	d = Decision{Guard: g.name, Attempt: a}
	value, err := g.runYes(ctx, g.engine.deadline, seckillReserveScript, g.saleKeys(a.Resource),
		encode(a.ID), encode(a.Actor), a.Cost, sweepMost, a.call, g.engine.now(time.Millisecond))
	if err != nil {
		return d, false, err
	}
	r := readReply(value, 7, 7)
	reason, replayed, state := r.text(), r.flag(), r.text()
	left, stock, wait, more := r.number(), r.number(), r.duration(time.Millisecond), r.flag()
	if r.err != nil {
		return d, false, r.err
	}
	d.Reason, d.Replayed, d.State, d.Source = Reason(reason), replayed, State(state), SourceRedis
	d.Allowed = d.Reason == ReasonOK
	d.Limit, d.Remaining = stock, left
	if d.Allowed {
		d.ResetAfter = wait
	} else {
		d.RetryAfter = wait
	}
	return d, more, nil
}

// Settle implements Guard: ok confirms the reservation, not ok cancels it. Confirming one that is over and whose units are
// taken is an ErrGone.
func (g *Seckill) Settle(ctx context.Context, d Decision, ok bool) error {
	if !d.Allowed || d.State == StateSold {
		return nil
	}
	if !ok {
		_, err := g.cancel(ctx, d.Attempt)
		return err
	}
	begun := time.Now()
	confirmed, err := g.Confirm(ctx, d.Attempt.Resource, d.Attempt.ID)
	if err == nil && !confirmed.Allowed {
		// Somebody may have been told that he has bought: whoever watches has to know.
		err = g.observe(ctx, "settle", begun, confirmed, fmt.Errorf("%w (%s)", ErrGone, confirmed.Reason))
	}
	return err
}

// Confirm turns a reservation into a sale, by the item and the reservation's operation ID. One whose time is over is sold
// after all while units are left. The decision's reason is ReasonOK (replayed, when it was sold before), ReasonGone or
// ReasonNotReady. An ErrUnconfirmed says that too few replicas have the sale: it is sold when calling again says so.
func (g *Seckill) Confirm(ctx context.Context, item, id string) (Decision, error) {
	return g.end(ctx, "confirm", g.runYes, seckillConfirmScript, StateSold, item, id, g.engine.now(time.Millisecond))
}

// Cancel gives a reservation's units back, once. The decision's reason is ReasonOK (replayed, when there was nothing to give
// back), ReasonConflict when the reservation is sold, or ReasonNotReady.
func (g *Seckill) Cancel(ctx context.Context, item, id string) (Decision, error) {
	return g.cancelBy(ctx, g.runYes, Attempt{Resource: item, ID: id})
}

// cancel gives a reservation back only if the attempt's own call of Check made it, where the attempt knows its call. It waits
// for no replica: a hold that comes back by a failover ends by itself.
func (g *Seckill) cancel(ctx context.Context, a Attempt) (Decision, error) {
	return g.cancelBy(ctx, g.engine.run, a)
}

func (g *Seckill) cancelBy(ctx context.Context, run runScript, a Attempt) (Decision, error) {
	defer g.memory.gaveBack(a.Resource, a.Actor, g.engine.moment)
	return g.end(ctx, "cancel", run, seckillCancelScript, "", a.Resource, a.ID, a.call, "", g.engine.now(time.Millisecond))
}

// runScript is Engine.run, or Seckill.runYes.
type runScript func(ctx context.Context, limit time.Duration, s *Script, keys []string, args ...any) (any, error)

func (g *Seckill) end(
	ctx context.Context, op string, run runScript, s *Script, state State, item, id string, more ...any,
) (Decision, error) {
	begun := time.Now()
	d := Decision{Guard: g.name, Attempt: Attempt{Resource: item, ID: id}}
	err := func() error {
		if item == "" || id == "" {
			return fmt.Errorf("%w: %s needs an item and an operation ID", ErrInvalidAttempt, op)
		}
		args := append([]any{encode(id)}, more...)
		value, err := run(ctx, g.engine.settleLimit(), s, g.saleKeys(item), args...)
		if err != nil {
			return err
		}
		r := readReply(value, 6, 6)
		reason, replayed, buyer := r.text(), r.flag(), r.text()
		quantity, left, stock := r.number(), r.number(), r.number()
		if r.err != nil {
			return r.err
		}
		d.Reason, d.Replayed, d.Source = Reason(reason), replayed, SourceRedis
		d.Attempt.Actor, d.Attempt.Cost = decode(buyer), quantity
		d.Limit, d.Remaining = stock, left
		if d.Allowed = d.Reason == ReasonOK; d.Allowed {
			d.State = state
		}
		return nil
	}()
	return d, g.observe(ctx, op, begun, d, err)
}

// Sweep gives the units of reservations whose time is over back to the stock, at most 100 reservations a call, and returns
// how many it found. Selling does not need it: Check takes such units itself when it would refuse without them. Sweep makes
// them show in Status before that.
func (g *Seckill) Sweep(ctx context.Context, item string) (int, error) {
	defer g.memory.gaveBack(item, "", g.engine.moment)
	begun := time.Now()
	swept, err := g.sweep(ctx, item)
	return int(swept), g.observe(ctx, "sweep", begun, Decision{Guard: g.name}, err)
}

func (g *Seckill) sweep(ctx context.Context, item string) (int64, error) {
	if item == "" {
		return 0, errNoItem
	}
	value, err := g.engine.run(ctx, g.engine.settleLimit(), seckillSweepScript, g.saleKeys(item),
		sweepMost, g.engine.now(time.Millisecond))
	if err != nil {
		return 0, err
	}
	return readNumber(value)
}

// Status returns where a sale stands, or ErrNoSale.
func (g *Seckill) Status(ctx context.Context, item string) (SaleStatus, error) {
	begun := time.Now()
	status, err := g.status(ctx, item)
	return status, g.observe(ctx, "status", begun, Decision{Guard: g.name}, err)
}

func (g *Seckill) status(ctx context.Context, item string) (status SaleStatus, err error) {
	if item == "" {
		return status, errNoItem
	}
	values, err := query(ctx, g.engine, redis.NewSliceCmd(ctx, "hmget", g.saleKeys(item)[0], "stock", "left", "held", "sold"))
	if err == nil {
		err = readReply(values, 4, 4).err
	}
	if err != nil {
		return status, err
	}
	for i, field := range []*int64{&status.Stock, &status.Left, &status.Held, &status.Sold} {
		text, ok := values[i].(string)
		if !ok {
			return SaleStatus{}, ErrNoSale
		}
		if *field, err = strconv.ParseInt(text, 10, 64); err != nil {
			return SaleStatus{}, fmt.Errorf("status of %.100q: %w", item, err)
		}
	}
	return status, nil
}

// saleKeys are the keys of one sale, in the order of the scripts' KEYS.
func (g *Seckill) saleKeys(item string) []string {
	t := encode(item)
	keys := []string{
		g.keys.key(t, "sale"), g.keys.key(t, "buyers"), g.keys.key(t, "holds"), g.keys.key(t, "reservations"),
	}
	if !g.options.NoOutbox {
		keys = append(keys, g.OutboxKey(item))
	}
	return keys
}
