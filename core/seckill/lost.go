package seckill

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// A sale is in several keys of Redis, and each of them can be lost by itself: evicted, or deleted by hand.
// Each key exists from the opening on, so every script sees that one is missing, and refuses. A lost key is
// restored from the others: buyers and timers from the reservations, reservations from the outbox, the sale
// itself from the reservations.

var seckillRepairScript = script.New("seckill_repair", lua.Source("seckill/repair"), script.Idempotent)

var (
	// ErrLost is returned by calls by name for a sale that has lost a part, such as the record of its buyers.
	// The text names the part. Attempts are refused with ReasonNotReady (see [LostPart]) until [Guard.Repair]
	// has restored the part. It matches [core.ErrNotNow].
	ErrLost = kit.NewError("seckill: a part of the sale is lost", core.ErrNotNow)
	// ErrRemains is returned by [Guard.Open] for an item that is not on sale while records of an earlier sale
	// are there. To open it would sell the units of those records again. [Guard.Repair] restores the earlier
	// sale, and [Guard.Discard] deletes its remains. It matches [core.ErrNotNow].
	ErrRemains = kit.NewError("seckill: records of an earlier sale are still there: "+
		"call Repair to go on with it, or Discard to delete them and open a new one", core.ErrNotNow)
)

// lostPart is the claim of a decision that was refused because a part of the sale was lost.
type lostPart string

// LostPart returns which part of the sale was lost, if that is why a decision's reason is ReasonNotReady:
// "buyers", "holds" or "reservations". It is empty for other decisions, also for an item that was never on
// sale.
func LostPart(d core.Decision) string {
	part, _ := core.ClaimOf[lostPart](d)
	return string(part)
}

// lostError returns an ErrLost when the reason of a script's reply says that a part of the item's sale was
// lost, and nil otherwise.
func lostError(item, reason string) error {
	part, lost := strings.CutPrefix(reason, "lost ")
	if !lost {
		return nil
	}
	return fmt.Errorf("%w: %s of %.100q: call Repair", ErrLost, part, item)
}

// Discard deletes all keys of an item's sale and the remains of an earlier one, so that [Guard.Open] can
// open it anew. Reservations, sales and the outbox are gone with it. It returns ErrNoSale when nothing is
// there.
func (g *Guard) Discard(ctx context.Context, item string) error {
	return g.Call(ctx, "discard", core.Attempt{}, func() error {
		if item == "" {
			return errNoItem
		}
		defer g.memory.gaveBack(item, "")
		defer g.missed.Discarded(item)
		at := g.stockOf(item)
		there, err := at.exists(ctx, "sale", "buyers", "holds", "reservations", "outbox")
		if err != nil {
			return err
		}
		if len(there) == 0 {
			return ErrNoSale
		}
		return g.Delete(ctx, append(at.keys(), at.key("outbox"))...)
	})
}

// exists returns which of the sale's keys are there.
func (s *stock) exists(ctx context.Context, fields ...string) (there map[string]bool, err error) {
	there = map[string]bool{}
	for _, field := range fields {
		n, err := script.Query(ctx, s.g.Engine().Runner, redis.NewIntCmd(ctx, "exists", s.key(field)))
		if err != nil {
			return nil, err
		}
		if n == 1 {
			there[field] = true
		}
	}
	return there, nil
}
