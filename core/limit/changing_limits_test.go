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
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// This file defines what a sliding window may admit while its limits change: two releases in turn, tiers, a
// limit that gains a resolution.

// definition is what was admitted, whatever the limits were.
type definition struct {
	units []admittedUnit
	named []naming // of the attempts that were allowed and not given back
	part  int64    // the longest part by which units were counted
	told  []string // what happened
}

// naming is an attempt that was allowed under a limit. One that is given back has never been made, so the log
// need not be kept for it.
type naming struct {
	at          int64
	max, window int64
}

// givenBack notes a refund of what was admitted at a moment.
func (d *definition) givenBack(at int64) {
	for i, u := range d.units {
		d.units[i].may = u.may || u.at == at
	}
	d.named = slices.DeleteFunc(d.named, func(n naming) bool { return n.at == at })
	d.forget()
}

// forget forgets for which limits units are kept when there may be none: a log without units goes.
func (d *definition) forget() {
	if !slices.ContainsFunc(d.units, func(u admittedUnit) bool { return !u.may }) {
		d.named = nil
	}
}

// admittedUnit is a unit. It may count where the log need not have it any more: it was older than the window
// of each limit that the log was kept for, or was given back.
type admittedUnit struct {
	at  int64
	may bool
}

// least and most return how many units certainly count in the limit, and how many may.
func (d *definition) least(l Limit, now int64) (n int64) {
	keeps, _ := d.keeps(now)
	for _, u := range d.units {
		if !u.may && now-u.at < min(l.Window.Microseconds(), keeps) {
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

// keeps returns for how long the log keeps units at least, and how many of them.
func (d *definition) keeps(now int64) (longest, units int64) {
	for _, n := range d.named {
		if now-n.at < n.window {
			longest, units = max(longest, n.window), max(units, n.max)
		}
	}
	return longest, units + 50
}

// judge compares a decision with the definition: never more than Max, and nobody below it is refused.
func (d *definition) judge(rt *rapid.T, limits []Limit, now, cost int64, is core.Decision) {
	if is.Reason == core.ReasonOverLimit {
		return
	}
	need := max(cost, 1)
	fits := true
	for _, l := range limits {
		if is.Allowed && d.least(l, now)+need > l.Max {
			rt.Fatalf("%d of %v allowed at %d although %d units count in %v:\n%s",
				cost, limits, now, d.least(l, now), l, strings.Join(d.told, "\n"))
		}
		fits = fits && d.most(l, now)+need <= l.Max
	}
	if fits && !is.Allowed {
		rt.Fatalf("%d of %v refused at %d although all fits:\n%s", cost, limits, now, strings.Join(d.told, "\n"))
	}
	d.told = append(d.told, fmt.Sprintf("%d: %d of %v: %t", now, cost, limits, is.Allowed))
	if !is.Allowed || cost == 0 {
		return
	}
	d.drop(now)
	for _, l := range limits {
		d.part = max(d.part, l.grain())
		d.named = append(d.named, naming{now, l.Max, l.Window.Microseconds()})
	}
	for range cost {
		d.units = append(d.units, admittedUnit{at: now})
	}
	d.drop(now)
}

// drop notes which units the log need not have any more.
func (d *definition) drop(now int64) {
	keeps, units := d.keeps(now)
	for i := range d.units {
		if now-d.units[i].at >= keeps || int64(len(d.units)-i) > units {
			d.units[i].may = true
		}
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
func TestChangingLimitsAgainstTheirDefinition(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		engine := guardtest.NewEngine(b)
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			begun := time.Now()
			// A key lives for at least a second by the server's clock, which is independent of the test's.
			tooSlow := func() bool { return time.Since(begun) > 900*time.Millisecond }
			clock := guardtest.NewClock()
			core.WithClock(clock.Now)(engine)
			releases := rapid.SliceOfN(changingLimits(), 2, 3).Draw(rt, "releases")
			var limits []Limit
			g := kinds[0].by(engine, fmt.Sprintf("w%d", number),
				func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
			pace := rapid.SampledFrom([]time.Duration{30 * time.Microsecond, 700 * time.Millisecond, time.Second,
				20 * time.Second}).Draw(rt, "pace")
			d := &definition{part: Limit{}.grain()}
			var allowed []core.Decision
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				limits = sharedParts(rapid.SampledFrom(releases).Draw(rt, "release"))
				clock.Advance(pace * time.Duration(rapid.SampledFrom([]int64{1, 1, 1, 1, 0, 17}).Draw(rt, "steps")))
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
