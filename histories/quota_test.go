package histories

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
)

const (
	quotaItems  = 6
	quotaMost   = 3
	quotaShared = 8 // calls by which an item can still be taken back
)

type quotaIn struct {
	Op   string // take, undo, used
	Item int
	Call int
}

type quotaOut struct {
	Allowed bool
	Reason  core.Reason
	Left    int64
	Items   set
	Resent  bool
}

// sticks marks an item that can no longer be taken back.
const sticks = most + 1

type quotaState struct {
	items [quotaItems]set // the calls that were told of it
	dead  set             // calls that were undone before they arrived
}

func (s *quotaState) used() (items set) {
	for i, calls := range s.items {
		if calls != 0 {
			items = items.with(i)
		}
	}
	return items
}

// take takes an item. One that more than eight calls share may stay for good: docs/contracts.md, Not kept
// yet, "Who is told yes is counted, however many tries share one ID".
func (s quotaState) take(in quotaIn, answer quotaOut, known bool) []quotaState {
	calls := &s.items[in.Item]
	isNew := *calls == 0
	allowed := !isNew || bits.OnesCount64(uint64(s.used())) < quotaMost
	if allowed {
		*calls = calls.with(in.Call)
	}
	right := answer.Allowed == allowed && (!isNew || answer.Resent || answer.Reason != core.ReasonAgain) &&
		(answer.Resent || answer.Left == int64(quotaMost-bits.OnesCount64(uint64(s.used()))))
	if known && !right {
		return nil
	}
	if bits.OnesCount64(uint64(*calls)) > quotaShared {
		kept := s
		kept.items[in.Item] = calls.with(sticks)
		return []quotaState{s, kept}
	}
	return []quotaState{s}
}

func (s quotaState) undo(in quotaIn) quotaState {
	if calls := &s.items[in.Item]; calls.has(in.Call) {
		*calls = calls.without(in.Call)
	} else {
		s.dead = s.dead.with(in.Call)
	}
	return s
}

var quotaModel = nondeterministic(nil, func(s quotaState, in, out any) []quotaState {
	op := in.(quotaIn)
	answer, known := out.(quotaOut)
	switch op.Op {
	case "take":
		if s.dead.has(op.Call) { // too late
			return []quotaState{s}
		}
		return s.take(op, answer, known)
	case "undo":
		return []quotaState{s.undo(op)}
	}
	if known && answer.Items != s.used() {
		return nil
	}
	return []quotaState{s}
})

func quotas() subject {
	return subject{name: "quota", model: quotaModel, single: true,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*quota.Guard
			for _, e := range w.engines {
				o := quota.Options{Items: quotaMost, Period: period.Daily(time.UTC)}
				guards = append(guards, quota.New(e, "quota", o))
			}
			return func(*history) error { return nil }, func(c *caller, process int) {
				quotaCall(t, c, guards[process])
			}
		}}
}

// quotaCall takes an item, and may ask again or give it back; or it lists what is used.
func quotaCall(t *testing.T, c *caller, g *quota.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := quotaIn{Op: "take", Item: c.rng.IntN(quotaItems), Call: n}
	a := core.Attempt{Actor: c.name, Item: fmt.Sprint("item ", in.Item), ID: fmt.Sprint("op ", n)}
	if c.rng.IntN(8) == 0 {
		in.Op = "used"
		c.do(in, func() (any, error) {
			items, _, err := g.Used(t.Context(), a)
			var out quotaOut
			for _, item := range items {
				out.Items = out.Items.with(int(strings.TrimPrefix(item, "item ")[0] - '0'))
			}
			return out, err
		})
		return
	}
	for {
		var d core.Decision
		known := c.do(in, func() (_ any, err error) {
			d, err = g.Check(t.Context(), a)
			return quotaOut{Allowed: d.Allowed, Reason: d.Reason, Left: d.Remaining, Resent: c.resends}, err
		})
		undo := in
		undo.Op = "undo"
		if !known {
			c.later(undo)
		} else if d.Allowed && c.rng.IntN(2) == 0 {
			c.do(undo, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Rollback) })
		}
		if n, ok = c.next(); !ok || known && c.rng.IntN(2) == 0 || c.rng.IntN(4) == 0 {
			return
		}
		in.Call = n // asks again, with the same ID
		c.world.healthy()
	}
}
