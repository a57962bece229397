package histories

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	salebuckets "github.com/gatehouse-go/gatehouse/core/seckill/buckets"
)

const (
	saleStock   = 8
	saleBuyers  = 5
	perBuyer    = 3
	saleBuckets = 2
	saleHold    = 10 * time.Second
	saleStep    = 11 * time.Second // the clock between two phases: every hold ends
	saleCloses  = 25 * time.Second // after the opening; only a clock that jumps gets there
)

// saleIn is a call of a sale. IDs are the numbers of the calls that used them first.
type saleIn struct {
	Op    string // reserve, undo, confirm, cancel, sweep, status
	Buyer int
	Units int64
	ID    int
	Call  int   // of reserve and undo: the call that was made, and that is undone
	At    int64 // milliseconds of the clock since the sale was opened
}

type saleOut struct {
	Reason           core.Reason
	Replayed, Kept   bool
	Resent           bool // the call may have been sent again: then the figures are those of a later moment
	Left, Held, Sold int64
}

type reservation struct {
	state saleStateOf
	buyer uint8
	units int8
	maker int8 // the call that made the hold; the others got a replay
	ends  int32
	calls set // those that were told of it
}

type saleStateOf uint8

const (
	unknownID saleStateOf = iota
	held
	sold
	expired
	cancelled // also by an undo, or before it arrived
)

type saleState struct {
	reservations [most]reservation
	// dead are calls that were taken back, by the buckets of their buyers: they hold nothing when they arrive
	// later.
	dead [saleBuckets]set
	// drifted: a failover may have lost one half of a loan between buckets. Then nobody knows how many units
	// there are: those that are on their way, at most all, may be there twice or not at all.
	drifted bool
}

// homes are the buckets of the buyers, which core/seckill says never change.
var homes = func() (all [saleBuyers]int) {
	for buyer := range all {
		sum := sha256.Sum256([]byte(fmt.Sprint("buyer ", buyer)))
		all[buyer] = int(binary.BigEndian.Uint64(sum[:8]) % saleBuckets)
	}
	return all
}()

func (s *saleState) figures() (left, isHeld, isSold int64) {
	for _, r := range s.reservations {
		switch r.state {
		case held:
			isHeld += int64(r.units)
		case sold:
			isSold += int64(r.units)
		case unknownID, expired, cancelled:
		}
	}
	return s.stock() - isHeld - isSold, isHeld, isSold
}

// stock is how many units there are at most.
func (s *saleState) stock() int64 {
	if s.drifted {
		return 2 * saleStock
	}
	return saleStock
}

// afterFailover is the state of a sale of several buckets, of which the first, or all together, are back at
// an earlier moment.
func (s saleState) afterFailover(earlier saleState, all bool) saleState {
	if all {
		earlier.drifted = true
		return earlier
	}
	for i, r := range earlier.reservations {
		if now := s.reservations[i]; now.state != unknownID && homes[now.buyer] == 0 {
			s.reservations[i] = r
		}
	}
	s.dead[0], s.drifted = earlier.dead[0], true
	return s
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
func (s *saleState) reclaim(at int64) {
	for i, r := range s.reservations {
		if r.state == held && int64(r.ends) <= at {
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

// reserve returns the reason, and whether the answer is a replay.
func (s *saleState) reserve(in saleIn) (reason core.Reason, replayed bool) {
	r, buyer := &s.reservations[in.ID], uint8(in.Buyer)
	switch {
	case r.state == unknownID:
	case r.buyer != buyer || r.state != cancelled && int64(r.units) != in.Units:
		return core.ReasonConflict, false
	case r.state == sold || r.state == held && int64(r.ends) > in.At:
		if r.state == held {
			r.calls = r.calls.with(in.Call)
		}
		return core.ReasonOK, int(r.maker) != in.Call
	case r.state == held:
		r.state = expired
	}
	switch {
	case in.At < 0:
		return core.ReasonEarly, false
	case in.At >= saleCloses.Milliseconds():
		return core.ReasonClosed, false
	}
	if reason = s.refused(buyer, in.Units); reason != "" {
		s.reclaim(in.At)
		reason = s.refused(buyer, in.Units)
	}
	if reason != "" {
		return reason, false
	}
	*r = reservation{
		state: held, buyer: buyer, units: int8(in.Units), maker: int8(in.Call),
		ends: int32(in.At + saleHold.Milliseconds()), calls: set(0).with(in.Call),
	}
	return core.ReasonOK, false
}

// undo takes back a reservation for a call. A call that arrives after its undo holds nothing, and the ID is
// the buyer's from then on.
func (s *saleState) undo(in saleIn) {
	r := &s.reservations[in.ID]
	switch {
	case r.state == unknownID:
		*r = reservation{state: cancelled, buyer: uint8(in.Buyer)}
	case r.buyer != uint8(in.Buyer) || r.state == sold:
		return
	case r.state == held && r.calls == set(0).with(in.Call):
		r.state = cancelled
	}
	r.calls = r.calls.without(in.Call)
	dead := &s.dead[homes[in.Buyer]]
	*dead = dead.with(in.Call)
}

// confirm sells what is held. An expired reservation is sold while there are units for it. In a sale of
// several buckets, units that others still hold in vain are looked for first.
func (s *saleState) confirm(in saleIn, buckets bool) core.Reason {
	r := &s.reservations[in.ID]
	switch {
	case r.state == unknownID, r.buyer != uint8(in.Buyer), r.state == cancelled:
		return core.ReasonGone
	case r.state == expired:
		if buckets && s.refused(r.buyer, int64(r.units)) != "" {
			s.reclaim(in.At)
		}
		if s.refused(r.buyer, int64(r.units)) != "" {
			return core.ReasonGone
		}
	}
	r.state = sold
	return core.ReasonOK
}

// cancel gives back by name, once. What has expired stays as it is, so that it can be confirmed while there
// are units for it.
func (s *saleState) cancel(in saleIn) core.Reason {
	r := &s.reservations[in.ID]
	switch {
	case r.state == unknownID, r.buyer != uint8(in.Buyer):
	case r.state == sold:
		return core.ReasonConflict
	case r.state == held:
		s.dead[homes[r.buyer]] |= r.calls
		r.state, r.calls = cancelled, 0
	}
	return core.ReasonOK
}

// lapsed returns what else an undo or a cancel may find in a sale of several buckets, where a call takes back
// the holds that have ended in the buckets that it asks, and the model those in all: a hold that has ended is
// held or expired. Nothing else depends on it.
func (s saleState) lapsed(in saleIn) []saleState {
	other, r := s, s.reservations[in.ID]
	switch {
	case int64(r.ends) > in.At:
		return []saleState{s}
	case r.state == held:
		other.reservations[in.ID].state = expired
	case r.state == expired:
		other.reservations[in.ID].state = held
	default:
		return []saleState{s}
	}
	return []saleState{s, other}
}

// saleModel is the model of a sale. In one of several buckets nobody hears what is left in all of them at one
// moment: Check counts what is left in the buyer's bucket, and Status reads the buckets one after the other.
func saleModel(buckets bool) porcupine.Model {
	return nondeterministic(func(s saleState, in, out any) []saleState {
		op := in.(saleIn)
		answer, known := out.(saleOut)
		from := []saleState{s}
		if buckets && (op.Op == "undo" || op.Op == "cancel") {
			from = s.lapsed(op)
		}
		next := from[:0]
		for _, s := range from {
			if right := s.step(op, answer, buckets); right || !known {
				next = append(next, s)
			}
		}
		return next
	})
}

// step makes a call and reports whether the answer is right.
func (s *saleState) step(op saleIn, answer saleOut, buckets bool) bool {
	left, isHeld, isSold := s.figures()
	switch op.Op {
	case "reserve":
		if s.dead[homes[op.Buyer]].has(op.Call) { // too late
			return false
		}
		before := *s
		reason, replayed := s.reserve(op)
		if s.drifted && answer.Reason == core.ReasonSoldOut && reason == core.ReasonOK && !replayed {
			*s = before
			return !answer.Replayed && !answer.Kept
		}
		left, _, _ = s.figures()
		if buckets && reason == core.ReasonDuplicate && answer.Reason == core.ReasonSoldOut && left < op.Units {
			reason = core.ReasonSoldOut // another attempt of the buyer came between asking the first bucket and all
		}
		return answer.Reason == reason && answer.Replayed == replayed &&
			answer.Kept == (replayed && s.reservations[op.ID].state == sold) &&
			(answer.Resent || buckets || answer.Left == left)
	case "undo":
		s.undo(op)
	case "confirm":
		return answer.Reason == s.confirm(op, buckets)
	case "cancel":
		return answer.Reason == s.cancel(op)
	case "sweep":
		s.reclaim(op.At)
	case "status":
		if sum := answer.Left + answer.Held + answer.Sold; buckets {
			return sum == saleStock || s.drifted && sum >= 0 && sum <= s.stock()
		}
		return answer.Left == left && answer.Held == isHeld && answer.Sold == isSold
	}
	return true
}

// saleGuard is a guard of sales in one slot, or of sales of several buckets.
type saleGuard interface {
	core.Guard
	Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	Confirm(ctx context.Context, a core.Attempt) (core.Decision, error)
	Cancel(ctx context.Context, a core.Attempt) (core.Decision, error)
	Sweep(ctx context.Context, item string) (int, error)
	Status(ctx context.Context, item string) (seckill.Status, error)
}

func sales() []subject {
	subjectOf := func(name string, buckets int) subject {
		return subject{name: name, model: saleModel(buckets > 1), single: buckets == 1, timed: true, phases: 2,
			step: saleStep, buckets: buckets > 1,
			open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
				var guards []saleGuard
				for _, e := range w.engines {
					if buckets == 1 {
						guards = append(guards, seckill.New(e, "sale-1", seckill.Options{}))
						continue
					}
					guards = append(guards, salebuckets.New(e, fmt.Sprint("sale-", buckets),
						salebuckets.Options{Buckets: buckets}))
				}
				begin := func(h *history) error {
					sale := seckill.Sale{Stock: saleStock, PerBuyer: perBuyer, Hold: saleHold,
						Opens: h.base, Closes: h.base.Add(saleCloses)}
					for _, g := range guards {
						if _, err := g.Open(t.Context(), h.name, sale); err != nil {
							return err
						}
					}
					return nil
				}
				return begin, func(c *caller, process int) { saleCall(t, c, guards[process], buckets) }
			}}
	}
	return []subject{subjectOf("sale", 1), subjectOf("sale of buckets", saleBuckets)}
}

// saleCall reserves, and confirms, cancels or leaves it, by settling or by name; or it makes another call.
func saleCall(t *testing.T, c *caller, g saleGuard, buckets int) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := saleIn{Op: "reserve", Buyer: n % saleBuyers, Units: 1 + c.rng.Int64N(2), ID: n, Call: n, At: c.at}
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
	case 2, 3:
		// Somebody else has taken the ID, or is about to. With several buckets each has IDs of its own. Buyers
		// differ, and no client sends again, so that a call that is told of a hold is alone with it until it
		// has its answer.
		if other := c.rng.IntN(n + 1); buckets == 1 && !c.resends && other%saleBuyers != in.Buyer {
			in.ID = other
		}
	}
	a := core.Attempt{Actor: fmt.Sprint("buyer ", in.Buyer), Resource: c.name, Cost: in.Units,
		ID: fmt.Sprint("op ", in.ID)}
	for {
		var d core.Decision
		known := c.do(in, func() (_ any, err error) {
			d, err = g.Check(t.Context(), a)
			return saleOut{Reason: d.Reason, Replayed: d.Replayed, Kept: d.Kept, Left: d.Remaining,
				Resent: c.resends}, err
		})
		next, undo := in, in
		if undo.Op = "undo"; known && !d.Allowed {
			c.sentTwice(in, undo)
		}
		switch {
		case !known:
			c.later(undo)
		case d.Allowed, d.Reason == core.ReasonConflict:
			for range 1 + c.rng.IntN(4)/3 {
				saleEnd(t, c, g, d, next)
			}
		}
		if n, ok = c.next(); !ok || known && c.rng.IntN(4) > 0 || c.rng.IntN(4) == 0 {
			return
		}
		in.Call = n // asks again, with the same ID
		c.world.healthy()
	}
}

// saleEnd ends a reservation, or leaves it. Who could not reserve tries it too.
func saleEnd(t *testing.T, c *caller, g saleGuard, d core.Decision, in saleIn) {
	byName := func(end func(context.Context, core.Attempt) (core.Decision, error)) func() (any, error) {
		return func() (any, error) {
			d, err := end(t.Context(), d.Attempt)
			return saleOut{Reason: d.Reason}, err
		}
	}
	kind := c.rng.IntN(5)
	switch {
	case kind == 0 && d.Allowed:
		in.Op = "undo"
		c.do(in, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Rollback) })
	case kind == 1:
		in.Op = "cancel"
		c.do(in, byName(g.Cancel))
	case kind == 2 || kind == 3:
		in.Op = "confirm"
		c.do(in, byName(g.Confirm))
	}
}
