package buckets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/keymutex"
	"github.com/gatehouse-go/gatehouse/internal/lostsales"
)

// maxBuckets is the maximum number of buckets of a sale.
const maxBuckets = 64

// Options are the options of a guard. The keys of several buckets may expire up to an eighth of Keep later
// than it says, because most changes renew those of one bucket alone.
type Options struct {
	seckill.Options

	// Buckets is the number of Redis Cluster slots over which a sale is spread, 2 to 64. It is required. A
	// sale keeps the number with which it was opened.
	Buckets int
}

// Guard is a [seckill.Guard] for sales of several buckets. It is safe for concurrent use.
type Guard struct {
	kit.Base
	options   Options
	parts     seckill.Parts
	places    *kit.Recall[string, *spread]
	soldOut   *kit.Recall[string, refusal]
	borrowing keymutex.Mutex[lastBrought] // see spread.borrow
	missed    *lostsales.Items
}

// New makes a guard. It panics when the name is taken or invalid, when the options are invalid, or when the
// engine has no Redis.
func New(e *core.Engine, name string, options Options) *Guard {
	if options.Buckets < 2 || options.Buckets > maxBuckets {
		panic(fmt.Sprintf("buckets: %d buckets: set Buckets to 2 to %d, or use seckill.New (guard %q)",
			options.Buckets, maxBuckets, name))
	}
	g := &Guard{
		options: options,
		places:  kit.NewRecall[string, *spread](placesKept, placeFor),
		soldOut: kit.NewRecall[string, refusal](soldOutItems, min(e.RefusalMemory(), refusalFor)),
		missed:  lostsales.New(),
	}
	g.parts, g.Base = seckill.NewParts(e, name, options.Options, g.moved,
		beginScript, rootScript, loansScript, lendScript, acceptScript, keepScript)
	return g
}

// Traits implements [core.Guard]: see [seckill.Guard.Traits].
func (g *Guard) Traits() core.Traits { return g.parts.Traits() }

// Open is [seckill.Guard.Open] for a sale of [Options].Buckets buckets, in several calls to Redis. Until all
// have been made, attempts are refused with ReasonNotReady. The first caller sets the terms. If its process
// dies before it is done, the next Open completes the sale and reports true.
func (g *Guard) Open(ctx context.Context, item string, sale seckill.Sale) (bool, error) {
	return kit.Look(ctx, &g.Base, "open", core.Attempt{}, func() (bool, error) {
		opened, err := g.open(ctx, item, sale)
		if err == nil {
			g.missed.Found(item)
		}
		return opened, err
	})
}

// Check is [seckill.Guard.Check].
//
// ReasonSoldOut means that all buckets together had fewer units left than the attempt asks for, at one moment
// of the call or of the 250 ms for which the process remembers it. An attempt with an operation ID also gets
// it from memory, after its own bucket was asked and had too few units. A buyer whose other attempt reaches
// PerBuyer meanwhile may hear ReasonSoldOut instead of ReasonDuplicate. Check returns an error when it cannot
// establish that in time, because a bucket does not answer or because buyers keep moving the last units. It
// refuses with ReasonNotReady when a bucket was lost with its Redis.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) {
		d, err := g.reserve(ctx, a.WithoutCall())
		if err == nil {
			g.missed.Tell(ctx, g.Logger(), d, seckill.LostPart(d))
		}
		return d, err
	})
}

func (g *Guard) reserve(ctx context.Context, a core.Attempt) (core.Decision, error) {
	begun := time.Now()
	d, known, err := g.remembered(ctx, a)
	if known || err != nil {
		return d, err
	}
	at := g.placeOf(a.Resource)
	if at == nil {
		d.Reason, d.Source = core.ReasonNotReady, core.SourceRedis // as far as this process knows
	} else if d, err = at.reserve(ctx, a); err != nil {
		return d, err
	}
	if d.Reason != core.ReasonNotReady && d.Reason != core.ReasonSoldOut {
		return d, nil
	}
	d, err = g.goOn(ctx, begun, at, d, a.ID != "")
	if errors.Is(err, core.ErrUnconfirmed) { // of units on their way, so nothing is reserved
		d.Reason, d.RetryAfter, d.Source, err = core.ReasonUnconfirmed, time.Second, core.SourceRedis, nil
	}
	return d, err
}

// goOn goes on with an attempt that its bucket has refused, and that may find units in other buckets, or
// another sale of the item. The attempt is shared when other calls may have its ID.
func (g *Guard) goOn(
	ctx context.Context, begun time.Time, at *spread, d core.Decision, shared bool,
) (core.Decision, error) {
	ctx, cancel := context.WithDeadline(ctx, begun.Add(g.Engine().Deadline()))
	defer cancel()
	for asked := begun; ; {
		var again bool
		var err error
		switch {
		case d.Reason == core.ReasonNotReady:
			at, again, err = g.elsewhere(ctx, at, d.Attempt.Resource)
		case d.Reason != core.ReasonSoldOut:
		case d.Source == core.SourceRemembered: // of its bucket alone
			again = true
		default:
			again, err = at.borrow(ctx, &d, asked)
			if err == nil && d.Reason == core.ReasonNotReady { // a bucket is lost
				at, again, err = g.elsewhere(ctx, at, d.Attempt.Resource)
			} else if err == nil && !again && shared {
				return at.reserveLast(ctx, d)
			}
		}
		if err != nil {
			return core.Decision{Guard: d.Guard, Attempt: d.Attempt.WithoutCall()}, err
		}
		if !again {
			return d, nil
		}
		asked = time.Now()
		if d, err = at.reserve(ctx, d.Attempt); err != nil {
			return d, err
		}
	}
}

// elsewhere asks the root for the sale of an item that is not at these buckets, and reports whether it is at
// others.
func (g *Guard) elsewhere(ctx context.Context, at *spread, item string) (*spread, bool, error) {
	found, err := g.find(ctx, item)
	if err != nil || found == nil || found.same(at) {
		return at, false, err
	}
	return found, true, nil
}

// reserveLast asks once more for an attempt that found all sold: a call with the same ID may have taken the
// last unit meanwhile, and then it is this call's too. Otherwise d stands.
func (s *spread) reserveLast(ctx context.Context, d core.Decision) (core.Decision, error) {
	last, err := s.reserve(ctx, d.Attempt)
	if err != nil || last.Reason == core.ReasonSoldOut {
		return d, err
	}
	return last, nil
}

// Settle implements [core.Guard]: see [seckill.Guard.Settle].
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if !d.Allowed || seckill.StateOf(d) == seckill.StateSold {
		return nil
	}
	begun := time.Now()
	if _, err := kit.Claimed[seckill.State](&g.Base, d); err != nil {
		return g.Observe(ctx, "settle", begun, d, err)
	}
	ctx = core.Settling(ctx)
	if !end.Commits() {
		_, err := g.end(ctx, "cancel", d.Attempt, func(ctx context.Context, a core.Attempt) (core.Decision, error) {
			return g.parts.TakeBack(ctx, a, end)
		})
		return err
	}
	confirmed, err := g.Confirm(ctx, d.Attempt)
	if err == nil && !confirmed.Allowed {
		// The buyer may have been told of the purchase, so the observer has to see it.
		err = fmt.Errorf("%w (%s)", core.ErrGone, confirmed.Reason)
		err = g.Observe(ctx, "settle", begun, confirmed, err)
	}
	return err
}

// Confirm is [seckill.Guard.Confirm]. It asks the buyer's bucket.
func (g *Guard) Confirm(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.end(ctx, "confirm", a, g.parts.Confirm)
}

// Cancel is [seckill.Guard.Cancel].
func (g *Guard) Cancel(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.end(ctx, "cancel", a, g.parts.Cancel)
}

// end ends a reservation by f, which is called with the bucket as the attempt's resource.
func (g *Guard) end(
	ctx context.Context, op string, a core.Attempt,
	f func(ctx context.Context, a core.Attempt) (core.Decision, error),
) (core.Decision, error) {
	if op == "cancel" {
		defer g.soldOut.Drop(a.Resource)
	}
	begun := time.Now()
	d := core.Decision{Guard: g.Name(), Attempt: core.Attempt{Resource: a.Resource, ID: a.ID}}
	err := fmt.Errorf("%w: %s needs an actor, a resource and an operation ID", core.ErrInvalid, op)
	if a.Actor != "" && a.Resource != "" && a.ID != "" {
		var found bool
		found, err = g.locate(ctx, a.Resource, func(at *spread) (found bool, err error) {
			d, err = at.end(ctx, a, f)
			return d.Reason != core.ReasonNotReady, err
		})
		if err == nil && !found {
			d.Reason, d.Source = core.ReasonNotReady, core.SourceRedis
		}
	}
	return d, g.Observe(ctx, op, begun, d, err)
}
