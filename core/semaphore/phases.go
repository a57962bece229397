package semaphore

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/inflight"
	"github.com/gatehouse-go/gatehouse/internal/leases"
)

// poolsHeard is the number of pools, the most recently asked for, of which a guard remembers the last
// answer.
const poolsHeard = 4096

// question is a check between its phases.
type question struct {
	g     *Guard
	d     core.Decision
	a     core.Attempt // names the call
	err   error
	h     *leases.Holder // for it call asks Redis; or nil
	call  script.Call
	under inflight.Call
}

// Begin implements [kit.Phased].
func (g *Guard) Begin(ctx context.Context, a core.Attempt, notFirst, notLast bool) kit.Prepared {
	begun := time.Now()
	q := &question{g: g}
	b := kit.Prepared{Finisher: q}
	if q.d, q.a, q.err = g.begin(ctx, a); q.err != nil || q.d.Reason != "" || !g.Engine().HasRedis() {
		return b
	}
	tag, most := tagOf(q.a), q.d.Limit
	if g.keeper.TooMany(tag, &q.d) {
		return b
	}
	if q.err = kit.RoomToUndo(); q.err != nil {
		return b
	}
	q.h, q.call = g.keeper.Asking(tag, q.a, most, g.Engine().Deadline()-time.Since(begun))
	if g.early() {
		q.under = g.inFlight.Begin(tag, q.a.Cost, notFirst, notLast, func(underWay int64) bool {
			return g.expects(&q.a, tag, most, underWay)
		})
		b.Batchable, q.call.After = q.under.Batchable, q.under.Settled
	}
	b.Call = &q.call
	return b
}

// End implements [kit.Finisher].
func (q *question) End(ctx context.Context) (core.Decision, error) {
	defer q.under.End() // when it is known what the answer says
	switch {
	case q.h != nil:
		if q.d, q.err = q.g.keeper.Asked(ctx, q.h, &q.call, q.d); q.err == nil {
			q.g.hear(&q.d)
		}
	case q.err == nil && q.d.Reason == "":
		q.d = q.g.keeper.TakeLocal(ctx, tagOf(q.a), q.d, q.a, q.d.Limit)
	}
	return undecided(q.d, q.err)
}

// Drop implements [kit.Finisher].
func (q *question) Drop() { q.under.End() }

// ending is an ending between its phases: it makes its call in its turn.
type ending struct {
	g *Guard
	d core.Decision
}

// BeginSettle implements [kit.Phased].
func (g *Guard) BeginSettle(_ context.Context, d core.Decision, _ core.Ending) kit.Prepared {
	return kit.Prepared{Batchable: true, Finisher: ending{g, d}}
}

// End implements [kit.Finisher].
func (e ending) End(ctx context.Context) (core.Decision, error) {
	err := e.g.keeper.Settle(ctx, e.d)
	if err == nil {
		e.g.gaveBack(&e.d)
	}
	return e.d, err
}

// Drop implements [kit.Finisher].
func (ending) Drop() {}

// early reports whether the guard may be asked before the guards in front have answered. A guard that waits
// may not: its attempts would keep a place in line for a request that is refused. Without Redis there is no
// round trip to share.
func (g *Guard) early() bool { return g.options.Wait == 0 && g.Engine().SharesCalls() }

// expects reports whether the attempt will probably get its permits and leave an eighth of the pool, one
// permit at least. It counts the free permits in the last answer, minus the permits in flight. In a pool
// without an answer, all are free. It is true in a shadow, where nobody is refused.
func (g *Guard) expects(a *core.Attempt, tag string, most, underWay int64) bool {
	if a.Shadow {
		return true
	}
	free := most
	part := g.heard.Of(tag)
	part.Lock()
	defer part.Unlock()
	if left, known := part.Get(tag); known {
		free = min(left, most)
	}
	return free-underWay-a.Cost >= max(most/8, 1)
}

// hear notes how many permits of a pool are free, by an answer of Redis.
func (g *Guard) hear(d *core.Decision) {
	if d.Source != core.SourceRedis || !g.early() {
		return
	}
	tag := tagOf(d.Attempt)
	part := g.heard.Of(tag)
	part.Lock()
	defer part.Unlock()
	part.Add(tag, d.Remaining)
}

// gaveBack notes that permits of a pool are free again.
func (g *Guard) gaveBack(d *core.Decision) {
	if d.Source != core.SourceRedis || !g.early() {
		return
	}
	tag := tagOf(d.Attempt)
	part := g.heard.Of(tag)
	part.Lock()
	defer part.Unlock()
	if left, known := part.Get(tag); known {
		part.Add(tag, left+d.Attempt.Cost)
	}
}
