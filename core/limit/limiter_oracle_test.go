package limit

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// limitOracle is the definition of one limit, for one actor. Times are in microseconds.
type limitOracle interface {
	// left returns how many of max units may be taken; it may be negative.
	left(now, max int64) int64
	// take takes units and returns the moment that a refund has to name.
	take(now, cost, max int64) int64
	refund(now, stamp, cost, max int64)
}

// slidingOracle is the list of all units ever taken. They count as taken at the end of their grain, or of
// their part.
type slidingOracle struct {
	window, grain, birth int64
	units                []unit
}

// unit is the moment of a unit. A part of the window that was given back stays as a unit that is dead.
type unit struct {
	at   int64
	dead bool
}

func (o *slidingOracle) round(at int64) int64 { return (at + o.grain - 1) / o.grain * o.grain }

// drop drops what has left.
func (o *slidingOracle) drop(now int64) {
	o.units = slices.DeleteFunc(slices.Clone(o.units), func(u unit) bool { return now-u.at >= o.window })
}

func (o *slidingOracle) left(now, max int64) int64 {
	for _, u := range o.units {
		if now-u.at < o.window && !u.dead {
			max--
		}
	}
	return max
}

func (o *slidingOracle) take(now, cost, _ int64) int64 {
	if o.drop(now); o.left(now, 0) == 0 {
		o.birth = now
	}
	for range cost {
		o.units = append(o.units, unit{at: o.round(now)})
	}
	return now
}

func (o *slidingOracle) refund(_, stamp, cost, _ int64) {
	exact := o.grain == Per(1, time.Duration(o.window)*time.Microsecond).grain()
	if stamp < o.birth && (!exact || o.round(stamp) != o.round(o.birth)) {
		return // from before a Reset, unless both came within 100 microseconds
	}
	alive := false
	for i, u := range o.units {
		o.units[i].dead = u.dead || u.at == o.round(stamp) && cost > 0
		if o.units[i].dead && !u.dead {
			cost--
		}
		alive = alive || !o.units[i].dead
	}
	if exact || !alive {
		o.units = slices.DeleteFunc(o.units, func(u unit) bool { return u.dead })
	}
}

// fixedOracle is the open window.
type fixedOracle struct{ window, ends, taken int64 }

func (o *fixedOracle) left(now, max int64) int64 {
	if now >= o.ends {
		return max
	}
	return max - o.taken
}

func (o *fixedOracle) setBack(now int64) { o.ends = min(o.ends, now+o.window) }

func (o *fixedOracle) take(now, cost, _ int64) int64 {
	if now >= o.ends {
		o.ends, o.taken = now+o.window, 0
	}
	o.taken += cost
	return now
}

func (o *fixedOracle) refund(now, stamp, cost, _ int64) {
	if o.ends-o.window <= stamp && stamp < o.ends && now < o.ends {
		o.taken -= min(cost, o.taken)
		o.setBack(now)
	}
	if o.taken == 0 {
		o.ends = 0
	}
}

// bucketOracle is the moment at which the bucket is full, as a fraction.
type bucketOracle struct {
	window, since, held, last int64
	full                      *big.Rat
}

// fullAt is when the bucket is full for a limit of max: a change of limits rounds it up.
func (o *bucketOracle) fullAt(max int64) *big.Rat {
	if o.full == nil {
		return new(big.Rat)
	}
	if o.held != max {
		return new(big.Rat).SetInt64(ceil(o.full))
	}
	return o.full
}

func (o *bucketOracle) left(now, max int64) int64 {
	full := o.fullAt(max)
	if full.Cmp(big.NewRat(now, 1)) <= 0 {
		return max
	}
	units := new(big.Rat).Sub(big.NewRat(now+o.window, 1), full)
	units.Mul(units, big.NewRat(max, o.window))
	return -ceil(units.Neg(units))
}

func (o *bucketOracle) take(now, cost, max int64) int64 {
	full := o.fullAt(max)
	if full.Cmp(big.NewRat(now, 1)) <= 0 {
		full, o.since = big.NewRat(now, 1), now
	}
	o.full, o.held, o.last = new(big.Rat).Add(full, o.span(cost, max)), max, now
	return now
}

func (o *bucketOracle) setBack(now int64) {
	if back := o.last - now; back > 0 && o.full != nil {
		o.since, o.last, o.full = o.since-back, now, new(big.Rat).Sub(o.full, big.NewRat(back, 1))
	}
}

func (o *bucketOracle) span(units, max int64) *big.Rat {
	r := big.NewRat(units, max)
	return r.Mul(r, big.NewRat(o.window, 1))
}

func (o *bucketOracle) refund(now, stamp, cost, max int64) {
	if o.full == nil || now >= stamp+o.window || o.since > stamp || stamp > o.last ||
		o.full.Cmp(big.NewRat(now, 1)) <= 0 {
		return
	}
	back := o.span(cost, max)
	if o.held != max {
		back.SetInt64(ceil(back) - 1) // the microsecond that a change of limits may cost
	}
	if o.full = new(big.Rat).Sub(o.full, back); o.full.Cmp(big.NewRat(now, 1)) <= 0 {
		o.full = nil
	}
}

// ceil rounds a fraction up.
func ceil(r *big.Rat) int64 {
	quotient, rest := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		return quotient.Int64() + 1
	}
	return quotient.Int64()
}

// oracle combines the limits: all of them admit an attempt, or none does.
type oracle struct {
	kind    kind
	windows map[Limit]limitOracle // by window: Max may change
}

// state identifies the units of a limit.
func state(l Limit) Limit {
	return Limit{Window: l.Window}
}

func (o *oracle) of(l Limit, now int64) limitOracle {
	found := o.windows[state(l)]
	if found == nil {
		switch window := l.Window.Microseconds(); o.kind.name {
		case "SlidingWindow":
			found = &slidingOracle{window: window, grain: l.grain()}
		case "FixedWindow":
			found = &fixedOracle{window: window}
		default:
			found = &bucketOracle{window: window}
		}
		o.windows[state(l)] = found
	}
	if f, ok := found.(interface{ setBack(now int64) }); ok {
		f.setBack(now)
	}
	return found
}

// left returns the units left in the limit that has the fewest left.
func (o *oracle) left(limits []Limit, now int64) int64 {
	least := int64(math.MaxInt64)
	for _, l := range limits {
		least = min(least, o.of(l, now).left(now, l.Max))
	}
	return least
}

// judge compares a decision for some units, 0 for a peek, with the definition, and takes the units if
// allowed.
func (o *oracle) judge(rt *rapid.T, limits []Limit, now, cost int64, d core.Decision) {
	need := max(cost, 1)
	for _, l := range limits {
		if l.Max < need {
			if d.Reason != core.ReasonOverLimit {
				rt.Fatalf("%+v: want over_limit", d)
			}
			return
		}
	}
	binding := limits[max(0, slices.IndexFunc(limits, func(l Limit) bool { return l.Window == d.Window }))]
	if d.Limit != binding.Max || d.Window != binding.Window {
		rt.Fatalf("%v: %+v: there is no such limit", limits, d)
	}
	if allowed := o.left(limits, now) >= need; allowed != d.Allowed {
		rt.Fatalf("%v: %+v: the oracle says %v", limits, d, allowed)
	}
	if !d.Allowed {
		retry := d.RetryAfter.Microseconds()
		if o.left(limits, now+retry) < need || o.of(binding, now).left(now+retry-1, binding.Max) >= need {
			rt.Fatalf("%v: %+v: the retry-after is not exact", limits, d)
		}
		return
	}
	stamp := now
	for _, l := range limits {
		if cost > 0 {
			stamp = max(stamp, o.of(l, now).take(now, cost, l.Max))
		}
	}
	if cost > 0 && stampOf(d) != stamp {
		rt.Fatalf("%+v: stamp %d, want %d", d, stampOf(d), stamp)
	}
	if least := o.left(limits, now); d.Remaining != least || o.of(binding, now).left(now, binding.Max) != least {
		rt.Fatalf("%v: %+v: the oracle has %d remaining", limits, d, least)
	}
}

// sharesParts reports whether limits can be those of one guard.
func sharesParts(limits []Limit) bool { return shareParts(slices.Clone(limits)) == nil }

// sharedParts returns the limits with the parts that they have as those of one guard.
func sharedParts(limits []Limit) []Limit {
	limits = slices.Clone(limits)
	_ = shareParts(limits)
	return limits
}

// TestLimitersAgainstOracle runs random attempts, peeks, refunds and resets, with limits that change, against
// the definitions. The limits of a sliding window stay here: TestChangingLimitsAgainstTheirDefinition changes
// them.
func TestLimitersAgainstOracle(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		resolutions := []int64{0}
		if k.name == "SlidingWindow" {
			resolutions = []int64{0, 0, 2, 7, 60, 7919}
		}
		anyLimits := rapid.SliceOfNDistinct(rapid.Custom(func(rt *rapid.T) Limit {
			window := rapid.SampledFrom([]time.Duration{time.Minute, 61_001 * time.Millisecond, time.Hour}).Draw(rt,
				"window")
			max, resolution := rapid.Int64Range(1, 7).Draw(rt, "max"),
				rapid.SampledFrom(resolutions).Draw(rt, "resolution")
			return Per(max, window).WithResolution(resolution)
		}), 1, 3, func(l Limit) time.Duration { return l.Window })
		limitsGen := rapid.Map(anyLimits.Filter(sharesParts), sharedParts)
		engine := guardtest.NewEngine(b)
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			begun := time.Now()
			// A key lives for at least a second by the server's clock, which is independent of the test's
			// clock.
			tooSlow := func() bool { return time.Since(begun) > 900*time.Millisecond }
			clock := guardtest.NewClock()
			core.WithClock(clock.Now)(engine)
			var limits []Limit
			g := k.by(engine, fmt.Sprintf("w%d", number),
				func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
			steady := k.name == "SlidingWindow" || rapid.Bool().Draw(rt, "steady")
			o := &oracle{kind: k, windows: map[Limit]limitOracle{}}
			var allowed []core.Decision
			usedBy := map[string][]Limit{}
			for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
				if i == 0 || !steady && rapid.IntRange(0, 9).Draw(rt, "change") == 0 {
					limits = limitsGen.Draw(rt, "limits")
				}
				step := rapid.SampledFrom([]int64{0, 1, 1000, 1_000_000, 10_000_000, 59_999_999, 60_000_000, 600_000_000,
					-1, -30_000_000}).Draw(rt, "step")
				if k.name == "SlidingWindow" || steady {
					step = max(step, 0) // other tests set the clock back
				}
				clock.Advance(time.Duration(step) * time.Microsecond)
				if step < 0 {
					g.forgetRefusals(core.Attempt{Actor: "a"})
				}
				now := clock.Now().UnixMicro()

				a := core.Attempt{Actor: "a", Cost: rapid.Int64Range(1, 3).Draw(rt, "cost")}
				switch action := rapid.IntRange(0, 19).Draw(rt, "action"); {
				case action < 4 && len(allowed) > 0:
					d := rapid.SampledFrom(allowed).Draw(rt, "decision")
					if err := g.Refund(t.Context(), d); err != nil {
						rt.Fatal(err)
					}
					for _, l := range usedBy[d.Attempt.ID] {
						found := o.windows[state(l)]
						if s, ok := found.(*slidingOracle); found == nil || ok && s.grain != l.grain() {
							continue // it was forgotten, or counts another way since
						}
						found.refund(now, stampOf(d), d.Attempt.Cost, l.Max)
					}
					delete(usedBy, d.Attempt.ID)
				case action == 4:
					if err := g.Reset(t.Context(), a); err != nil {
						rt.Fatal(err)
					}
					for _, l := range limits {
						delete(o.windows, state(l))
					}
				case action < 8:
					d, err := g.Peek(t.Context(), a)
					if err != nil {
						rt.Fatal(err)
					}
					if tooSlow() {
						return
					}
					o.judge(rt, limits, now, 0, d)
				default:
					d, err := g.Check(t.Context(), a)
					if err != nil {
						rt.Fatal(err)
					}
					if tooSlow() {
						return
					}
					o.judge(rt, limits, now, a.Cost, d)
					if d.Allowed {
						allowed = append(allowed, d)
						usedBy[d.Attempt.ID] = limits
					}
				}
			}
		})
	})
}
