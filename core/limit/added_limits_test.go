package limit

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// changing returns a limiter whose limits the test changes, and its clock.
func changing(b redistest.Backend, k kind, limits *[]Limit) (rateLimit, *guardtest.Clock) {
	clock := guardtest.NewClock()
	e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
	return k.by(e, "w", func(context.Context, core.Attempt) ([]Limit, error) { return *limits, nil }), clock
}

// TestAnAddedLimitOpensNoFreeWindow: ten a minute are used up, and 12 per hour are added. Of those, two are
// left.
//
// Promise: A fixed window or bucket that is added, or whose Window changes, begins with nothing used. An
// actor without counted units is a new one.
func TestAnAddedLimitOpensNoFreeWindow(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		k := kinds[0]
		for _, cost := range []int64{0, 1, 5} { // a peek and a refused attempt bring the limit up to date as well
			limits := []Limit{PerMinute(10)}
			g, clock := changing(b, k, &limits)
			a := core.Attempt{Actor: string(rune('a' + cost))}
			if n, _ := drain(t, g, a); n != 10 {
				t.Fatalf("%d of ten a minute were admitted", n)
			}
			limits = append(limits, PerHour(12))
			if cost == 0 {
				peek(t, g, a)
			} else {
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: a.Actor, Cost: cost}),
					core.ReasonLimited)
			}
			clock.Advance(time.Minute + time.Second)
			if n, refused := drain(t, g, a); n != 2 || refused.RetryAfter > time.Hour {
				t.Errorf("%d more of 12 per hour were admitted, want 2; then %+v", n, refused)
			}
		}
	})
}

// TestALimitThatComesBackHasWhatItMissed: while the limit per hour is left out, units are taken under the one
// per minute.
func TestALimitThatComesBackHasWhatItMissed(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		for _, parts := range []int64{0, 60} {
			both := []Limit{PerMinute(10), PerHour(12).WithResolution(parts)}
			limits := both
			g, clock := changing(b, kinds[0], &limits)
			a := core.Attempt{Actor: string(rune('a' + parts))}
			guardtest.Check(t, g, a)
			limits = both[:1]
			clock.Advance(2 * time.Minute)
			if n, _ := drain(t, g, a); n != 10 {
				t.Fatalf("%d of ten a minute were admitted", n)
			}
			limits = both
			peek(t, g, a)
			clock.Advance(2 * time.Minute)
			if n, _ := drain(t, g, a); n != 1 {
				t.Errorf("%d parts: %d more were admitted, want 1 of 12 per hour", parts, n)
			}
		}
	})
}

// TestARefundGivesBackToAnAddedLimit: the units of an attempt that both limits have counted.
func TestARefundGivesBackToAnAddedLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		k := kinds[0]
		limits := []Limit{PerMinute(10)}
		g, clock := changing(b, k, &limits)
		a := core.Attempt{Actor: "ann"}
		drain(t, g, a)
		limits = append(limits, PerHour(13))
		clock.Advance(time.Minute)
		last := guardtest.Check(t, g, a)
		clock.Advance(time.Second)
		before := peek(t, g, a).Remaining
		refund(t, g, last)
		if d := peek(t, g, a); d.Remaining != before+1 {
			t.Errorf("%+v: want one more than %d", d, before)
		}
	})
}

// TestAShorterLimitInheritsWhatIsYoung: of the units of an hour those of the last minute, by a sliding window
// exactly. A fixed window does not know them, and nobody is locked out.
func TestAShorterLimitInheritsWhatIsYoung(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		limits := []Limit{PerHour(100)}
		g, clock := changing(b, kinds[0], &limits)
		a := core.Attempt{Actor: "ann", Cost: 50}
		guardtest.Check(t, g, a)
		clock.Advance(30 * time.Minute)
		a.Cost = 7
		guardtest.Check(t, g, a)
		limits = append(limits, PerMinute(10))
		clock.Advance(59 * time.Second)
		a.Cost = 1
		if n, refused := drain(t, g, a); n != 3 || refused.RetryAfter > time.Second+time.Millisecond {
			t.Errorf("%d were admitted, want 3 of ten; then %+v", n, refused)
		}
	})
}

// TestAnEmptyLogTakesOverWhatIsCertainlyYoungOnly: the log of a minute is empty, since its units have left or
// were given back. The units of the part of an hour that is not over may be as old.
func TestAnEmptyLogTakesOverWhatIsCertainlyYoungOnly(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		for _, parts := range []int64{0, 60} {
			limits := []Limit{PerMinute(10).WithResolution(parts), PerHour(100).WithResolution(2)}
			g, clock := changing(b, kinds[0], &limits)
			clock.Advance(clock.Now().Truncate(time.Hour).Add(time.Hour + time.Second).Sub(clock.Now()))
			a := core.Attempt{Actor: string(rune('a' + parts))}
			if n, _ := drain(t, g, a); n != 10 {
				t.Fatalf("%d of ten a minute were admitted", n)
			}
			clock.Advance(2 * time.Minute)
			last := guardtest.Check(t, g, a)
			clock.Advance(2 * time.Second)
			refund(t, g, last)
			if n, _ := drain(t, g, a); n != 10 {
				t.Errorf("%d parts: %d of ten a minute were admitted two minutes later", parts, n)
			}
		}
	})
}
