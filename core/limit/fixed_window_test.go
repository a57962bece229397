package limit

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestFixedWindowBeginsWithItsFirstUnit(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewFixedWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(3, time.Minute))
		a := core.Attempt{Actor: "a"}
		for want := int64(2); want >= 0; want-- {
			d := guardtest.Check(t, g, a)
			guardtest.WantReason(t, d, core.ReasonOK)
			if d.Remaining != want || d.Limit != 3 || d.Window != time.Minute {
				t.Fatalf("%+v: want %d remaining", d, want)
			}
			clock.Advance(10 * time.Second)
		}
		d := guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonLimited)
		if d.RetryAfter != 30*time.Second || d.ResetAfter != 30*time.Second {
			t.Fatalf("%+v: want a retry at the window's end", d)
		}
		clock.Advance(d.RetryAfter - time.Microsecond)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
		clock.Advance(time.Microsecond)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 3}), core.ReasonOK)
	})
}

// TestFixedWindowEndsByTheClock, whatever the key's TTL: a key that exists too long locks nobody out.
func TestFixedWindowEndsByTheClock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewFixedWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(1, time.Hour))
		a := core.Attempt{Actor: "a"}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		key := g.logKeys(a)[0]
		if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl < 59*time.Minute || ttl > time.Hour+time.Second {
			t.Errorf("the key expires in %v", ttl)
		}
		b.Client.PExpire(t.Context(), key, 2*time.Hour)
		clock.Advance(time.Hour)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
	})
}

func TestFixedWindowLargeNumbers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := NewFixedWindow(guardtest.NewEngine(b), "w", Per(core.MaxAmount, time.Hour),
			Per(core.MaxAmount-1, 366*24*time.Hour))
		first := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: core.MaxAmount - 3})
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); d.Remaining != 1 || d.Limit != core.MaxAmount-1 {
			t.Errorf("%+v: want 1 remaining", d)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2}), core.ReasonLimited)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: core.MaxAmount}),
			core.ReasonOverLimit)
		refund(t, g, first)
		if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != core.MaxAmount-2 {
			t.Errorf("%+v: want all but one remaining", d)
		}
	})
}
