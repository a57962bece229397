package limit

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestSlidingWindowScriptsAgree: the short script and the long one decide the same. Both write to each of two
// logs, in random order, and all replies are equal.
func TestSlidingWindowScriptsAgree(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		scriptsAgree(t, b, Per, rapid.Int64Range(1, 120))
	})
}

// TestSlidingWindowPartsScriptsAgree: as TestSlidingWindowScriptsAgree, for logs by parts.
func TestSlidingWindowPartsScriptsAgree(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		byParts := func(n int64, window time.Duration) Limit { return Per(n, window).WithResolution(100) }
		scriptsAgree(t, b, byParts, rapid.SampledFrom([]int64{1, 2, 3, 50, 7_777_777, mostByParts}))
	})
}

// scriptsAgree checks the two scripts with random attempts, of limits that change between the maxima, by a
// clock that is set back at times.
func scriptsAgree(
	t *testing.T, b redistest.Backend, limitOf func(int64, time.Duration) Limit, maxima *rapid.Generator[int64],
) {
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		// A clock of its own, because a few hundred windows of a year exceed the microseconds that Lua counts
		// exactly.
		clock := guardtest.NewClock()
		window := rapid.SampledFrom([]time.Duration{time.Minute, 61_001 * time.Millisecond, 24 * time.Hour,
			366 * 24 * time.Hour}).Draw(rt, "window")
		limit := limitOf(maxima.Draw(rt, "max"), window)
		limits := func(context.Context, core.Attempt) ([]Limit, error) { return []Limit{limit}, nil }
		var counts [2][2]rateLimit // of two counts, each as one script and as the other sees it
		for i := range counts {
			for j := range counts[i] {
				engine := guardtest.NewEngine(b, core.WithRefusalMemory(0), core.WithClock(clock.Now),
					core.WithPrefix(fmt.Sprintf("%s-%d-%d", b.Prefix, number, i)))
				counts[i][j] = NewSlidingWindowBy(engine, "w", limits)
			}
		}
		var allowed [][2]core.Decision
		for range rapid.IntRange(1, 30).Draw(rt, "attempts") {
			parts := rapid.SampledFrom([]int64{0, 0, 0, 1, 64, 100, 240, 255, 256, 300, 600, -1, -256}).Draw(rt,
				"step, in 256ths")
			clock.Advance(window/256*time.Duration(parts) +
				time.Duration(rapid.IntRange(0, 300).Draw(rt, "us"))*time.Microsecond)
			if rapid.IntRange(0, 9).Draw(rt, "change") == 0 {
				limit = limitOf(maxima.Draw(rt, "max"), window)
			}
			swap := rapid.IntRange(0, 1).Draw(rt, "swap")
			if n := len(allowed); n > 0 && rapid.IntRange(0, 4).Draw(rt, "refund") == 0 {
				for i, d := range allowed[rapid.IntRange(0, n-1).Draw(rt, "decision")] {
					refund(t, counts[i][swap^i], d)
				}
				continue
			}
			a := core.Attempt{Actor: "a", ID: "o",
				Cost: rapid.SampledFrom([]int64{1, 1, 1, min(2, limit.Max), max(limit.Max/2, 1), limit.Max}).Draw(rt,
					"cost")}
			isPeek := rapid.IntRange(0, 4).Draw(rt, "peek") == 0
			var d [2]core.Decision
			for i := range d {
				g := counts[i][swap^i]
				if swap^i == 1 {
					limiterOf(g).askLong.add(kit.TagOf(a), limiterOf(g).present())
				}
				if isPeek {
					d[i] = peek(t, g, a)
				} else {
					d[i] = guardtest.Check(t, g, a)
				}
			}
			said := d
			for i := range said {
				said[i].SetClaim(stampOf(d[i]))
			}
			if !reflect.DeepEqual(said[0], said[1]) {
				rt.Fatalf("%v: the scripts say\n%+v\n%+v", limit, said[0], said[1])
			}
			if d[0].Allowed && !isPeek {
				allowed = append(allowed, d)
			}
		}
	})
}
