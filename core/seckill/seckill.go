package seckill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/lostsales"
	"github.com/gatehouse-go/gatehouse/internal/saleops"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	seckillOpenScript    = script.New("seckill_open", lua.Source("seckill/open"), script.Idempotent)
	seckillReserveScript = script.New("seckill_reserve", lua.Source("seckill/reserve"),
		script.Idempotent).Shared()
	seckillConfirmScript = script.New("seckill_confirm", lua.Source("seckill/confirm"), script.Idempotent)
	seckillCancelScript  = script.New("seckill_cancel", lua.Source("seckill/cancel"), script.Idempotent)
	seckillSweepScript   = script.New("seckill_sweep", lua.Source("seckill/sweep"), script.Idempotent)
	seckillRestockScript = script.New("seckill_restock", lua.Source("seckill/restock"), script.Idempotent)
	seckillCloseScript   = script.New("seckill_close", lua.Source("seckill/close"), script.Idempotent)

	// For the attempts of one moment. Its reply lost, each attempt goes on by itself.
	seckillReserveJoinedScript = script.New("seckill_reserve", lua.Source("seckill/reserve"),
		script.AtMostOnce).Shared()
)

// Sale is the terms on which one item is sold.
type Sale struct {
	// Stock is how many units there are, 1 or more.
	Stock int64
	// PerBuyer is how many units one buyer may hold and have bought together. Zero means 1.
	PerBuyer int64
	// Opens and Closes bound the sale, to the millisecond. A zero Opens means that the sale is open at once,
	// a zero Closes that it never closes. A reservation made in time can be confirmed after the sale has
	// closed.
	Opens, Closes time.Time
	// Hold is how long a reservation waits for its confirmation before its units return to the stock. Zero
	// means 5 minutes.
	Hold time.Duration
}

// Status is the state of a sale, in units. Left + Held + Sold = Stock, always. Held includes expired
// reservations until a Check or a Sweep returns their units.
type Status struct {
	Stock int64 `json:"stock"`
	Left  int64 `json:"left"`
	Held  int64 `json:"held"`
	Sold  int64 `json:"sold"`
	// Epoch is when the sale was opened, in milliseconds since 1970 by the server's clock. It distinguishes
	// the sale from an earlier one of the same item that was lost or has ended.
	Epoch int64 `json:"epoch,omitempty"`
}

// Options are the options of a guard. The zero value is ready to use.
type Options struct {
	// Keep is how long a sale is kept after its last change, or after it closes, whichever is later; its keys
	// may expire up to a 64th of Keep later. Zero means 30 days. After that the sale is unknown and nothing can
	// be bought.
	Keep time.Duration
	// NoOutbox turns off the record of events: see [Guard.Events]. All processes that share a guard need the
	// same value, or the record has gaps.
	NoOutbox bool

	// Durability is Fast, the default, or Acked. An Acked guard waits for replicas before it reports success.
	// That applies to Check, to a Settle that commits, and to Open, Confirm, Cancel, Restock and Close.
	// Refusals do not wait. When too few replicas have a reservation in time, Check refuses it with
	// ReasonUnconfirmed, and calls by name return an ErrUnconfirmed.
	//
	// All processes that share a guard need the same value. Acked needs a client that can keep a connection:
	// *redis.Client, *redis.ClusterClient or *redis.Ring, without a proxy that shares connections among
	// clients. While a cluster moves a slot, Acked sales in that slot wait until it has moved.
	Durability Durability
	// Replicas is how many replicas must have a change before an Acked guard reports success. Zero means 1.
	//
	// A success survives the loss of the primary if a replica that has the change is promoted. That is
	// certain when Replicas is the number of all replicas. With fewer it is likely, because Redis Sentinel
	// and Redis Cluster try to promote the replica that has the most. It is not consensus: a reservation
	// refused with ReasonUnconfirmed may survive, and servers that all restart have only what they wrote to
	// disk. The replicas must exist: a promoted primary confirms nothing until it has as many replicas of its
	// own.
	Replicas int
	// AckWithin is how long an Acked guard waits for replicas, in whole milliseconds and less than the
	// engine's deadline. Zero means half of the deadline. The wait occupies a connection of the client's
	// pool.
	AckWithin time.Duration
}

// ErrNoSale is returned by calls by name, such as [Guard.Status], for an item that is not on sale, because it
// was never opened or was lost with its Redis. It matches [core.ErrNotFound].
var ErrNoSale = kit.NewError("seckill: no such sale", core.ErrNotFound)

// errNoItem is for calls by name that name nothing: without a name the keys of a sale would have no tag.
var errNoItem = fmt.Errorf("%w: no item", core.ErrInvalid)

// State is the state of a reservation.
type State string

// The states of a reservation. A cancelled reservation has none.
const (
	// StateHeld means that units are set aside until the reservation is confirmed, is cancelled or expires.
	StateHeld State = "held"
	// StateSold means that the reservation is confirmed.
	StateSold State = "sold"
)

// Guard sells a limited stock and never more. In a [core.Attempt], the Actor is the buyer, the Resource is
// the item on sale, the Cost is the quantity, and the ID names the reservation. Each sale must be opened once
// with [Guard.Open]; an attempt to buy an item that is not on sale is refused.
//
// [Guard.Check] reserves units. They are held until the reservation is confirmed or cancelled, by
// [Guard.Settle] or by name, or expires. Left, held and sold units add up to the stock before and after every
// script. A Guard is safe for concurrent use.
type Guard struct {
	kit.Base
	options Options
	memory  *saleMemory
	missed  *lostsales.Items         // nil: another guard tells of them
	tagOf   func(item string) string // of its keys
	moved   Moved
}

// New makes a sale guard. It panics when the name is taken or invalid, when the options are invalid, or when
// the engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard { return newGuard(e, name, options) }

// newGuard registers the guard with more scripts than its own.
func newGuard(e *core.Engine, name string, options Options, more ...*script.Script) *Guard {
	kit.NeedRedis(e, "seckill", name)
	if options.Keep == 0 {
		options.Keep = 30 * 24 * time.Hour
	}
	if options.Keep < time.Second {
		panic(fmt.Sprintf("seckill: a Keep of %v is too short: set Keep to a second or more (guard %q)",
			options.Keep, name))
	}
	scripts := []*script.Script{
		seckillOpenScript, seckillReserveScript, seckillConfirmScript, seckillCancelScript, seckillSweepScript,
		seckillRestockScript, seckillCloseScript, seckillRepairScript,
	}
	options = ackOptions(e, name, options)
	return &Guard{
		Base: kit.Register(e, "seckill", name, append(scripts, more...)...), options: options,
		memory: newSaleMemory(e.RefusalMemory()), missed: lostsales.New(),
		tagOf: script.Encode, moved: notMoved,
	}
}

// Traits implements [core.Guard]. A purchase needs an item. A reservation must be confirmed before the client
// gets the answer, and its units return to the stock when the request fails.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsResource: true, Confirms: true, Outage: core.FailClosed}
}

// Open puts an item on sale and reports whether it did. It leaves an existing sale as it is, whatever the
// arguments, so an application can call Open at every start. Invalid terms are an ErrInvalid.
//
// If only the key of an earlier sale was lost or deleted, and its records are still there, Open returns
// [ErrRemains] and opens nothing.
func (g *Guard) Open(ctx context.Context, item string, sale Sale) (bool, error) {
	return kit.Look(ctx, &g.Base, "open", core.Attempt{}, func() (bool, error) {
		return g.open(ctx, item, sale)
	})
}

func (g *Guard) open(ctx context.Context, item string, sale Sale) (bool, error) {
	if item == "" {
		return false, errNoItem
	}
	terms, err := g.terms(sale)
	if err != nil {
		return false, err
	}
	args := make([]any, len(terms))
	for i, term := range terms {
		args[i] = term
	}
	opened, err := g.stockOf(item).open(ctx, args, "")
	if err == nil {
		g.missed.Found(item)
	}
	return opened, err
}

// terms returns the terms of a sale as the scripts take them, with their defaults: stock, opens, closes,
// per_buyer, hold, keep.
func (g *Guard) terms(sale Sale) ([]int64, error) {
	if sale.PerBuyer == 0 {
		sale.PerBuyer = 1
	}
	if sale.Hold == 0 {
		sale.Hold = 5 * time.Minute
	}
	if err := sale.check(g.options.Keep); err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrInvalid, err)
	}
	return []int64{
		sale.Stock, schedule.Milli(sale.Opens), schedule.Milli(sale.Closes), sale.PerBuyer,
		sale.Hold.Milliseconds(), g.options.Keep.Milliseconds(),
	}, nil
}

// check says what is wrong with a sale that is kept for so long.
func (s Sale) check(keep time.Duration) error {
	if s.Stock < 1 || s.Stock > core.MaxAmount {
		return fmt.Errorf("a stock of %d: set Stock to 1 to 2^53-1", s.Stock)
	}
	if s.PerBuyer < 1 || s.PerBuyer > core.MaxAmount {
		return fmt.Errorf("%d units per buyer: set PerBuyer to 1 to 2^53-1", s.PerBuyer)
	}
	if s.Hold < time.Millisecond || s.Hold > keep {
		return fmt.Errorf("a hold of %v: set Hold to 1 ms to %v, which is Keep", s.Hold, keep)
	}
	if err := schedule.Check(s.Opens, s.Closes); err != nil {
		return fmt.Errorf("a sale that %w", err)
	}
	return nil
}

// Check implements [core.Guard]: it reserves units. The operation ID names the reservation and belongs to
// the buyer who first used it: another buyer with the same ID is refused with ReasonConflict, also after
// the reservation was cancelled. The buyer can reserve under it again after a request that failed. The sale
// remembers a buyer's last 16 reservations that were cancelled or have expired, or as many as PerBuyer
// where that is more, 500 at most. A forgotten reservation cannot be confirmed late, and its ID is free
// again.
//
// Replayed is false when go-redis sent this call again because its reply was lost, and true when another
// call of Check with the same ID holds or has bought the units, also if its reply was lost. Kept is true
// when they are sold. A hold goes back when all calls that got it have failed. While 16 of these calls have
// not settled, further calls are refused with ReasonInProgress.
//
// The process remembers for at most 250 ms that an item is sold out, and that a buyer has reached PerBuyer
// (see [core.WithRefusalMemory]). From memory it answers attempts that have no operation ID and ask for as
// many units or more. During that time it does not see units that another process returns, or holds that
// expire. A buyer who has reached PerBuyer gets ReasonSoldOut instead of ReasonDuplicate if only the
// sold-out item is remembered.
//
// Refusals with ReasonNotReady are logged as errors, once per minute and item, if a part of the sale was
// lost, or if this process has seen the item on sale before. Other such refusals are not logged, since
// clients make names up.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.reserve(ctx, a) })
}

func (g *Guard) reserve(ctx context.Context, a core.Attempt) (core.Decision, error) {
	// MadeID would not do: a caller that asks again with a decision's attempt has an ID that Redis may know.
	unasked := a.ID == ""
	// Each Check is a call of its own, also of an attempt that comes from an earlier decision: a script has to
	// tell what go-redis sends again from what the application asks again.
	a, err := a.WithoutCall().PrepareClaim("the item on sale")
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, err
	}
	now := g.Engine().Now()
	if unasked && g.memory.answer(&d, now) {
		return d, nil
	}
	asked := g.memory.ask(a, now)
	if err := kit.RoomToUndo(); err != nil {
		return d, err
	}
	at := g.stockOf(a.Resource)
	ctx, again := script.WatchSendings(ctx)
	d, err = at.reserve(ctx, a)
	switch {
	case errors.Is(err, core.ErrUnconfirmed):
		return g.unconfirmed(at, d), nil
	case err != nil:
		g.cancelLater(err, a)
		d.Attempt = d.Attempt.WithoutCall()
		return d, err
	case !d.Allowed && again(): // an earlier sending may still arrive, and find units by then
		g.cancelLater(nil, a)
	}
	g.memory.hear(d, asked)
	g.missed.Tell(ctx, g.Logger(), d, LostPart(d))
	return d, nil
}

// cancelLater cancels in the background what an attempt's call may have reserved, or still reserves.
func (g *Guard) cancelLater(err error, a core.Attempt) {
	g.UndoLater(err, func(ctx context.Context) error {
		_, err := g.cancel(ctx, a) // observed
		return err
	})
}

// Settle implements [core.Guard]: [core.Commit] confirms the reservation, [core.Rollback] cancels it, and
// [core.Revoke] cancels it also where this decision has sold it, if no other call of Check was told of it.
// The commit of an expired reservation whose units are taken is an ErrGone.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if !d.Allowed || StateOf(d) == StateSold {
		return nil
	}
	if _, err := kit.Claimed[State](&g.Base, d); err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	ctx = core.Settling(ctx)
	if !end.Commits() {
		_, err := g.takeBack(ctx, d.Attempt, end)
		return err
	}
	begun := time.Now()
	confirmed, err := g.confirm(ctx, d.Attempt)
	if err == nil && !confirmed.Allowed {
		// The buyer may have been told of the purchase, so the observer has to see it.
		err = fmt.Errorf("%w (%s)", core.ErrGone, confirmed.Reason)
		err = g.Observe(ctx, "settle", begun, confirmed, err)
	}
	return err
}

// takeBack settles an attempt that does not commit.
func (g *Guard) takeBack(ctx context.Context, a core.Attempt, end core.Ending) (core.Decision, error) {
	if end.Revokes() {
		return g.cancelBy(ctx, g.Engine().RunWithin, g.cancelArgs("sold"), a)
	}
	return g.cancel(ctx, a)
}

// waiting is the claim of a decision that was refused as a duplicate: the ID of the buyer's reservation that
// waits for its confirmation, empty where none does.
type waiting string

// WaitingOf returns, for a decision whose reason is ReasonDuplicate, the operation ID of the latest
// reservation that the buyer holds; its hold ends after ResetAfter. So a buyer who clicks again, without the
// ID, can pay. The answer's body has it as "reservation". It is empty for other decisions, when the buyer
// holds none of their last 16, and when the ID is stored as a hash (more than 96 bytes, encoded). From memory
// it may be 250 ms old, as in [Guard.Check].
func WaitingOf(d core.Decision) string {
	id, _ := core.ClaimOf[waiting](d)
	return string(id)
}

// Details implements the interface that kit.DetailsOf looks for.
func (w waiting) Details() []kit.Detail {
	if w == "" {
		return nil
	}
	return []kit.Detail{{Name: "reservation", Value: string(w)}}
}

// StateOf returns the state of a decision's reservation, empty when it has none.
func StateOf(d core.Decision) State {
	state, _ := core.ClaimOf[State](d)
	return state
}

// Confirm sells the units of the reservation with the attempt's Actor, Resource and ID, as a decision or an
// order has them. All three are required. An expired reservation is still sold while units are left,
// including units of other expired reservations. The decision's reason is ReasonOK (replayed when it was
// sold before), ReasonGone or ReasonNotReady. An ErrUnconfirmed means that too few replicas have the sale.
// The sale is certain once another call of Confirm succeeds.
//
// IDs can be guessed where clients choose them, so an ID of another buyer is ReasonGone, like an unused ID.
// A payment that names the order only is looked up first: the order has the buyer.
func (g *Guard) Confirm(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.confirm(ctx, core.Attempt{Actor: a.Actor, Resource: a.Resource, ID: a.ID})
}

func (g *Guard) confirm(ctx context.Context, a core.Attempt) (core.Decision, error) {
	defer g.memory.settled(a.Resource, a.Actor)
	return g.end(ctx, "confirm", a, ending{
		run: g.runYes, script: seckillConfirmScript, state: StateSold,
		args: func(a core.Attempt) []any {
			return []any{script.Encode(a.Actor), saleops.SweepMost, g.Engine().ScriptNow(time.Millisecond)}
		},
	})
}

// Cancel returns the units of a reservation to the stock, once. The attempt names it as for
// [Guard.Confirm]. The decision's reason is ReasonOK (replayed when there was nothing of this buyer to
// return), ReasonConflict when the reservation is sold, or ReasonNotReady. A cancelled reservation cannot
// be confirmed any more, also where its hold was over before. Its ID still belongs to the buyer, who may
// reserve under it again.
func (g *Guard) Cancel(ctx context.Context, a core.Attempt) (core.Decision, error) {
	// The call names this cancellation: it may arrive again when its buyer has reserved anew.
	return g.cancelBy(ctx, g.runYes, g.cancelArgs("all"),
		core.Attempt{Actor: a.Actor, Resource: a.Resource, ID: a.ID}.WithCall())
}

// cancel gives a reservation back only if the attempt's own call of Check made it, where the attempt knows
// its call. It waits for no replica: a hold that comes back by a failover ends by itself.
func (g *Guard) cancel(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.cancelBy(ctx, g.Engine().RunWithin, g.cancelArgs(""), a)
}

func (g *Guard) cancelBy(
	ctx context.Context, run runScript, args func(a core.Attempt) []any, a core.Attempt,
) (core.Decision, error) {
	defer g.memory.gaveBack(a.Resource, a.Actor)
	return g.end(ctx, "cancel", a, ending{run: run, script: seckillCancelScript, args: args})
}

// cancelArgs returns the arguments of seckill_cancel; stays is one of them.
func (g *Guard) cancelArgs(stays string) func(a core.Attempt) []any {
	return func(a core.Attempt) []any {
		return []any{a.Call(), stays, script.Encode(a.Actor), g.Engine().ScriptNow(time.Millisecond)}
	}
}

// runScript is [script.Runner.RunWithin], or [Guard.runYes].
type runScript func(
	ctx context.Context, limit time.Duration, s *script.Script, keys []string, args ...any,
) (any, error)

func (g *Guard) end(ctx context.Context, op string, a core.Attempt, e ending) (core.Decision, error) {
	begun := time.Now()
	d := core.Decision{Guard: g.Name(), Attempt: core.Attempt{Resource: a.Resource, ID: a.ID}}
	err := fmt.Errorf("%w: %s needs an actor, a resource and an operation ID", core.ErrInvalid, op)
	if a.Actor != "" && a.Resource != "" && a.ID != "" {
		d, err = g.stockOf(a.Resource).end(ctx, e, a)
	}
	return d, g.Observe(ctx, op, begun, d, err)
}

// ending is a way to end a reservation: to confirm it, or to cancel it.
type ending struct {
	run    runScript
	script *script.Script
	state  State                      // of the reservation afterwards
	args   func(a core.Attempt) []any // of the script, after the ID
}

// Sweep returns the units of expired reservations to the stock, at most 100 reservations per call, and
// returns the number of reservations that it found. Sales work without Sweep: Check takes such units itself
// when it would refuse without them. With Sweep, Status shows them earlier.
func (g *Guard) Sweep(ctx context.Context, item string) (int, error) {
	defer g.memory.gaveBack(item, "")
	return kit.Look(ctx, &g.Base, "sweep", core.Attempt{}, func() (int, error) {
		if item == "" {
			return 0, errNoItem
		}
		return g.stockOf(item).sweep(ctx)
	})
}

// Status returns the state of a sale, or [ErrNoSale].
func (g *Guard) Status(ctx context.Context, item string) (Status, error) {
	return kit.Look(ctx, &g.Base, "status", core.Attempt{}, func() (Status, error) {
		if item == "" {
			return Status{}, errNoItem
		}
		state, err := g.stockOf(item).look(ctx)
		return state.Status, err
	})
}
