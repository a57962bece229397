package histories

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
)

const (
	strikesMost  = 4
	strikePeriod = 30 * time.Minute
	firstBan     = 15 * time.Minute
	longestBan   = 45 * time.Minute
	banDecay     = 80 * time.Minute
	banByHand    = 45 * time.Minute
)

type banIn struct {
	Op string // strike, ban, status
	At int64  // milliseconds of the clock since the begin of the history
}

type banOut struct {
	Banned         bool
	Strikes, Level int64
	Left           time.Duration
}

// banState is an actor. Moments are in milliseconds of the clock since the begin of the history.
type banState struct {
	banned        bool // once
	begin, finish int64
	level         int64 // of the next ban, when the last one ends
	strikes       [strikesMost]int64
	count         int8 // of strikes
}

// banModel: strikes in a period count one by one, and one more than there may be bans, for twice as long each
// time. During a ban none counts. When the clock is set back, a ban that is in its future begins again, and
// strikes that are count no more.
var banModel = deterministic(func(s banState, in, out any) (bool, banState) {
	op, right := in.(banIn), banOut{}
	left, level := s.settle(op.At)
	switch op.Op {
	case "strike":
		right.Banned = left == 0 && s.strike(op.At, level)
	case "ban":
		s.ban(op.At, banByHand, level)
	case "status":
		right = banOut{Banned: left > 0, Level: level, Left: time.Duration(left) * time.Millisecond}
		for _, at := range s.strikes[:s.count] {
			if at <= op.At && op.At-at < strikePeriod.Milliseconds() {
				right.Strikes++
			}
		}
	}
	return isUnknown(out) || out == right, s
})

// settle returns how long the ban lasts, and the level of the next one.
func (s *banState) settle(now int64) (left, level int64) {
	switch {
	case !s.banned:
		return 0, 0
	case s.begin > now:
		s.begin, s.finish = now, now+s.finish-s.begin
	case s.finish <= now:
		return 0, max(s.level-(now-s.finish)/banDecay.Milliseconds(), 0)
	}
	return s.finish - now, s.level
}

func (s *banState) ban(now int64, length time.Duration, level int64) {
	*s = banState{banned: true, begin: now, finish: now + length.Milliseconds(), level: level}
}

// strike counts a strike, or bans.
func (s *banState) strike(now, level int64) (banned bool) {
	switch n := s.count; {
	case n > 0 && s.strikes[n-1] > now:
		s.strikes, s.count = [strikesMost]int64{now}, 1
	case n < strikesMost:
		s.strikes[n] = now
		s.count++
	case now-s.strikes[0] >= strikePeriod.Milliseconds():
		copy(s.strikes[:], s.strikes[1:])
		s.strikes[n-1] = now
	default:
		length := min(firstBan<<level, longestBan)
		if length < longestBan {
			level++
		}
		s.ban(now, length, level)
		return true
	}
	return false
}

func banned() subject {
	return subject{name: "bans", model: banModel, single: true, timed: true, jumps: 240,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*bans.Guard
			for _, e := range w.engines {
				guards = append(guards, bans.New(e, "bans", bans.Options{Refusals: strikesMost, Period: strikePeriod,
					First: firstBan, Longest: longestBan, Decay: banDecay}))
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
		c.do(banIn{"ban", c.at}, func() (any, error) { return banOut{}, g.Ban(t.Context(), a, banByHand) })
	case n < 16:
		c.do(banIn{"status", c.at}, func() (any, error) {
			s, err := g.Status(t.Context(), a)
			return banOut{Banned: s.Left > 0, Strikes: s.Strikes, Level: s.Level, Left: s.Left}, err
		})
	default:
		c.do(banIn{"strike", c.at}, func() (any, error) {
			is, err := g.Strike(t.Context(), a)
			return banOut{Banned: is}, err
		})
	}
}
