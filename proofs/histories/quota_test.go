package histories

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
)

const (
	quotaItems  = 6
	quotaMost   = 3
	quotaShared = 8 // calls that an item remembers; one that more share stays
)

type quotaIn struct {
	Op   string // take, undo, used
	Day  int    // of the clock, since the year 1970
	Item int
	ID   int // the number of the call that used it first
	Call int
}

type quotaOut struct {
	Allowed bool
	Reason  core.Reason
	Replay  bool
	Left    int64
	Items   set
	Resent  bool
}

// quotaItem is an item that is taken.
type quotaItem struct {
	calls  set // those that were told of it, as far as they are remembered
	again  set // those of calls whose operation was told that the item was known
	stays  bool
	ofCall [most]int8 // the ID of each of calls
}

type quotaState struct {
	items [quotaItems]quotaItem
	dead  set // calls that were undone before they arrived
}

func (s *quotaState) used() (items set) {
	for i, item := range s.items {
		if item.calls != 0 {
			items = items.with(i)
		}
	}
	return items
}

// take takes an item. The answer to another call with the same ID is a replay.
func (s *quotaState) take(in quotaIn) (reason core.Reason, replay bool) {
	item := &s.items[in.Item]
	reason = core.ReasonAgain
	switch {
	case item.calls == 0 && bits.OnesCount64(uint64(s.used())) >= quotaMost:
		return core.ReasonQuota, false
	case item.calls == 0:
		reason = core.ReasonOK
	}
	for call := range most {
		if item.calls.has(call) && int(item.ofCall[call]) == in.ID {
			replay = true
			if !item.again.has(call) {
				reason = core.ReasonOK
			}
		}
	}
	if bits.OnesCount64(uint64(item.calls)) >= quotaShared {
		item.stays = true
		return reason, replay
	}
	item.calls, item.ofCall[in.Call] = item.calls.with(in.Call), int8(in.ID)
	if reason == core.ReasonAgain {
		item.again = item.again.with(in.Call)
	}
	return reason, replay
}

func (s *quotaState) undo(in quotaIn) {
	item := &s.items[in.Item]
	switch {
	case !item.calls.has(in.Call):
		s.dead = s.dead.with(in.Call)
	case item.stays:
	default:
		item.calls, item.again, item.ofCall[in.Call] = item.calls.without(in.Call), item.again.without(in.Call), 0
	}
}

// byDay splits a history by days, which share nothing.
func byDay(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
	days := map[int]int{}
	for _, op := range ops {
		day := op.Input.(quotaIn).Day
		if _, known := days[day]; !known {
			days[day], parts = len(parts), append(parts, nil)
		}
		parts[days[day]] = append(parts[days[day]], op)
	}
	return parts
}

var quotaModel = partitioned(byDay, func(s quotaState, in, out any) (bool, quotaState) {
	op, right := in.(quotaIn), true
	answer, known := out.(quotaOut)
	switch op.Op {
	case "take":
		if s.dead.has(op.Call) { // too late
			return !known, s
		}
		reason, replay := s.take(op)
		right = answer.Reason == reason && answer.Replay == replay &&
			answer.Allowed == (reason != core.ReasonQuota) &&
			(answer.Resent || answer.Left == int64(quotaMost-bits.OnesCount64(uint64(s.used()))))
	case "undo":
		s.undo(op)
	case "used":
		right = answer.Items == s.used()
	}
	return right || !known, s
})

func quotas() subject {
	return subject{name: "quota", model: quotaModel, single: true, timed: true,
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

// quotaCall takes an item, and may ask again or give it back; or it lists what is used. In one history of
// four all callers share an item: they take it several times, and then give most of that back.
func quotaCall(t *testing.T, c *caller, g *quota.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	shared := c.seed%4 == 0
	now := c.base.Add(time.Duration(c.at) * time.Millisecond)
	in := quotaIn{Op: "take", Day: int(now.UnixMilli() / day.Milliseconds()), Item: c.rng.IntN(quotaItems),
		ID: n, Call: n}
	if shared {
		in.Item = 0
	}
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
	for tries := 1; ; tries++ {
		var d core.Decision
		known := c.do(in, func() (_ any, err error) {
			d, err = g.Check(t.Context(), a)
			return quotaOut{Allowed: d.Allowed, Reason: d.Reason, Replay: d.Replayed, Left: d.Remaining,
				Resent: c.resends}, err
		})
		undo := in
		undo.Op = "undo"
		giveBack := func() {
			c.do(undo, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Rollback) })
		}
		switch {
		case !known:
			c.later(undo)
		case !d.Allowed:
			c.sentTwice(in, undo)
		case d.Allowed && shared && c.rng.IntN(8) > 0:
			defer giveBack()
		case d.Allowed && !shared && c.rng.IntN(2) == 0:
			giveBack()
		}
		last := known && c.rng.IntN(2) == 0 || c.rng.IntN(4) == 0
		if n, ok = c.next(); !ok || !shared && last || shared && tries == 4 {
			return
		}
		in.Call = n // asks again, with the same ID
		c.world.healthy()
	}
}
