package semaphore

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/leases"
)

// State is what [Guard.Peek] tells of a pool.
type State struct {
	// Max is the number of permits of the pool, and Held how many are held.
	Max, Held int64
	// Waiting is how many attempts wait for permits. It includes those of processes that died a moment ago.
	Waiting int64
	// Holders are the holders of permits, in the order in which their leases end, or by name if there are no
	// leases.
	Holders []Holder
}

// Holder holds permits of a pool.
type Holder struct {
	// Actor is who holds them. A name that has more than 96 bytes when it is encoded appears as '#' and its
	// hash.
	Actor string
	// Permits is how many.
	Permits int64
	// Ends is the time until the lease is over unless it is renewed. It is zero on an engine without Redis.
	Ends time.Duration
}

// Peek returns who holds permits of the pool that the attempt's Resource names. It writes nothing. The other
// fields of the attempt matter only to Options.MaxOf.
func (g *Guard) Peek(ctx context.Context, a core.Attempt) (State, error) {
	return kit.Look(ctx, &g.Base, "peek", a, func() (State, error) {
		s := State{Max: g.options.Max}
		var err error
		if g.options.MaxOf != nil {
			if s.Max, err = g.maxOf(ctx, a); err != nil {
				return State{}, err
			}
		}
		pool, err := g.keeper.Peek(ctx, tagOf(a))
		if err != nil {
			return State{}, err
		}
		s.Waiting = pool.Waiting
		for _, h := range pool.Holders {
			s.Holders = append(s.Holders, Holder(h))
			s.Held += h.Permits
		}
		return s, nil
	})
}

// Evict takes away the permits of the attempt's Actor, or of everybody if it has no Actor, in the pool that
// its Resource names. It returns the number of these permits. Others can take them at once, while the
// contexts of the evicted holders end with the next renewal. So more than Max may run for up to a third of
// the lease.
func (g *Guard) Evict(ctx context.Context, a core.Attempt) (int64, error) {
	return kit.Look(ctx, &g.Base, "evict", a, func() (int64, error) {
		return g.keeper.Evict(ctx, tagOf(a), a.Actor)
	})
}

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	answers := kit.StandardAnswers(core.ReasonBusy, core.ReasonLimited, core.ReasonOverLimit, core.ReasonGone)
	for i := range answers {
		switch a := &answers[i]; a.Reason {
		case core.ReasonLimited: // in line
			a.Detail, a.PageDetail = leases.TooManyWait+" Try again later.", leases.TooManyWait
		case core.ReasonGone: // evicted, or not renewed for too long
			a.Title, a.Detail = "Permit Lost", "The permit of this request was taken away while it ran."
			a.PageTitle, a.PageDetail = "Interrupted", "This took too long or was stopped. Please try again."
		default: // the others are as for limits
		}
	}
	return kit.Description{
		Kind:     "semaphore",
		Settings: g.settings(),
		Answers:  answers,
		Operations: []kit.Operation{
			{Name: "peek", Fields: []kit.Field{{Name: "resource"}},
				Run: func(ctx context.Context, in kit.Input) (any, error) { return g.peeked(ctx, in) }},
			{Name: "evict", Changes: true, Fields: []kit.Field{{Name: "actor", Required: true}, {Name: "resource"}},
				Run: func(ctx context.Context, in kit.Input) (any, error) { return g.evicted(ctx, in.Attempt()) }},
			{Name: "evict-all", Changes: true, Fields: []kit.Field{{Name: "resource"}},
				Run: func(ctx context.Context, in kit.Input) (any, error) { return g.evicted(ctx, in.Attempt()) }},
		},
		Ops: []string{"check", "check_local", "settle", "wait", "renew", "peek", "evict"},
	}
}

// peeked is what an operator sees of a pool: the first 100 holders.
func (g *Guard) peeked(ctx context.Context, in kit.Input) (any, error) {
	s, err := g.Peek(ctx, in.Attempt())
	if err != nil {
		return nil, err
	}
	holders := make([]map[string]any, 0, min(len(s.Holders), 100))
	for _, h := range s.Holders[:cap(holders)] {
		ends := kit.TextOf(h.Ends)
		holders = append(holders, map[string]any{"actor": h.Actor, "permits": h.Permits, "ends": ends})
	}
	return map[string]any{"max": s.Max, "held": s.Held, "waiting": s.Waiting, "holders": holders}, nil
}

func (g *Guard) evicted(ctx context.Context, a core.Attempt) (any, error) {
	permits, err := g.Evict(ctx, a)
	return map[string]any{"permits": permits}, err
}

func (g *Guard) settings() []kit.Detail {
	permits := kit.Detail{Name: "permits", Value: g.options.Max}
	if g.options.MaxOf != nil {
		permits.Value = "of each attempt"
	}
	return []kit.Detail{permits, {Name: "wait", Value: g.options.Wait.String()}}
}
