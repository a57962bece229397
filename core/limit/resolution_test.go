package limit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// everywhere runs f on every backend, and without Redis as well.
func everywhere(t *testing.T, f func(t *testing.T, b redistest.Backend)) {
	t.Helper()
	t.Run(inMemory.Name, func(t *testing.T) { f(t, inMemory) })
	redistest.Each(t, f)
}

// TestChangedResolutionOpensNoFreeWindow: ten a day, counted by 24, 48, 1440 parts, one by one, and back.
func TestChangedResolutionOpensNoFreeWindow(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		var limits []Limit
		g := NewSlidingWindowBy(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
		a := core.Attempt{Actor: "a"}
		resolutions := []int64{24, 48, 1440, 0, 24, 10_000, 0, 48}
		for _, also := range [][]Limit{nil, {PerMinute(1000)}} {
			for round := range 2 {
				admitted := 0
				for i, parts := range resolutions {
					limits = append([]Limit{PerDay(10).WithResolution(parts)}, also...)
					for n := range 20 {
						d := guardtest.Check(t, g, a)
						if d.Allowed {
							admitted++
						} else if d.RetryAfter > 25*time.Hour {
							t.Fatalf("%v: %+v: locked out", limits, d)
						}
						if i == 0 && n == 4 {
							break // so that other resolutions admit some as well
						}
					}
					clock.Advance(time.Second)
				}
				if admitted != 10 {
					t.Errorf("round %d: %d of ten a day were admitted", round, admitted)
				}
				clock.Advance(25 * time.Hour)
			}
		}
	})
}

// TestChangedResolutionKeepsTheNewest: a log by parts may have more units than one that counts one by one.
func TestChangedResolutionKeepsTheNewest(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		limits := []Limit{PerHour(1_000_000).WithResolution(60)}
		g := NewSlidingWindowBy(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
		guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 500_000})
		clock.Advance(20 * time.Minute)
		guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 9_998})
		limits = []Limit{PerHour(9_999)}
		d := guardtest.Check(t, g, core.Attempt{Actor: "a"})
		if d.Allowed || d.RetryAfter > 41*time.Minute {
			t.Fatalf("%+v: want a refusal until the first units leave", d)
		}
		clock.Advance(41 * time.Minute)
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%+v: want the last unit", d)
		}
	})
}

// TestRefundFromBeforeAResetGivesNothingBack: units that were taken after the reset are in the same part, or
// in the same grain of a long window.
//
// Promise: A refund from before a Reset gives back nothing taken after it, except within the same 100
// microseconds.
func TestRefundFromBeforeAResetGivesNothingBack(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		for i, limits := range [][]Limit{
			{PerDay(10).WithResolution(24)}, {Per(10, 30*24*time.Hour)},
			{Per(10, 30*24*time.Hour), PerDay(20).WithResolution(24)},
		} {
			clock := guardtest.NewClock()
			g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprint("w", i), limits[0],
				limits[1:]...)
			a := core.Attempt{Actor: "a"}
			before := guardtest.Check(t, g, a)
			if err := g.Reset(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Microsecond)
			after := guardtest.Check(t, g, a)
			refund(t, g, before)
			if d := peek(t, g, a); d.Remaining != 9 {
				t.Errorf("%v: %+v: want 9 remaining", limits, d)
			}
			refund(t, g, after)
			if d := peek(t, g, a); d.Remaining != 10 {
				t.Errorf("%v: %+v: want 10 remaining", limits, d)
			}
		}
	})
}

// TestLateRefundIsShort: a refund finds its part by halving, and changes nothing else in a log of 10,000.
func TestLateRefundIsShort(t *testing.T) {
	b := redistest.Single(t)
	clock := guardtest.NewClock()
	clock.Set(clock.Now().Truncate(time.Hour))
	const parts = 10_000
	limit := PerDay(1_000_000).WithResolution(parts)
	part := time.Duration(limit.grain()) * time.Microsecond
	g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", limit)
	a := core.Attempt{Actor: "a"}
	var taken []core.Decision
	for range 3 {
		clock.Advance(2 * part)
		taken = append(taken, guardtest.Check(t, g, a))
	}
	key := g.logKeys(a)[0]
	last := b.Client.LIndex(t.Context(), key, -2).Val()
	var number int
	fmt.Sscan(last, &number)
	head := strings.Fields(b.Client.LIndex(t.Context(), key, 0).Val())
	pairs := make([]any, 0, 2*parts)
	for i := 1; i <= parts-10; i++ {
		pairs = append(pairs, number+i, 1)
	}
	b.Client.RPush(t.Context(), key, pairs...)
	head[2] = fmt.Sprint(3 + parts - 10)
	b.Client.LSet(t.Context(), key, 0, strings.Join(head, " "))
	clock.Advance((parts - 10) * part)
	for i, d := range taken {
		b.Client.ConfigResetStat(t.Context())
		refund(t, g, d)
		stats := b.Client.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_lset") +
			b.Client.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_lindex")
		var sets, reads int
		for _, field := range strings.FieldsFunc(stats, func(r rune) bool { return r == ',' }) {
			fmt.Sscanf(field, "calls=%d", &sets)
			if at := strings.Index(field, "calls="); at > 0 {
				fmt.Sscanf(field[at:], "calls=%d", &reads)
			}
		}
		if sets == 0 || sets > 3 || reads > 20 { // both numbers of a part without units go
			t.Errorf("the refund of part %d wrote %d numbers and read %d", i, sets, reads)
		}
		if d := peek(t, g, a); d.Remaining != 1_000_000-(3+parts-10)+int64(i)+1 {
			t.Errorf("%+v: the refund of part %d gave nothing back", d, i)
		}
	}
}
