package histories

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
)

const strikesMost = 5

type banIn struct{ Op string } // strike, ban, status

type banOut struct {
	Banned  bool
	Strikes int64
}

type banState struct {
	banned  bool
	strikes int64
}

// banModel: strikes count one by one, and one more than there may be bans. During a ban none counts.
var banModel = deterministic(func(s banState, in, out any) (bool, banState) {
	right := banOut{}
	switch in.(banIn).Op {
	case "strike":
		if s.banned {
			break
		}
		s.strikes++
		if s.strikes > strikesMost {
			s, right.Banned = banState{banned: true}, true
		}
	case "ban":
		s = banState{banned: true}
	case "status":
		right = banOut{Banned: s.banned, Strikes: s.strikes}
	}
	return isUnknown(out) || out == right, s
})

func banned() subject {
	return subject{name: "bans", model: banModel, single: true,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*bans.Guard
			for _, e := range w.engines {
				guards = append(guards, bans.New(e, "bans", bans.Options{Refusals: strikesMost, First: time.Hour}))
			}
			return func(*history) error { return nil }, func(c *caller, process int) { banCall(t, c, guards[process]) }
		}}
}

// banCall strikes, asks for the state, or bans. A history with many callers reaches the ban soon, so half of
// the calls only look.
func banCall(t *testing.T, c *caller, g *bans.Guard) {
	if _, ok := c.next(); !ok {
		return
	}
	a := core.Attempt{Actor: c.name}
	switch n := c.rng.IntN(32); {
	case n == 0:
		c.do(banIn{"ban"}, func() (any, error) { return banOut{}, g.Ban(t.Context(), a, time.Hour) })
	case n < 16:
		c.do(banIn{"status"}, func() (any, error) {
			s, err := g.Status(t.Context(), a)
			return banOut{Banned: s.Left > 0, Strikes: s.Strikes}, err
		})
	default:
		c.do(banIn{"strike"}, func() (any, error) {
			is, err := g.Strike(t.Context(), a)
			return banOut{Banned: is}, err
		})
	}
}
