package buckets

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

const (
	// refusalFor is the maximum time for which a process remembers that an item is sold out.
	refusalFor = 250 * time.Millisecond
	// soldOutItems is the number of items that are remembered.
	soldOutItems = 1 << 12
)

// refusal is that of an attempt for which the whole sale had too few units. The buckets remember who has
// reached PerBuyer.
type refusal struct{ quantity, stock, left int64 }

// remembered prepares an attempt, and reports whether memory has decided it. Memory answers only attempts
// without an operation ID, as in package seckill.
func (g *Guard) remembered(ctx context.Context, a core.Attempt) (d core.Decision, known bool, err error) {
	unasked := a.ID == ""
	a, err = a.PrepareClaim("the item on sale")
	d = core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil || !unasked {
		return d, false, err
	}
	if at, held := g.places.Last(a.Resource); held {
		part := a
		part.Resource, part.ID = at.tags[at.homeOf(a.Actor)], ""
		if had, ok := g.parts.Recall(ctx, part); ok && had.Reason == core.ReasonDuplicate {
			had.Attempt.Resource = a.Resource
			return had, true, nil
		}
	}
	known = g.answerSoldOut(&d, g.Engine().Now())
	return d, known, nil
}

// answerSoldOut decides the attempt of d if the whole sale is known to have too few units.
func (g *Guard) answerSoldOut(d *core.Decision, now time.Time) bool {
	r, ok := g.soldOut.Find(d.Attempt.Resource, now)
	if !ok || d.Attempt.Cost < r.quantity {
		return false
	}
	d.Reason, d.Source, d.Limit, d.Remaining = core.ReasonSoldOut, core.SourceRemembered, r.stock, r.left
	return true
}

// Recall implements [kit.Recaller]: see [seckill.Guard.Recall].
func (g *Guard) Recall(ctx context.Context, a core.Attempt) (core.Decision, bool) {
	if a.ID != "" {
		return core.Decision{}, false
	}
	begun := time.Now()
	d, known, err := g.remembered(ctx, a)
	if err != nil || !known {
		return d, false
	}
	return d, g.Observe(ctx, "check", begun, d, nil) == nil
}
