package core

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func TestFixedWindowBeginsWithItsFirstUnit(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).FixedWindow("w", Per(3, time.Minute))
		a := Attempt{Actor: "a"}
		for want := int64(2); want >= 0; want-- {
			d := check(t, g, a)
			wantReason(t, d, ReasonOK)
			if d.Remaining != want || d.Limit != 3 || d.Window != time.Minute {
				t.Fatalf("%+v: want %d remaining", d, want)
			}
			clock.Advance(10 * time.Second)
		}
		d := check(t, g, a)
		wantReason(t, d, ReasonLimited)
		if d.RetryAfter != 30*time.Second || d.ResetAfter != 30*time.Second {
			t.Fatalf("%+v: want a retry at the window's end", d)
		}
		clock.Advance(d.RetryAfter - time.Microsecond)
		wantReason(t, check(t, g, a), ReasonLimited)
		clock.Advance(time.Microsecond)
		wantReason(t, check(t, g, Attempt{Actor: "a", Cost: 3}), ReasonOK)
	})
}

// TestFixedWindowEndsByTheClock whatever the key's TTL is: a key that is there too long does not lock anybody out.
func TestFixedWindowEndsByTheClock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).FixedWindow("w", Per(1, time.Minute))
		a := Attempt{Actor: "a"}
		wantReason(t, check(t, g, a), ReasonOK)
		key := g.logKeys(a)[0]
		if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl < time.Minute || ttl > time.Minute+time.Second {
			t.Errorf("the key expires in %v", ttl)
		}
		b.Client.PExpire(t.Context(), key, time.Hour)
		clock.Advance(time.Minute)
		wantReason(t, check(t, g, a), ReasonOK)
		wantReason(t, check(t, g, a), ReasonLimited)
	})
}

func TestFixedWindowLargeNumbers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).FixedWindow("w", Per(MaxAmount, time.Hour), Per(MaxAmount-1, 366*24*time.Hour))
		first := check(t, g, Attempt{Actor: "a", Cost: MaxAmount - 3})
		if d := check(t, g, Attempt{Actor: "a"}); d.Remaining != 1 || d.Limit != MaxAmount-1 {
			t.Errorf("%+v: want 1 remaining", d)
		}
		wantReason(t, check(t, g, Attempt{Actor: "a", Cost: 2}), ReasonLimited)
		wantReason(t, check(t, g, Attempt{Actor: "a", Cost: MaxAmount}), ReasonOverLimit)
		refund(t, g, first)
		if d := peek(t, g, Attempt{Actor: "a"}); d.Remaining != MaxAmount-2 {
			t.Errorf("%+v: want all but one remaining", d)
		}
	})
}
