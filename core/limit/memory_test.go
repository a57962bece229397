package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// twins are the same rate limit on Redis and inside the process, under one clock and with the same limits,
// which may change.
type twins struct {
	redis, memory rateLimit
	backend       redistest.Backend
	clock         *guardtest.Clock
	limits        []Limit
}

func newTwins(b redistest.Backend, k kind, name string) *twins {
	w := &twins{backend: b, clock: guardtest.NewClock()}
	by := func(context.Context, core.Attempt) ([]Limit, error) { return slices.Clone(w.limits), nil }
	w.redis = k.by(guardtest.NewEngine(b, guardtest.WithClock(w.clock), core.WithRefusalMemory(0)), name, by)
	w.memory = k.by(guardtest.NewEngine(inMemory, guardtest.WithClock(w.clock)), name, by)
	return w
}

// answers holds both answers to one attempt.
type answers struct{ redis, memory core.Decision }

var errDiffer = errors.New("the answers differ")

// ask asks both, and returns errDiffer when their decisions differ in any field.
func (w *twins) ask(f func(g rateLimit) (core.Decision, error)) (answers, error) {
	var both answers
	var err [2]error
	both.redis, err[0] = f(w.redis)
	both.memory, err[1] = f(w.memory)
	said := both
	said.redis.Source, said.memory.Source = "", ""
	said.redis.SetClaim(stampOf(both.redis))
	said.memory.SetClaim(stampOf(both.memory))
	if err := errors.Join(err[:]...); err != nil {
		return both, err
	}
	if !reflect.DeepEqual(said.redis, said.memory) {
		return both, fmt.Errorf("%w: %v at %d: Redis says %+v, the memory %+v",
			errDiffer, w.limits, w.clock.Now().UnixMicro(), said.redis, said.memory)
	}
	return both, nil
}

func (w *twins) check(ctx context.Context, a core.Attempt) (answers, error) {
	return w.ask(func(g rateLimit) (core.Decision, error) { return g.Check(ctx, a) })
}

func (w *twins) peek(ctx context.Context, a core.Attempt) (answers, error) {
	return w.ask(func(g rateLimit) (core.Decision, error) { return g.Peek(ctx, a) })
}

func (w *twins) refund(ctx context.Context, both answers) error {
	return errors.Join(w.redis.Refund(ctx, both.redis), w.memory.Refund(ctx, both.memory))
}

func (w *twins) reset(ctx context.Context, a core.Attempt) error {
	return errors.Join(w.redis.Reset(ctx, a), w.memory.Reset(ctx, a))
}

// actors returns names of n actors, of whom none takes the place of another in the memory. It drops counters
// that are full when others take their place, since its clock is never set back; the clock of these tests is,
// and Redis then still knows how full a bucket was.
func (w *twins) actors(prefix string, n int) []string {
	var names []string
	parts := map[*storePart]bool{}
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprint(prefix, i)
		if part := w.memory.storePart(core.Attempt{Actor: name}); !parts[part] {
			names, parts[part] = append(names, name), true
		}
	}
	return names
}

// scale is a range of limits and of the time between attempts.
type scale struct {
	name    string
	windows []time.Duration
	maxima  []int64
	step    time.Duration // at most
	greedy  int           // one attempt in this many takes up to a whole limit
	share   int           // of the attempts, in percent
}

// scalesOf returns the scales at which an algorithm is tested: the largest limits, and windows in which
// moments are rounded further.
func scalesOf(k kind) []scale {
	large := map[string][]int64{
		"SlidingWindow": {9_999, 10_000}, "FixedWindow": {10_000, core.MaxAmount},
		"TokenBucket": {9_999_991, 10_000_000},
	}[k.name]
	return []scale{
		{"seconds", []time.Duration{time.Second, 10 * time.Second, 61_001 * time.Millisecond},
			[]int64{1, 2, 3, 5, 7, 20}, 2 * time.Second, 10, 70},
		{"days", []time.Duration{8 * time.Hour, 24 * time.Hour, 36 * time.Hour}, []int64{2, 5, 20, 40}, time.Hour,
			10, 15},
		{"years", []time.Duration{300 * 24 * time.Hour, kit.MaxTTL}, []int64{2, 5, 20, 40}, 20 * 24 * time.Hour,
			10, 10},
		{"large", []time.Duration{time.Minute, time.Hour}, append(large, 1000), 10 * time.Second, 2, 5},
	}
}

// horizon is slightly less than the time for which moments stay distinct.
func (s scale) horizon() time.Duration {
	return time.Duration(7<<28*Per(1, slices.Min(s.windows)).grain()) * time.Microsecond
}

// limits returns limits at random: others, or those of before with another Max.
func (s scale) limits(k kind, rng *rand.Rand, before []Limit) (limits []Limit) {
	if before != nil && rng.IntN(2) == 0 {
		limits = slices.Clone(before)
		for i := range limits {
			limits[i].Max = s.maxima[rng.IntN(len(s.maxima))]
		}
		return limits
	}
	for _, i := range rng.Perm(len(s.windows))[:1+rng.IntN(len(s.windows))] {
		l := Per(s.maxima[rng.IntN(len(s.maxima))], s.windows[i])
		if k.name == "SlidingWindow" {
			l.Resolution = []int64{0, 0, 7, 60}[rng.IntN(4)]
		}
		limits = append(limits, l)
	}
	if !sharesParts(limits) {
		return s.limits(k, rng, before)
	}
	return limits
}

// TestMemoryDecidesAsTheScripts sends random attempts to both under one clock: costs, several limits, limits
// that change and count by parts or not, peeks, refunds, resets, a clock that is set back.
//
// Promise: The memory engine decides as the scripts do.
func TestMemoryDecidesAsTheScripts(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		attempts := 2_000
		switch {
		case guardtest.Soak() && b.Mini != nil:
			attempts = 20_000 // a miniredis is slow
		case guardtest.Soak():
			attempts = 34_000 // 100,000 on each backend
		case b.Mini != nil:
			attempts = 500
		}
		refused, refunds := 0, 0
		for _, s := range scalesOf(k) {
			t.Run(s.name, func(t *testing.T) {
				r, g := compare(t, newTwins(b, k, s.name), k, s, attempts*s.share/100)
				refused, refunds = refused+r, refunds+g
			})
		}
		// Counted over all scales, because the largest limits alone sometimes refuse nobody.
		if !t.Failed() && (refused < attempts/100 || refunds == 0) {
			t.Errorf("%d refused and %d given back of %d: this test could hardly have failed", refused, refunds,
				attempts)
		}
	})
}

// compare sends attempts to both, and returns how many were refused and how many were given back. What a
// generation of actors does depends on its seed alone.
func compare(t *testing.T, w *twins, k kind, s scale, attempts int) (refused, refunds int) {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("GATEHOUSE_SEED"), fmt.Sprint(rand.Uint64())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var allowed []answers
	var first, begun time.Time
	var wait time.Duration
	var actors []string
	var rng *rand.Rand
	generation := 0
	for i := range attempts {
		// By the server's clock, which is independent of the test's clock, a key lives for at least a second.
		// By the test's clock a key can outlive its TTL, so that its 32-bit moments wrap around. So new
		// actors take over from time to time.
		if rng == nil || time.Since(begun) > 800*time.Millisecond || w.clock.Now().Sub(first) > s.horizon() {
			if rng != nil {
				seed = rng.Uint64()
			}
			rng = rand.New(rand.NewPCG(seed, 0))
			first = time.UnixMilli(1_700_000_000_000 + rng.Int64N(1_000_000_000_000))
			w.clock.Set(first)
			begun, allowed, wait = time.Now(), nil, 0
			generation++
			actors = w.actors(fmt.Sprint(generation, " "), 3)
			w.limits = s.limits(k, rng, nil)
			if w.backend.Mini != nil {
				w.backend.Mini.FlushAll() // else the server becomes ever slower
			}
		}
		switch rng.IntN(10) {
		case 0, 1: // exactly when a retry succeeds, or just before
			w.clock.Advance(wait - time.Duration(rng.IntN(2))*time.Microsecond)
		case 2, 3: // a burst
		case 4:
			w.clock.Advance(time.Duration(rng.Int64N(2000)) * time.Microsecond)
		default:
			w.clock.Advance(time.Duration(rng.Int64N(int64(s.step))).Truncate(time.Microsecond))
		}
		if rng.IntN(100) == 0 {
			w.clock.Advance(-time.Duration(rng.Int64N(int64(time.Minute))).Truncate(time.Microsecond))
		}
		if rng.IntN(30) == 0 {
			w.limits = s.limits(k, rng, w.limits)
		}

		a := core.Attempt{Actor: actors[rng.IntN(len(actors))], ID: fmt.Sprint(i), Cost: 1 + rng.Int64N(3)}
		if rng.IntN(s.greedy) == 0 {
			a.Cost = 1 + rng.Int64N(s.maxima[rng.IntN(len(s.maxima))])
		}
		var err error
		switch action := rng.IntN(100); {
		case action < 12 && len(allowed) > 0:
			n := rng.IntN(len(allowed))
			err = w.refund(t.Context(), allowed[n])
			if refunds++; rng.IntN(3) > 0 { // else the same refund may be repeated
				allowed = slices.Delete(allowed, n, n+1)
			}
		case action == 12:
			err = w.reset(t.Context(), a)
		case action < 20:
			_, err = w.peek(t.Context(), a)
		default:
			var both answers
			both, err = w.check(t.Context(), a)
			if wait = both.redis.RetryAfter; wait > 0 {
				refused++
			}
			if both.redis.Allowed && both.memory.Allowed {
				allowed = append(allowed, both)
			}
		}
		if err != nil && (!errors.Is(err, errDiffer) || time.Since(begun) < time.Second) {
			t.Fatalf("attempt %d, %+v: %v (GATEHOUSE_SEED=%d repeats it)", i, a, err, seed)
		}
		if len(allowed) > 50 {
			allowed = allowed[1:]
		}
	}
	return refused, refunds
}

// TestMemoryAsAStateMachine lets rapid search for the shortest sequence on which the scripts and the memory
// differ.
func TestMemoryAsAStateMachine(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			b := redistest.Mini(t)
			b.Mini.SetTime(time.Now()) // no key expires
			number := 0
			rapid.Check(t, func(rt *rapid.T) {
				number++
				w := newTwins(b, k, fmt.Sprintf("w%d", number))
				actors := w.actors("", 2)
				must := func(err error) {
					if err != nil {
						rt.Fatal(err)
					}
				}
				attempt := func(rt *rapid.T) core.Attempt {
					return core.Attempt{
						Actor: rapid.SampledFrom(actors).Draw(rt, "actor"),
						Cost:  rapid.Int64Range(1, 4).Draw(rt, "cost"),
						ID:    "id",
					}
				}
				change := func(rt *rapid.T) {
					if w.limits == nil || rapid.Bool().Draw(rt, "others") {
						w.limits = limitsOf(k).Draw(rt, "limits")
						return
					}
					w.limits = slices.Clone(w.limits)
					for i := range w.limits {
						w.limits[i].Max = rapid.Int64Range(1, 7).Draw(rt, "max")
					}
				}
				change(rt)
				var allowed []answers
				rt.Repeat(map[string]func(*rapid.T){
					"change": change,
					"advance": func(rt *rapid.T) {
						w.clock.Advance(time.Duration(rapid.Int64Range(1, 70_000_000).Draw(rt, "µs")) * time.Microsecond)
					},
					"set back": func(rt *rapid.T) {
						w.clock.Advance(-time.Duration(rapid.Int64Range(1, 60_000_000).Draw(rt, "µs")) * time.Microsecond)
					},
					"check": func(rt *rapid.T) {
						a := attempt(rt)
						a.ID = fmt.Sprint(len(allowed), rapid.Uint64().Draw(rt, "id"))
						both, err := w.check(t.Context(), a)
						must(err)
						if both.redis.Allowed {
							allowed = append(allowed, both)
						}
					},
					"peek": func(rt *rapid.T) {
						_, err := w.peek(t.Context(), attempt(rt))
						must(err)
					},
					"refund": func(rt *rapid.T) {
						if len(allowed) > 0 {
							must(w.refund(t.Context(), rapid.SampledFrom(allowed).Draw(rt, "decision")))
						}
					},
					"reset": func(rt *rapid.T) { must(w.reset(t.Context(), attempt(rt))) },
				})
			})
		})
	}
}

func limitsOf(k kind) *rapid.Generator[[]Limit] {
	return rapid.SliceOfNDistinct(rapid.Custom(func(rt *rapid.T) Limit {
		window := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 61_001 * time.Millisecond,
			24 * time.Hour}).Draw(rt, "window")
		l := Per(rapid.Int64Range(1, 7).Draw(rt, "max"), window)
		if k.name == "SlidingWindow" {
			l.Resolution = rapid.SampledFrom([]int64{0, 0, 2, 9}).Draw(rt, "resolution")
		}
		return l
	}), 1, 3, func(l Limit) time.Duration { return l.Window }).Filter(sharesParts)
}

func TestMemoryRace(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			const calls, limit = 400, 50
			g := k.make(core.NewMemory(), "w", Per(limit, 24*time.Hour), Per(2*limit, 48*time.Hour))
			var allowed atomic.Int64
			var all sync.WaitGroup
			for range calls {
				all.Go(func() {
					d, err := g.Check(t.Context(), core.Attempt{Actor: "a"})
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						allowed.Add(1)
					}
				})
			}
			all.Wait()
			if allowed.Load() != limit {
				t.Errorf("%d of %d calls were allowed, want %d", allowed.Load(), calls, limit)
			}
		})
	}
}

// TestMemoryGivesBackOnce: even when many calls give back the same decision at once.
func TestMemoryGivesBackOnce(t *testing.T) {
	for _, k := range kinds {
		g := k.make(core.NewMemory(), "w", PerDay(10))
		guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 5})
		d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { refund(t, g, d) })
		}
		all.Wait()
		if d := peek(t, g, core.Attempt{Actor: "a"}); d.Remaining != 5 {
			t.Errorf("%s: %+v: want 5 remaining", k.name, d)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	const keys = 640
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			clock := guardtest.NewClock()
			g := k.make(core.NewMemory(core.WithMemoryKeys(keys), guardtest.WithClock(clock)), "w", PerHour(1))
			m := limiterOf(g).local()
			old := core.Attempt{Actor: "old"}
			guardtest.WantReason(t, guardtest.Check(t, g, old), core.ReasonOK)
			for i := range keys - 1 {
				clock.Advance(time.Microsecond)
				guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i)})
				guardtest.WantReason(t, guardtest.Check(t, g, old), core.ReasonLimited)
			}
			for i := range 50 * keys {
				guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint("other", i)})
			}
			if n := m.store.size(); n != keys {
				t.Errorf("%d keys, want %d", n, keys)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, old), core.ReasonOK) // was evicted

			peek(t, g, core.Attempt{Actor: "looked at"})
			if heldBy(g, "looked at") != nil {
				t.Error("a peek has left counters")
			}
		})
	}
}

// heldBy returns the counters that are kept for an actor, nil if there are none.
func heldBy(g rateLimit, actor string) (b counters) {
	key := memoryKeyOf(&core.Attempt{Actor: actor})
	limiterOf(g).local().store.use(&key, 0, func(held counters) counters {
		b = held
		return held
	})
	return b
}

// limiterOf returns the limiter inside any kind of rate limit.
func limiterOf(g rateLimit) *limiter {
	switch g := g.(type) {
	case *SlidingWindow:
		return &g.limiter
	case *FixedWindow:
		return &g.limiter
	default:
		return &g.(*TokenBucket).limiter
	}
}

// TestMemoryDropsEndedWindows: windows that differ with each attempt do not fill the memory.
func TestMemoryDropsEndedWindows(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			clock := guardtest.NewClock()
			var window time.Duration
			g := k.by(core.NewMemory(guardtest.WithClock(clock), core.WithDeadline(time.Minute)), "w",
				func(context.Context, core.Attempt) ([]Limit, error) {
					return []Limit{Per(5, window), PerDay(1000)}, nil
				})
			for i := range 500 {
				window = time.Second + time.Duration(i)*time.Millisecond
				guardtest.Check(t, g, core.Attempt{Actor: "a"})
				clock.Advance(time.Second)
			}
			b := heldBy(g, "a")
			if len(b) > manyWindows+1 {
				t.Errorf("%d windows are kept", len(b))
			}
			if d := peek(t, g, core.Attempt{Actor: "a", Cost: 1}); d.Remaining != 5 && d.Remaining != 4 {
				t.Errorf("%+v", d)
			}
			window = 24*time.Hour + time.Millisecond
			if c := b.of(PerDay(0)); c == nil {
				t.Error("an open window was dropped")
			}
		})
	}
}

// TestSlidingLogIsSmall: the bytes per unit of a log, while it fills and while it moves on.
func TestSlidingLogIsSmall(t *testing.T) {
	of := []Limit{PerHour(10_000)}
	var s slidingLog
	now := int64(1e15)
	for i := range int64(30_000) {
		now += 360_000 // 10,000 an hour
		s.align(of, now)
		if left, _ := s.look(of[0], now, 1); left < 1 {
			t.Fatalf("unit %d: %d left", i, left)
		}
		s.take(of, now, 1, true)
		if used := cap(s.runs); int64(used) > s.units()*13/10+64 {
			t.Fatalf("room for %d moments with %d units in the log", used, s.units())
		}
	}
	if size := reflect.TypeFor[run]().Size(); size != 12 {
		t.Errorf("a moment takes %d bytes", size)
	}

	var whole slidingLog
	whole.take(of, now, 10_000, true)
	if len(whole.runs) != 1 {
		t.Errorf("%d runs for units of one moment", len(whole.runs))
	}

	parts := []Limit{PerHour(1_000_000_000).WithResolution(60)}
	var byParts slidingLog
	for range 10_000 {
		now += 1_000_000
		byParts.take(parts, now, 1000, true)
	}
	if used := cap(byParts.runs); used > 100 {
		t.Errorf("room for %d parts with a resolution of 60", used)
	}
}

// TestTheMemoryHasOneLogForAllLimits: the log of the largest limit, and one by parts only while limits by
// parts are asked for.
func TestTheMemoryHasOneLogForAllLimits(t *testing.T) {
	many := []Limit{Per(100, time.Second), PerMinute(5000), PerHour(9000)}
	limits := many
	g, clock := changing(inMemory, kinds[0], &limits)
	a := core.Attempt{Actor: "ann"}
	logs := func() (oneByOne, byParts *slidingLog) {
		b := heldBy(g, "ann")
		if len(b) != 1 {
			t.Fatalf("%d counters", len(b))
		}
		log := b[0].counter.(*slidingLog)
		oneByOne, _ = log.of(PerHour(1))
		byParts, _ = log.of(PerHour(1).WithResolution(2))
		return oneByOne, byParts
	}
	take := func(n int) {
		t.Helper()
		for range n {
			clock.Advance(20 * time.Millisecond)
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		}
	}
	take(4000)
	limits = many[:1] // keeps what the others need for their windows, and no more of its own than they admit
	take(10_000)
	if log, parts := logs(); parts != nil || log.units() < 9000+9000/4 || log.units() > 9000+9000/2 {
		t.Errorf("%d units, by parts %v: want those of the largest Max and a quarter to a half", log.units(), parts)
	}

	limits = []Limit{PerHour(10_000).WithResolution(60)}
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Cost: 2000}), core.ReasonLimited)
	clock.Advance(time.Hour)
	take(1)
	if log, parts := logs(); log != nil || parts == nil || len(parts.log()) > 60 {
		t.Errorf("one by one %v, by parts %v: want the latter alone, an hour later", log, parts)
	}
	limits = append(limits, PerMinute(10))
	take(9)
	if log, parts := logs(); log == nil || parts == nil {
		t.Error("one of both logs is missing")
	}
	limits = limits[:1]
	clock.Advance(time.Minute)
	take(1)
	if log, _ := logs(); log != nil {
		t.Errorf("nobody has asked for %v in a window", log)
	}
}

// TestAPeekByLongPartsLeavesShortOnesAsTheyAre: they were made anew of the long ones, so a unit that had left
// ten seconds counted for half a minute more.
func TestAPeekByLongPartsLeavesShortOnesAsTheyAre(t *testing.T) {
	short := []Limit{Per(2, 10*time.Second).WithResolution(2), PerMinute(4)}
	limits := short
	g, clock := changing(inMemory, kinds[0], &limits)
	a := core.Attempt{Actor: "ann", Cost: 2}
	guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
	clock.Advance(18 * time.Second)
	limits = []Limit{PerMinute(4), Per(1, 61*time.Second).WithResolution(2)}
	guardtest.WantReason(t, peek(t, g, core.Attempt{Actor: "ann"}), core.ReasonLimited)
	limits = short
	guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
}

// TestMemoryKeepsNoCallersText: a key has its own short text.
func TestMemoryKeepsNoCallersText(t *testing.T) {
	for _, text := range guardtest.Hostile {
		k := memoryKeyOf(&core.Attempt{Actor: text, Resource: text})
		if len(k.actor) > script.MaxPlain || len(k.resource) > script.MaxPlain {
			t.Errorf("%.40q takes %d bytes", text, len(k.actor))
		}
	}
	long := strings.Repeat("x", 10_000)
	hash, _ := shorten(long)
	g := NewSlidingWindow(core.NewMemory(), "w", PerHour(1))
	for _, a := range []core.Attempt{
		{Actor: long}, {Actor: hash}, {Actor: "a", Resource: long}, {Actor: "a", Resource: hash},
		{Actor: long, Resource: hash}, {Actor: hash, Resource: long}, {Actor: hash, Resource: hash},
		{Actor: long, Resource: long},
	} {
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
	}
}

// TestMemoryOfHostileText: every pair of actor and resource is counted apart.
func TestMemoryOfHostileText(t *testing.T) {
	for _, k := range kinds {
		g := k.make(core.NewMemory(), "w", PerHour(1))
		for _, actor := range guardtest.Hostile {
			for _, resource := range append([]string{""}, guardtest.Hostile...) {
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: actor, Resource: resource}),
					core.ReasonOK)
			}
		}
		for _, actor := range guardtest.Hostile {
			for _, resource := range append([]string{""}, guardtest.Hostile...) {
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: actor, Resource: resource}),
					core.ReasonLimited)
			}
		}
	}
}

func TestEngineWithoutRedis(t *testing.T) {
	var h guardtest.Recorder
	e := core.NewMemory(core.WithObserver(&h), core.WithPrefix("x"), core.WithRetryHorizon(time.Minute),
		core.WithDeadline(time.Minute))
	g := NewSlidingWindow(e, "w", PerHour(2))
	if err := e.Preload(t.Context()); err != nil {
		t.Errorf("Preload: %v", err)
	}
	if _, err := e.Run(t.Context(), slidingLogScript.check, []string{e.Key("k", "t")}); !errors.Is(err,
		core.ErrNoRedis) {
		t.Errorf("Run: %v", err)
	}
	a := core.Attempt{Actor: "ann"}
	d := guardtest.Check(t, g, a)
	guardtest.WantReason(t, d, core.ReasonOK)
	if d.Attempt.ID == "" || d.Guard != "w" || d.Window != time.Hour {
		t.Errorf("%+v", d)
	}
	if other := guardtest.Check(t, g, a); other.Attempt.ID == d.Attempt.ID {
		t.Errorf("two attempts have the ID %s", d.Attempt.ID)
	}
	if local, err := g.CheckLocal(t.Context(), a); err != nil || local.Allowed {
		t.Errorf("CheckLocal counts for itself: %+v, %v", local, err)
	}
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Cost: 3}), core.ReasonOverLimit)
	guardtest.WantReason(t, peek(t, g, a), core.ReasonLimited)
	guardtest.Settle(t, g, d, core.Rollback)
	refund(t, g, d)
	guardtest.WantReason(t, peek(t, g, a), core.ReasonOK)
	if err := g.Reset(t.Context(), a); err != nil {
		t.Error(err)
	}
	if _, err := g.Check(t.Context(), core.Attempt{}); !guardtest.IsInvalid(err) {
		t.Errorf("no actor: %v", err)
	}
	elsewhere := guardtest.Check(t, NewFixedWindow(e, "f", PerHour(1)), a)
	if err := g.Refund(t.Context(), elsewhere); !guardtest.IsInvalid(err) {
		t.Errorf("refund of another guard's decision: %v", err)
	}
	var ops []string
	for _, event := range h.Events {
		ops = append(ops, event.Guard+" "+event.Op)
	}
	want := "w check, w check, w check_local, w check, w peek, w settle, w refund, w peek, w reset, w check, " +
		"f check, w refund"
	if got := strings.Join(ops, ", "); got != want {
		t.Errorf("heard %s\nwant  %s", got, want)
	}
	for text, mistake := range map[string]func(){
		"votes: the guard \"v\" needs Redis":   func() { votes.New(e, "v", votes.Options{}) },
		"seckill: the guard \"s\" needs Redis": func() { seckill.New(e, "s", seckill.Options{}) },
		"bans: the guard \"b\" needs Redis":    func() { bans.New(e, "b", bans.Options{}) },
		"quota: the guard \"q\" needs Redis": func() {
			quota.New(e, "q",
				quota.Options{Items: 1, Period: period.Daily(time.UTC)})
		},
		"redpacket: the guard \"r\" needs Redis": func() { redpacket.New(e, "r", redpacket.Options{}) },
		"make its engine with core.New":          func() { votes.New(e, "v", votes.Options{}) },
		"WithMemoryKeys(0)":                      func() { core.WithMemoryKeys(0) },
	} {
		guardtest.WantPanic(t, text, mistake)
	}
}

// TestLimitsByAttemptHaveTheDeadlineInMemory: limits that arrive too late decide nothing in memory either.
func TestLimitsByAttemptHaveTheDeadlineInMemory(t *testing.T) {
	e := core.NewMemory(core.WithDeadline(20*time.Millisecond), core.WithObserver(guardtest.Ignore{}))
	g := NewSlidingWindowBy(e, "w", func(ctx context.Context, _ core.Attempt) ([]Limit, error) {
		<-ctx.Done()
		return []Limit{PerHour(1)}, nil
	})
	if d, err := g.Check(t.Context(), core.Attempt{Actor: "a"}); d.Allowed ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestCheckLocal: while Redis is down a limit counts in this process alone, and refunds go to the local
// count.
func TestCheckLocal(t *testing.T) {
	e := core.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1}),
		core.WithObserver(guardtest.Ignore{}))
	for _, g := range []kit.LocalGuard{
		NewSlidingWindow(e, "w", PerHour(2)), NewFixedWindow(e, "f", PerHour(2)),
		NewTokenBucket(e, "b", PerHour(2)),
	} {
		local := func(a core.Attempt) core.Decision {
			t.Helper()
			d, err := g.CheckLocal(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		first := local(core.Attempt{Actor: "ann"})
		guardtest.WantReason(t, first, core.ReasonOK)
		guardtest.WantReason(t, local(core.Attempt{Actor: "ann"}), core.ReasonOK)
		d := local(core.Attempt{Actor: "ann"})
		guardtest.WantReason(t, d, core.ReasonLimited)
		wait := time.Hour // a unit comes back as the guard's own algorithm says
		if g.Name() == "b" {
			wait /= 2
		}
		if d.RetryAfter <= wait-time.Minute || d.RetryAfter > wait+100*time.Microsecond {
			t.Errorf("%s: %+v", g.Name(), d)
		}
		guardtest.WantReason(t, local(core.Attempt{Actor: "ann", Resource: "other"}), core.ReasonOK)
		guardtest.WantReason(t, local(core.Attempt{Actor: "ann", Cost: 3}), core.ReasonOverLimit)
		guardtest.Settle(t, g, first, core.Commit)
		guardtest.WantReason(t, local(core.Attempt{Actor: "ann"}), core.ReasonLimited)
		guardtest.Settle(t, g, first, core.Rollback)
		guardtest.Settle(t, g, first, core.Rollback)
		guardtest.WantReason(t, local(core.Attempt{Actor: "ann"}), core.ReasonOK)
		guardtest.WantReason(t, local(core.Attempt{Actor: "ann"}), core.ReasonLimited)
		if _, err := g.CheckLocal(t.Context(), core.Attempt{}); !guardtest.IsInvalid(err) {
			t.Errorf("no actor: %v", err)
		}
		if g.Traits().Outage != core.FailLocal {
			t.Errorf("%s: %+v", g.Name(), g.Traits())
		}
	}
}

// BenchmarkMemory measures one check on an engine without Redis, cycling through 1,000 actors.
func BenchmarkMemory(b *testing.B) {
	attempts := make([]core.Attempt, 1000)
	for i := range attempts {
		attempts[i] = core.Attempt{Actor: fmt.Sprint("203.0.113.", i)}
	}
	for _, k := range kinds {
		// The clock moves so that each attempt comes when there is room for it.
		b.Run(k.name+"/allowed", func(b *testing.B) {
			g := k.make(core.NewMemory(), "w", PerMinute(100))
			step := time.Minute/100/time.Duration(len(attempts)) + time.Microsecond
			now := time.Now()
			core.WithClock(func() time.Time { now = now.Add(step); return now })(limiterOf(g).Engine())
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d, err := g.Check(b.Context(), attempts[i%len(attempts)]); err != nil || !d.Allowed {
					b.Fatalf("attempt %d: %+v, %v", i, d, err)
				}
			}
		})
		b.Run(k.name+"/allowed by the process's clock", func(b *testing.B) {
			g := k.make(core.NewMemory(), "w", Per(1000, time.Millisecond))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d, err := g.Check(b.Context(), attempts[i%len(attempts)]); err != nil || !d.Allowed {
					b.Fatalf("attempt %d: %+v, %v", i, d, err)
				}
			}
		})
		b.Run(k.name+"/refused", func(b *testing.B) {
			g := k.make(core.NewMemory(), "w", Per(100, 24*time.Hour))
			for _, a := range attempts {
				a.Cost = 100
				if _, err := g.Check(b.Context(), a); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if d, _ := g.Check(b.Context(), attempts[i%len(attempts)]); d.Allowed {
					b.Fatalf("%+v", d)
				}
			}
		})
	}
}
