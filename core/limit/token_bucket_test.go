package limit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestTokenBucketFillsSteadily(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewTokenBucket(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", PerMinute(60))
		a := core.Attempt{Actor: "a"}
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 58}); d.Remaining != 2 || d.Limit != 60 ||
			d.Window != time.Minute {
			t.Fatalf("%+v: want 2 remaining", d)
		}
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 10}); d.Allowed ||
			d.RetryAfter != 8*time.Second || d.Remaining != 2 {
			t.Fatalf("%+v: want 8 more in 8s", d)
		}
		clock.Advance(8*time.Second - time.Microsecond)
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 10}); d.Allowed ||
			d.RetryAfter != time.Microsecond || d.Remaining != 9 {
			t.Fatalf("%+v: want the last of 10 in 1µs", d)
		}
		clock.Advance(time.Microsecond)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 10}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
		clock.Advance(time.Hour)
		if d := peek(t, g, a); d.Remaining != 60 {
			t.Errorf("%+v: a bucket holds 60", d)
		}
	})
}

// TestTokenBucketLosesNoFraction takes every unit as soon as it is there, at rates that do not divide a
// microsecond: each comes when it is due from the beginning, however many came before.
func TestTokenBucketLosesNoFraction(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		// 1/49*49 is less than 1 in doubles
		for _, limit := range []Limit{Per(7, time.Minute), Per(49, 49*time.Second),
			Per(9_999_991, 366*24*time.Hour), Per(9_999_999, time.Second)} {
			for try := 0; ; try++ {
				begun := time.Now()
				wrong := losesFractions(t, b, fmt.Sprint("w", limit.Max, "-", try), limit)
				if wrong == "" {
					break
				}
				if time.Since(begun) < keyLives {
					t.Fatal(wrong)
				}
			}
		}
	})
}

// losesFractions returns what is wrong with the moments at which units come.
func losesFractions(t *testing.T, b redistest.Backend, name string, limit Limit) string {
	t.Helper()
	clock := guardtest.NewClock()
	g := NewTokenBucket(guardtest.NewEngine(b, guardtest.WithClock(clock)), name, limit)
	bucket := &bucketOracle{window: limit.Window.Microseconds()}
	begin := clock.Now()
	guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: limit.Max})
	for unit := int64(1); unit <= 60; {
		d := guardtest.Check(t, g, core.Attempt{Actor: "a"})
		if d.Allowed {
			unit++
			continue
		}
		if d.RetryAfter <= 0 {
			return fmt.Sprintf("%+v: refused for no time", d)
		}
		clock.Advance(d.RetryAfter)
		if due := ceil(bucket.span(unit, limit.Max)); clock.Now().Sub(begin).Microseconds() != due {
			return fmt.Sprintf("%v: unit %d came after %v, want %dµs", limit, unit, clock.Now().Sub(begin), due)
		}
	}
	return ""
}

// TestTokenBucketExpiresWhenItIsFull: a key lives until its bucket is full, and up to a 16th of the window
// longer.
func TestTokenBucketExpiresWhenItIsFull(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		limits := []Limit{Per(6, time.Hour), Per(100, 60*time.Hour), Per(1000, 120*time.Hour)}
		one := NewTokenBucket(guardtest.NewEngine(b), "one", limits[0])
		several := NewTokenBucket(guardtest.NewEngine(b), "several", limits[0], limits[1:]...)
		a := core.Attempt{Actor: "a"}
		for taken := int64(1); taken <= 5; taken++ {
			guardtest.Check(t, one, a)
			guardtest.Check(t, several, a)
			for i, key := range append(several.logKeys(a), one.logKeys(a)...) {
				limit := limits[i%len(limits)]
				full := time.Duration(int64(limit.Window) * taken / limit.Max)
				ttl := b.Client.PTTL(t.Context(), key).Val()
				if ttl < full-time.Minute || ttl > full+limit.Window/16+2*time.Second {
					t.Errorf("%s: a bucket that is full in %v expires in %v", key, full, ttl)
				}
			}
		}
		for _, g := range []*TokenBucket{one, several} {
			record := b.Client.Get(t.Context(), g.logKeys(a)[0]).Val()
			if n := strings.Count(record, " "); n != 4 {
				t.Errorf("%q has %d spaces", record, n)
			}
		}
	})
}

// TestTokenBucketOutlivesItsUnits: whatever has happened to a bucket, its key does not expire before it is
// full.
func TestTokenBucketOutlivesItsUnits(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			clock := guardtest.NewClock()
			engine := guardtest.NewEngine(b, core.WithRefusalMemory(0), core.WithClock(clock.Now),
				core.WithPrefix(fmt.Sprintf("%s-%d", b.Prefix, number)))
			limit := Per(rapid.SampledFrom([]int64{1, 7, 16, 100, 1000}).Draw(rt, "max"), time.Hour)
			g := NewTokenBucket(engine, "w", limit)
			a := core.Attempt{Actor: "a"}
			var allowed []core.Decision
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				clock.Advance(rapid.SampledFrom([]time.Duration{0, time.Second, limit.Window / 64,
					limit.Window / 4}).Draw(rt, "pass"))
				settles := len(allowed) > 0 && rapid.Bool().Draw(rt, "settles")
				if settles {
					i := rapid.IntRange(0, len(allowed)-1).Draw(rt, "decision")
					actual := rapid.Int64Range(0, 2*limit.Max).Draw(rt, "actual")
					if err := g.Spend(t.Context(), allowed[i], actual); err != nil {
						rt.Fatal(err)
					}
				} else {
					a.Cost = rapid.Int64Range(1, max(limit.Max/3, 1)).Draw(rt, "cost")
					if d := guardtest.Check(t, g, a); d.Allowed {
						allowed = append(allowed, d)
					}
				}
				key := g.logKeys(a)[0]
				var since, offset, taken, most int64
				record := b.Client.Get(t.Context(), key).Val()
				if record == "" {
					continue // full
				}
				if _, err := fmt.Sscan(record, &since, &offset, &taken, &most); err != nil {
					rt.Fatalf("%q: %v", record, err)
				}
				full := time.UnixMicro(since + offset + fillTime(taken, most, limit.Window.Microseconds()))
				ttl := b.Client.PTTL(t.Context(), key).Val()
				if rest := full.Sub(clock.Now()); ttl < rest-time.Minute {
					rt.Fatalf("settles: %v; %q is full in %v and expires in %v", settles, record, rest, ttl)
				}
			}
		})
	})
}

// TestTokenBucketTakesBackWhatIsOwed: units that the bucket has got back by itself do not come back twice.
func TestTokenBucketTakesBackWhatIsOwed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewTokenBucket(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(60, time.Minute))
		want := func(remaining int64) {
			t.Helper()
			if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != remaining {
				t.Fatalf("%+v: want %d remaining", d, remaining)
			}
		}
		early := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
		clock.Advance(2 * time.Second) // full again
		guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 50})
		refund(t, g, early)
		want(10)

		late := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 10})
		clock.Advance(5 * time.Second)
		refund(t, g, late)
		want(15)
		last := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 15})
		clock.Advance(55 * time.Second)
		refund(t, g, last) // full but for five, so no more than five
		want(60)
	})
}
