package votes

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// Recall implements [kit.Recaller] for duplicates. As in Check, memory answers only attempts without an
// operation ID.
func (g *Guard) Recall(ctx context.Context, a core.Attempt) (core.Decision, bool) {
	key, now := newVoter(a.Actor).in(a.Resource), g.Engine().Now()
	before, found := g.duplicates.Find(key, now)
	if !found || a.ID != "" {
		return core.Decision{}, false
	}
	begun := time.Now()
	a, err := a.PrepareClaim("the poll")
	d := core.Decision{Guard: g.Name(), Attempt: a}
	if err != nil {
		return d, false
	}
	poll, err := g.find(ctx, a.Resource)
	if err != nil || poll.Choices != nil && !slices.Contains(poll.Choices, a.Item) ||
		!before.answers(&poll, a, now) {
		return d, false
	}
	before.fill(&d)
	return d, g.Observe(ctx, "check", begun, d, nil) == nil
}
