package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/leases"
)

// State is what [Guard.Peek] tells of a lock.
type State struct {
	// Held reports whether somebody holds the lock.
	Held bool
	// Owner is who holds it, or empty. A name that has more than 96 bytes when it is encoded appears as '#' and
	// its hash.
	Owner string
	// Fence is the last fence that was given, which is the holder's where the lock is held. It is 0 where none
	// is known: Redis keeps it for a day after the last lease.
	Fence int64
	// Ends is the time until the lease is over unless it is renewed. It is zero where nobody holds the lock,
	// and on an engine without Redis.
	Ends time.Duration
	// Waiting is how many attempts wait for the lock. It includes those of processes that died a moment ago.
	Waiting int64
}

// Peek returns who holds the lock of the thing. It writes nothing. The error wraps core.ErrInvalid if thing
// is empty.
func (g *Guard) Peek(ctx context.Context, thing string) (State, error) {
	return kit.Look(ctx, &g.Base, "peek", core.Attempt{Resource: thing}, func() (State, error) {
		if thing == "" {
			return State{}, errNoThing
		}
		pool, err := g.keeper.Peek(ctx, script.Encode(thing))
		s := State{Fence: pool.Fence, Waiting: pool.Waiting}
		for _, h := range pool.Holders {
			s.Held, s.Owner, s.Ends = true, h.Actor, h.Ends
		}
		return s, err
	})
}

// errNoThing is the error of operations without a thing.
var errNoThing = fmt.Errorf("%w: the thing is empty", core.ErrInvalid)

// Break takes the lock of the thing away from who holds it, and reports whether somebody did. Others can take
// it at once, while the context of the one who had it ends with the next renewal. So two may work for up to a
// third of the lease, and only the fence tells their writes apart. The error wraps core.ErrInvalid if thing
// is empty.
func (g *Guard) Break(ctx context.Context, thing string) (bool, error) {
	return kit.Look(ctx, &g.Base, "break", core.Attempt{Resource: thing}, func() (bool, error) {
		if thing == "" {
			return false, errNoThing
		}
		n, err := g.keeper.Evict(ctx, script.Encode(thing), "")
		return n > 0, err
	})
}

// Describe implements [kit.Describer].
func (g *Guard) Describe() kit.Description {
	answers := kit.StandardAnswers(core.ReasonBusy, core.ReasonLimited, core.ReasonGone)
	for i := range answers {
		switch a := &answers[i]; a.Reason {
		case core.ReasonBusy: // not too many requests, but one holder
			a.Status, a.Detail = 409, "Somebody else is working on this. Try again in a moment."
			a.PageDetail = "Somebody else is working on this at the moment."
		case core.ReasonLimited: // in line
			a.Detail, a.PageDetail = leases.TooManyWait+" Try again later.", leases.TooManyWait
		case core.ReasonGone: // broken, or not renewed for too long
			a.Title, a.Detail = "Lock Lost", "The lock of this request was taken away while it ran."
			a.PageTitle, a.PageDetail = "Interrupted", "This took too long or was stopped. Please try again."
		default: // no other is here
		}
	}
	thing := []kit.Field{{Name: "thing", Required: true, Hint: "what is locked, as the rule's What has it"}}
	return kit.Description{
		Kind:    "lock",
		Answers: answers,
		Operations: []kit.Operation{
			{Name: "peek", Fields: thing,
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return g.peeked(ctx, in.Text("thing"))
				}},
			{Name: "break", Changes: true, Fields: thing,
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					broken, err := g.Break(ctx, in.Text("thing"))
					return map[string]any{"broken": broken}, err
				}},
		},
		Ops: []string{"check", "settle", "wait", "renew", "peek", "break"},
	}
}

// peeked is what an operator sees of a lock.
func (g *Guard) peeked(ctx context.Context, thing string) (any, error) {
	s, err := g.Peek(ctx, thing)
	if err != nil {
		return nil, err
	}
	return map[string]any{"held": s.Held, "owner": s.Owner, "fence": s.Fence, "ends": kit.TextOf(s.Ends),
		"waiting": s.Waiting}, nil
}
