package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// admitted is a list of all that was admitted.
type admitted struct {
	mu   sync.Mutex
	list []atMoment
}

// atMoment is so many units at a moment of the server's clock, in microseconds, in the order of answers.
type atMoment struct{ at, units int64 }

func (a *admitted) add(d core.Decision) {
	took, _ := core.ClaimOf[*taken](d)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, atMoment{took.stamp, d.Attempt.Cost})
}

// most returns how many units the fullest window has.
func most(list []atMoment, window time.Duration) (most int64) {
	for _, last := range list {
		sum := int64(0)
		for _, one := range list {
			if one.at <= last.at && last.at < one.at+window.Microseconds() {
				sum += one.units
			}
		}
		most = max(most, sum)
	}
	return most
}

// wantMost wants no window to have more units than the kind promises.
func (a *admitted) wantMost(t *testing.T, kind string, l Limit) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	may := l.Max
	if kind != "SlidingWindow" {
		may = 2 * l.Max
	}
	if got := most(a.list, l.Window); got > may {
		t.Errorf("%d units in %v: want %d at most", got, l.Window, may)
	}
}

// lineOf returns how many attempts wait for the actor's units in this process.
func (l *limiter) lineOf(a core.Attempt) (n int) {
	l.waits.mu.Lock()
	defer l.waits.mu.Unlock()
	if line := l.waits.byTag[kit.TagOf(a)]; line != nil {
		for w := line.first; w != nil; w = w.next {
			n++
		}
	}
	return n
}

// refused returns the refusal that an error is; without one it has no reason.
func refused(err error) (r core.Refused) {
	var as *core.Refused
	if errors.As(err, &as) {
		r = *as
	}
	return r
}

// wantLine waits until so many attempts wait.
func (l *limiter) wantLine(t *testing.T, a core.Attempt, want int) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool { return l.lineOf(a) == want },
		fmt.Sprintf("not %d attempts wait", want))
}

// eachWaiter runs f with a guard of each kind, on all backends and in memory.
func eachWaiter(t *testing.T, of Limit, f func(t *testing.T, kind string, g rateLimit)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				f(t, k.name, k.make(guardtest.NewEngine(b), "partner", of))
			})
			inMemory := guardtest.NewEngine(redistest.Backend{})
			t.Run("memory", func(t *testing.T) { f(t, k.name, k.make(inMemory, "partner", of)) })
		})
	}
}

var partner = core.Attempt{Actor: "partner"}

// TestWaitersAreServedWhenTheirUnitsAreFree: more attempts than the limit admits, some with a larger cost, and
// all are admitted.
//
// Promise: Whatever waits, no window has more units than the limit says.
func TestWaitersAreServedWhenTheirUnitsAreFree(t *testing.T) {
	of := Per(10, 100*time.Millisecond)
	eachWaiter(t, of, func(t *testing.T, kind string, g rateLimit) {
		var all sync.WaitGroup
		var got admitted
		for i := range 20 {
			all.Go(func() {
				d, err := g.Wait(t.Context(), core.Attempt{Actor: "partner", Cost: int64(1 + i%3)})
				if err != nil || !d.Allowed || d.Attempt.Cost != int64(1+i%3) || d.Guard != "partner" {
					t.Errorf("%+v, %v", d, err)
				}
				got.add(d)
			})
		}
		all.Wait()
		got.wantMost(t, kind, of)
		if n := len(got.list); n != 20 {
			t.Errorf("%d were served: want 20", n)
		}
		g.core().wantLine(t, partner, 0)
	})
}

// TestWaitersAreServedInTheirOrder: a large cost is not overtaken by small ones that came later.
//
// Promise: The waiters of a process are served in the order in which they came, whatever their costs.
func TestWaitersAreServedInTheirOrder(t *testing.T) {
	of := Per(4, 50*time.Millisecond)
	eachWaiter(t, of, func(t *testing.T, kind string, g rateLimit) {
		costs := []int64{4, 1, 4, 1, 1, 3, 1, 2}
		var all sync.WaitGroup
		order := make([]int64, len(costs))
		var served atomic.Int64
		guardtest.Check(t, g, core.Attempt{Actor: "partner", Cost: 4})
		for i, cost := range costs {
			all.Go(func() {
				d, err := g.Wait(t.Context(), core.Attempt{Actor: "partner", Cost: cost})
				if err != nil {
					t.Error(err)
					return
				}
				took, _ := core.ClaimOf[*taken](d)
				order[i] = took.stamp
				served.Add(1)
			})
			redistest.Eventually(t, time.Minute, func() bool {
				return g.core().lineOf(partner)+int(served.Load()) > i
			}, "it does not come")
		}
		all.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("served at %v", order)
		}
	})
}

// TestAWaitThatCannotSucceedEndsAtOnce: the deadline is earlier than the moment that Redis names.
//
// Promise: An attempt that cannot be allowed before its deadline is refused before it waits, with the moment
// at which it could be.
func TestAWaitThatCannotSucceedEndsAtOnce(t *testing.T) {
	of := Per(4, time.Hour)
	eachWaiter(t, of, func(t *testing.T, kind string, g rateLimit) {
		guardtest.Check(t, g, core.Attempt{Actor: "partner", Cost: 4})
		late, cancel := context.WithTimeout(t.Context(), 50*time.Minute)
		defer cancel()
		long, cancelLong := context.WithCancel(t.Context())
		defer cancelLong()
		wantRefused := func(ctx context.Context, cost int64, least, most time.Duration) {
			t.Helper()
			d, err := g.Wait(ctx, core.Attempt{Actor: "partner", Cost: cost})
			r := refused(err)
			if r.Reason != core.ReasonLimited || r.RetryAfter < least || r.RetryAfter > most || d.Allowed {
				t.Errorf("%+v, %v: want a refusal for %v to %v", d, err, least, most)
			}
		}
		wantRefused(late, 4, 59*time.Minute, time.Hour+time.Millisecond)
		first := make(chan struct{})
		go func() {
			defer close(first)
			if _, err := g.Wait(long, core.Attempt{Actor: "partner", Cost: 4}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		g.core().wantLine(t, partner, 1)
		redistest.Eventually(t, time.Minute, func() bool {
			g.core().waits.mu.Lock()
			defer g.core().waits.mu.Unlock()
			return !g.core().waits.byTag[kit.TagOf(partner)].due.IsZero()
		}, "the line does not learn when it is due")
		twice, cancelTwice := context.WithTimeout(t.Context(), 90*time.Minute)
		defer cancelTwice()
		// the one in front takes all of the next hour
		wantRefused(twice, 4, 119*time.Minute, 2*time.Hour+time.Millisecond)
		cancelLong()
		<-first
		_, err := g.Wait(t.Context(), core.Attempt{Actor: "partner", Cost: 5})
		if refused(err).Reason != core.ReasonOverLimit {
			t.Errorf("%v: want that 5 are over the limit", err)
		}
		if _, err := g.Wait(t.Context(), core.Attempt{Cost: 5}); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%v: want an invalid attempt", err)
		}
	})
}

// TestAWaiterThatLeavesTakesNothing.
//
// Promise: A wait whose context ends takes no unit and keeps no place in line.
func TestAWaiterThatLeavesTakesNothing(t *testing.T) {
	eachWaiter(t, PerHour(3), func(t *testing.T, kind string, g rateLimit) {
		held := guardtest.Check(t, g, core.Attempt{Actor: "partner", Cost: 3})
		ctx, leave := context.WithCancelCause(t.Context())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := g.Wait(ctx, partner); err == nil || !strings.Contains(err.Error(), "the user has left") {
					t.Errorf("%v: want the cause", err)
				}
			})
		}
		g.core().wantLine(t, partner, 20)
		stays := make(chan core.Decision)
		go func() {
			d, err := g.Wait(t.Context(), core.Attempt{Actor: "partner", Cost: 3})
			if err != nil {
				t.Error(err)
			}
			stays <- d
		}()
		g.core().wantLine(t, partner, 21)
		leave(errors.New("the user has left"))
		all.Wait()
		guardtest.Settle(t, g, held, core.Rollback)
		if d := <-stays; !d.Allowed { // all units, so nobody else has any
			t.Errorf("%+v", d)
		}
		if _, err := g.Wait(ctx, partner); err == nil {
			t.Error("a context that has ended waits")
		}
	})
}

// TestAWaiterThatLeavesWhileItIsAskedAbout: the units of a call that is under way come back.
func TestAWaiterThatLeavesWhileItIsAskedAbout(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		rdb := &holding{Client: b.Client, replied: make(chan struct{}), release: make(chan struct{})}
		g := NewSlidingWindow(guardtest.NewEngineOver(b, rdb, core.WithDeadline(time.Minute)), "partner",
			PerHour(3))
		rdb.hold.Store(true)
		// One who has less time than a call may take has the line ask, and need not wait for the answer.
		ctx, leave := context.WithTimeout(t.Context(), 30*time.Second)
		defer leave()
		ended := make(chan error, 1)
		go func() {
			_, err := g.Wait(ctx, core.Attempt{Actor: "partner", Cost: 3})
			ended <- err
		}()
		<-rdb.replied
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v: want the end of the context", err)
		}
		close(rdb.release)
		redistest.Eventually(t, time.Minute, func() bool {
			d, err := g.Peek(t.Context(), partner)
			return err == nil && d.Remaining == 3 && g.Engine().Pending() == 0
		}, "the units do not come back")
	})
}

// TestALineAsksWhenUnitsAreFree: not before, and few times.
//
// Promise: Nobody asks Redis while nothing is free. A thousand waiters for a hundred free units need no more
// than a hundred calls. A waiter takes 200 bytes besides its goroutine.
func TestALineAsksWhenUnitsAreFree(t *testing.T) {
	b := redistest.Single(t)
	rdb := &guardtest.Counting{Client: b.Client}
	of, waiters := Per(100, 500*time.Millisecond), 400
	if redistest.All() {
		waiters = 1000
	}
	g := NewSlidingWindow(guardtest.NewEngineOver(b, rdb), "partner", of)
	var all sync.WaitGroup
	var got admitted
	for range waiters {
		all.Go(func() {
			d, err := g.Wait(t.Context(), partner)
			if err != nil {
				t.Error(err)
				return
			}
			got.add(d)
		})
	}
	all.Wait()
	got.wantMost(t, "SlidingWindow", of)
	if n := rdb.Sent.Load(); n > int64(waiters) {
		t.Errorf("%d calls for %d units: want no more than units", n, waiters)
	}

	h := NewSlidingWindow(g.Engine(), "day", PerDay(3))
	guardtest.Check(t, h, core.Attempt{Actor: "partner", Cost: 3})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var before, after runtime.MemStats
	const many = 10_000
	gate := make(chan struct{})
	for range many {
		all.Go(func() {
			<-gate
			if _, err := h.Wait(ctx, partner); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	runtime.GC()
	runtime.ReadMemStats(&before)
	rdb.Sent.Store(0)
	close(gate)
	h.wantLine(t, partner, many)
	runtime.GC()
	runtime.ReadMemStats(&after)
	const channel = 96 // of the runtime
	own := int64(unsafe.Sizeof(waiter{})) + channel
	heap := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / many
	t.Logf("%d B each, of which %d are the waiter; %d calls", heap, own, rdb.Sent.Load())
	if own > 200 || heap > 600 {
		t.Errorf("a waiter takes %d B, and %d with what its goroutine keeps to wait", own, heap)
	}
	leave()
	all.Wait()
	if n := rdb.Sent.Load(); n > 3 {
		t.Errorf("%d calls for nothing: want no more than 3", n)
	}
}

// TestDrainEndsWaits.
//
// Promise: Drain ends all waits. What a call under way has taken comes back.
func TestDrainEndsWaits(t *testing.T) {
	eachWaiter(t, PerHour(1), func(t *testing.T, kind string, g rateLimit) {
		guardtest.Check(t, g, partner)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := g.Wait(t.Context(), partner); !errors.Is(err, core.ErrDrained) {
					t.Errorf("%v: want that it was drained", err)
				}
			})
		}
		g.core().wantLine(t, partner, 10)
		if err := g.core().Engine().Drain(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
}

// TestDrainEndsAWaitThatAsks: one who asked when Drain began was not told, and waited on.
func TestDrainEndsAWaitThatAsks(t *testing.T) {
	for _, free := range []int64{0, 1} {
		t.Run(fmt.Sprintf("%d_are_free", free), func(t *testing.T) {
			redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
				rdb := &holding{Client: b.Client, replied: make(chan struct{}), release: make(chan struct{})}
				e := guardtest.NewEngineOver(b, rdb, core.WithDeadline(time.Minute))
				g := NewSlidingWindow(e, "partner", PerHour(1))
				if free == 0 {
					guardtest.Check(t, g, partner)
				}
				rdb.hold.Store(true)
				ended, drained := make(chan error, 1), make(chan error, 1)
				go func() {
					_, err := g.Wait(t.Context(), partner)
					ended <- err
				}()
				<-rdb.replied
				g.wantLine(t, partner, 1)
				go func() { drained <- e.Drain(t.Context()) }()
				g.wantLine(t, partner, 0) // it is told, and the call is under way
				close(rdb.release)
				if err := <-drained; err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, core.ErrDrained) {
					t.Errorf("%v: want that it was drained", err)
				}
				redistest.Eventually(t, time.Minute, func() bool {
					d, err := g.Peek(t.Context(), partner)
					return err == nil && d.Remaining == free && e.Pending() == 0
				}, "what the call took does not come back")
			})
		})
	}
}

// TestWaitersAreServedWhenUnitsComeBack, those of this process at once.
func TestWaitersAreServedWhenUnitsComeBack(t *testing.T) {
	eachWaiter(t, PerHour(2), func(t *testing.T, kind string, g rateLimit) {
		held := guardtest.Check(t, g, core.Attempt{Actor: "partner", Cost: 2})
		served := make(chan core.Decision, 2)
		for range 2 {
			go func() {
				d, err := g.Wait(t.Context(), partner)
				if err != nil {
					t.Error(err)
				}
				served <- d
			}()
		}
		g.core().wantLine(t, partner, 2)
		guardtest.Settle(t, g, held, core.CommitCost(1))
		<-served
		g.core().wantLine(t, partner, 1)
		if err := g.Reset(t.Context(), partner); err != nil {
			t.Error(err)
		}
		<-served
	})
}

// TestWaitInAnOutage.
//
// Promise: When Redis does not answer, Wait says so at once, and WaitLocal waits by the local limit.
func TestWaitInAnOutage(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	f := redistest.NewFaults(t)
	rdb := b.NewClientWith(t, f, func(o *redis.UniversalOptions) { o.DialerRetries = 1 })
	of := Per(4, 200*time.Millisecond)
	g := NewSlidingWindow(guardtest.NewEngineOver(b, rdb), "partner", of)
	guardtest.Check(t, g, partner)
	f.Refuse(true)
	f.CutAll()
	var all sync.WaitGroup
	var got admitted
	for range 20 {
		all.Go(func() {
			if _, err := g.Wait(t.Context(), partner); err == nil {
				t.Error("Wait waits for a Redis that is away")
			}
			d, err := g.WaitLocal(t.Context(), partner)
			if err != nil || d.Source != core.SourceLocal {
				t.Errorf("%+v, %v", d, err)
			}
			got.add(d)
		})
	}
	all.Wait()
	got.wantMost(t, "SlidingWindow", of)
}

// TestWaitAndTheLimitsOfAFunction: different limits in one line, a function that panics, and one that fails.
func TestWaitAndTheLimitsOfAFunction(t *testing.T) {
	e := guardtest.NewEngine(redistest.Backend{}) // in memory
	var mu sync.Mutex
	limits := map[string][]Limit{"free": {Per(2, 300*time.Millisecond)}, "paid": {Per(6, 300*time.Millisecond)}}
	panics := false
	g := NewSlidingWindowBy(e, "tiers", func(_ context.Context, a core.Attempt) ([]Limit, error) {
		mu.Lock()
		defer mu.Unlock()
		if panics {
			panic("of the application")
		}
		if a.Item == "bad" {
			return nil, errors.New("no such tier")
		}
		return limits[a.Item], nil
	})
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			item := []string{"free", "paid", "unlimited"}[i%3]
			if d, err := g.Wait(t.Context(), core.Attempt{Actor: "partner", Item: item}); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", item, d, err)
			}
		})
	}
	all.Wait()
	if _, err := g.Wait(t.Context(), core.Attempt{Actor: "partner", Item: "bad"}); err == nil {
		t.Error("the error of the function is lost")
	}
	mu.Lock()
	limits["free"] = []Limit{PerHour(2)}
	mu.Unlock()
	free := core.Attempt{Actor: "new", Item: "free"}
	guardtest.Check(t, g, free)
	guardtest.Check(t, g, free)
	failed := make(chan error)
	go func() {
		_, err := g.Wait(t.Context(), free)
		failed <- err
	}()
	g.wantLine(t, free, 1)
	mu.Lock()
	panics = true
	mu.Unlock()
	g.freed(kit.TagOf(free))
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "of the application") {
		t.Errorf("%v: want the panic as an error", err)
	}
}

// TestWaitIsObservedOnce: as a decision that took as long as the wait.
func TestWaitIsObservedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events guardtest.Recorder
		g := NewTokenBucket(core.NewMemory(core.WithObserver(&events)), "partner", Per(1, 50*time.Millisecond))
		for range 2 {
			if _, err := g.Wait(t.Context(), partner); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := g.Wait(ctx, partner); err == nil {
			t.Error("it is allowed")
		}
		n := len(events.Events)
		for i, e := range events.Events {
			if e.Op != "check_wait" || e.Err != nil || (i < 2) != e.Decision.Allowed || e.Guard != "partner" {
				t.Errorf("%+v", e)
			}
		}
		if n != 3 || events.Events[1].Took < 50*time.Millisecond || !events.Events[1].Decided() {
			t.Errorf("%d events: %+v", n, events.Events)
		}
	})
}

// TestCostsOfALineAreSummed, however large they are.
func TestCostsOfALineAreSummed(t *testing.T) {
	g := NewFixedWindow(core.NewMemory(), "large", Per(core.MaxAmount, 100*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range 3000 {
		all.Go(func() { _, _ = g.Wait(ctx, core.Attempt{Actor: "partner", Cost: core.MaxAmount}) })
	}
	all.Wait()
	if _, err := g.Wait(t.Context(), core.Attempt{Actor: "partner", Cost: math.MaxInt64}); err == nil {
		t.Error("more than the limit is allowed")
	}
}

// TestALargeCostIsServedBesideSmallOnes: those of another process take each unit that comes back, so that all
// units are never free at once.
//
// Promise: A large cost that waits is served although small ones wait in other processes.
func TestALargeCostIsServedBesideSmallOnes(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		of := Per(8, 200*time.Millisecond)
		small := NewSlidingWindow(guardtest.NewEngine(b), "partner", of)
		large := NewSlidingWindow(guardtest.NewEngine(b), "partner", of)
		for range of.Max { // at moments of their own
			guardtest.Check(t, small, partner)
			<-time.After(of.Window / 16)
		}
		ctx, end := context.WithTimeout(t.Context(), 2*time.Minute)
		var all sync.WaitGroup
		for range 2 * of.Max {
			all.Go(func() {
				for ctx.Err() == nil {
					_, _ = small.Wait(ctx, partner) // until the large one is served
				}
			})
		}
		if _, err := large.Wait(ctx, core.Attempt{Actor: "partner", Cost: of.Max}); err != nil {
			t.Errorf("a large cost is passed by for ever: %v", err)
		}
		end()
		all.Wait()
	})
}

// TestATurnEndsWithItsWaiter: others do not wait for one who has left.
func TestATurnEndsWithItsWaiter(t *testing.T) {
	b := redistest.Single(t)
	g := NewSlidingWindow(guardtest.NewEngine(b), "partner", PerHour(1))
	n := &line{tag: kit.TagOf(partner)}
	key := g.Key(n.tag, "turn")
	g.waits.takeTurn(t.Context(), n, time.Hour)
	if !n.turn || b.Client.Exists(t.Context(), key).Val() != 1 {
		t.Fatal("it does not take the turn")
	}
	g.waits.some.Add(1)
	g.waits.serve(n) // nobody is left
	if n.turn || b.Client.Exists(t.Context(), key).Val() != 0 {
		t.Error("it keeps the turn")
	}
}

// panicsAtTurns is a hook of an application that fails at every call about turns.
type panicsAtTurns struct{ panicked atomic.Int64 }

func (*panicsAtTurns) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *panicsAtTurns) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.look(cmd)
		return next(ctx, cmd)
	}
}

func (p *panicsAtTurns) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.look(cmds...)
		return next(ctx, cmds)
	}
}

func (p *panicsAtTurns) look(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		for _, word := range cmd.Args() {
			if key, ok := word.(string); ok && strings.HasSuffix(key, ":turn") {
				p.panicked.Add(1)
				panic("of a hook")
			}
		}
	}
}

// TestAHookThatPanicsAtATurn ends no process: turns are only polite. A client that ignores its context is
// called in a goroutine of its own.
func TestAHookThatPanicsAtATurn(t *testing.T) {
	b := redistest.Single(t)
	for _, obeys := range []bool{true, false} {
		t.Run(fmt.Sprintf("ContextTimeoutEnabled=%v", obeys), func(t *testing.T) {
			t.Parallel()
			var hook panicsAtTurns
			rdb := b.NewClientWith(t, redistest.NewFaults(t), func(o *redis.UniversalOptions) {
				o.ContextTimeoutEnabled = obeys
			})
			rdb.AddHook(&hook)
			g := NewSlidingWindow(guardtest.NewEngineOver(b, rdb), "partner", Per(1, 200*time.Millisecond))
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					if d, err := g.Wait(t.Context(), partner); err != nil || !d.Allowed {
						t.Errorf("%+v, %v", d, err)
					}
				})
			}
			all.Wait()
			if hook.panicked.Load() == 0 {
				t.Error("nobody asked for a turn")
			}
		})
	}
}

// trips counts how often a client has sent something.
type trips struct{ trips, calls atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.trips.Add(1)
		n.calls.Add(1)
		return next(ctx, cmd)
	}
}

func (n *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.trips.Add(1)
		n.calls.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// TestLinesShareTripsAtAnEdge: many actors wait, and their units are free at the same moment.
//
// Promise: The calls of many lines at one moment share trips, as checks do.
func TestLinesShareTripsAtAnEdge(t *testing.T) {
	b := redistest.Single(t)
	f := redistest.NewFaults(t)
	rdb := b.NewClientWith(t, f)
	var sent trips
	rdb.AddHook(&sent)
	const actors = 200
	clock := guardtest.NewClock()
	e := guardtest.NewEngineOver(b, rdb, core.WithDeadline(time.Minute), guardtest.WithClock(clock))
	g := NewSlidingWindow(e, "partner", PerHour(1))
	var all sync.WaitGroup
	each := func(f func(a core.Attempt)) {
		for i := range actors {
			all.Go(func() { f(core.Attempt{Actor: fmt.Sprint(i)}) })
		}
	}
	each(func(a core.Attempt) { guardtest.Check(t, g, a) })
	all.Wait()
	each(func(a core.Attempt) {
		if d, err := g.Wait(t.Context(), a); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
	redistest.Eventually(t, time.Minute, func() bool {
		g.waits.mu.Lock()
		defer g.waits.mu.Unlock()
		n := 0
		for _, l := range g.waits.byTag {
			if l.served && !l.due.IsZero() {
				n++
			}
		}
		return n == actors
	}, "they do not wait")
	sent.trips.Store(0)
	sent.calls.Store(0)
	f.Delay(50 * time.Millisecond)
	clock.Advance(time.Hour + time.Second)
	for i := range actors {
		g.freed(kit.TagOf(core.Attempt{Actor: fmt.Sprint(i)}))
	}
	all.Wait()
	trips, calls := sent.trips.Load(), sent.calls.Load()
	t.Logf("%d calls in %d trips", calls, trips)
	if calls < actors || trips > actors/4 {
		t.Errorf("%d calls in %d trips: want %d at most", calls, trips, actors/4)
	}
}
