package explain

import (
	"context"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Where an answer comes from.
const (
	fromRedis   = "redis"   // what Redis says now
	fromNothing = "unused"  // as if the actor had used nothing
	fromNobody  = "assumed" // nobody was asked, and the guard is assumed to allow the attempt
)

// watched stands in for a guard in a rule: it notes the attempt, and answers without taking anything.
type watched struct {
	core.Guard            // on a recorder
	live       core.Guard // the same guard on a Redis, or nil

	asked    bool
	attempt  core.Attempt
	decision core.Decision
	source   string
	sale     *seckill.Status
	err      error // of Redis
}

// Describe implements kit.Describer.
func (g *watched) Describe() kit.Description { return kit.DescriptionOf(g.Guard) }

// Engine returns the engine of the guard: its observer hears of refusals without a decision.
func (g *watched) Engine() *core.Engine {
	own, ok := g.Guard.(interface{ Engine() *core.Engine })
	if !ok {
		return nil
	}
	return own.Engine()
}

// Check implements core.Guard. The second time it answers as the first time.
func (g *watched) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	if !g.asked {
		g.asked, g.attempt = true, a
		g.decision, g.err = g.ask(ctx, a)
	}
	return g.decision, g.err
}

func (g *watched) ask(ctx context.Context, a core.Attempt) (core.Decision, error) {
	if peeks, ok := g.live.(peeker); ok {
		g.source = fromRedis
		return peeks.Peek(ctx, a)
	}
	if sale, ok := g.live.(saleGuard); ok {
		if status, err := sale.Status(ctx, a.Resource); err == nil {
			g.sale = &status
		}
	}
	if local, ok := g.Guard.(kit.LocalGuard); ok && g.live == nil {
		g.source = fromNothing
		return local.CheckLocal(ctx, a)
	}
	g.source = fromNobody
	return core.Decision{Guard: g.Name(), Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
}

// saleGuard is a guard of the package seckill, or of buckets.
type saleGuard interface {
	Status(ctx context.Context, item string) (seckill.Status, error)
}

// peeker is a guard that can say what it would decide.
type peeker interface {
	Peek(ctx context.Context, a core.Attempt) (core.Decision, error)
}

// CheckLocal implements kit.LocalGuard, for rules whose policy in an outage is local.
func (g *watched) CheckLocal(ctx context.Context, a core.Attempt) (core.Decision, error) {
	if local, ok := g.Guard.(kit.LocalGuard); ok {
		return local.CheckLocal(ctx, a)
	}
	return core.Decision{}, core.ErrNoRedis
}

// Settle implements core.Guard: nothing was taken.
func (g *watched) Settle(context.Context, core.Decision, core.Ending) error { return nil }

// watchedBans stands in for the bans of a rule: no strike counts.
type watchedBans struct{ pipeline.Bans }

// Describe implements kit.Describer.
func (b watchedBans) Describe() kit.Description { return kit.DescriptionOf(b.Bans) }

// Strike implements pipeline.Bans.
func (b watchedBans) Strike(context.Context, core.Attempt) (bool, error) { return false, nil }
