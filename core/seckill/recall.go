package seckill

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Recall implements [kit.Recaller] for items that are sold out and buyers who have all that one may have. As
// in Check, memory answers only attempts without an operation ID.
func (g *Guard) Recall(ctx context.Context, a core.Attempt) (core.Decision, bool) {
	if a.ID != "" {
		return core.Decision{}, false
	}
	begun := time.Now()
	a, err := a.PrepareClaim("the item on sale")
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil || !g.memory.answer(&d, g.Engine().Now()) {
		return d, false
	}
	return d, g.Observe(ctx, "check", begun, d, nil) == nil
}
