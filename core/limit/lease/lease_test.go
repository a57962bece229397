package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

var tenant = core.Attempt{Actor: "tenant", Resource: "api"}

// partBegins is a moment in a part of any window, right after its begin. Near its end a process is lent next
// to nothing for the rest of it.
var partBegins = time.Unix(1_800_000_000, 1_000_000)

// leasing is a process that lends: an engine and a guard of its own.
type leasing struct {
	*Guard
	engine *core.Engine
	lossy  *losing
}

// losing is a client that counts what it sends, and loses replies of commands that have run.
type losing struct {
	script.Client
	sent atomic.Int64
	lose atomic.Bool
}

func (c *losing) Process(ctx context.Context, cmd redis.Cmder) error {
	c.sent.Add(1)
	err := c.Client.Process(ctx, cmd)
	if c.lose.CompareAndSwap(true, false) {
		err = errors.New("lost by the test")
		cmd.SetErr(err)
	}
	return err
}

func newLeasing(b redistest.Backend, name string, l limit.Limit, options ...core.Option) *leasing {
	return newLeasingOver(b, b.Client, name, l, options...)
}

// newLeasingOver is newLeasing with a client that a test has put in front of the backend's.
func newLeasingOver(
	b redistest.Backend, client script.Client, name string, l limit.Limit, options ...core.Option,
) *leasing {
	lossy := &losing{Client: client}
	options = append(options, core.WithBreaker(1000, 0))
	e := guardtest.NewEngineOver(b, lossy, options...)
	return &leasing{New(e, name, l), e, lossy}
}

// inHand returns the units that the process has, whether they may still be handed out or not.
func (p *leasing) inHand() int64 {
	s := p.hands.get(keyOf(&tenant))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lot.Units
}

// grant is an allowed decision, of a process at a moment.
type grant struct {
	d  core.Decision
	by *leasing
	at int64
}

// admitted is the moments of units that were admitted and not given back, in microseconds.
type admitted []int64

// most returns the most units in any window that ends with one of them.
func (m admitted) most(window time.Duration) (most int) {
	slices.Sort(m)
	first := 0
	for last, at := range m {
		for m[first] <= at-window.Microseconds() {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

func (m admitted) add(at time.Time, n int64) admitted {
	for range n {
		m = append(m, at.UnixMicro())
	}
	return m
}

// fleet is processes that lend units of one limit, and what they have admitted.
type fleet struct {
	of        limit.Limit
	clock     *guardtest.Clock // that is right
	start     func() *leasing
	processes []*leasing
	in        admitted
	allowed   []grant
	admits    func(grant) // is told of what is admitted, if it is not nil
	refunds   func(grant) // is told of what is given back, if it is not nil
}

// newFleet draws a limit and a number of processes. Windows are no multiples of their parts too. Keys live
// for a window of the server's clock, which is not the test's, so that windows are long.
func newFleet(rt *rapid.T, start func(of limit.Limit, clock *guardtest.Clock) *leasing) *fleet {
	parts := rapid.SampledFrom([]int64{2, 3, 7, 20}).Draw(rt, "parts")
	most := rapid.Int64Range(least*parts, 400).Draw(rt, "max")
	windows := []time.Duration{10 * time.Minute, 3661_001 * time.Millisecond}
	window := rapid.SampledFrom(windows).Draw(rt, "window")
	f := &fleet{of: limit.Per(most, window).WithResolution(parts), clock: guardtest.NewClock()}
	f.start = func() *leasing { return start(f.of, f.clock) }
	f.processes = make([]*leasing, rapid.SampledFrom([]int{1, 2, 4, 16}).Draw(rt, "processes"))
	for i := range f.processes {
		f.processes[i] = f.start()
	}
	return f
}

func (f *fleet) part() time.Duration {
	return part(f.of)
}

// step lets some time pass, and a process do something.
func (f *fleet) step(t *testing.T, rt *rapid.T) {
	t.Helper()
	part, window := f.part(), f.of.Window
	pauses := []time.Duration{0, time.Microsecond, part / 31, part / 3, part, window / 2, window}
	f.clock.Advance(rapid.SampledFrom(pauses).Draw(rt, "pause"))
	i := rapid.IntRange(0, len(f.processes)-1).Draw(rt, "process")
	p := f.processes[i]
	switch rapid.IntRange(0, 19).Draw(rt, "action") {
	case 0: // kill -9
		f.processes[i] = f.start()
	case 1:
		p.lossy.lose.Store(true)
	case 2:
		if err := p.engine.Drain(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if left := p.inHand(); left > 0 {
			rt.Fatalf("%d units in hand after Drain", left)
		}
	case 3:
		if _, err := p.Peek(t.Context(), tenant); err != nil && !lost(err) {
			rt.Fatal(err)
		}
	case 4, 5:
		if len(f.allowed) > 0 {
			f.refund(t, rt, rapid.IntRange(0, len(f.allowed)-1).Draw(rt, "decision"))
		}
	default:
		f.burst(t, rt, p, rapid.SampledFrom([]int{1, 1, 5, 50, 400}).Draw(rt, "burst"))
	}
}

// steps takes some steps. No window may have more units than most.
func (f *fleet) steps(t *testing.T, rt *rapid.T, most int64) {
	t.Helper()
	for range rapid.IntRange(1, 60).Draw(rt, "steps") {
		f.step(t, rt)
		if found := f.in.most(f.of.Window); int64(found) > most {
			rt.Fatalf("%v: %d units in a window, want %d at most", f.of, found, most)
		}
	}
}

func (f *fleet) refund(t *testing.T, rt *rapid.T, n int) {
	t.Helper()
	one := f.allowed[n]
	if err := one.by.Refund(t.Context(), one.d); err != nil {
		rt.Fatal(err) // a reply that is lost is asked for again
	}
	if f.refunds != nil {
		f.refunds(one)
	}
	at := slices.Index(f.in, one.at)
	f.in = slices.Delete(f.in, at, at+int(one.d.Attempt.Cost))
	f.allowed = slices.Delete(f.allowed, n, n+1)
}

// burst makes attempts until one is refused, n at most.
func (f *fleet) burst(t *testing.T, rt *rapid.T, p *leasing, n int) {
	t.Helper()
	for range n {
		a := tenant
		a.Cost = rapid.SampledFrom([]int64{1, 1, 1, 2, 5}).Draw(rt, "cost")
		d, err := p.Check(t.Context(), a)
		if err != nil && !lost(err) {
			rt.Fatal(err)
		}
		if err != nil || !d.Allowed {
			if d.Reason == core.ReasonLimited && d.RetryAfter <= 0 {
				rt.Fatalf("%+v", d)
			}
			return
		}
		one := grant{d, p, f.clock.Now().UnixMicro()}
		if f.admits != nil {
			f.admits(one)
		}
		f.in = f.in.add(f.clock.Now(), d.Attempt.Cost)
		f.allowed = append(f.allowed, one)
	}
}

// inHand returns the units that processes may hand out now, or if since is not zero, those that they have
// fetched since and not handed out or given back.
func (f *fleet) inHand(since time.Time) (units int64) {
	for _, p := range f.processes {
		s := p.hands.get(keyOf(&tenant))
		s.mu.Lock()
		if since.IsZero() && s.current(f.clock.Now()) || !since.IsZero() && !s.sent.Before(since) {
			units += s.lot.Units
		}
		s.mu.Unlock()
	}
	return units
}

// end lets all units leave and come back.
func (f *fleet) end(t *testing.T, rt *rapid.T) {
	t.Helper()
	f.clock.Advance(f.of.Window + f.part())
	for _, p := range f.processes {
		p.lossy.lose.Store(false)
	}
	if d, err := f.processes[0].Peek(t.Context(), tenant); err != nil || d.Remaining != f.of.Max {
		rt.Fatalf("%v: %+v, %v: want all units back", f.of, d, err)
	}
	for _, p := range f.processes {
		if err := p.engine.Drain(t.Context()); err != nil {
			rt.Fatal(err)
		}
	}
}

// TestLeasesAgainstTheDefinition: whatever processes do, and however they end, no window has more than Max,
// and when all units have come back the whole limit is there.
//
// Promise: Leases keep N in any window too, with processes that are stopped or killed. Refusals near the
// limit are not exact.
func TestLeasesAgainstTheDefinition(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			name := fmt.Sprintf("model%d", number)
			f := newFleet(rt, func(of limit.Limit, clock *guardtest.Clock) *leasing {
				return newLeasing(b, name, of, guardtest.WithClock(clock))
			})
			f.steps(t, rt, f.of.Max)
			f.end(t, rt)
		})
	})
}

func lost(err error) bool { return strings.Contains(err.Error(), "lost by the test") }

// TestLeasesSpareCalls: at 90 percent of a large limit nearly all attempts are decided inside the process,
// and all of them are allowed. At 100 units each attempt asks Redis.
//
// Promise: Nobody is refused at 90 % load. At N = 10,000 one process decides 99 % without Redis, sixteen 85
// %; at N = 100 none.
func TestLeasesSpareCalls(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		type one struct{ most, processes, calls int64 }
		cases := []one{{10_000, 4, 40}, {1_000, 1, 100}, {100, 1, 1000}}
		if redistest.All() {
			cases = append(cases, one{10_000, 1, 10}, one{10_000, 16, 150}, one{1_000, 4, 250})
		}
		for _, one := range cases {
			clock, of := guardtest.NewClock(), limit.PerHour(one.most) // parts outlast the test
			var processes []*leasing
			name := fmt.Sprintf("spare-%d-%d", one.most, one.processes)
			for range one.processes {
				processes = append(processes, newLeasing(b, name, of, guardtest.WithClock(clock)))
			}
			attempts := 3 * one.most
			handed, allowed := int64(0), int64(0)
			var in admitted
			for i := range attempts {
				clock.Advance(time.Hour * 10 / time.Duration(9*one.most))
				d := guardtest.Check(t, processes[i%one.processes], tenant)
				if d.Allowed {
					allowed++
					in = in.add(clock.Now(), 1)
				}
				if d.Source == core.SourceLease {
					handed++
				}
			}
			sent := int64(0)
			for _, p := range processes {
				sent += p.lossy.sent.Load()
			}
			most := in.most(time.Hour)
			t.Logf("N %d, %d processes: %.4f allowed, %.4f in the process, %.4f calls per attempt, most/N %.4f",
				one.most, one.processes, float64(allowed)/float64(attempts), float64(handed)/float64(attempts),
				float64(sent)/float64(attempts), float64(most)/float64(one.most))
			if allowed < attempts || int64(most) > one.most || handed < attempts-attempts*one.calls/1000 {
				t.Errorf("N %d: %d of %d allowed, %d in the process, %d in a window", one.most, allowed, attempts, handed,
					most)
			}
		}
	})
}

// TestLeasesThatCannotBeAreFoundAtSetUp: the panic says what to do instead. Where a function returns several
// limits, each attempt asks Redis.
func TestLeasesThatCannotBeAreFoundAtSetUp(t *testing.T) {
	e := guardtest.NewEngine(redistest.Mini(t))
	guardtest.WantPanic(t, "use fewer", func() { New(e, "short", limit.Per(5000, 10*time.Millisecond)) })
	guardtest.WantPanic(t, "pass one", func() { NewBy(e, "none", nil) })
	by := NewBy(e, "by", func(context.Context, core.Attempt) ([]limit.Limit, error) {
		return []limit.Limit{limit.PerSecond(5000), limit.PerHour(9000)}, nil
	})
	for range 20 {
		guardtest.WantSource(t, guardtest.Check(t, by, tenant), core.SourceRedis)
	}
}

// hold makes attempts until the process has units in hand.
func (p *leasing) hold(t *testing.T, clock *guardtest.Clock) {
	t.Helper()
	for range 10 {
		clock.Advance(time.Microsecond)
		guardtest.WantReason(t, guardtest.Check(t, p, tenant), core.ReasonOK)
	}
	for p.inHand() < 2 {
		guardtest.WantReason(t, guardtest.Check(t, p, tenant), core.ReasonOK)
	}
}

func (p *leasing) remaining(t *testing.T) int64 {
	t.Helper()
	d, err := p.Peek(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// TestRemainingCountsWhatIsInHand: an answer that came with units ahead left them out, so that it said far
// fewer than the answers before and after it.
func TestRemainingCountsWhatIsInHand(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClockAt(partBegins.Add(time.Millisecond / 2)) // no attempt is at the end of a part
		of := limit.PerMinute(2000)
		p := newLeasing(b, "w", of, guardtest.WithClock(clock))
		asked := 0
		for left := of.Max - 1; left >= 0; left-- {
			clock.Advance(7 * time.Millisecond) // 14 s for all, so over several parts
			d := guardtest.Check(t, p, tenant)
			if !d.Allowed || d.Remaining != left {
				t.Fatalf("%+v: want %d left", d, left)
			}
			if d.Source == core.SourceRedis {
				asked++
			}
		}
		if asked == 0 || asked == int(of.Max) {
			t.Errorf("%d of %d checks asked Redis", asked, of.Max)
		}
		if err := p.engine.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUnitsInHandComeBack with Drain, which does not wait for the end of their part, by the next call, and by
// themselves where there is none. Each unit comes back once.
//
// Promise: Units in hand (fetched, not handed out) come back once: with the next call, a part later, or with
// Drain.
func TestUnitsInHandComeBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClockAt(partBegins)
		start := func(of limit.Limit) *leasing {
			return newLeasing(b, "back", of, guardtest.WithClock(clock))
		}
		of := limit.PerHour(4000)
		one, other := start(of), start(of)
		one.hold(t, clock)
		used := of.Max - one.remaining(t)
		if left := other.remaining(t); left != of.Max-used-one.inHand() {
			t.Errorf("another process sees %d left, want what is in hand to be taken: %d", left,
				of.Max-used-one.inHand())
		}
		if err := one.engine.Drain(t.Context()); err != nil || one.inHand() != 0 || one.engine.Pending() != 0 {
			t.Errorf("drain: %v, %d in hand, %d pending", err, one.inHand(), one.engine.Pending())
		}
		if left := other.remaining(t); left != of.Max-used {
			t.Errorf("after Drain another process sees %d left, want %d", left, of.Max-used)
		}

		one.hold(t, clock)
		used, clockStep := of.Max-one.remaining(t), part(of.WithResolution(parts))
		clock.Advance(clockStep) // the part is over
		d := guardtest.Check(t, one, tenant)
		guardtest.WantSource(t, d, core.SourceRedis)
		used++
		if left := one.remaining(t); left != of.Max-used {
			t.Errorf("after the next call %d are left, want %d", left, of.Max-used)
		}
		if err := one.Refund(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if err := one.Refund(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if left := one.remaining(t); left != of.Max-used+1 {
			t.Errorf("after a refund, twice, %d are left, want %d", left, of.Max-used+1)
		}

		one.hold(t, clock)
		if err := one.Reset(t.Context(), tenant); err != nil || one.inHand() != 0 || one.remaining(t) != of.Max {
			t.Errorf("reset: %v, %d in hand, %d left", err, one.inHand(), one.remaining(t))
		}

		short := newLeasing(b, "short", limit.Per(4000, 100*time.Millisecond).WithResolution(5))
		short.hold(t, clock)
		redistest.Eventually(t, time.Minute, func() bool { return short.inHand() == 0 }, "units come back")
	})
}

// TestWhatIsInHandIsNotForAnotherLimit: a function lowers the limit of a tenant while units are in hand.
func TestWhatIsInHandIsNotForAnotherLimit(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock, of := guardtest.NewClockAt(partBegins), limit.PerHour(4000)
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		g := NewBy(e, "tiers",
			func(context.Context, core.Attempt) ([]limit.Limit, error) { return []limit.Limit{of}, nil })
		source := core.SourceRedis
		for range 100 {
			source = guardtest.Check(t, g, tenant).Source
		}
		guardtest.WantSource(t, core.Decision{Source: source}, core.SourceLease)
		of.Max = 160
		d := guardtest.Check(t, g, tenant)
		guardtest.WantSource(t, d, core.SourceRedis)
		if d.Limit != 160 || d.Remaining > 59 {
			t.Errorf("%+v: want what is left of 160", d)
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestAnOverrideTakesUnitsOutOfHand: a lower limit is kept at once, also while units are in hand.
func TestAnOverrideTakesUnitsOutOfHand(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClockAt(partBegins)
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		g := New(e, "override", limit.PerHour(4000))
		var over []limit.Limit
		g.Override(func(own limit.Func) limit.Func {
			return func(ctx context.Context, a core.Attempt) ([]limit.Limit, error) {
				if over != nil {
					return over, nil
				}
				return own(ctx, a)
			}
		})
		hold := func() {
			t.Helper()
			source := core.SourceRedis
			for range 100 {
				source = guardtest.Check(t, g, tenant).Source
			}
			guardtest.WantSource(t, core.Decision{Source: source}, core.SourceLease)
		}
		hold()
		over = []limit.Limit{limit.PerHour(50)}
		d := guardtest.Check(t, g, tenant)
		if guardtest.WantReason(t, d, core.ReasonLimited); d.Limit != 50 {
			t.Errorf("%+v: want a limit of 50", d)
		}
		over = nil
		if d := guardtest.Check(t, g, tenant); !d.Allowed || d.Limit != 4000 {
			t.Errorf("%+v: want one of 4000", d)
		}
		if g.Accepts(limit.PerHour(20_000)) != nil || g.Accepts(limit.Per(0, time.Hour)) == nil {
			t.Error("Accepts differs from what the guard can keep")
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRefusalsBesideLeasesAreRememberedForAPart: then other processes have given back what they did not use.
func TestRefusalsBesideLeasesAreRememberedForAPart(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		// What is in hand goes back by the process's own clock, which runs: after a part, 900 ms. That is
		// less than the second for which a refusal is remembered elsewhere.
		of := limit.Per(400, 18*time.Second)
		var clock *guardtest.Clock
		var one, other *leasing
		var d core.Decision
		try := 0
		redistest.Eventually(t, time.Minute, func() bool { // a busy machine may take longer than that
			try++
			clock, d = guardtest.NewClockAt(partBegins), core.Decision{Allowed: true}
			name := fmt.Sprint("refusals", try)
			one, other = newLeasing(b, name, of, guardtest.WithClock(clock)),
				newLeasing(b, name, of, guardtest.WithClock(clock))
			one.hold(t, clock)
			for d.Allowed {
				clock.Advance(time.Microsecond)
				d = guardtest.Check(t, other, tenant)
			}
			d = guardtest.Check(t, other, tenant)
			return one.inHand() > 0
		}, "something is in hand")
		guardtest.WantSource(t, d, core.SourceRemembered)
		if err := one.engine.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.Advance(part(of.WithResolution(parts)))
		guardtest.WantReason(t, guardtest.Check(t, other, tenant), core.ReasonOK)
	})
}

// TestLeasesRace: many callers of two processes take exactly Max, once what is in hand has come back.
func TestLeasesRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		of := limit.PerHour(500)
		processes := []*leasing{newLeasing(b, "race", of), newLeasing(b, "race", of)}
		var taken atomic.Int64
		attempt := func(p *leasing) bool {
			d, err := p.Check(t.Context(), tenant)
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				taken.Add(1)
			}
			return d.Allowed
		}
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				for range 20 {
					attempt(processes[i%2])
				}
			})
		}
		all.Wait()
		if n := taken.Load(); n > of.Max || n < of.Max/2 {
			t.Errorf("%d taken of %d", n, of.Max)
		}
		for _, p := range processes {
			if err := p.engine.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		last := newLeasing(b, "race", of) // it remembers no refusal
		for attempt(last) {
		}
		if n := taken.Load(); n != of.Max {
			t.Errorf("%d taken in the end, want %d", n, of.Max)
		}
	})
}

// TestSpendBesideALease: units that were not used come to those in hand, and a debt is taken from them first.
func TestSpendBesideALease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClockAt(partBegins)
		of := limit.Per(2000, time.Hour)
		p := newLeasing(b, "w", of, guardtest.WithClock(clock))
		defer func() { _ = p.engine.Drain(t.Context()) }()
		left := func() int64 { // in Redis, as a process without units in hand sees it
			t.Helper()
			d, err := newLeasing(b, "w", of, guardtest.WithClock(clock)).Peek(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			return d.Remaining
		}
		a := tenant
		a.Cost = 5
		var d core.Decision
		for range 200 {
			if d = guardtest.Check(t, p, a); d.Source == core.SourceLease && p.inHand() > 20 {
				break
			}
		}
		hand, there := p.inHand(), left()
		if d.Source != core.SourceLease || hand <= 20 {
			t.Fatalf("%+v, %d in hand", d, hand)
		}
		wants := func(when string, inHand, inRedis int64) {
			t.Helper()
			if p.inHand() != inHand || left() != inRedis {
				t.Errorf("%s: %d in hand and %d in Redis, want %d and %d", when, p.inHand(), left(), inHand, inRedis)
			}
		}
		again := func(actual int64) {
			t.Helper()
			if err := p.Spend(t.Context(), d, actual); err != nil {
				t.Fatal(err)
			}
		}
		again(2)
		again(9) // the first counts
		wants("3 were not used", hand+3, there)

		d = guardtest.Check(t, p, a)
		again(9)
		wants("4 more than the estimate", hand+3-5-4, there)

		d = guardtest.Check(t, p, a)
		hand = p.inHand()
		again(5 + hand + 30)
		wants("more than there is in hand", 0, there-30)
	})
}

// all returns the hands that are kept.
func (s *hands) all() (all []*hand) {
	s.of.Each(func(p *bounded.Part[key, *hand]) {
		for _, h := range p.All() {
			all = append(all, h)
		}
	})
	return all
}
