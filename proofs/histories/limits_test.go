package histories

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// The window outlasts a history: TTLs run in real time, also where a server is away for seconds, while the
// clock of the test stands still.
const (
	limitMax    = 6
	limitWindow = 12 * time.Minute
	limitStep   = 5 * time.Minute // the clock between two phases
	limitJumps  = 60              // as jumps suit a window of 12 s

	// limitBegin is the moment at which a history begins in the model, whose moments are above zero however far
	// the clock jumps back.
	limitBegin = 24 * time.Hour
)

// limitIn is a call of a rate limit at a moment of the test's clock.
type limitIn struct {
	Op    string // check, peek, refund, spend, reset
	Call  int    // of check, refund and spend: the number of the check
	Cost  int
	Spent int   // of spend: what was used of the cost, or beyond it
	At    int64 // milliseconds of the clock since the begin of the history
}

type limitOut struct {
	Allowed bool
	Left    int64
}

// taken are units that a check took, or was charged later.
type taken struct {
	call, cost int8  // call is charged where they were charged later
	at         int64 // in milliseconds; 0: no units
}

const (
	charged = -1
	// mostTaken is how many entries there are at most: each check that took units may be charged more.
	mostTaken = 4 * limitMax
)

// limitState has the units that count. Sliding: those of the window. Fixed: those since begun. Bucket: full
// is when the bucket is full again, in milliseconds, last when units were last taken, and taken says what can
// be given back. Units that have left stay until others are taken: a clock that is set back finds them.
type limitState struct {
	taken [mostTaken]taken
	last  int64
	begun int64
	full  int64
}

func (s *limitState) used() (n int64) {
	for _, t := range s.taken {
		n += int64(t.cost)
	}
	return n
}

func (s *limitState) put(t taken) {
	i := slices.Index(s.taken[:], taken{})
	s.taken[i] = t
}

// drop removes the units for which gone reports true, and keeps the others in order, so that equal states are
// equal.
func (s *limitState) drop(gone func(t taken) bool) (dropped bool) {
	var kept [mostTaken]taken
	n := 0
	for _, t := range s.taken {
		switch {
		case t == taken{}:
		case gone(t):
			dropped = true
		default:
			kept[n] = t
			n++
		}
	}
	s.taken = kept
	return dropped
}

// newest returns when the newest units were taken, or now if that is later.
func (s *limitState) newest(now int64) int64 {
	for _, t := range s.taken {
		now = max(now, t.at)
	}
	return now
}

// limitModel is the model of an algorithm: settle brings the state to a moment, and take, give and charge
// change it. Units that are given back or charged may be late, and their moment long over, where their
// application was killed.
func limitModel(a limitAlgorithm) porcupine.Model {
	return deterministic(func(s limitState, in, out any) (bool, limitState) {
		op, right := in.(limitIn), isUnknown(out)
		now := limitBegin.Milliseconds() + op.At
		if op.Op == "reset" {
			return true, limitState{}
		}
		switch {
		case op.Op == "refund":
			a.give(&s, op.Call, op.Cost, now)
			return true, s
		case op.Op == "spend" && op.Spent < op.Cost:
			a.give(&s, op.Call, op.Cost-op.Spent, now)
			return true, s
		case op.Op == "spend":
			a.charge(&s, op.Spent-op.Cost, now)
			return true, s
		}
		a.settle(&s, now)
		fits := a.left(s, now) >= int64(op.Cost)
		if fits && op.Op == "check" {
			a.take(&s, now, taken{call: int8(op.Call), cost: int8(op.Cost), at: now})
		}
		if !right {
			right = out.(limitOut) == limitOut{Allowed: fits, Left: max(a.left(s, now), 0)}
		}
		return right, s
	})
}

type limitAlgorithm struct {
	settle func(s *limitState, now int64)
	left   func(s limitState, now int64) int64
	take   func(s *limitState, now int64, t taken)
	give   func(s *limitState, call, units int, now int64)
	charge func(s *limitState, units int, now int64)
}

func giveUnits(s *limitState, call, units int, _ int64) {
	for i := range s.taken {
		if t := &s.taken[i]; t.at != 0 && int(t.call) == call {
			t.cost -= int8(units)
		}
	}
	s.drop(func(t taken) bool { return t.cost <= 0 })
}

// sliding: a unit counts for one window. Units of the future count as taken now: the clock was set back.
var sliding = limitAlgorithm{
	settle: func(s *limitState, now int64) {
		future := false
		for i, t := range s.taken {
			if t.at > now {
				s.taken[i].at, future = now, true
			}
		}
		if future {
			s.leave(now)
		}
	},
	left: func(s limitState, now int64) int64 {
		s.leave(now) // of a copy
		return limitMax - s.used()
	},
	take: func(s *limitState, now int64, t taken) {
		s.leave(now)
		s.put(t)
	},
	give: giveUnits,
	charge: func(s *limitState, units int, now int64) {
		s.put(taken{call: charged, cost: int8(units), at: s.newest(now)})
	},
}

// leave drops the units whose window is over.
func (s *limitState) leave(now int64) {
	s.drop(func(t taken) bool { return t.at+limitWindow.Milliseconds() <= now })
}

// fixed: units count from the first one on, for one window. One that begins in the future begins now.
var fixed = limitAlgorithm{
	settle: func(s *limitState, now int64) {
		s.begun = min(s.begun, now)
	},
	left: func(s limitState, now int64) int64 {
		if now >= s.begun+limitWindow.Milliseconds() {
			return limitMax
		}
		return limitMax - s.used()
	},
	take: func(s *limitState, now int64, t taken) {
		if now >= s.begun+limitWindow.Milliseconds() {
			*s = limitState{begun: now}
		}
		s.put(t)
	},
	give: func(s *limitState, call, units int, now int64) {
		if giveUnits(s, call, units, now); s.used() == 0 { // the next unit is the first one again
			*s = limitState{}
		}
	},
	charge: func(s *limitState, units int, now int64) {
		if now >= s.begun+limitWindow.Milliseconds() {
			*s = limitState{begun: now}
		}
		s.put(taken{call: charged, cost: int8(units), at: now})
	},
}

// bucket: a bucket that one unit flows into per part of the window. When its clock is set back, it is full
// as long after the units that were last taken as before.
const perUnit = int64(limitWindow / limitMax / time.Millisecond)

var bucket = limitAlgorithm{
	settle: func(s *limitState, now int64) {
		if s.last > now {
			s.full, s.last = s.full-s.last+now, now
		}
	},
	left: func(s limitState, now int64) int64 {
		return (limitMax*perUnit - max(s.full-now, 0)) / perUnit
	},
	take: func(s *limitState, now int64, t taken) {
		if s.full <= now { // full: nothing can be given back
			*s = limitState{full: now}
		}
		s.full += int64(t.cost) * perUnit
		s.last = now
		if slices.Contains(s.taken[:], taken{}) {
			s.put(t)
			return
		}
		copy(s.taken[:], s.taken[1:]) // a refund comes in the phase of its check, which has room
		s.taken[mostTaken-1] = t
	},
	give: func(s *limitState, call, units int, now int64) {
		for _, t := range s.taken {
			if int(t.call) == call && t.at != 0 && s.full > now {
				s.full -= int64(units) * perUnit
			}
		}
		if giveUnits(s, call, units, now); s.full <= now {
			*s = limitState{}
		}
	},
	charge: func(s *limitState, units int, now int64) {
		if s.full <= now {
			*s = limitState{full: now}
		}
		s.full += int64(units) * perUnit
		s.last = max(s.last, now)
	},
}

// limiter is what the three rate limits have in common.
type limiter interface {
	core.Guard
	Peek(ctx context.Context, a core.Attempt) (core.Decision, error)
	Refund(ctx context.Context, d core.Decision) error
	Spend(ctx context.Context, d core.Decision, actual int64) error
	Reset(ctx context.Context, a core.Attempt) error
}

func limits() []subject {
	subjectOf := func(name string, a limitAlgorithm, make func(e *core.Engine) limiter) subject {
		return subject{name: name, model: limitModel(a), single: true, timed: true, jumps: limitJumps,
			phases: 4, step: limitStep,
			open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
				var guards []limiter
				for _, e := range w.engines {
					guards = append(guards, make(e))
				}
				return func(*history) error { return nil }, func(c *caller, process int) {
					limitCall(t, c, guards[process])
				}
			}}
	}
	each := limit.Per(limitMax, limitWindow)
	return []subject{
		subjectOf("sliding window", sliding, func(e *core.Engine) limiter {
			return limit.NewSlidingWindow(e, "sliding", each)
		}),
		subjectOf("fixed window", fixed, func(e *core.Engine) limiter {
			return limit.NewFixedWindow(e, "fixed", each)
		}),
		subjectOf("token bucket", bucket, func(e *core.Engine) limiter {
			return limit.NewTokenBucket(e, "bucket", each)
		}),
	}
}

// limitCall makes a check, which it may give back or charge more for, or another call. A history has resets or
// refunds: units of one moment of the clock are alike, so a refund from before a reset may give back a later
// unit. Where a failover may lose checks there are no refunds: one of a lost check may give back units of
// others.
func limitCall(t *testing.T, c *caller, g limiter) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := limitIn{Op: "check", Call: n, Cost: 1 + c.rng.IntN(2), At: c.at}
	a := core.Attempt{Actor: c.name, Cost: int64(in.Cost)}
	var d core.Decision
	switch c.rng.IntN(16) {
	case 0:
		if c.seed%2 == 0 { // something is given back
			break
		}
		in.Op = "reset"
		c.do(in, func() (any, error) { return nil, g.Reset(t.Context(), a) })
		return
	case 1, 2:
		in.Op, in.Cost = "peek", 1
		c.do(in, func() (any, error) {
			d, err := g.Peek(t.Context(), a)
			return limitOut{d.Allowed, d.Remaining}, err
		})
		return
	}
	known := c.do(in, func() (_ any, err error) {
		d, err = g.Check(t.Context(), a)
		return limitOut{d.Allowed, d.Remaining}, err
	})
	if !known || !d.Allowed || c.seed%2 == 1 || c.world.loses || c.rng.IntN(2) == 0 {
		return
	}
	if c.rng.IntN(2) == 0 {
		in.Op = "refund"
		c.do(in, func() (any, error) { return nil, g.Refund(t.Context(), d) })
		return
	}
	in.Op, in.Spent = "spend", c.rng.IntN(5) // up to two units less than the estimate, or three more
	if in.Spent != in.Cost {
		c.do(in, func() (any, error) { return nil, g.Spend(t.Context(), d, int64(in.Spent)) })
	}
}
