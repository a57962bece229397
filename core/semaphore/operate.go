package semaphore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/leases"
)

// State is what [Guard.Peek] tells of a pool.
type State struct {
	// Max is the number of permits of the pool, and Held how many are held.
	Max, Held int64
	// Waiting is how many attempts wait for permits. It includes those of processes that died a moment ago.
	Waiting int64
	// Holders are those who hold permits, in the order in which their leases end; without leases, by name.
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
		if !g.Engine().HasRedis() {
			s.Holders, s.Waiting = g.local(tagOf(a))
		} else if s.Holders, s.Waiting, err = g.holders(ctx, tagOf(a)); err != nil {
			return State{}, err
		}
		for _, h := range s.Holders {
			s.Held += h.Permits
		}
		return s, nil
	})
}

// holders returns who holds permits and how many wait, by the script.
func (g *Guard) holders(ctx context.Context, tag string) (holders []Holder, waiting int64, err error) {
	value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), peekScript,
		[]string{g.Key(tag, "permits"), g.Key(tag, "line")}, g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return nil, 0, err
	}
	r := script.ReadReply(value, 3, 3)
	now, waiting, permits := r.Number(), r.Number(), r.Texts()
	if r.Err != nil {
		return nil, 0, r.Err
	}
	for i := 0; i+1 < len(permits); i += 2 {
		ends, err := strconv.ParseFloat(permits[i+1], 64)
		cost, name, _ := strings.Cut(permits[i], "|")
		parts := strings.SplitN(name, "|", 3)
		number, malformed := strconv.ParseInt(cost, 10, 64)
		if err != nil || malformed != nil || len(parts) < 3 {
			return nil, 0, fmt.Errorf("unexpected permits %.100q until %.100q", permits[i], permits[i+1])
		}
		holders = append(holders, Holder{Actor: script.Decode(parts[2]), Permits: number,
			Ends: script.DurationOf(int64(ends)-now, time.Millisecond)})
	}
	return holders, waiting, nil
}

// Evict takes away the permits of the attempt's Actor, or of everybody if it has no Actor, in the pool that
// its Resource names. It returns the number of these permits. Others can take them at once, while the
// contexts of those who had them end with the next renewal. So more than Max may run for up to a third of the
// lease.
func (g *Guard) Evict(ctx context.Context, a core.Attempt) (int64, error) {
	return kit.Look(ctx, &g.Base, "evict", a, func() (int64, error) {
		tag := tagOf(a)
		if !g.Engine().HasRedis() {
			return g.keeper.EvictLocal(tag, a.Actor), nil
		}
		actor := ""
		if a.Actor != "" {
			actor = script.Encode(a.Actor)
		}
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), evictScript,
			[]string{g.Key(tag, "permits")}, actor)
		if err != nil {
			return 0, err
		}
		return script.ReadNumber(value)
	})
}

// local returns who holds permits in this process, and how many wait.
func (g *Guard) local(tag string) (holders []Holder, waiting int64) {
	held, waiting := g.keeper.Local(tag)
	for _, h := range held {
		holders = append(holders, Holder{Actor: h.Attempt.Actor, Permits: h.Attempt.Cost})
	}
	return holders, waiting
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
