// Package newguard is a guard that an application makes: the places of a course, one per member.
// docs/new-guard.md explains it step by step. It uses only exported functions of package core, as the guards
// of Gatehouse do.
package newguard

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

var (
	//go:embed take.lua
	takeSource string
	//go:embed free.lua
	freeSource string

	takeScript = script.New("places_take", takeSource, script.Idempotent)
	freeScript = script.New("places_free", freeSource, script.Idempotent)
)

// Guard lets as many members into a course as it has places: the Actor is the member, the Resource the
// course. A failed request gives its place back. It is safe for concurrent use.
type Guard struct {
	kit.Base
	places int
	keep   time.Duration
}

// New returns a guard for courses with the given number of places. A course's record is kept for the duration
// keep after its last place was taken. New panics if the name is invalid or in use, if places is less than 1,
// or if keep is not from 1 s to kit.MaxTTL.
func New(e *core.Engine, name string, places int, keep time.Duration) *Guard {
	kit.NeedRedis(e, "places", name)
	if places < 1 || keep < time.Second || keep > kit.MaxTTL {
		panic(fmt.Sprintf("newguard: %d places for %v: give 1 or more, for 1 s to %v", places, keep, kit.MaxTTL))
	}
	return &Guard{kit.Register(e, "places", name, takeScript, freeScript), places, keep}
}

// Traits implements core.Guard: an attempt needs a course, and a failed request gives its place back.
func (g *Guard) Traits() core.Traits {
	return core.Traits{NeedsResource: true, Outage: core.FailClosed}
}

// place is what one call of Check took, and what Settle needs to give it back.
type place struct {
	keys         []string
	member, call string
}

// Check implements core.Guard. The reason is core.ReasonOK, core.ReasonDuplicate or ReasonFull.
func (g *Guard) Check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	return g.Decide(ctx, "check", func() (core.Decision, error) { return g.check(ctx, a) })
}

func (g *Guard) check(ctx context.Context, a core.Attempt) (core.Decision, error) {
	a, err := a.PrepareClaim("the course")
	d := core.Decision{Guard: g.Name(), Attempt: a.WithoutCall()}
	if err != nil {
		return d, err
	}
	if err := kit.RoomToUndo(); err != nil {
		return d, err
	}
	course := script.Encode(a.Resource)
	keys := []string{g.Key(course, "taken"), g.Key(course, "void", a.Call())}
	p := place{keys, script.Encode(a.Actor), a.Call()}
	value, err := g.Engine().RunWithin(ctx, g.Engine().Deadline(), takeScript, p.keys,
		p.member, p.call, g.places, g.keep.Milliseconds())
	if err != nil { // the script may have run
		g.UndoLater(err, func(ctx context.Context) error { return g.free(ctx, d.Attempt, p) })
		return d, err
	}
	r := script.ReadReply(value, 2, 2)
	reason, left := core.Reason(r.Text()), r.Number()
	if r.Err != nil {
		return d, r.Err
	}
	d.Allowed, d.Reason, d.Source = reason == core.ReasonOK, reason, core.SourceRedis
	d.Limit, d.Remaining = int64(g.places), left
	if d.Allowed {
		d.SetClaim(p)
	}
	return d, nil
}

// Settle implements core.Guard: core.Rollback gives the place back, once.
func (g *Guard) Settle(ctx context.Context, d core.Decision, end core.Ending) error {
	if end.Commits() || !d.Allowed {
		return nil
	}
	p, err := kit.Claimed[place](&g.Base, d)
	if err != nil {
		return g.Observe(ctx, "settle", time.Now(), d, err)
	}
	return g.free(core.Settling(ctx), d.Attempt, p)
}

func (g *Guard) free(ctx context.Context, a core.Attempt, p place) error {
	return g.Call(ctx, "settle", a, func() error {
		_, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), freeScript, p.keys,
			p.member, p.call, kit.TombstoneTTL.Milliseconds())
		return err
	})
}
