package limit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestALimitThatOnlyRefusesIsNotForgotten: one actor has a short limit on one route and a longer one on
// another. The first admits so much that the second refuses, and a window after its last admission the second
// one admitted beyond its Max. A longer window of another release, and one more limit, did the same.
//
// Promise: A new or changed Window may lack units only where neither it nor a longer one was asked for during
// its length.
func TestALimitThatOnlyRefusesIsNotForgotten(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		short := PerMinute(12)
		for _, parts := range []int64{0, 9} {
			long := Per(10, 3*time.Minute).WithResolution(parts)
			for name, other := range map[string][]Limit{
				"another route or release": {long}, "one more limit": {short, long},
			} {
				for _, admitsFirst := range []bool{true, false} {
					t.Run(fmt.Sprint(name, parts, admitsFirst), func(t *testing.T) {
						limits := other
						g, clock := changing(b, kinds[0], &limits)
						a := core.Attempt{Actor: fmt.Sprint(name, parts, admitsFirst)}
						if admitsFirst {
							guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
						}
						var taken []time.Time
						for second := range 600 {
							clock.Advance(time.Second)
							if second%10 == 0 || second < 60 && second%5 == 0 {
								limits = []Limit{short}
								if guardtest.Check(t, g, a).Allowed {
									taken = append(taken, clock.Now())
								}
							}
							if second%20 != 18 || second < 58 {
								continue
							}
							counts := 0
							for _, at := range taken {
								if clock.Now().Sub(at) < long.Window {
									counts++
								}
							}
							limits = other
							if guardtest.Check(t, g, a).Allowed {
								t.Fatalf("second %d: admitted with %d units in the window of %v", second, counts, long)
							}
						}
					})
				}
			}
		}
	})
}

// allCommands returns how many commands the server's scripts have run.
func allCommands(t *testing.T, b redistest.Backend) (n int64) {
	t.Helper()
	times, _ := commandsOf(t, b.Client)
	for command, calls := range times {
		if command != "info" && command != "eval" && command != "evalsha" {
			n += calls
		}
	}
	return n
}

// TestAMaxThatChangesOftenCostsNoMore: each Max was a view of its own, so after 100 in an hour a check needed
// 111 commands.
func TestAMaxThatChangesOftenCostsNoMore(t *testing.T) {
	b := redistest.Single(t)
	var limits []Limit
	g, clock := changing(b, kinds[0], &limits)
	for _, parts := range []int64{0, 60} {
		a := core.Attempt{Actor: fmt.Sprint(parts)}
		most := map[int64]int64{}
		for _, different := range []int64{2, 100} {
			for i := range 2 * different {
				clock.Advance(time.Second)
				limits = []Limit{PerHour(1000 - i%different).WithResolution(parts)}
				before := allCommands(t, b)
				guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
				n := allCommands(t, b) - before
				most[different] = max(most[different], n)
			}
		}
		header := b.Client.LIndex(t.Context(), limiterOf(g).Key(kit.TagOf(a), "log"), 0).Val()
		if most[100] > most[2]+8 || len(header) > 150 {
			t.Errorf("%d parts: %d commands, with two values of Max %d; a header of %d bytes", parts, most[100],
				most[2], len(header))
		}
	}
}

// TestWindowsThatChangeOftenCostNoMore: a Func that returns another window each time.
func TestWindowsThatChangeOftenCostNoMore(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		if b.Mini != nil {
			return
		}
		var limits []Limit
		g, clock := changing(b, kinds[0], &limits)
		a := core.Attempt{Actor: "ann"}
		for i := range 200 {
			clock.Advance(time.Second)
			limits = []Limit{Per(1000, time.Hour+time.Duration(i%100)*time.Second)}
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		}
		if b.Name == inMemory.Name {
			if n := len(heldBy(g, "ann")[0].counter.(*slidingLog).views); n > 9 {
				t.Errorf("%d views", n)
			}
		} else if n := len(b.Client.LIndex(t.Context(), limiterOf(g).Key(kit.TagOf(a), "log"), 0).Val()); n > 400 {
			t.Errorf("a header of %d bytes", n)
		}
		limits = []Limit{Per(1000, 2*time.Hour)}
		if d := peek(t, g, a); d.Remaining != 800 {
			t.Errorf("%+v: want 800 remaining", d)
		}
	})
}

// at is a moment of the tests below: part of a window since a moment that begins a part of any of them.
func at(clock *guardtest.Clock, first time.Time, since time.Duration) {
	clock.Advance(first.Add(since).Sub(clock.Now()))
}

// TestARefundAfterTheClockWasSetBackFindsBothEntriesOfAPart: units of the future had become units of now
// beside others of the same part, and a refund found those of one entry only.
func TestARefundAfterTheClockWasSetBackFindsBothEntriesOfAPart(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		limits := []Limit{Per(20, 61_001*time.Millisecond).WithResolution(60)}
		g, clock := changing(b, kinds[0], &limits)
		first := clock.Now()
		two := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
		at(clock, first, 28*time.Second)
		guardtest.Check(t, g, core.Attempt{Actor: "a"})
		limits[0].Max = 3
		at(clock, first, 0)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonLimited)
		refund(t, g, two)
		if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); d.Remaining != 1 {
			t.Errorf("%+v: want one remaining", d)
		}
	})
}

// TestARefundOfAUnitThatHasLeftTakesNoOthers: where all units had left, the long script did not note that the
// log begins anew, so a refund under a clock that was set back took a unit of another attempt.
func TestARefundOfAUnitThatHasLeftTakesNoOthers(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		limit := Per(20, 10*time.Second).WithResolution(7)
		e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
		g := NewSlidingWindowBy(e, "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return []Limit{limit}, nil })
		grain := time.Duration(limit.grain()) * time.Microsecond
		ends := time.UnixMicro((clock.Now().UnixMicro()/limit.grain() + 1) * limit.grain()).Add(grain)
		a := core.Attempt{Actor: "a"}
		at(clock, ends, -1428*time.Millisecond)
		first := guardtest.Check(t, g, a)
		at(clock, ends, -11*time.Second)
		peek(t, g, a)
		at(clock, ends, -4*time.Microsecond)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		at(clock, ends, -37*time.Millisecond)
		refund(t, g, first)
		if d := guardtest.Check(t, g, a); d.Remaining != 18 {
			t.Errorf("%+v: want 18 remaining", d)
		}
	})
}
