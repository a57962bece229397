package limit

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestSlidingWindowScriptsAgree: the script for one limit and the one for several decide the same. Both write
// to each of two logs, in random order, and every reply and both logs are equal.
func TestSlidingWindowScriptsAgree(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		scriptsAgree(t, b, slidingWindow, Per, rapid.Int64Range(1, 120),
			func(e *core.Engine, limits Func) rateLimit { return NewSlidingWindowBy(e, "w", limits) },
			func(key string) string { return "" }) // the short script begins an empty log anew, the other one goes on
	})
}

// TestSlidingWindowPartsScriptsAgree: as TestSlidingWindowScriptsAgree, for logs by parts.
func TestSlidingWindowPartsScriptsAgree(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		byParts := func(n int64, window time.Duration) Limit { return Per(n, window).WithResolution(100) }
		scriptsAgree(t, b, slidingWindow, byParts, rapid.SampledFrom([]int64{1, 2, 3, 50, 7_777_777, mostByParts}),
			func(e *core.Engine, limits Func) rateLimit { return NewSlidingWindowBy(e, "w", limits) },
			func(key string) string { return "" }) // the short script begins an empty log anew, the other one goes on
	})
}

// TestFixedWindowScriptsAgree: as TestSlidingWindowScriptsAgree, for counts.
func TestFixedWindowScriptsAgree(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		scriptsAgree(t, b, fixedWindow, Per,
			rapid.SampledFrom([]int64{1, 2, 3, 50, 1 << 40, core.MaxAmount - 1, core.MaxAmount}),
			func(e *core.Engine, limits Func) rateLimit { return NewFixedWindowBy(e, "w", limits) },
			func(key string) string { return b.Client.Get(t.Context(), key).Val() })
	})
}

// TestTokenBucketScriptsAgree: as TestSlidingWindowScriptsAgree, for buckets.
func TestTokenBucketScriptsAgree(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		scriptsAgree(t, b, tokenBucket, Per, rapid.SampledFrom([]int64{1, 2, 3, 50, 7_777_777, 10_000_000}),
			func(e *core.Engine, limits Func) rateLimit { return NewTokenBucketBy(e, "w", limits) },
			func(key string) string { return b.Client.Get(t.Context(), key).Val() })
	})
}

// scriptsAgree checks the two scripts of an algorithm with random attempts, of limits that change between the
// maxima, by a clock that is set back at times.
func scriptsAgree(t *testing.T, b redistest.Backend, alg *algorithm,
	limitOf func(int64, time.Duration) Limit, maxima *rapid.Generator[int64],
	makeGuard func(*core.Engine, Func) rateLimit, recordOf func(key string) string,
) {
	several := *alg
	several.one, several.long = several.several, true
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
				counts[i][j] = makeGuard(engine, limits)
			}
			limiterOf(counts[i][1]).algorithm = &several
		}
		compare := func(limit Limit) {
			set, err := newLimitSet([]Limit{limit}, alg)
			if err != nil {
				rt.Fatal(err)
			}
			var records [2]string
			var ttls [2]time.Duration
			for i := range records {
				key := limiterOf(counts[i][0]).keysOf(set, core.Attempt{Actor: "a"})[0]
				records[i], ttls[i] = recordOf(key), b.Client.PTTL(t.Context(), key).Val()
			}
			if records[0] != records[1] || !alg.log && (ttls[0]-ttls[1]).Abs() > 5*time.Second {
				rt.Fatalf("%v: the records are\n%s %v\n%s %v", limit, records[0], ttls[0], records[1], ttls[1])
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
				compare(limit)
				continue
			}
			a := core.Attempt{Actor: "a", ID: "o",
				Cost: rapid.SampledFrom([]int64{1, 1, 1, min(2, limit.Max), max(limit.Max/2, 1), limit.Max}).Draw(rt,
					"cost")}
			isPeek := rapid.IntRange(0, 4).Draw(rt, "peek") == 0
			var d [2]core.Decision
			for i := range d {
				if g := counts[i][swap^i]; isPeek {
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
			compare(limit)
		}
	})
}
