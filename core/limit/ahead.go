package limit

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// This file is for package lease, which hands out units of a sliding window inside the process. An
// application does not need it.

// Ahead lets a process take units of a [SlidingWindow] ahead and give them to later attempts. It is for
// package lease: see [SlidingWindow.Ahead]. It is safe for concurrent use.
type Ahead struct {
	l      *limiter
	settle func(a core.Attempt, of Limit, stamp, units int64) (rest int64)

	mu   sync.Mutex
	sets map[Limit]*limitSet // so that lots of one limit share it
}

// Lot is units of one limit that count as taken at the end of one part of its window.
type Lot struct {
	Units int64
	Stamp int64         // when they were taken, in microseconds of the server's clock
	Rest  time.Duration // from then to the end of the part; 0: later attempts must not get them

	tag    string
	limits *limitSet
}

// Limit returns the limit of the units.
func (t Lot) Limit() (l Limit) {
	if t.limits != nil {
		l = t.limits.limits[0]
	}
	return l
}

// Ahead returns the means to take units of the window ahead. Call it before the window is used. From then
// on a refusal by a limit with a Resolution is remembered for a part of the window at most, since another
// process may return units then. settle receives units of an attempt that took them at stamp under a limit.
// They come back, or, if units is below 0, are a cost beyond the estimate. It returns the units that Redis
// still has to be told of. self is the guard that decides by them, which Wait asks.
func (g *SlidingWindow) Ahead(
	self kit.Phased, settle func(a core.Attempt, of Limit, stamp, units int64) (rest int64),
) *Ahead {
	g.refusals.part = true
	g.waits.decide = func(ctx context.Context, a core.Attempt) (core.Decision, error) {
		return kit.InTurn(ctx, self.Begin(ctx, a, false, false))
	}
	g.ahead = &Ahead{l: &g.limiter, settle: settle, sets: map[Limit]*limitSet{}}
	return g.ahead
}

// mostSets bounds Ahead.sets. Only a Func leads to that many.
const mostSets = 1024

// Take takes units out of an allowed decision of the window's Check. Its Attempt keeps the rest of its Cost.
func (u *Ahead) Take(d *core.Decision, units int64) (t Lot) {
	took, ok := core.ClaimOf[*taken](*d)
	if !ok {
		return t
	}
	d.Attempt.Cost -= units
	rest := script.DurationOf(took.rest, time.Microsecond)
	t = Lot{Units: units, Stamp: took.stamp, Rest: rest, tag: kit.TagOf(d.Attempt), limits: took.limitSet}
	u.mu.Lock()
	defer u.mu.Unlock()
	if set, ok := u.sets[t.Limit()]; ok {
		t.limits = set
	} else if len(u.sets) < mostSets {
		u.sets[t.Limit()] = t.limits
	}
	return t
}

// Give allows an attempt by units of a lot, from which the caller has subtracted them.
func (u *Ahead) Give(d *core.Decision, t Lot, remaining int64) {
	d.Guard, d.Source = u.l.Name(), core.SourceLease
	fill(d, true, remaining, 0, t.Limit())
	d.SetClaim(&taken{limitSet: t.limits, stamp: t.Stamp, rest: t.Rest.Microseconds()})
}

// Return gives the units of lots back to Redis, each once. The calls go out together, and behind them another
// one if that is not nil. Units whose call fails count as taken until they leave the window.
func (u *Ahead) Return(ctx context.Context, behind *script.Call, lots ...Lot) (err error) {
	calls, endings := make([]*script.Call, 0, len(lots)+1), make([]*settling, 0, len(lots))
	for _, t := range lots {
		took := &taken{limitSet: t.limits, stamp: t.Stamp, ending: &ending{
			units: t.Units, under: make(chan struct{})}}
		s := &settling{l: u.l, tag: t.tag, took: took}
		if s.err = s.prepare(u.l.Engine().SettleTimeout()); s.err == nil {
			calls, endings = append(calls, &s.call), append(endings, s)
		}
	}
	if behind != nil {
		calls = append(calls, behind)
	}
	script.Send(ctx, calls...)
	for _, s := range endings {
		_, ended := s.End(ctx)
		if err == nil {
			err = ended
		}
	}
	return err
}
