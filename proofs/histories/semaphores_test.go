package histories

import (
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
)

const permitsMost = 4

type permitIn struct {
	Op   string // take, give, look
	Cost int64  // 1 or 2
	Call int
}

type permitOut struct {
	Allowed bool
	Reason  core.Reason
	Left    int64
	Held    int64
	Resent  bool
}

type permitState struct {
	held [3]set // calls that hold permits, by their cost
	dead set    // calls that were given back before they arrived
}

func (s *permitState) sum() int64 {
	return int64(bits.OnesCount64(uint64(s.held[1])) + 2*bits.OnesCount64(uint64(s.held[2])))
}

var permitModel = deterministic(func(s permitState, in, out any) (bool, permitState) {
	op, right := in.(permitIn), true
	answer, known := out.(permitOut)
	held := &s.held[op.Cost]
	switch op.Op {
	case "take":
		if s.dead.has(op.Call) { // too late
			return !known, s
		}
		reason := core.ReasonBusy
		if s.sum()+op.Cost <= permitsMost {
			reason, *held = core.ReasonOK, held.with(op.Call)
		}
		right = answer.Reason == reason && answer.Allowed == (reason == core.ReasonOK) &&
			(answer.Resent || answer.Left == permitsMost-s.sum())
	case "give":
		if !held.has(op.Call) {
			s.dead = s.dead.with(op.Call)
		}
		*held = held.without(op.Call)
	case "look":
		right = answer.Held == s.sum()
	}
	return right || !known, s
})

// semaphores have leases that outlast a history, and nobody waits: an attempt that waits is more than one
// call.
func semaphores() subject {
	return subject{name: "semaphore", model: permitModel, single: true,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*semaphore.Guard
			for _, e := range w.engines {
				o := semaphore.Options{Max: permitsMost, Lease: time.Hour}
				guards = append(guards, semaphore.New(e, "semaphore", o))
			}
			return func(*history) error { return nil }, func(c *caller, process int) {
				permitCall(t, c, guards[process])
			}
		}}
}

// permitCall takes permits, and mostly gives them back; or it asks how many are held.
func permitCall(t *testing.T, c *caller, g *semaphore.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := permitIn{Op: "take", Cost: 1 + c.rng.Int64N(2), Call: n}
	a := core.Attempt{Actor: fmt.Sprint("op ", n), Resource: c.name, Cost: in.Cost}
	if c.rng.IntN(6) == 0 {
		in.Op = "look"
		c.do(in, func() (any, error) {
			s, err := g.Peek(t.Context(), a)
			return permitOut{Held: s.Held}, err
		})
		return
	}
	var d core.Decision
	known := c.do(in, func() (_ any, err error) {
		d, err = g.Check(t.Context(), a)
		return permitOut{Allowed: d.Allowed, Reason: d.Reason, Left: d.Remaining, Resent: c.resends}, err
	})
	give := in
	give.Op = "give"
	switch {
	case !known:
		c.later(give)
	case d.Allowed && c.rng.IntN(8) > 0:
		c.do(give, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Commit) })
	}
}
