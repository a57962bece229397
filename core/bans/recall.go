package bans

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Recall implements [kit.Recaller] for bans that the process remembers.
func (g *Guard) Recall(ctx context.Context, a core.Attempt) (core.Decision, bool) {
	begun := time.Now()
	a, err := a.Prepare()
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, false
	}
	left, known := g.recall(a)
	if !known || left <= 0 {
		return d, false
	}
	fillBan(&d, left, core.SourceRemembered, nil)
	return d, g.Observe(ctx, "check", begun, d, nil) == nil
}
