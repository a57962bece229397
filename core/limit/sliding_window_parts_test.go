package limit

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestSlidingWindowByParts: a unit counts as taken at the end of its part.
//
// Promise: A sliding window with a resolution keeps N too. It may refuse for up to one part longer.
func TestSlidingWindowByParts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClockAt(guardtest.NewClock().Now().Truncate(time.Hour))
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w",
			PerHour(1_000_000).WithResolution(60))
		a := core.Attempt{Actor: "a", Cost: 400_000}
		for i, step := range []struct {
			after     time.Duration
			cost      int64
			remaining int64
			retry     time.Duration
		}{
			{time.Microsecond, 400_000, 600_000, 0},
			{time.Minute, 400_000, 200_000, 0},
			// a unit of the first part has to leave, at its end
			{0, 200_001, 200_000, time.Hour - time.Microsecond},
			{0, 600_001, 200_000, time.Hour + time.Minute - time.Microsecond}, // one of the second part as well
			{time.Minute - time.Microsecond, 200_000, 0, 0},                   // the second part ends now
			// the first units are nearly an hour old
			{58 * time.Minute, 1, 0, time.Minute},
			{time.Minute - time.Microsecond, 400_000, 0, time.Microsecond}, // and more than an hour
			{time.Microsecond, 400_000, 0, 0},                              // and a part older than that
			{0, 1, 0, time.Minute},
		} {
			clock.Advance(step.after)
			a.Cost = step.cost
			d := guardtest.Check(t, g, a)
			if d.Allowed != (step.retry == 0) || d.Remaining != step.remaining || d.RetryAfter != step.retry {
				t.Fatalf("step %d: %+v, want %+v", i, d, step)
			}
		}
	})
}

// TestPartsRefusalReadsSeveralChunks has a refusal read more than one chunk of a log.
func TestPartsRefusalReadsSeveralChunks(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClockAt(guardtest.NewClock().Now().Truncate(time.Hour))
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w",
			PerHour(60).WithResolution(60))
		for range 60 {
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonOK)
			clock.Advance(time.Minute)
		}
		clock.Advance(-time.Minute)
		for cost := int64(1); cost <= 60; cost++ {
			d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: cost})
			if want := time.Duration(cost) * time.Minute; d.Allowed || d.RetryAfter != want {
				t.Fatalf("cost %d: %+v, want a retry after %v", cost, d, want)
			}
		}
	})
}

// TestRefundOfAPartCountsOnce, however late the repetition: other attempts have units in the same part.
func TestRefundOfAPartCountsOnce(t *testing.T) {
	b := redistest.Mini(t)
	clock := newServerClock(b)
	g := NewSlidingWindow(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "w", PerDay(100).WithResolution(24))
	d := guardtest.Check(t, g, core.Attempt{Actor: "a"})
	old := guardtest.Check(t, g, core.Attempt{Actor: "a"})
	refund(t, g, d)
	for _, later := range []time.Duration{0, time.Second, time.Minute, 5 * time.Minute, 5 * time.Minute,
		time.Hour} {
		clock.Advance(t, later)
		refund(t, g, d)
		if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != 99 {
			t.Fatalf("%v later: %+v, want 99 remaining", later, d)
		}
	}
	refund(t, g, old) // however late it comes first
	if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != 100 {
		t.Fatalf("%+v, want 100 remaining", d)
	}
}

// TestPartsAfterTheClockWasSetBack: units join those of the future, which count as taken now, and a refund
// finds them there.
func TestPartsAfterTheClockWasSetBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w",
			PerMinute(10).WithResolution(60), PerHour(20), Per(30, 2*time.Hour).WithResolution(7))
		guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 4})
		clock.Advance(-time.Hour)
		d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 3})
		if d.Remaining != 3 {
			t.Errorf("%+v, want 3 remaining", d)
		}
		refund(t, g, d)
		if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != 6 {
			t.Errorf("%+v, want 6 remaining", d)
		}
		clock.Advance(61 * time.Minute)
		clock.Advance(time.Second)
		if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != 10 {
			t.Errorf("%+v, want 10 remaining", d)
		}
	})
}

// TestRefundAfterAClockWasSetBackKeepsTheLog: the units that are still in it leave much later.
func TestRefundAfterAClockWasSetBackKeepsTheLog(t *testing.T) {
	for _, more := range [][]Limit{nil, {PerHour(50)}} {
		b := redistest.Mini(t)
		clock := newServerClock(b)
		g := NewSlidingWindow(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "w", PerMinute(2), more...)
		first := guardtest.Check(t, g, core.Attempt{Actor: "a"})
		guardtest.Check(t, g, core.Attempt{Actor: "a"})
		clock.Advance(t, -10*time.Hour)
		refund(t, g, first)
		clock.Advance(t, 130*time.Second)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonOK)
		clock.Advance(t, 10*time.Second)
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2}); d.Allowed {
			t.Errorf("%+v: three units in ten seconds", d)
		}
	}
}

// TestARefusalAfterAClockWasSetBackSaysWhen: the units of the future count as taken when the clock was seen
// to be set back.
func TestARefusalAfterAClockWasSetBackSaysWhen(t *testing.T) {
	for _, more := range [][]Limit{nil, {PerHour(50)}} {
		redistest.Each(t, func(t *testing.T, b redistest.Backend) {
			clock := guardtest.NewClock()
			g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", PerMinute(2), more...)
			guardtest.Check(t, g, core.Attempt{Actor: "a"})
			clock.Advance(-2 * time.Minute)
			guardtest.Check(t, g, core.Attempt{Actor: "a"})
			clock.Advance(40 * time.Second)
			d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
			if d.Allowed || d.RetryAfter < 20*time.Second || d.RetryAfter > 21*time.Second {
				t.Fatalf("%+v: want a retry when both units leave", d)
			}
			clock.Advance(d.RetryAfter)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2}), core.ReasonOK)
		})
	}
}
