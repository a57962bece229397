package limit

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
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
			clock := guardtest.NewClock()
			g := NewTokenBucket(guardtest.NewEngine(b, guardtest.WithClock(clock)),
				"w"+strconv.FormatInt(limit.Max, 10), limit)
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
					t.Fatalf("%+v: refused for no time", d)
				}
				clock.Advance(d.RetryAfter)
				if due := ceil(bucket.span(unit, limit.Max)); clock.Now().Sub(begin).Microseconds() != due {
					t.Fatalf("%v: unit %d came after %v, want %dµs", limit, unit, clock.Now().Sub(begin), due)
				}
			}
		}
	})
}

func TestTokenBucketExpiresWhenItIsFull(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := NewTokenBucket(guardtest.NewEngine(b), "w", Per(6, time.Minute), Per(100, time.Hour))
		for taken := 1; taken <= 2; taken++ {
			guardtest.Check(t, g, core.Attempt{Actor: "a"})
			for i, unit := range []time.Duration{10 * time.Second, 36 * time.Second} {
				ttl := b.Client.PTTL(t.Context(), g.logKeys(core.Attempt{Actor: "a"})[i]).Val()
				if full := time.Duration(taken) * unit; ttl < full-5*time.Second || ttl > full+2*time.Second {
					t.Errorf("a bucket that is full in %v expires in %v", full, ttl)
				}
			}
		}
		if n := strings.Count(b.Client.Get(t.Context(), g.logKeys(core.Attempt{Actor: "a"})[0]).Val(),
			" "); n != 4 {
			t.Errorf("%d spaces in a bucket", n)
		}
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
