package limit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// This file defines what a sliding window may admit while its limits change: two releases in turn, tiers, a
// limit that gains a resolution.

// definition is what a sliding window may admit, in three sentences:
//
//   - A limit counts the units that were admitted within its Window, under whatever limits, unless they were
//     given back.
//   - A unit is known for as long as it is in a Window that was asked for, admitted or refused, within its
//     length. So a limit may lack units where neither its Window nor a longer one was asked for, for its
//     length.
//   - An actor of whom no unit counts is a new one.
//
// Where the clock was set back, units of its future are units of now.
type definition struct {
	units []*admittedUnit
	asked map[int64]int64 // by window: when it was asked for last
	part  int64           // the longest part by which units were counted
	// wasSetBack says that the clock was set back.
	wasSetBack bool
	told       []string // what happened
}

// admittedUnit is a unit. Once it has left a window it may be forgotten there, also when the clock is set
// back.
type admittedUnit struct {
	stamp, at int64 // when it was admitted, and as when it counts
	oldest    int64 // the greatest age that it has had
	known     int64 // until when it is certainly known
	may       bool  // it may be unknown, or may have been given back
}

// now notes the time of an attempt or a peek.
func (d *definition) now(now int64) {
	longest := int64(0)
	for window, at := range d.asked {
		d.asked[window] = min(at, now)
		longest = max(longest, d.asked[window]+window)
	}
	for _, u := range d.units {
		if u.at > now {
			u.known -= u.at - now
			u.at = now
		}
		u.known = min(u.known, longest)
		u.may = u.may || now >= u.known
		u.oldest = max(u.oldest, now-u.at)
	}
}

// askFor notes that limits were asked for.
func (d *definition) askFor(limits []Limit, now int64) {
	if !slices.ContainsFunc(d.units, func(u *admittedUnit) bool { return !u.may }) {
		clear(d.asked)
	}
	for _, l := range limits {
		window := l.Window.Microseconds()
		d.asked[window] = now
		for _, u := range d.units {
			if !u.may {
				u.known = max(u.known, u.at+window)
			}
		}
	}
}

// givenBack notes a refund of what was admitted at a moment. Where the clock was set back, it may find units
// of others in its place.
func (d *definition) givenBack(at int64) {
	for _, u := range d.units {
		u.may = u.may || u.stamp == at || u.at != u.stamp || d.wasSetBack && max(u.at-at, at-u.at) <= d.part
	}
}

// least and most return how many units certainly count in the limit, and how many may.
func (d *definition) least(l Limit) (n int64) {
	for _, u := range d.units {
		if !u.may && u.oldest < l.Window.Microseconds() {
			n++
		}
	}
	return n
}

func (d *definition) most(l Limit, now int64) (n int64) {
	for _, u := range d.units {
		// Rounded up by one log, and by one made of it.
		if now-u.at < l.Window.Microseconds()+2*max(d.part, l.grain()) {
			n++
		}
	}
	return n
}

// judge compares a decision with the definition: never more than Max, and nobody below it is refused.
func (d *definition) judge(rt *rapid.T, limits []Limit, now, cost int64, is core.Decision) {
	if is.Reason == core.ReasonOverLimit {
		return
	}
	d.now(now)
	need := max(cost, 1)
	fits := true
	for _, l := range limits {
		d.part = max(d.part, l.grain())
		if is.Allowed && d.least(l)+need > l.Max {
			rt.Fatalf("%d of %v allowed at %d although %d units count in %v:\n%s",
				cost, limits, now, d.least(l), l, strings.Join(d.told, "\n"))
		}
		fits = fits && d.most(l, now)+need <= l.Max
	}
	if fits && !is.Allowed {
		rt.Fatalf("%d of %v refused at %d although all fits:\n%s", cost, limits, now, strings.Join(d.told, "\n"))
	}
	d.told = append(d.told, fmt.Sprintf("%d: %d of %v: %t", now, cost, limits, is.Allowed))
	if cost == 0 {
		return
	}
	if d.askFor(limits, now); !is.Allowed {
		return
	}
	known := int64(0)
	for window, at := range d.asked {
		known = max(known, at+window)
	}
	for range cost {
		d.units = append(d.units, &admittedUnit{stamp: now, at: now, known: known})
	}
}

// changingLimits are lists as two releases, or tiers, may have them.
func changingLimits() *rapid.Generator[[]Limit] {
	one := rapid.Custom(func(rt *rapid.T) Limit {
		window := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Minute,
			61_001 * time.Millisecond, time.Hour}).Draw(rt, "window")
		l := Per(rapid.Int64Range(1, 9).Draw(rt, "max"), window)
		l.Resolution = rapid.SampledFrom([]int64{0, 0, 0, 2, 7, 60}).Draw(rt, "resolution")
		return l
	})
	return rapid.SliceOfNDistinct(one, 1, 3, func(l Limit) time.Duration { return l.Window }).Filter(sharesParts)
}

// TestChangingLimitsAgainstTheirDefinition: releases in turn, one by one and by parts, at the tempo of the
// wire (30 us), of a part, and of a second. Where the former release's units were taken over from its log,
// the next one admitted up to 1.85 N.
//
// Promise: A sliding-window limit that is added, changed or comes back counts the units that the others
// admitted (one log).
func TestChangingLimitsAgainstTheirDefinition(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		engine := guardtest.NewEngine(b)
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			begun := time.Now()
			tooSlow := func() bool { return time.Since(begun) > keyLives }
			clock := guardtest.NewClock()
			core.WithClock(clock.Now)(engine)
			releases := rapid.SliceOfN(changingLimits(), 2, 3).Draw(rt, "releases")
			var limits []Limit
			g := kinds[0].by(engine, fmt.Sprintf("w%d", number),
				func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
			pace := rapid.SampledFrom([]time.Duration{30 * time.Microsecond, 700 * time.Millisecond, time.Second,
				20 * time.Second}).Draw(rt, "pace")
			d := &definition{asked: map[int64]int64{}, part: Limit{}.grain()}
			var allowed []core.Decision
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				limits = sharedParts(rapid.SampledFrom(releases).Draw(rt, "release"))
				clock.Advance(pace * time.Duration(rapid.SampledFrom([]int64{1, 1, 1, 1, 0, 17}).Draw(rt, "steps")))
				if rapid.IntRange(0, 30).Draw(rt, "set back") == 30 {
					clock.Advance(-pace * time.Duration(rapid.IntRange(1, 30).Draw(rt, "by")))
					d.wasSetBack = true
				}
				g.forgetRefusals(core.Attempt{Actor: "a"})
				now := clock.Now().UnixMicro()
				a := core.Attempt{Actor: "a", Cost: rapid.SampledFrom([]int64{1, 1, 1, 2}).Draw(rt, "cost")}
				var is core.Decision
				var err error
				cost := a.Cost
				switch action := rapid.IntRange(0, 19).Draw(rt, "action"); {
				case action < 2 && len(allowed) > 0:
					n := rapid.IntRange(0, len(allowed)-1).Draw(rt, "decision")
					if err := g.Refund(t.Context(), allowed[n]); err != nil {
						rt.Fatal(err)
					}
					d.told = append(d.told, fmt.Sprintf("%d: refund of %d", now, stampOf(allowed[n])))
					d.givenBack(stampOf(allowed[n]))
					allowed = slices.Delete(allowed, n, n+1)
					continue
				case action < 6:
					cost = 0
					is, err = g.Peek(t.Context(), a)
				default:
					is, err = g.Check(t.Context(), a)
				}
				if err != nil {
					rt.Fatal(err)
				}
				if tooSlow() {
					return
				}
				if d.judge(rt, limits, now, cost, is); is.Allowed && cost > 0 {
					allowed = append(allowed, is)
				}
			}
		})
	})
}
