package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// eachSpending runs f for every algorithm, and for a sliding window by parts, on every backend and in memory.
func eachSpending(t *testing.T, f func(t *testing.T, b redistest.Backend, k kind)) {
	t.Helper()
	eachKindEverywhere(t, f)
	t.Run(byParts.name+"/"+inMemory.Name, func(t *testing.T) { f(t, inMemory, byParts) })
	t.Run(byParts.name, func(t *testing.T) {
		redistest.Each(t, func(t *testing.T, b redistest.Backend) { f(t, b, byParts) })
	})
}

func spend(t *testing.T, g rateLimit, d core.Decision, actual int64) {
	t.Helper()
	if err := g.Spend(t.Context(), d, actual); err != nil {
		t.Fatalf("Spend(%+v, %d): %v", d, actual, err)
	}
}

// waitsExactly wants an attempt to be refused until its RetryAfter is over.
func waitsExactly(t *testing.T, g rateLimit, clock *guardtest.Clock, a core.Attempt) time.Duration {
	t.Helper()
	d := guardtest.Check(t, g, a)
	guardtest.WantReason(t, d, core.ReasonLimited)
	clock.Advance(d.RetryAfter - time.Microsecond)
	guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
	clock.Advance(time.Microsecond)
	guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
	return d.RetryAfter
}

// TestUnitsBehindThoseThatHaveLeftCount: the log may have units that have left, and no other, when one is
// taken or charged; also where it keeps them for a limit of another attempt.
func TestUnitsBehindThoseThatHaveLeftCount(t *testing.T) {
	one, other := []Limit{PerMinute(5)}, []Limit{PerHour(100)}
	two := []Limit{one[0], Per(6, 61*time.Second)}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		limits := one
		g := NewSlidingWindowBy(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
		for n, c := range []struct {
			before, limits []Limit
			charged        int64
		}{{one, one, 0}, {one, one, 2}, {other, one, 0}, {other, one, 2}, {two, two, 0}, {two, two, 2},
			{other, two, 0}, {other, two, 2}} {
			a := core.Attempt{Actor: fmt.Sprint("a", n)}
			limits = c.before
			guardtest.Check(t, g, a)
			limits = c.limits
			var took [4]core.Decision
			for i := range took {
				clock.Advance(25 * time.Second)
				took[i] = guardtest.Check(t, g, a)
			}
			for _, d := range took[1:] { // the first unit has left
				refund(t, g, d)
			}
			spend(t, g, took[0], 1+c.charged)
			for left := 4 - c.charged; left > 1; left-- {
				if d := guardtest.Check(t, g, a); !d.Allowed || d.Remaining != left {
					t.Errorf("%+v: %+v, want %d left", c, d, left)
				}
			}
		}
	})
}

// TestUnitsThatHaveLeftAreDropped a few at a time, while as many are taken.
func TestUnitsThatHaveLeftAreDropped(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		for name, more := range map[string][]Limit{"one": nil, "two": {Per(200, 90*time.Second)}} {
			g := NewSlidingWindow(e, name, Per(100, time.Minute), more...)
			for range 200 {
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonOK)
				clock.Advance(time.Second)
			}
			counted := int64(60 + 30*len(more))
			if n := b.Client.LLen(t.Context(), g.logKeys(core.Attempt{Actor: "a"})[0]).Val(); n > 1+counted+6 {
				t.Errorf("%s limit: the log has %d entries, of which %d units count", name, n, counted)
			}
		}
	})
}

// TestSpendSettlesTheTruth: what was not used is there again, and what was used beyond the estimate makes
// later attempts wait, exactly as long as it has to. The first call counts.
//
// Promise: `Spend` settles the true cost in each limit. The rest goes back, or a debt counts for a window (in
// a bucket for 366 days at most).
func TestSpendSettlesTheTruth(t *testing.T) {
	eachSpending(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		for i, c := range []struct{ estimate, actual int64 }{
			{4, 0}, {4, 1}, {4, 4}, {4, 9}, {4, 10}, {4, 11}, {1, 30}, {10, 10}, {10, 100}, {10, 3},
			{1, math.MaxInt64},
		} {
			g := k.make(e, fmt.Sprint("w", i), Per(10, time.Hour))
			a := core.Attempt{Actor: "a", Cost: c.estimate}
			d := guardtest.Check(t, g, a)
			if c.actual > c.estimate { // remembered refusals must not outlive the debt
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 10}), core.ReasonLimited)
			}
			clock.Advance(time.Second)
			spend(t, g, d, c.actual)
			for _, later := range []int64{0, 1, c.actual, 100} {
				spend(t, g, d, later)
			}
			refund(t, g, d)
			left := peek(t, g, a)
			if want := max(10-min(c.actual, 1000), 0); left.Remaining != want {
				t.Errorf("%d of %d: %+v, want %d remaining", c.actual, c.estimate, left, want)
			}
			if c.actual >= 10 {
				a.Cost = 1
				wait := waitsExactly(t, g, clock, a)
				most := time.Hour
				if k.name == "TokenBucket" {
					most = kit.MaxTTL + time.Hour
				}
				if k.name == byParts.name {
					most += time.Hour / 100
				}
				if wait <= 0 || wait > most+time.Millisecond {
					t.Errorf("%d of %d: a wait of %v, want %v at most", c.actual, c.estimate, wait, most)
				}
			}
		}
	})
}

// TestADebtIsNoLongerThanTheLimit: a debt of 10,000 in a limit of 100 wrote 10,000 units.
func TestADebtIsNoLongerThanTheLimit(t *testing.T) {
	b := redistest.Single(t)
	g := NewSlidingWindow(guardtest.NewEngine(b), "w", PerMinute(100))
	a := core.Attempt{Actor: "a"}
	spend(t, g, guardtest.Check(t, g, a), 10_000)
	if n := b.Client.LLen(t.Context(), g.logKeys(a)[0]).Val(); n != 1+1+100 {
		t.Errorf("the log has %d elements, want a header, the unit and 100", n)
	}
	guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
}

// TestADebtIsOwedInUnits: 30 units of a bucket of 10 an hour take 3 hours; a window forgets them when it is
// over.
func TestADebtIsOwedInUnits(t *testing.T) {
	eachSpending(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(10, time.Hour))
		a := core.Attempt{Actor: "a"}
		spend(t, g, guardtest.Check(t, g, a), 30)
		want := map[string]time.Duration{"TokenBucket": 126 * time.Minute}[k.name]
		if want == 0 {
			want = time.Hour
		}
		wait := waitsExactly(t, g, clock, a)
		if wait < want || wait > want+36*time.Second {
			t.Errorf("a wait of %v, want %v", wait, want)
		}
	})
}

// TestSpendCountsInEveryLimit of the guard, each as long as its window lasts.
func TestSpendCountsInEveryLimit(t *testing.T) {
	eachSpending(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(10, time.Minute),
			Per(50, time.Hour))
		a := core.Attempt{Actor: "a", Cost: 5}
		spend(t, g, guardtest.Check(t, g, a), 40)
		d := guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonLimited)
		if d.Window != time.Minute {
			t.Errorf("%+v: want the minute to refuse", d)
		}
		clock.Advance(10 * time.Minute)
		d = guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 10})
		guardtest.WantReason(t, d, core.ReasonOK)
		if k.name != "TokenBucket" && d.Remaining != 0 {
			t.Errorf("%+v: want nothing left in the hour", d)
		}
		spend(t, g, d, 2)
		if left := peek(t, g, a); k.name != "TokenBucket" && left.Remaining != 8 {
			t.Errorf("%+v: want 8 remaining", left)
		}
	})
}

// TestSpendThatMakesNoSense is an error, and changes nothing.
func TestSpendThatMakesNoSense(t *testing.T) {
	e := guardtest.NewEngine(inMemory)
	g := NewSlidingWindow(e, "w", PerHour(10))
	d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 4})
	other := guardtest.Check(t, NewFixedWindow(e, "f", PerHour(10)), core.Attempt{Actor: "a"})
	for name, err := range map[string]error{
		"a negative cost":    g.Spend(t.Context(), d, -1),
		"of another guard":   g.Spend(t.Context(), other, 1),
		"a negative ending":  g.Settle(t.Context(), d, core.CommitCost(-1)),
		"the smallest there": g.Spend(t.Context(), d, math.MinInt64),
	} {
		if !guardtest.IsInvalid(err) {
			t.Errorf("%s: %v, want an ErrInvalid", name, err)
		}
	}
	spend(t, g, core.Decision{Guard: "w"}, 5) // a refused one
	if left := peek(t, g, core.Attempt{Actor: "a"}); left.Remaining != 6 {
		t.Errorf("%+v: want 6 remaining", left)
	}
	if err := g.Settle(t.Context(), d, core.CommitCost(1)); err != nil {
		t.Error(err)
	}
	if left := peek(t, g, core.Attempt{Actor: "a"}); left.Remaining != 9 {
		t.Errorf("%+v: want 9 remaining", left)
	}
}

// TestDebtsAreBounded: attempts in flight whose estimates were far too low neither fill Redis nor break a
// count, whatever they have cost.
func TestDebtsAreBounded(t *testing.T) {
	eachSpending(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(8, time.Hour))
		a := core.Attempt{Actor: "a"}
		var flying []core.Decision
		for range 8 {
			flying = append(flying, guardtest.Check(t, g, a))
		}
		for i, d := range flying {
			clock.Advance(time.Millisecond)
			spend(t, g, d, []int64{7_000, 1_000_000_000, core.MaxAmount, math.MaxInt64}[i%4])
		}
		if b.Client != nil {
			key := g.logKeys(a)[0]
			if n := b.Client.MemoryUsage(t.Context(), key).Val(); n > 80_000 && b.Mini == nil {
				t.Errorf("%d bytes", n)
			}
			if k.name != "FixedWindow" && k.name != "TokenBucket" {
				if n := b.Client.LLen(t.Context(), key).Val(); n > mostOneByOne+1 {
					t.Errorf("a log of %d", n)
				}
			}
		}
		waitsExactly(t, g, clock, a)
	})
}

// TestSpendOfAttemptsWithOneID: they are told apart although they were made at one moment. A client who
// chooses the IDs could hide what its requests have cost.
func TestSpendOfAttemptsWithOneID(t *testing.T) {
	eachSpending(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(20, time.Hour))
		a := core.Attempt{Actor: "a", ID: "chosen", Cost: 2}
		var flying []core.Decision
		for range 4 {
			flying = append(flying, guardtest.Check(t, g, a))
		}
		refund(t, g, flying[0])
		refund(t, g, flying[1])
		spend(t, g, flying[2], 5)
		spend(t, g, flying[3], 5)
		if left := peek(t, g, a); left.Remaining != 10 {
			t.Errorf("%+v: want 10 remaining", left)
		}
	})
}

// TestSpendingRace: with 100 attempts in flight no more is really spent in the window than the limit, and in
// the end exactly that is missing.
func TestSpendingRace(t *testing.T) {
	eachSpending(t, func(t *testing.T, b redistest.Backend, k kind) {
		const most, callers = 2000, 100
		calls := 6
		if b.Mini != nil {
			calls = 2
		}
		g := k.make(guardtest.NewEngine(b), "w", Per(most, 60*24*time.Hour)) // no unit flows in meanwhile
		a := core.Attempt{Actor: "a", Cost: 10}
		var spent, refused atomic.Int64
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range callers {
			all.Go(func() {
				<-begin
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for range calls {
					d, err := g.Check(t.Context(), a)
					if err != nil {
						t.Error(err)
						return
					}
					if !d.Allowed {
						refused.Add(1)
						continue
					}
					actual := rng.Int64N(11)
					spent.Add(actual)
					var both sync.WaitGroup
					for range 2 {
						both.Go(func() {
							if err := g.Spend(t.Context(), d, actual); err != nil {
								t.Error(err)
							}
						})
					}
					both.Wait()
				}
			})
		}
		close(begin)
		all.Wait()
		left := peek(t, g, a).Remaining
		if spent.Load() > most || left != most-spent.Load() {
			t.Errorf("%d of %d were spent, %d are left, %d refused", spent.Load(), most, left, refused.Load())
		}
	})
}

// TestNoWindowSpendsMoreThanItsLimit where no estimate was too low, and nobody is refused while there is
// room for their estimate: random attempts, in flight together, that end in any order.
//
// Promise: If no estimate is too low, no window exceeds N, and nobody is refused whose estimate fits.
func TestNoWindowSpendsMoreThanItsLimit(t *testing.T) {
	// A bucket takes late units back beside those that have flowed in since.
	times := map[string]int64{"SlidingWindow": 1, byParts.name: 1, "FixedWindow": 2, "TokenBucket": 4}
	eachSpending(t, func(t *testing.T, b redistest.Backend, k kind) {
		number := 0
		e := guardtest.NewEngine(b, core.WithRefusalMemory(0))
		rapid.Check(t, func(rt *rapid.T) {
			number++
			begun := time.Now()
			clock := guardtest.NewClock()
			core.WithClock(clock.Now)(e)
			const window = time.Minute
			most := rapid.Int64Range(1, 40).Draw(rt, "max")
			g := k.make(e, fmt.Sprintf("w%d", number), Per(most, window))
			type attempt struct {
				core.Decision
				at    time.Time
				costs int64 // the estimate, then the truth
			}
			var made, flying []*attempt
			used := func(from, to time.Time) (sum int64) { // after from, until to
				for _, one := range made {
					if one.at.After(from) && !one.at.After(to) {
						sum += one.costs
					}
				}
				return sum
			}
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				clock.Advance(rapid.SampledFrom([]time.Duration{0, time.Microsecond, time.Millisecond, time.Second,
					20 * time.Second, window}).Draw(rt, "pause"))
				if len(flying) > 0 && rapid.Bool().Draw(rt, "end") {
					i := rapid.IntRange(0, len(flying)-1).Draw(rt, "which")
					one := flying[i]
					flying = append(flying[:i], flying[i+1:]...)
					one.costs = rapid.Int64Range(0, one.costs).Draw(rt, "actual")
					if err := g.Spend(t.Context(), one.Decision, one.costs); err != nil {
						rt.Fatal(err)
					}
					continue
				}
				a := core.Attempt{Actor: "a", Cost: rapid.Int64Range(1, most).Draw(rt, "estimate")}
				d, err := g.Check(t.Context(), a)
				if err != nil {
					rt.Fatal(err)
				}
				now := clock.Now()
				if d.Allowed {
					one := &attempt{d, now, a.Cost}
					made, flying = append(made, one), append(flying, one)
					continue
				}
				grain := 100 * time.Microsecond
				if k.name == byParts.name {
					grain = window / 100
				}
				if k.name != "TokenBucket" && k.name != "FixedWindow" &&
					used(now.Add(-window-grain), now)+a.Cost <= most && time.Since(begun) < time.Minute {
					rt.Fatalf("%d of %d were refused although there was room: %+v", a.Cost, most, d)
				}
			}
			for _, one := range made {
				if sum := used(one.at.Add(-window), one.at); sum > times[k.name]*most {
					rt.Fatalf("%d were spent in a window of %d", sum, most)
				}
			}
		})
	})
}

// TestMemorySpendsAsTheScripts lets rapid search for the shortest sequence on which they differ.
func TestMemorySpendsAsTheScripts(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			b := redistest.Mini(t)
			b.Mini.SetTime(time.Now()) // no key expires
			number := 0
			rapid.Check(t, func(rt *rapid.T) {
				number++
				w := newTwins(b, k, fmt.Sprint(number))
				b.Mini.FlushAll()
				must := func(err error) {
					if err != nil {
						rt.Fatal(err)
					}
				}
				w.limits = limitsOf(k).Draw(rt, "limits")
				var allowed []answers
				rt.Repeat(map[string]func(*rapid.T){
					"advance": func(rt *rapid.T) {
						w.clock.Advance(time.Duration(rapid.Int64Range(1, 70_000_000).Draw(rt, "µs")) * time.Microsecond)
					},
					"change": func(rt *rapid.T) {
						for i := range w.limits {
							w.limits[i].Max = rapid.Int64Range(1, 7).Draw(rt, "max")
						}
					},
					"check": func(rt *rapid.T) {
						both, err := w.check(t.Context(), core.Attempt{Actor: "a",
							Cost: rapid.Int64Range(1, 4).Draw(rt, "cost"), ID: fmt.Sprint(len(allowed))})
						must(err)
						if both.redis.Allowed {
							allowed = append(allowed, both)
						}
					},
					"spend": func(rt *rapid.T) {
						if len(allowed) == 0 {
							return
						}
						both := rapid.SampledFrom(allowed).Draw(rt, "decision")
						actual := rapid.OneOf(rapid.Int64Range(0, 9), rapid.Int64Range(0, core.MaxAmount)).Draw(rt,
							"actual")
						must(errors.Join(w.redis.Spend(t.Context(), both.redis, actual),
							w.memory.Spend(t.Context(), both.memory, actual)))
						_, err := w.peek(t.Context(), core.Attempt{Actor: "a", ID: "peek"})
						must(err)
					},
				})
			})
		})
	}
}

// TestAChargeToNobodyTakesNoMoreThanItsLimit: a charge to an actor of whom nothing counts takes what one to an
// actor of whom something counts takes, in memory as in Redis. It shows when the limit is raised.
func TestAChargeToNobodyTakesNoMoreThanItsLimit(t *testing.T) {
	b := redistest.Mini(t)
	w := newTwins(b, kinds[0], "w")
	w.limits = []Limit{PerSecond(4)}
	spend := func(of answers, actual int64) {
		t.Helper()
		if err := errors.Join(w.redis.Spend(t.Context(), of.redis, actual),
			w.memory.Spend(t.Context(), of.memory, actual)); err != nil {
			t.Fatal(err)
		}
	}
	var both [2]answers
	for i := range both {
		var err error
		both[i], err = w.check(t.Context(), core.Attempt{Actor: "a", Cost: 2, ID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(time.Duration(1-i) * time.Minute)
	}
	spend(both[1], 0) // nothing counts now
	spend(both[0], 1000)
	w.limits = []Limit{PerSecond(7)}
	d, err := w.peek(t.Context(), core.Attempt{Actor: "a", ID: "peek"})
	if err != nil || d.redis.Remaining != 3 {
		t.Errorf("%d remaining, %v: want 3", d.redis.Remaining, err)
	}
}

// TestAttemptsThatOvertakeOthersSetNoClockBack: a call reads the time before it has the lock.
func TestAttemptsThatOvertakeOthersSetNoClockBack(t *testing.T) {
	for _, k := range kinds {
		g := k.make(core.NewMemory(), "w", PerHour(10))
		m, limits, a := limiterOf(g).local(), []Limit{PerHour(10)}, core.Attempt{Actor: "a"}
		const now = int64(2e15)
		first := m.decide(&a, limits, 2, now)
		second := m.decide(&a, limits, 3, now-1000) // it read the time before the first one did
		m.giveBack(&a, limits, now+1000, first.moment, 2)
		m.giveBack(&a, limits, now+1000, second.moment, 3)
		if left := m.decide(&a, limits, 0, now+2000).remaining; left != 10 {
			t.Errorf("%s: %d remaining, want 10", k.name, left)
		}
	}
}
