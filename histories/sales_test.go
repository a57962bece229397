package histories

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

const (
	saleStock  = 8
	saleBuyers = 5
	perBuyer   = 3
	saleHold   = 10 * time.Second
	saleStep   = 11 * time.Second // the clock between two phases: every hold ends
)

// saleIn is a call of a sale. IDs are the numbers of the calls that used them first.
type saleIn struct {
	Op    string // reserve, undo, confirm, cancel, sweep, status
	Buyer int
	Units int64
	ID    int
	Call  int   // of reserve and undo: the call that was made, and that is undone
	Phase uint8 // of the clock
}

type saleOut struct {
	Reason           core.Reason
	Resent           bool // the call may have been sent again: then the figures are those of a later moment
	Left, Held, Sold int64
}

type reservation struct {
	state saleStateOf
	buyer uint8
	units int8
	phase uint8 // of the hold
	calls set   // those that were told of it
}

type saleStateOf uint8

const (
	unknownID saleStateOf = iota
	held
	sold
	expired
	cancelled // by name
)

type saleState struct {
	reservations [most]reservation
	dead         set // calls that were undone before they arrived, where that leaves a tombstone
}

func (s *saleState) figures() (left, isHeld, isSold int64) {
	for _, r := range s.reservations {
		switch r.state {
		case held:
			isHeld += int64(r.units)
		case sold:
			isSold += int64(r.units)
		}
	}
	return saleStock - isHeld - isSold, isHeld, isSold
}

func (s *saleState) of(buyer uint8) (units int64) {
	for _, r := range s.reservations {
		if r.buyer == buyer && (r.state == held || r.state == sold) {
			units += int64(r.units)
		}
	}
	return units
}

// reclaim returns the units of holds that have ended.
func (s *saleState) reclaim(phase uint8) {
	for i, r := range s.reservations {
		if r.state == held && r.phase < phase {
			s.reservations[i].state = expired
		}
	}
}

func (s *saleState) refused(buyer uint8, units int64) core.Reason {
	left, _, _ := s.figures()
	switch {
	case s.of(buyer)+units > perBuyer:
		return core.ReasonDuplicate
	case left < units:
		return core.ReasonSoldOut
	}
	return ""
}

func (s *saleState) reserve(in saleIn) core.Reason {
	r := &s.reservations[in.ID]
	if r.state == held && r.phase < in.Phase {
		r.state = expired
	}
	switch r.state {
	case sold:
		return core.ReasonOK
	case held:
		r.calls = r.calls.with(in.Call)
		return core.ReasonOK
	}
	buyer := uint8(in.Buyer)
	reason := s.refused(buyer, in.Units)
	if reason != "" {
		s.reclaim(in.Phase)
		reason = s.refused(buyer, in.Units)
	}
	if reason == "" {
		*r = reservation{
			state: held, buyer: buyer, units: int8(in.Units), phase: in.Phase, calls: set(0).with(in.Call),
		}
		return core.ReasonOK
	}
	return reason
}

// undo takes back a reservation for a call. A call that arrives after its undo may hold units or not:
// docs/contracts.md, Not kept yet, "A reservation that arrives after its cancel holds nothing".
func (s saleState) undo(in saleIn) []saleState {
	r := &s.reservations[in.ID]
	switch {
	case r.state != held || !r.calls.has(in.Call):
		dead := s
		dead.dead = s.dead.with(in.Call)
		return []saleState{s, dead}
	case r.calls == set(0).with(in.Call):
		*r = reservation{}
	default:
		r.calls = r.calls.without(in.Call)
	}
	return []saleState{s}
}

// confirm sells what is held. An expired reservation is sold while there are units for it.
func (s *saleState) confirm(in saleIn) core.Reason {
	r := &s.reservations[in.ID]
	switch r.state {
	case held, sold:
	case expired:
		if s.refused(r.buyer, int64(r.units)) != "" {
			s.reclaim(in.Phase)
		}
		if s.refused(r.buyer, int64(r.units)) != "" {
			return core.ReasonGone
		}
	default:
		return core.ReasonGone
	}
	r.state = sold
	return core.ReasonOK
}

// cancel gives back by name. An expired reservation may stay so that it can be confirmed, or is cancelled.
func (s saleState) cancel(in saleIn) (core.Reason, []saleState) {
	r := &s.reservations[in.ID]
	switch r.state {
	case sold:
		return core.ReasonConflict, []saleState{s}
	case held:
		r.state = cancelled
		return core.ReasonOK, []saleState{s}
	}
	other := s
	r.state = cancelled
	return core.ReasonOK, []saleState{s, other}
}

// reuse is a reservation under the ID of a cancelled one. It is made, or refused in some way:
// docs/contracts.md, Not kept yet, "An ID belongs to one buyer for ever".
func (s saleState) reuse(in saleIn, answer saleOut, known bool) (next []saleState) {
	if !known || answer.Reason != core.ReasonOK {
		next = append(next, s)
	}
	if again := s; again.reserve(in) == core.ReasonOK && (!known || answer.Reason == core.ReasonOK) {
		next = append(next, again)
	}
	return next
}

var saleModel = nondeterministic(nil, func(s saleState, in, out any) []saleState {
	op, right := in.(saleIn), true
	answer, known := out.(saleOut)
	next := []saleState{s}
	switch op.Op {
	case "reserve":
		switch {
		case s.dead.has(op.Call): // too late
			return next
		case s.reservations[op.ID].state == cancelled:
			return s.reuse(op, answer, known)
		}
		right = answer.Reason == next[0].reserve(op)
		left, _, _ := next[0].figures()
		right = right && (answer.Resent || answer.Left == left)
	case "undo":
		next = s.undo(op)
	case "confirm":
		right = answer.Reason == next[0].confirm(op)
	case "cancel":
		var reason core.Reason
		reason, next = s.cancel(op)
		right = answer.Reason == reason
	case "sweep":
		next[0].reclaim(op.Phase)
	case "status":
		left, isHeld, isSold := s.figures()
		right = answer.Left == left && answer.Held == isHeld && answer.Sold == isSold
	}
	if known && !right {
		return nil
	}
	return next
})

func oneSale() subject {
	sale := seckill.Sale{Stock: saleStock, PerBuyer: perBuyer, Hold: saleHold}
	return subject{name: "sale", model: saleModel, single: true, phases: 2, step: saleStep,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*seckill.Guard
			for _, e := range w.engines {
				guards = append(guards, seckill.New(e, "sale", seckill.Options{}))
			}
			begin := func(h *history) error {
				for _, g := range guards {
					if _, err := g.Open(t.Context(), h.name, sale); err != nil {
						return err
					}
				}
				return nil
			}
			return begin, func(c *caller, process int) { saleCall(t, c, guards[process]) }
		}}
}

// saleCall reserves, and confirms, cancels or leaves it, by settling or by name; or it makes another call.
func saleCall(t *testing.T, c *caller, g *seckill.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := saleIn{Op: "reserve", Buyer: c.rng.IntN(saleBuyers), Units: 1 + c.rng.Int64N(2), ID: n, Call: n,
		Phase: uint8(c.phase)}
	id := fmt.Sprint("op ", n)
	a := core.Attempt{Actor: fmt.Sprint("buyer ", in.Buyer), Resource: c.name, Cost: in.Units, ID: id}
	switch c.rng.IntN(12) {
	case 0:
		in.Op = "status"
		c.do(in, func() (any, error) {
			s, err := g.Status(t.Context(), c.name)
			return saleOut{Left: s.Left, Held: s.Held, Sold: s.Sold}, err
		})
		return
	case 1:
		in.Op = "sweep"
		c.do(in, func() (any, error) {
			_, err := g.Sweep(t.Context(), c.name)
			return nil, err
		})
		return
	}
	for {
		var d core.Decision
		known := c.do(in, func() (_ any, err error) {
			d, err = g.Check(t.Context(), a)
			return saleOut{Reason: d.Reason, Left: d.Remaining, Resent: c.resends}, err
		})
		next := in
		if !known {
			next.Op = "undo"
			c.later(next)
		} else if d.Allowed {
			saleEnd(t, c, g, d, next)
		}
		if n, ok = c.next(); !ok || known && c.rng.IntN(4) > 0 || c.rng.IntN(4) == 0 {
			return
		}
		in.Call = n // asks again, with the same ID
		c.world.healthy()
	}
}

// saleEnd ends a reservation, or leaves it.
func saleEnd(t *testing.T, c *caller, g *seckill.Guard, d core.Decision, in saleIn) {
	byName := func(f func() (core.Decision, error)) func() (any, error) {
		return func() (any, error) {
			d, err := f()
			return saleOut{Reason: d.Reason}, err
		}
	}
	switch c.rng.IntN(5) {
	case 0:
		in.Op = "undo"
		c.do(in, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Rollback) })
	case 1:
		in.Op = "cancel"
		c.do(in, byName(func() (core.Decision, error) { return g.Cancel(t.Context(), c.name, d.Attempt.ID) }))
	case 2, 3:
		in.Op = "confirm"
		c.do(in, byName(func() (core.Decision, error) { return g.Confirm(t.Context(), c.name, d.Attempt.ID) }))
	}
}
