package limit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestRefusalsAreRemembered runs each scenario step by step: the time that passes, who answers, and what.
func TestRefusalsAreRemembered(t *testing.T) {
	const remembered, asked = core.SourceRemembered, core.SourceRedis
	type step struct {
		after  time.Duration
		cost   int64
		source core.Source
		retry  time.Duration // 0: allowed
	}
	for name, story := range map[string]struct {
		options []core.Option
		limit   Limit
		steps   []step
	}{
		"for a second": {nil, Per(2, time.Minute), []step{
			{0, 2, asked, 0},
			{0, 1, asked, time.Minute},
			{0, 1, remembered, time.Minute},
			{time.Second - time.Nanosecond, 1, remembered, 59*time.Second + time.Nanosecond},
			{time.Nanosecond, 1, asked, 59 * time.Second},
			{time.Second / 2, 1, remembered, 58*time.Second + time.Second/2},
		}},
		"no longer than it is certain": {nil, Per(2, time.Minute), []step{
			{0, 2, asked, 0},
			{time.Minute - 100*time.Millisecond, 1, asked, 100 * time.Millisecond},
			{99 * time.Millisecond, 1, remembered, time.Millisecond},
			{time.Millisecond, 1, asked, 0},
		}},
		"for the time of the option": {[]core.Option{core.WithRefusalMemory(10 * time.Millisecond)},
			Per(2, time.Minute), []step{
				{0, 2, asked, 0},
				{0, 1, asked, time.Minute},
				{9 * time.Millisecond, 1, remembered, time.Minute - 9*time.Millisecond},
				{time.Millisecond, 1, asked, time.Minute - 10*time.Millisecond},
			}},
		"not at all": {[]core.Option{core.WithRefusalMemory(0)}, Per(2, time.Minute), []step{
			{0, 2, asked, 0},
			{0, 1, asked, time.Minute},
			{0, 1, asked, time.Minute},
		}},
		"by its cost": {nil, Per(10, time.Minute), []step{
			{0, 4, asked, 0},
			{time.Second, 4, asked, 0},
			{0, 3, asked, 59 * time.Second},
			{0, 7, asked, 60 * time.Second}, // refused for longer than a cost of three
			{0, 7, remembered, 60 * time.Second},
			{0, 3, remembered, 59 * time.Second},
			{0, 2, asked, 0},                // fits
			{0, 7, asked, 60 * time.Second}, // waits for the two as well
			{0, 1, asked, 59 * time.Second},
			{0, 1, remembered, 59 * time.Second},
		}},
		"for four costs": {nil, Per(9, time.Minute), []step{
			{0, 9, asked, 0},
			{0, 1, asked, time.Minute},
			{0, 2, asked, time.Minute},
			{0, 3, asked, time.Minute},
			{0, 4, asked, time.Minute},
			{0, 5, asked, time.Minute},
			{0, 5, asked, time.Minute},
			{0, 1, remembered, time.Minute},
			{0, 4, remembered, time.Minute},
			{time.Second, 5, asked, 59 * time.Second},
			{0, 5, remembered, 59 * time.Second},
		}},
		"not by a clock that is set back": {nil, Per(2, time.Minute), []step{
			{0, 2, asked, 0},
			{2 * time.Second, 1, asked, 58 * time.Second},
			{-time.Nanosecond, 1, asked, 58*time.Second + time.Microsecond},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				clock := guardtest.NewClock()
				g := NewSlidingWindow(guardtest.NewEngine(b, append(story.options, guardtest.WithClock(clock))...), "w",
					story.limit)
				for i, step := range story.steps {
					clock.Advance(step.after)
					d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: step.cost})
					if d.Source != step.source || d.RetryAfter != step.retry || d.Allowed != (step.retry == 0) {
						t.Fatalf("step %d: decision %+v, want %+v", i+1, d, step)
					}
				}
			})
		})
	}
}

// TestRememberedRefusalSaysWhatRedisSaid, except for the source and the time that has passed.
func TestRememberedRefusalSaysWhatRedisSaid(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		var h guardtest.Recorder
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithObserver(&h)), "w",
			Per(5, time.Minute), Per(4, time.Hour))
		guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "r", Cost: 3})
		want := guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "r", Cost: 2, ID: "x"})
		guardtest.WantSource(t, want, core.SourceRedis)
		clock.Advance(500 * time.Millisecond)
		got := guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "r", Cost: 2, ID: "y"})
		if last := h.Events[len(h.Events)-1]; last.Op != "check" || last.Decision.Source != core.SourceRemembered {
			t.Errorf("heard %+v", last)
		}
		want.Source, want.Attempt.ID = core.SourceRemembered, "y"
		want.RetryAfter -= 500 * time.Millisecond
		want.ResetAfter -= 500 * time.Millisecond
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}

		guardtest.WantSource(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "s", Cost: 2}),
			core.SourceRedis)
		guardtest.WantSource(t, guardtest.Check(t, g, core.Attempt{Actor: "r|a", Cost: 2}), core.SourceRedis)
		guardtest.WantSource(t, peek(t, g, core.Attempt{Actor: "a", Resource: "r"}), core.SourceRedis)
		// more than the limit, no matter what was taken
		guardtest.WantSource(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 9}), "")
	})
}

func TestRefusalsAreByTheirLimits(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		limits := []Limit{PerHour(2)}
		g := k.by(guardtest.NewEngine(b, guardtest.WithClock(guardtest.NewClock())), "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return slices.Clone(limits), nil })
		a := core.Attempt{Actor: "a"}
		guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 2})
		guardtest.WantSource(t, guardtest.Check(t, g, a), core.SourceRedis)
		guardtest.WantSource(t, guardtest.Check(t, g, a), core.SourceRemembered)
		limits = []Limit{PerHour(1)}
		guardtest.WantSource(t, guardtest.Check(t, g, a), core.SourceRedis)
		limits = []Limit{PerHour(2)}
		guardtest.WantSource(t, guardtest.Check(t, g, a), core.SourceRemembered)
		limits = []Limit{PerHour(2), PerDay(9)}
		guardtest.WantSource(t, guardtest.Check(t, g, a), core.SourceRedis)
		limits = []Limit{Per(3, time.Minute)} // another tier, in whose window no unit was taken
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
	})
}

// TestRefusalsUnderLimitsThatAreChangedInPlace: the function returns one slice and changes it, and an attempt
// under the new limits was answered with the refusal under the old ones.
func TestRefusalsUnderLimitsThatAreChangedInPlace(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		limits := []Limit{PerHour(1)}
		g := k.by(guardtest.NewEngine(b, guardtest.WithClock(guardtest.NewClock())), "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
		a := core.Attempt{Actor: "a"}
		guardtest.Check(t, g, a)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
		guardtest.WantSource(t, guardtest.Check(t, g, a), core.SourceRemembered)
		limits[0] = PerDay(5)
		d := guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.WantSource(t, d, core.SourceRedis)
	})
}

// waysBack are all calls that give units back.
var waysBack = map[string]func(ctx context.Context, g rateLimit, taken core.Decision) error{
	"refund": func(ctx context.Context, g rateLimit, taken core.Decision) error { return g.Refund(ctx, taken) },
	"settle": func(ctx context.Context, g rateLimit, taken core.Decision) error {
		return g.Settle(ctx, taken, core.Rollback)
	},
	"reset": func(ctx context.Context, g rateLimit,
		taken core.Decision) error {
		return g.Reset(ctx, taken.Attempt)
	},
}

func TestRefusalsAreDroppedWhenRoomIsMade(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		for name, makeRoom := range waysBack {
			g := k.make(guardtest.NewEngine(b, guardtest.WithClock(guardtest.NewClock())), name, PerHour(1))
			taken := guardtest.Check(t, g, core.Attempt{Actor: "a", Resource: "r"})
			guardtest.WantReason(t, guardtest.Check(t, g, taken.Attempt), core.ReasonLimited)
			guardtest.WantSource(t, guardtest.Check(t, g, taken.Attempt), core.SourceRemembered)
			if err := makeRoom(t.Context(), g, taken); err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, taken.Attempt), core.ReasonOK)
		}
	})
}

// cutting is a client that loses replies on demand.
type cutting struct {
	script.Client
	cut atomic.Bool
}

func (c *cutting) Process(ctx context.Context, cmd redis.Cmder) error {
	err := c.Client.Process(ctx, cmd)
	if c.cut.Load() {
		cmd.SetErr(context.DeadlineExceeded)
	}
	return err
}

// TestRefusalsAreDroppedWhenRoomMayHaveBeenMade: a refund whose reply was lost may have been done.
func TestRefusalsAreDroppedWhenRoomMayHaveBeenMade(t *testing.T) {
	for name, makeRoom := range waysBack {
		b := redistest.Mini(t)
		client := &cutting{Client: b.Client}
		e := guardtest.NewEngineOver(b, client, guardtest.WithClock(guardtest.NewClock()))
		g := NewSlidingWindow(e, name, PerHour(1))
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		taken := guardtest.Check(t, g, core.Attempt{Actor: "a"})
		guardtest.WantReason(t, guardtest.Check(t, g, taken.Attempt), core.ReasonLimited)
		client.cut.Store(true)
		if makeRoom(t.Context(), g, taken) == nil {
			t.Errorf("%s: no error", name)
		}
		client.cut.Store(false)
		guardtest.WantReason(t, guardtest.Check(t, g, taken.Attempt), core.ReasonOK)
	}
}

// holding is a client that holds back the reply of the next call on demand.
type holding struct {
	script.Client
	hold    atomic.Bool
	replied chan struct{} // a reply has arrived
	release chan struct{}
}

func (c *holding) Process(ctx context.Context, cmd redis.Cmder) error {
	held := c.hold.CompareAndSwap(true, false)
	err := c.Client.Process(ctx, cmd)
	if held {
		close(c.replied)
		<-c.release
	}
	return err
}

// TestRefusalInFlightIsDroppedToo: Redis refused before units came back, but the reply arrives after.
func TestRefusalInFlightIsDroppedToo(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		for name, makeRoom := range waysBack {
			client := &holding{Client: b.Client, replied: make(chan struct{}), release: make(chan struct{})}
			e := guardtest.NewEngineOver(b, client)
			g := k.make(e, name, PerHour(1))
			taken := guardtest.Check(t, g, core.Attempt{Actor: "a"})

			client.hold.Store(true)
			late := make(chan core.Decision)
			go func() {
				d, _ := g.Check(t.Context(), core.Attempt{Actor: "a"})
				late <- d
			}()
			<-client.replied
			if err := makeRoom(t.Context(), g, taken); err != nil {
				t.Fatal(err)
			}
			close(client.release)
			guardtest.WantReason(t, <-late, core.ReasonLimited)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonOK)
		}
	})
}

// TestRefusalsRace: whatever ran concurrently, the next attempt is admitted after all units were given back.
func TestRefusalsRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := NewSlidingWindow(guardtest.NewEngine(b), "w", PerHour(2))
		for round := range 100 {
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for range 3 {
						a := core.Attempt{Actor: "a", Cost: int64(i%2) + 1}
						d, err := g.Check(t.Context(), a)
						if err == nil {
							err = g.Refund(t.Context(), d)
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			for cost := range int64(2) {
				d := guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: cost + 1})
				if !d.Allowed {
					t.Fatalf("round %d: %+v after all was given back", round, d)
				}
				refund(t, g, d)
			}
		}
	})
}

// TestRefusalsAgainstAnotherProcess runs two processes on one key under one clock; only the first remembers
// refusals. They take, give back and reset at random. Whenever the first answers from memory, Redis, asked by
// the second, must refuse as well, unless the second has given units back in the last second.
//
// The answers are the same where, in the last second, the second has taken nothing and the limits have not
// changed: a check under other limits may bring the log into another form, in which units that were counted
// by parts leave a little earlier or later than what is remembered.
func TestRefusalsAgainstAnotherProcess(t *testing.T) {
	eachKind(t, func(t *testing.T, b redistest.Backend, k kind) {
		mine, others := guardtest.NewEngine(b), guardtest.NewEngine(b, core.WithRefusalMemory(0))
		limitsGen := rapid.SliceOfNDistinct(rapid.Custom(func(rt *rapid.T) Limit {
			window := rapid.SampledFrom([]time.Duration{time.Second, 2_345 * time.Millisecond, time.Minute}).Draw(rt,
				"window")
			limit := Per(rapid.Int64Range(1, 7).Draw(rt, "max"), window)
			if k.name == "SlidingWindow" && rapid.Bool().Draw(rt, "by parts") {
				limit = limit.WithResolution(10)
			}
			return limit
		}), 1, 3, func(l Limit) time.Duration { return l.Window })
		steps := []int{0, 0, 0, 0, 1, 1000, 99_999, 99_999, 300_000, 999_999, 1_000_000, 60_000_000} // microseconds
		var n comparisons
		rapid.Check(t, func(rt *rapid.T) {
			n.cases++
			p := &twoProcesses{begun: time.Now(), clock: guardtest.NewClock(), lives: time.Minute}
			guardtest.WithClock(p.clock)(mine)
			guardtest.WithClock(p.clock)(others)
			p.use(limitsGen.Draw(rt, "limits"))
			p.changed, p.renews = time.Time{}, false // no other limits were there before
			name := fmt.Sprintf("w%d", n.cases)
			static := rapid.Bool().Draw(rt, "static")
			if p.static = static; static {
				p.mine, p.other = k.make(mine, name, p.limits[0], p.limits[1:]...),
					k.make(others, name, p.limits[0], p.limits[1:]...)
			} else {
				by := func(context.Context, core.Attempt) ([]Limit, error) { return p.limits, nil }
				p.mine, p.other = k.by(mine, name, by), k.by(others, name, by)
			}

			// Each case compares one answer at least: all units are taken, and two more attempts refused.
			least := slices.MinFunc(p.limits, func(a, b Limit) int { return int(a.Max - b.Max) })
			for _, cost := range []int64{least.Max, 1, 1} {
				p.check(t, rt, p.mine, core.Attempt{Actor: "a", Cost: cost}, &n)
			}
			for range rapid.IntRange(20, 100).Draw(rt, "steps") {
				if !static && rapid.IntRange(0, 19).Draw(rt, "change") == 0 {
					p.use(limitsGen.Draw(rt, "limits"))
				}
				step := rapid.SampledFrom(steps).Draw(rt, "step")
				p.clock.Advance(time.Duration(step) * time.Microsecond)
				g := p.mine
				if rapid.Bool().Draw(rt, "other") {
					g = p.other
				}
				if !p.act(t, rt, g, &n) {
					return
				}
			}
		})
		t.Logf("%d answers from memory, %d of them compared exactly, %d where the other process had made room",
			n.remembered, n.exact, n.seenLate)
		if n.remembered == 0 || n.exact == 0 {
			t.Error("nothing was compared")
		}
	})
}

// comparisons counts what TestRefusalsAgainstAnotherProcess has compared.
type comparisons struct{ cases, remembered, exact, seenLate int }

// twoProcesses are a process that remembers refusals and one that does not.
type twoProcesses struct {
	mine, other       rateLimit
	limits            []Limit
	clock             *guardtest.Clock
	begun             time.Time     // by the process's clock
	lives             time.Duration // of all keys, by the server's clock
	allowed           []core.Decision
	madeRoom, changed time.Time // the other process last did, or took units, or the limits changed
	renews            bool      // the next call of Redis brings the logs into the form of other limits
	renewed           time.Time // when one last did
	static            bool      // the limits never change
}

// use changes the limits.
func (p *twoProcesses) use(limits []Limit) {
	p.limits, p.changed, p.renews = limits, p.clock.Now(), true
	for _, l := range limits {
		p.lives = min(p.lives, l.Window)
	}
}

// isLate reports whether keys may have expired by the server's clock.
func (p *twoProcesses) isLate() bool { return time.Since(p.begun) > p.lives*9/10 }

// act makes one call at random. It reports whether the case goes on.
func (p *twoProcesses) act(t *testing.T, rt *rapid.T, g rateLimit, n *comparisons) bool {
	var err error
	switch action := rapid.IntRange(0, 19).Draw(rt, "action"); {
	case action == 1 && len(p.allowed) > 0:
		err = g.Refund(t.Context(), rapid.SampledFrom(p.allowed).Draw(rt, "decision"))
	case action == 2:
		err = g.Reset(t.Context(), core.Attempt{Actor: "a"})
	default:
		return p.check(t, rt, g, core.Attempt{Actor: "a", Cost: rapid.Int64Range(1, 3).Draw(rt, "cost")}, n)
	}
	if err != nil {
		rt.Fatal(err)
	}
	if g == p.other {
		p.madeRoom = p.clock.Now()
	}
	return true
}

// check makes a check, and asks Redis whether an answer from memory is right. It reports whether the case
// goes on.
func (p *twoProcesses) check(t *testing.T, rt *rapid.T, g rateLimit, a core.Attempt, n *comparisons) bool {
	d, err := g.Check(t.Context(), a)
	if err != nil {
		rt.Fatal(err)
	}
	if d.Allowed {
		p.allowed = append(p.allowed, d)
		if g == p.other {
			p.changed = p.clock.Now()
		}
	}
	if p.renews && d.Source == core.SourceRedis {
		// Units that move into the parts of another limit may count a little longer, and those that leave such
		// parts a little shorter, than this answer says.
		p.changed, p.renews = p.clock.Now(), false
		p.renewed = p.changed
	}
	if p.isLate() || d.Source != core.SourceRemembered {
		return !p.isLate()
	}
	truth, err := p.other.Check(t.Context(), a)
	if err != nil {
		rt.Fatal(err)
	}
	if p.isLate() {
		return false
	}
	n.remembered++
	switch now := p.clock.Now(); {
	case now.Sub(p.madeRoom) < time.Second, now.Sub(p.renewed) < time.Second && !p.static:
		if truth.Allowed {
			n.seenLate++
			p.allowed, p.changed = append(p.allowed, truth), now
		}
	case truth.Allowed:
		rt.Fatalf("%v: refused from memory: %+v: Redis: %+v", p.limits, d, truth)
	case d.RetryAfter > truth.RetryAfter && (p.static || now.Sub(p.changed) >= time.Second):
		rt.Fatalf("%v: waits longer from memory: %+v: Redis: %+v", p.limits, d, truth)
	case now.Sub(p.changed) >= time.Second:
		n.exact++
		if d.RetryAfter != truth.RetryAfter || d.ResetAfter != truth.ResetAfter || d.Limit != truth.Limit ||
			d.Window != truth.Window {
			rt.Fatalf("%v: from memory: %+v: Redis: %+v", p.limits, d, truth)
		}
	}
	return true
}

// TestFloodStaysOutOfRedis is one client that never stops: 60,000 refused calls in three seconds, by 16
// goroutines.
//
// Promise: A flood of refused requests stays out of Redis: 99 % of 60,000 in three seconds.
func TestFloodStaysOutOfRedis(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		const calls, goroutines = 60_000, 16
		clock := guardtest.NewClock()
		client := &guardtest.Counting{Client: b.Client}
		e := guardtest.NewEngineOver(b, client, guardtest.WithClock(clock))
		g := NewSlidingWindow(e, "w", Per(5, time.Minute))
		end := clock.Now().Add(time.Minute)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a", Cost: 5}), core.ReasonOK)
		client.Sent.Store(0)
		var wrong atomic.Int64
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range calls / goroutines {
					clock.Advance(3 * time.Second / calls)
					d, err := g.Check(t.Context(), core.Attempt{Actor: "a"})
					if err != nil || d.Allowed || d.RetryAfter < end.Sub(clock.Now()) || d.RetryAfter > time.Minute {
						wrong.Add(1)
					}
				}
			})
		}
		all.Wait()
		sent := client.Sent.Load()
		t.Logf("%d of %d refused calls were sent to Redis, %d goroutines", sent, calls, goroutines)
		if sent > calls/100 {
			t.Errorf("%d of %d refused calls were sent to Redis, want 1 %% at most", sent, calls)
		}
		if wrong.Load() > 0 {
			t.Errorf("%d answers differ from those of Redis", wrong.Load())
		}
		if n := g.refusals.keys.Len(); n != 1 {
			t.Errorf("%d keys are remembered", n)
		}
		clock.Advance(end.Sub(clock.Now()))
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "a"}), core.ReasonOK)
	})
}

// Promise: The memory of refusals is bounded. A reset or refund in the process drops them.
func TestRefusalsAreBounded(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newRefusals(time.Second)
	limits := []Limit{PerMinute(9)}
	now := guardtest.NewClock().Now()
	for i := range refusalKeys * 3 / 2 {
		key := fmt.Sprint(i)
		for range refusalCosts + 2 {
			d := core.Decision{Attempt: core.Attempt{Cost: rng.Int64N(9) + 1}, RetryAfter: time.Minute}
			r.hear(r.ask(key, now), limits, d, now)
		}
		if known, _ := r.keys.Last(key); len(known) > refusalCosts || cap(known) > refusalCosts {
			t.Fatalf("key %d: %d refusals", i, len(known))
		}
	}
	if n := r.keys.Len(); n > refusalKeys || n < refusalKeys/2 {
		t.Errorf("%d keys, want at most %d", n, refusalKeys)
	}
}

// TestRefusalsTakeLateReplies: a refusal that arrives after its time, or was dropped meanwhile, is not kept.
func TestRefusalsTakeLateReplies(t *testing.T) {
	limits := []Limit{PerMinute(9)}
	sent := guardtest.NewClock().Now()
	for name, c := range map[string]struct {
		retry, came time.Duration
		meanwhile   func(r *refusals)
		want        bool
	}{
		"in time":                {time.Minute, 10 * time.Millisecond, nil, true},
		"just in time":           {10 * time.Millisecond, 10*time.Millisecond - 1, nil, true},
		"when it is over":        {10 * time.Millisecond, 10 * time.Millisecond, nil, false},
		"after the time of most": {time.Minute, time.Second, nil, false},
		"without a wait":         {0, 0, nil, false},
		"after a drop":           {time.Minute, 0, func(r *refusals) { r.drop("a") }, false},
		"after another's drop":   {time.Minute, 0, func(r *refusals) { r.drop("b") }, true},
		"after one was allowed": {time.Minute, 0, func(r *refusals) {
			r.hear(r.ask("a", sent), limits, core.Decision{Allowed: true}, sent)
		}, false},
	} {
		r := newRefusals(time.Second)
		call := r.ask("a", sent)
		for r.drop("b"); r.keys.Dropped(call); r.drop("b") { // two keys share a mark: one chance in a thousand
			r = newRefusals(time.Second)
			call = r.ask("a", sent)
		}
		if c.meanwhile != nil {
			c.meanwhile(r)
		}
		came := sent.Add(c.came)
		r.hear(call, limits, core.Decision{Attempt: core.Attempt{Cost: 1}, RetryAfter: c.retry}, came)
		if _, ok := r.find("a", limits, 1, came); ok != c.want {
			t.Errorf("%s: remembered: %v", name, ok)
		}
	}
}

// TestRefusalAnswersCallsMadeWhileItWasInFlight: otherwise concurrent calls would all go to Redis, and each
// would make the next one's refusal too new for it. A flood once sent 905 of 60,000 calls that way.
func TestRefusalAnswersCallsMadeWhileItWasInFlight(t *testing.T) {
	limits := []Limit{PerMinute(9)}
	r := newRefusals(time.Second)
	sent := guardtest.NewClock().Now()
	came := sent.Add(10 * time.Millisecond)
	r.hear(r.ask("a", sent), limits, core.Decision{Attempt: core.Attempt{Cost: 1}, RetryAfter: time.Minute},
		came)
	for after, want := range map[time.Duration]time.Duration{
		0:                     time.Minute, // how much of the wait had passed when the reply came is unknown
		time.Millisecond:      time.Minute,
		10 * time.Millisecond: time.Minute,
		11 * time.Millisecond: time.Minute - time.Millisecond,
	} {
		var d core.Decision
		now := sent.Add(after)
		one, ok := r.find("a", limits, 1, now)
		if one.answer(&d, now); !ok || d.RetryAfter != want {
			t.Errorf("after %v: %v, %v, want %v", after, ok, d.RetryAfter, want)
		}
	}
	if _, ok := r.find("a", limits, 1, sent.Add(-time.Nanosecond)); ok {
		t.Error("a clock that was set back finds a refusal from the future")
	}
}

func BenchmarkRememberedRefusal(b *testing.B) {
	e := guardtest.NewEngine(redistest.Single(b))
	g := NewSlidingWindow(e, "w", PerHour(1))
	for range 2 {
		if _, err := g.Check(b.Context(), core.Attempt{Actor: "203.0.113.7"}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if d, err := g.Check(b.Context(), core.Attempt{Actor: "203.0.113.7"}); err != nil || d.Allowed {
				b.Error(d, err)
			}
		}
	})
}
