package limit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// Promise: RetryAfter is exact, to 100 microseconds.
func TestSlidingWindowCountsDown(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(3, time.Minute))
		for want := int64(2); want >= 0; want-- {
			d := guardtest.Check(t, g, core.Attempt{Actor: "a"})
			guardtest.WantReason(t, d, core.ReasonOK)
			if d.Remaining != want || d.Limit != 3 || d.Window != time.Minute || d.RetryAfter != 0 ||
				d.ResetAfter != time.Minute-time.Duration(2-want)*10*time.Second {
				t.Fatalf("decision %+v: want %d remaining", d, want)
			}
			clock.Advance(10 * time.Second)
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "a"})
		guardtest.WantReason(t, d, core.ReasonLimited)
		if d.RetryAfter != 30*time.Second || d.ResetAfter != 30*time.Second || d.Remaining != 0 {
			t.Fatalf("decision %+v: want a retry in 30s", d)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "b"}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "r"}), core.ReasonOK)

		clock.Advance(d.RetryAfter - time.Microsecond)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonLimited)
		clock.Advance(time.Microsecond)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonLimited)
	})
}

func TestSlidingWindowCost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(10, time.Minute))
		for _, step := range []struct {
			cost      int64
			reason    core.Reason
			remaining int64
			retry     time.Duration
		}{
			{4, core.ReasonOK, 6, 0},
			{5, core.ReasonOK, 1, 0},
			{2, core.ReasonLimited, 1, 59 * time.Second}, // one of the first four has to leave
			{6, core.ReasonLimited, 1, 60 * time.Second}, // one of the next five as well
			{1, core.ReasonOK, 0, 0},
			{10, core.ReasonLimited, 0, 59 * time.Second}, // all have to leave
			{11, core.ReasonOverLimit, 0, 0},
			{math.MaxInt64, core.ReasonOverLimit, 0, 0},
			{1 << 53, core.ReasonOverLimit, 0, 0},
		} {
			d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: step.cost})
			guardtest.WantReason(t, d, step.reason)
			if d.Remaining != step.remaining || d.RetryAfter != step.retry {
				t.Fatalf("cost %d: decision %+v: want %+v", step.cost, d, step)
			}
			if d.Allowed {
				clock.Advance(time.Second)
			}
			if step.cost == 5 {
				clock.Advance(-time.Second)
			}
		}
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "a", Cost: -1}); !guardtest.IsInvalid(err) {
			t.Errorf("a cost of -1: %v, want ErrInvalid", err)
		}
		if _, err := g.Check(t.Context(), core.Attempt{}); !guardtest.IsInvalid(err) {
			t.Errorf("no actor: %v, want ErrInvalid", err)
		}
	})
}

func TestSlidingWindowSeveralLimits(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", PerSecond(2), PerMinute(5),
			PerDay(6))
		steps := []struct {
			after  time.Duration
			reason core.Reason
			limit  int64
			retry  time.Duration
		}{
			{0, core.ReasonOK, 2, 0},
			{0, core.ReasonOK, 2, 0},
			{0, core.ReasonLimited, 2, time.Second},
			{time.Second, core.ReasonOK, 2, 0}, // 1 left a second, 2 a minute, 3 a day
			{0, core.ReasonOK, 2, 0},
			{time.Second, core.ReasonOK, 5, 0},
			{time.Second, core.ReasonLimited, 5, 57 * time.Second},
			{57 * time.Second, core.ReasonOK, 6, 0},
			{time.Second, core.ReasonLimited, 6, 24*time.Hour - 61*time.Second}, // and less than a grain
		}
		for i, step := range steps {
			clock.Advance(step.after)
			d := guardtest.Check(t, g, core.Attempt{Actor: "a"})
			if d.Reason != step.reason || d.Limit != step.limit || d.RetryAfter < step.retry ||
				d.RetryAfter > step.retry+time.Millisecond/2 {
				t.Fatalf("step %d: decision %+v, want %+v", i, d, step)
			}
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "b", Cost: 3})
		if d.Reason != core.ReasonOverLimit || d.Limit != 2 {
			t.Fatalf("a cost over the smallest limit: %+v", d)
		}
	})
}

func TestSlidingWindowRefusalWritesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := NewSlidingWindow(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "w", Per(2, time.Minute))
		guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
		key := g.logKeys(core.Attempt{Actor: "a"})[0]
		before := b.Client.LRange(t.Context(), key, 0, -1).Val()
		for range 20 {
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonLimited)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2}), core.ReasonLimited)
		if after := b.Client.LRange(t.Context(), key, 0, -1).Val(); !slices.Equal(after, before) ||
			len(after) != 3 {
			t.Errorf("the log was %q and is %q", before, after)
		}
	})
}

// Promise: A refund gives back the exact units, once, however late or often it is repeated.
func TestSlidingWindowGivesBackOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(4, time.Minute))
		first := guardtest.Check(t, g, core.Attempt{Actor: "a"})
		clock.Advance(time.Second)
		second := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
		same := guardtest.Check(t, g, core.Attempt{Actor: "a"}) // the same moment as the second
		settle := func(d core.Decision, ok bool) {
			t.Helper()
			if err := g.Settle(t.Context(), d, guardtest.Ending(ok)); err != nil {
				t.Fatal(err)
			}
		}
		settle(first, true)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonLimited)
		for range 3 {
			settle(second, false)
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 3})
		guardtest.WantReason(t, d, core.ReasonLimited)
		if d.Remaining != 2 || d.RetryAfter != 59*time.Second {
			t.Fatalf("after giving two units back: %+v, want 2 remaining and the first unit to leave in 59s", d)
		}
		settle(same, false)
		settle(first, false)
		if n := b.Client.Exists(t.Context(), g.logKeys(core.Attempt{Actor: "a"})...).Val(); n != 0 {
			t.Error("a log without units is left")
		}
		settle(first, false)
		settle(d, false) // it was refused
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 4}), core.ReasonOK)

		if err := g.Settle(t.Context(), core.Decision{Allowed: true, Attempt: core.Attempt{Actor: "a"}},
			core.Rollback); !guardtest.IsInvalid(err) {
			t.Errorf("settling a decision that no guard made: %v", err)
		}
	})
}

// TestSlidingWindowAgainstOracle runs random attempts against a list of admitted units, which is the
// definition.
//
// Promise: A sliding window admits at most N units in any window, and refuses nobody below N.
func TestSlidingWindowAgainstOracle(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		engine := guardtest.NewEngine(b)
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			clock := guardtest.NewClock()
			core.WithClock(clock.Now)(engine)
			limits := rapid.SliceOfNDistinct(rapid.Custom(func(rt *rapid.T) Limit {
				return Per(rapid.Int64Range(1, 6).Draw(rt, "max"),
					time.Duration(rapid.IntRange(1, 40).Draw(rt, "window"))*time.Minute)
			}), 1, 3, func(l Limit) time.Duration { return l.Window }).Draw(rt, "limits")
			g := NewSlidingWindow(engine, fmt.Sprintf("w%d", number), limits[0], limits[1:]...)
			oracle := &windowOracle{limits: limits}
			var allowed []core.Decision
			for range rapid.IntRange(1, 40).Draw(rt, "attempts") {
				clock.Advance(time.Duration(rapid.IntRange(0, 480_000_000).Draw(rt, "us")) * time.Microsecond)
				if len(allowed) > 0 && rapid.IntRange(0, 4).Draw(rt, "refund") == 0 {
					d := rapid.SampledFrom(allowed).Draw(rt, "decision")
					if err := g.Settle(t.Context(), d, core.Rollback); err != nil {
						rt.Fatal(err)
					}
					oracle.refund(d.Attempt.ID)
					continue
				}
				d, err := g.Check(t.Context(), core.Attempt{Actor: "a", Cost: rapid.Int64Range(1, 3).Draw(rt, "cost")})
				if err != nil {
					rt.Fatal(err)
				}
				oracle.judge(rt, clock.Now(), d)
				if d.Allowed {
					allowed = append(allowed, d)
				}
			}
		})
	})
}

// TestSlidingWindowLivesAsLongAsItsUnits lets TTLs and windows run out by the server's clock: the log must
// exist as long as any of its units counts, however rarely its TTL is renewed.
func TestSlidingWindowLivesAsLongAsItsUnits(t *testing.T) {
	b := redistest.Mini(t)
	engine := guardtest.NewEngine(b, core.WithRefusalMemory(0)) // only the server's clock is moved
	now := guardtest.NewClock()
	b.Mini.SetTime(now.Now())
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		window := 16 * time.Second
		limit := Per(rapid.Int64Range(1, 5).Draw(rt, "max"), window)
		g := NewSlidingWindow(engine, fmt.Sprintf("w%d", number), limit)
		oracle := &windowOracle{limits: []Limit{limit}}
		for range 100 {
			now.Advance(rapid.SampledFrom([]time.Duration{
				0, time.Microsecond, window / 16, window/4 - time.Microsecond, window / 4, window * 5 / 16,
				window - time.Microsecond, window,
				window * 5 / 4, window * 9 / 4, window*9/4 + time.Second,
			}).Draw(rt, "advance"))
			b.Mini.SetTime(now.Now())
			d, err := g.Check(t.Context(), core.Attempt{Actor: "a"})
			if err != nil {
				rt.Fatal(err)
			}
			oracle.judge(rt, now.Now(), d)
		}
	})
}

// TestSlidingWindowAfterAPause has more units leave at once than the script reads at once.
func TestSlidingWindowAfterAPause(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		leaves := []int{1, 2, 3, 51, 52, 53, 101, 102, 151, 200}
		if b.Mini != nil { // it takes a second for all
			leaves = []int{1, 52, 200}
		}
		for _, leave := range leaves {
			clock := guardtest.NewClock()
			g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprintf("w%d", leave),
				Per(210, time.Minute))
			for i := range 205 {
				if i == leave {
					clock.Advance(30 * time.Second)
				}
				guardtest.Check(t, g, core.Attempt{Actor: "a"})
			}
			clock.Advance(30 * time.Second)
			if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); d.Remaining != int64(210-205+leave-1) {
				t.Errorf("%+v after %d units left", d, leave)
			}
			clock.Advance(time.Minute)
			if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); d.Remaining != 209 {
				t.Errorf("%+v after all units left", d)
			}
		}
	})
}

type windowOracle struct {
	limits []Limit
	units  []oracleUnit
}

type oracleUnit struct {
	at time.Time
	id string
}

func (o *windowOracle) refund(id string) {
	var rest []oracleUnit
	for _, u := range o.units {
		if u.id != id {
			rest = append(rest, u)
		}
	}
	o.units = rest
}

// left returns the units left in a limit at a moment. Units count as taken at the end of their grain.
func (o *windowOracle) left(l Limit, now time.Time) int64 {
	n := l.Max
	for _, u := range o.units {
		if now.UnixMicro()-ceilDiv(u.at.UnixMicro(), l.grain())*l.grain() < l.Window.Microseconds() {
			n--
		}
	}
	return n
}

func (o *windowOracle) fits(cost int64, now time.Time) bool {
	for _, l := range o.limits {
		if o.left(l, now) < cost {
			return false
		}
	}
	return true
}

func (o *windowOracle) judge(rt *rapid.T, now time.Time, d core.Decision) {
	cost := d.Attempt.Cost
	least := o.limits[0].Max
	for _, l := range o.limits {
		least = min(least, l.Max)
	}
	switch {
	case cost > least:
		if d.Reason != core.ReasonOverLimit {
			rt.Fatalf("%+v: want over_limit", d)
		}
		return
	case o.fits(cost, now) != d.Allowed:
		rt.Fatalf("%+v: the oracle says %v", d, !d.Allowed)
	case !d.Allowed:
		if !o.fits(cost, now.Add(d.RetryAfter)) || o.fits(cost, now.Add(d.RetryAfter-time.Microsecond)) {
			rt.Fatalf("%+v: the retry-after is not exact", d)
		}
		return
	}
	for range cost {
		o.units = append(o.units, oracleUnit{at: now, id: d.Attempt.ID})
	}
	remaining := int64(math.MaxInt64)
	for _, l := range o.limits {
		remaining = min(remaining, o.left(l, now))
	}
	if d.Remaining != remaining {
		rt.Fatalf("%+v: the oracle has %d remaining", d, remaining)
	}
}

func TestSlidingWindowWithAClockSetBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(3, 10*time.Minute))
		setBack := time.Duration(0)
		var admitted []time.Time // by a clock that was not set back
		for range 100 {
			d := guardtest.Check(t, g, core.Attempt{Actor: "a"})
			if d.Allowed {
				admitted = append(admitted, clock.Now().Add(setBack))
			} else if d.RetryAfter <= 0 || d.RetryAfter > 10*time.Minute+time.Millisecond {
				t.Fatalf("%+v: want a retry after a window at most", d)
			}
			if len(admitted) == 3 && setBack == 0 {
				setBack = 5 * time.Minute
				clock.Advance(-setBack)
			}
			clock.Advance(18 * time.Second)
		}
		if len(admitted) == 3 {
			t.Fatal("locked out for good")
		}
		for i := 3; i < len(admitted); i++ {
			if gap := admitted[i].Sub(admitted[i-3]); gap < 10*time.Minute {
				t.Errorf("admissions %d and %d are %v apart", i-3, i, gap)
			}
		}
	})
}

func TestSlidingWindowHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := NewSlidingWindow(guardtest.NewEngine(b), "w", Per(1, time.Minute))
		for _, text := range guardtest.Hostile {
			for _, a := range []core.Attempt{{Actor: text}, {Actor: "x", Resource: text},
				{Actor: text, Resource: "x"}} {
				if a.Actor == "x" && a.Resource == "x" {
					continue
				}
				if d := guardtest.Check(t, g, a); !d.Allowed {
					t.Errorf("%.40q is counted with another: %+v", text, d)
				}
				if d := guardtest.Check(t, g, a); d.Allowed {
					t.Errorf("%.40q is not counted apart", text)
				}
			}
		}
	})
}

// TestSlidingWindowRace runs many processes on one key: exactly N calls are admitted, and no call fails.
func TestSlidingWindowRace(t *testing.T) {
	for _, clients := range []int{2, 16} {
		t.Run(fmt.Sprintf("%d clients", clients), func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				const calls, limit = 400, 50
				guards := make([]*SlidingWindow, clients)
				for i := range guards {
					b.Client = b.NewClient(t)
					guards[i] = NewSlidingWindow(guardtest.NewEngine(b), "w", Per(limit, time.Minute))
				}
				var allowed atomic.Int64
				var all sync.WaitGroup
				start := make(chan struct{})
				for i := range calls {
					all.Go(func() {
						<-start
						d, err := guards[i%clients].Check(t.Context(), core.Attempt{Actor: "a"})
						if err != nil {
							t.Error(err)
						}
						if d.Allowed {
							allowed.Add(1)
						}
					})
				}
				close(start)
				all.Wait()
				if allowed.Load() != limit {
					t.Errorf("%d of %d calls were allowed, want %d", allowed.Load(), calls, limit)
				}
			})
		})
	}
}

// TestRefusalsSearchWhatHasLeft: a refusal by one limit, while all units have left the other, reads few of
// them and writes nothing.
func TestRefusalsSearchWhatHasLeft(t *testing.T) {
	b := redistest.Single(t)
	clock := guardtest.NewClock()
	g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)), "w",
		Per(1000, time.Minute), Per(1000, time.Hour))
	d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 1000})
	clock.Advance(time.Minute)
	before := contents(t, b)
	b.Client.ConfigResetStat(t.Context())
	if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); d.Reason != core.ReasonLimited ||
		d.RetryAfter != 59*time.Minute {
		t.Fatalf("%+v", d)
	}
	reads := 0
	stats := b.Client.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_lindex")
	if _, err := fmt.Sscanf(stats, "calls=%d", &reads); err != nil || reads > 25 {
		t.Errorf("%q: the refusal read %d of 1,000 units", stats, reads)
	}
	if contents(t, b) != before {
		t.Error("the refusal has written")
	}
	guardtest.Settle(t, g, d, core.Rollback)
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 1000}), core.ReasonOK)
}

func TestSlidingWindowLargeCost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := NewSlidingWindow(guardtest.NewEngine(b), "w", Per(10_000, time.Minute), Per(9_999, time.Hour))
		left := int64(9_999)
		for _, cost := range []int64{999, 1, 1000, 1001, 2000, 2001} {
			left -= cost
			if d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: cost}); !d.Allowed || d.Remaining != left ||
				d.Limit != 9_999 {
				t.Fatalf("cost %d: %+v, want %d remaining", cost, d, left)
			}
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: left})
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.Settle(t, g, d, core.Rollback)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: left + 1}), core.ReasonLimited)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: left}), core.ReasonOK)
	})
}

func TestSlidingWindowKeysExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := NewSlidingWindow(guardtest.NewEngine(b), "w", Per(5, time.Minute), Per(9, time.Hour))
		d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 3})
		guardtest.Check(t, g, core.Attempt{Actor: "a"})
		if err := g.Settle(t.Context(), d, core.Rollback); err != nil {
			t.Fatal(err)
		}
		for _, key := range g.logKeys(core.Attempt{Actor: "a"}) {
			const window = time.Hour // the longest
			if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl < window || ttl > window*9/4+2*time.Second {
				t.Errorf("the log of %v expires in %v", window, ttl)
			}
		}
	})
}

func TestSlidingWindowFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	g := NewSlidingWindow(core.New(rdb, core.WithObserver(guardtest.Ignore{}),
		core.WithDeadline(time.Minute)), "w", PerMinute(5))
	first := guardtest.Check(t, g, core.Attempt{Actor: "a"})
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	if _, err := g.Check(t.Context(), core.Attempt{Actor: "a"}); err == nil ||
		!strings.Contains(err.Error(), "OOM") {
		t.Errorf("a full Redis: %v, want its OOM error", err)
	}
	if err := g.Settle(t.Context(), first, core.Rollback); err == nil {
		t.Error("a full Redis stored a refund's mark")
	}
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); d.Remaining != 3 {
		t.Errorf("%+v: want 3 remaining: a failed call charges nothing", d)
	}
	if err := g.Settle(context.WithoutCancel(t.Context()), first, core.Rollback); err != nil {
		t.Error(err)
	}
	if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); d.Remaining != 3 {
		t.Errorf("%+v: want 3 remaining: one was given back", d)
	}
}

// TestSlidingWindowsWhoseUnitsHaveAllLeft: each number of units, because a log is read in chunks.
func TestSlidingWindowsWhoseUnitsHaveAllLeft(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		for n := int64(1); n <= 20; n++ {
			g := NewSlidingWindow(e, fmt.Sprintf("w%d", n), PerSecond(n), PerHour(1000))
			guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: n})
			clock.Advance(2 * time.Second)
			if d := guardtest.Check(t, g, core.Attempt{Actor: "a"}); d.Limit != n || d.Remaining != n-1 {
				t.Errorf("%+v: want %d of %d remaining", d, n-1, n)
			}
		}
	})
}

// TestSlidingWindowByPartsWaitsForSeveralParts: each number of parts, because a log is read in chunks.
func TestSlidingWindowByPartsWaitsForSeveralParts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const parts = 30
		clock := guardtest.NewClock()
		clock.Set(clock.Now().Truncate(time.Minute))
		g := NewSlidingWindow(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w",
			PerMinute(parts).WithResolution(60))
		for range parts {
			guardtest.Check(t, g, core.Attempt{Actor: "a"})
			clock.Advance(time.Second)
		}
		for cost := int64(1); cost <= parts; cost++ {
			d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: cost})
			if want := time.Duration(parts-1+cost) * time.Second; d.Allowed || d.RetryAfter != want {
				t.Errorf("%d units: %+v: want a retry in %v", cost, d, want)
			}
		}
	})
}
