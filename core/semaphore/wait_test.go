package semaphore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/leases"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// lineEngine makes an engine without a breaker: calls of a line end after 200 ms, so that a Redis that stands
// still for a while would open it.
func lineEngine(b redistest.Backend, options ...core.Option) *core.Engine {
	return guardtest.NewEngine(b, append(options, core.WithoutBreaker())...)
}

// wantWaiting waits until this many attempts wait for permits of the pool p.
func wantWaiting(t *testing.T, g *Guard, want int64) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool {
		s, err := g.Peek(t.Context(), ann)
		return err == nil && s.Waiting == want
	}, fmt.Sprintf("not %d attempts wait", want))
}

// waiting is an attempt that waits in the background.
type waiting struct {
	d       core.Decision
	giveUp  context.CancelFunc
	decided chan struct{}
}

// wait makes an attempt wait for permits of the pool p.
func wait(t *testing.T, g *Guard, cost int64) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiting{giveUp: cancel, decided: make(chan struct{})}
	go func() {
		defer close(w.decided)
		var err error
		if w.d, err = g.Check(ctx, core.Attempt{Actor: "waiter", Resource: "p", Cost: cost}); err != nil {
			t.Errorf("Check: %v", err)
		}
	}()
	return w
}

// eachPair runs f with two guards of one semaphore on all backends, and with one guard twice without Redis.
func eachPair(t *testing.T, options Options, f func(t *testing.T, one, two *Guard)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		stands := guardtest.WithClock(guardtest.NewClock()) // else who waits behind passes a stalled one by
		f(t, New(lineEngine(b, stands), "s", options), New(lineEngine(b, stands), "s", options))
	})
	t.Run("memory", func(t *testing.T) {
		g := New(lineEngine(redistest.Backend{}), "s", options)
		f(t, g, g)
	})
}

// TestWaitersAreServedInTheirOrder, whatever the process and the cost, and nobody overtakes them.
//
// Promise: Waiters are served in the order of arrival over all processes, also under faults. A waiter that
// gives up blocks nobody.
func TestWaitersAreServedInTheirOrder(t *testing.T) {
	eachPair(t, Options{Max: 3, Wait: maxWait}, func(t *testing.T, one, two *Guard) {
		guards := []*Guard{one, two}
		held := guardtest.Check(t, one, core.Attempt{Actor: "ann", Resource: "p", Cost: 2})
		costs := []int64{3, 1, 2, 3, 3, 1, 1}
		var waiters []*waiting
		for i, cost := range costs {
			waiters = append(waiters, wait(t, guards[i%2], cost))
			wantWaiting(t, one, int64(i+1))
		}
		late := wait(t, two, 1) // one permit is free
		wantWaiting(t, one, int64(len(costs)+1))
		late.giveUp()
		<-late.decided
		guardtest.WantReason(t, late.d, core.ReasonBusy)
		wantWaiting(t, one, int64(len(costs)))
		guardtest.Settle(t, one, held, core.Commit)
		for _, together := range [][]int{{0}, {1, 2}, {3}, {4}, {5, 6}} {
			for _, i := range together {
				<-waiters[i].decided
				guardtest.WantReason(t, waiters[i].d, core.ReasonOK)
			}
			var sum int64
			for _, i := range together {
				sum += costs[i]
			}
			wantHeld(t, one, sum)
			wantWaiting(t, one, int64(len(costs)-together[len(together)-1]-1))
			for _, i := range together {
				guardtest.Settle(t, guards[i%2], waiters[i].d, core.Commit)
			}
		}
		wantHeld(t, two, 0)
		d := guardtest.Check(t, two, bob) // nobody waits any more
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.Settle(t, two, d, core.Commit)
	})
}

// TestWaitersWhoGiveUpBlockNobody: those behind move up at once.
func TestWaitersWhoGiveUpBlockNobody(t *testing.T) {
	eachPair(t, Options{Max: 2, Wait: maxWait}, func(t *testing.T, one, two *Guard) {
		held := guardtest.Check(t, one, ann)
		first := wait(t, one, 2)
		wantWaiting(t, one, 1)
		second := wait(t, two, 1)
		wantWaiting(t, one, 2)
		first.giveUp()
		<-first.decided
		guardtest.WantReason(t, first.d, core.ReasonBusy)
		<-second.decided
		guardtest.WantReason(t, second.d, core.ReasonOK)
		wantWaiting(t, one, 0)
		guardtest.Settle(t, two, second.d, core.Commit)
		guardtest.Settle(t, one, held, core.Commit)
		wantHeld(t, one, 0)
	})
}

// TestWhoAsksForAllPermitsHoldsUpTheLineForAWhileOnly: where too few permits are free for the first in line, those
// behind it get the free ones after 300 ms, in their order. It is served when enough are free.
//
// Promise: A waiter that needs more permits than are free holds up those behind it for 300 ms. Then they get
// the free permits, in order.
func TestWhoAsksForAllPermitsHoldsUpTheLineForAWhileOnly(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock, options := guardtest.NewClock(), Options{Max: 4, Wait: maxWait}
		one := New(lineEngine(b, guardtest.WithClock(clock)), "s", options)
		two := New(lineEngine(b, guardtest.WithClock(clock)), "s", options)
		held := guardtest.Check(t, one, ann)
		var waiters []*waiting
		for i, cost := range []int64{4, 1, 2, 1, 4} {
			waiters = append(waiters, wait(t, []*Guard{one, two}[i%2], cost))
			wantWaiting(t, one, int64(i+1))
		}
		clock.Advance(299 * time.Millisecond)
		wantHeld(t, one, 1)
		wantWaiting(t, one, 5)
		redistest.Eventually(t, time.Minute, func() bool {
			clock.Advance(time.Millisecond) // the 300 ms begin with a call of the line, which may be late
			s, err := one.Peek(t.Context(), ann)
			return err == nil && s.Held == 4
		}, "those behind do not pass")
		for _, w := range waiters[1:3] { // after these no permit is free
			<-w.decided
			guardtest.WantReason(t, w.d, core.ReasonOK)
		}
		wantHeld(t, one, 4)
		guardtest.Settle(t, two, waiters[1].d, core.Commit)
		<-waiters[3].decided // passes at once
		guardtest.WantReason(t, waiters[3].d, core.ReasonOK)
		guardtest.Settle(t, one, held, core.Commit)
		guardtest.Settle(t, one, waiters[2].d, core.Commit)
		wantWaiting(t, one, 2)
		guardtest.Settle(t, two, waiters[3].d, core.Commit)
		for i, w := range []*waiting{waiters[0], waiters[4]} {
			<-w.decided
			guardtest.WantReason(t, w.d, core.ReasonOK)
			wantWaiting(t, one, int64(1-i))
			guardtest.Settle(t, one, w.d, core.Commit)
		}
		wantHeld(t, one, 0)
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := New(core.NewMemory(), "s", Options{Max: 4, Wait: maxWait})
			held := guardtest.Check(t, g, ann)
			begun, large := time.Now(), wait(t, g, 4)
			synctest.Wait()
			small := wait(t, g, 3)
			<-small.decided
			guardtest.WantReason(t, small.d, core.ReasonOK)
			if took := time.Since(begun); took != 300*time.Millisecond {
				t.Errorf("the line was held up for %v", took)
			}
			guardtest.Settle(t, g, held, core.Commit)
			guardtest.Settle(t, g, small.d, core.Commit)
			<-large.decided
			guardtest.WantReason(t, large.d, core.ReasonOK)
			guardtest.Settle(t, g, large.d, core.Commit)
		})
	})
}

// TestWaitThatIsOver: the attempt is refused, and leaves nothing behind.
func TestWaitThatIsOver(t *testing.T) {
	eachPair(t, Options{Max: 1, Wait: 20 * time.Millisecond}, func(t *testing.T, one, two *Guard) {
		held := guardtest.Check(t, one, ann)
		d := guardtest.Check(t, two, bob)
		if guardtest.WantReason(t, d, core.ReasonBusy); d.RetryAfter <= 0 {
			t.Errorf("%+v: want to hear when to try again", d)
		}
		wantWaiting(t, two, 0)
		guardtest.Settle(t, one, held, core.Commit)
		redistest.Eventually(t, time.Minute, func() bool {
			d = guardtest.Check(t, two, bob)
			return d.Allowed
		}, "the permit is not free")
		guardtest.Settle(t, two, d, core.Commit)
	})
}

// TestWaitersOfADeadProcessBlockNobody: they lose their places 25 ms after the release.
func TestWaitersOfADeadProcessBlockNobody(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(lineEngine(b, guardtest.WithClock(clock)), "s", Options{Max: 1, Wait: maxWait})
		held := guardtest.Check(t, g, ann)
		keys := []string{g.Key("p", "permits"), g.Key("p", "line"), g.Key("p", "present")}
		args := []any{"dead", defaultLease.Milliseconds(), 0, 0, "", clock.Now().UnixMicro()}
		for i := range 3 {
			call := fmt.Sprint("dead", i)
			keys = append(keys, g.Key("p", "void", call))
			args = append(args, "1|"+call+"|10000|eve", 1)
		}
		if _, err := g.Engine().Run(t.Context(), leases.WaitScript, keys, args...); err != nil {
			t.Fatal(err)
		}
		behind := wait(t, g, 1)
		wantWaiting(t, g, 4)
		guardtest.Settle(t, g, held, core.Commit)
		wantWaiting(t, g, 4)
		impatient := New(lineEngine(b, guardtest.WithClock(clock)), "s", Options{Max: 1})
		if d := guardtest.Check(t, impatient, bob); d.Reason != core.ReasonBusy || d.RetryAfter <= 0 {
			t.Errorf("%+v: want that nobody overtakes", d)
		}
		clock.Advance(25 * time.Millisecond)
		<-behind.decided
		guardtest.WantReason(t, behind.d, core.ReasonOK)
		wantWaiting(t, g, 0)
	})
}

// TestASilentProcessIsPassedByAndComesBackToItsPlace: those behind it overtake it while it makes no call, and
// when it does, it is served before those who are still there.
//
// Promise: A process that is killed, stopped or silent for 25 ms is passed by, and comes back to its place.
func TestASilentProcessIsPassedByAndComesBackToItsPlace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		withClock := guardtest.WithClock(clock)
		one := New(lineEngine(b, withClock), "s", Options{Max: 1, Wait: maxWait})
		silent := New(guardtest.NewEngineOver(b, &guardtest.Counting{Client: b.Client}, withClock,
			core.WithoutBreaker()), "s",
			Options{Max: 1, Wait: maxWait})
		silent.keeper.Pause(time.Hour) // it only calls when an attempt comes
		held := guardtest.Check(t, one, ann)
		var waiters []*waiting
		for i, g := range []*Guard{silent, one, one} {
			waiters = append(waiters, wait(t, g, 1))
			wantWaiting(t, one, int64(i+1))
		}
		guardtest.Settle(t, one, held, core.Commit)
		clock.Advance(25 * time.Millisecond)
		<-waiters[1].decided
		guardtest.WantReason(t, waiters[1].d, core.ReasonOK)
		wantWaiting(t, one, 1)
		waiters = append(waiters, wait(t, silent, 1))
		wantWaiting(t, one, 3)
		guardtest.Settle(t, one, waiters[1].d, core.Commit)
		clock.Advance(299 * time.Millisecond) // it has come back, and has more time now
		waiters = append(waiters, wait(t, silent, 1))
		<-waiters[0].decided
		guardtest.WantReason(t, waiters[0].d, core.ReasonOK)
		wantWaiting(t, one, 3)
		guardtest.Settle(t, silent, waiters[0].d, core.Commit)
		<-waiters[2].decided
		guardtest.WantReason(t, waiters[2].d, core.ReasonOK)
		for _, w := range waiters[3:] {
			w.giveUp()
			<-w.decided
			guardtest.WantReason(t, w.d, core.ReasonBusy)
		}
		guardtest.Settle(t, one, waiters[2].d, core.Commit)
	})
}

// TestWaitersAreToldByOtherProcesses: where nobody looks by himself, a release tells who is first.
func TestWaitersAreToldByOtherProcesses(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		options := Options{Max: 1, Wait: maxWait, Lease: time.Hour}
		one, two := New(lineEngine(b), "s", options), New(lineEngine(b), "s", options)
		two.keeper.Pause(time.Hour)
		held := guardtest.Check(t, one, ann)
		w := wait(t, two, 1)
		wantWaiting(t, one, 1)
		redistest.Eventually(t, time.Minute, func() bool {
			return listens(t, b, two.keeper.Channel())
		}, "the process does not listen")
		guardtest.Settle(t, one, held, core.Commit)
		<-w.decided
		guardtest.WantReason(t, w.d, core.ReasonOK)
		guardtest.Settle(t, two, w.d, core.Commit)
		two.keeper.StopListening()
	})
}

// TestWaitersWhoseRepliesAreLost: each gets its permits once.
func TestWaitersWhoseRepliesAreLost(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		one := New(lineEngine(b), "s", Options{Max: 2, Wait: maxWait})
		faults, rng := redistest.NewFaults(t), rand.New(rand.NewPCG(1, 2))
		// One in five is lost: with go-redis's three retries, one call in 600 loses all its replies, and fails.
		b.Client = b.NewClientWith(t, faults, func(o *redis.UniversalOptions) {
			o.MaxRetries, o.MaxRedirects = 12, 12
		})
		two := New(lineEngine(b), "s", Options{Max: 2, Wait: maxWait})
		if err := two.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := guardtest.Check(t, one, core.Attempt{Actor: "ann", Resource: "p", Cost: 2})
		faults.SwallowEvery("evalsha", 0.2, rng)
		var waiters []*waiting
		for range 6 {
			waiters = append(waiters, wait(t, two, 1))
		}
		wantWaiting(t, one, 6)
		guardtest.Settle(t, one, held, core.Commit)
		for served := range waiters {
			var w *waiting
			redistest.Eventually(t, time.Minute, func() bool {
				i := slices.IndexFunc(waiters, func(w *waiting) bool {
					select {
					case <-w.decided:
						return true
					default:
						return false
					}
				})
				if i >= 0 {
					w = waiters[i]
					waiters = slices.Delete(slices.Clone(waiters), i, i+1)
				}
				return i >= 0
			}, fmt.Sprintf("only %d have been served", served))
			guardtest.WantReason(t, w.d, core.ReasonOK)
			if s, err := one.Peek(t.Context(), ann); err != nil || s.Held > 2 {
				t.Errorf("%+v, %v", s, err)
			}
			guardtest.Settle(t, two, w.d, core.Commit)
		}
		wantHeld(t, one, 0)
	})
}

// TestWaitersRace: many who wait, some of whom give up, never hold more than there is, and leave nothing.
func TestWaitersRace(t *testing.T) {
	const callers = 16 // in memory both guards of a pair are one, with one line
	eachPair(t, Options{Max: 3, Wait: maxWait, Waiters: callers}, func(t *testing.T, one, two *Guard) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		var held, most, served atomic.Int64
		var all sync.WaitGroup
		for i := range uint64(callers) {
			all.Go(func() {
				rng, g := rand.New(rand.NewPCG(seed, i)), []*Guard{one, two}[i%2]
				for range 8 {
					ctx, cancel := context.WithCancel(t.Context())
					if rng.IntN(4) == 0 {
						time.AfterFunc(time.Duration(rng.IntN(5))*time.Millisecond, cancel)
					}
					d, err := g.Check(ctx, core.Attempt{Actor: "ann", Resource: "p", Cost: 1 + rng.Int64N(2)})
					if err == nil && d.Allowed {
						now := held.Add(d.Attempt.Cost)
						for seen := most.Load(); seen < now && !most.CompareAndSwap(seen, now); seen = most.Load() {
						}
						served.Add(1)
						held.Add(-d.Attempt.Cost)
						guardtest.Settle(t, g, d, core.Commit)
					} else if ctx.Err() == nil {
						t.Errorf("%+v, %v: want permits", d, err)
					}
					cancel()
				}
			})
		}
		all.Wait()
		if most.Load() > 3 || served.Load() < 50 {
			t.Errorf("%d permits were held at a time, %d attempts served", most.Load(), served.Load())
		}
		if err := core.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantWaiting(t, one, 0)
		wantHeld(t, two, 0)
	})
}

// listens reports whether any master of the cluster has a subscriber of the channel.
func listens(t *testing.T, b redistest.Backend, channel string) bool {
	var found atomic.Bool
	err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		n, err := c.PubSubNumSub(ctx, channel).Result()
		if n[channel] > 0 {
			found.Store(true)
		}
		return err
	})
	return err == nil && found.Load()
}

// TestManyWaitersAreServedInTheirOrder: more than one call can serve.
func TestManyWaitersAreServedInTheirOrder(t *testing.T) {
	const many = leases.Batch + 4
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		stands := guardtest.WithClock(guardtest.NewClock()) // as in eachPair
		g := New(lineEngine(b, stands), "s", Options{Max: 1, Wait: maxWait, Waiters: many})
		held := guardtest.Check(t, g, ann)
		var waiters []*waiting
		for i := range many {
			waiters = append(waiters, wait(t, g, 1))
			redistest.Eventually(t, time.Minute, func() bool {
				return g.keeper.Queued("p") == i+1
			}, "nobody waits")
		}
		wantWaiting(t, g, many)
		for i, w := range waiters {
			guardtest.Settle(t, g, held, core.Commit)
			<-w.decided
			if held = w.d; !held.Allowed {
				t.Fatalf("waiter %d: %+v", i, held)
			}
		}
		guardtest.Settle(t, g, held, core.Commit)
		wantWaiting(t, g, 0)
		wantHeld(t, g, 0)
	})
}

// TestWaitersWhoseClientCannotListen find out by themselves.
func TestWaitersWhoseClientCannotListen(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	options := Options{Max: 1, Wait: maxWait, Lease: time.Hour}
	one := New(lineEngine(b), "s", options)
	two := New(guardtest.NewEngineOver(b, &guardtest.Counting{Client: b.Client}, core.WithoutBreaker()), "s",
		options)
	held := guardtest.Check(t, one, ann)
	w := wait(t, two, 1)
	wantWaiting(t, one, 1)
	guardtest.Settle(t, one, held, core.Commit)
	<-w.decided
	guardtest.WantReason(t, w.d, core.ReasonOK)
	guardtest.Settle(t, two, w.d, core.Commit)
}

// TestWaitersWhileRedisStandsStill: they are served when it goes on.
func TestWaitersWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	b := redistest.Backend{Client: server.Client(t), Prefix: "gatehouse"}
	options := Options{Max: 1, Wait: maxWait, Lease: 20 * time.Second}
	g := New(lineEngine(b, core.WithDeadline(30*time.Millisecond)), "s", options)
	var held core.Decision
	redistest.Eventually(t, time.Minute, func() (ok bool) {
		held, _ = g.Check(t.Context(), ann) // the deadline is short
		return held.Allowed
	}, "no permit")
	a := core.Attempt{Actor: "bob", Resource: "p", Cost: 1}.WithCall()
	h, served := leases.NewHolder("p", a, 1, options.Lease), make(chan bool, 1)
	go func() { served <- g.keeper.Await(t.Context(), h) }()
	wantWaiting(t, g, 1)
	server.Pause()
	if err := g.Settle(t.Context(), held, core.Commit); err == nil {
		t.Error("Redis stands still, but the permit was given back")
	}
	server.Resume()
	redistest.Eventually(t, time.Minute, func() bool {
		return g.Settle(t.Context(), held, core.Commit) == nil
	}, "the permit was not given back")
	select {
	case ok := <-served:
		if !ok {
			t.Error("who waited gave up")
		}
	case <-time.After(time.Minute):
		t.Error("who waited was not served")
	}
}

// TestAWaitThatArrivesLateTakesNothing: the call for an attempt's place reaches Redis after the attempt has
// given up, when its permit is free.
func TestAWaitThatArrivesLateTakesNothing(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		other := New(lineEngine(b), "s", Options{Max: 1})
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := New(lineEngine(b), "s", Options{Max: 1, Wait: maxWait})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := guardtest.Check(t, other, ann)
		faults.HoldBack(leases.WaitScript.SHA())
		w := wait(t, g, 1)
		wantWaiting(t, other, 1) // by the second sending
		w.giveUp()
		<-w.decided
		guardtest.WantReason(t, w.d, core.ReasonBusy)
		redistest.Eventually(t, time.Minute, func() bool {
			return g.keeper.Lines() == 0 && g.Engine().Pending() == 0
		}, "the attempt has not left")
		guardtest.Settle(t, other, held, core.Commit)
		t.Logf("%q", faults.Deliver(t, 1))
		wantHeld(t, other, 0)
		wantWaiting(t, other, 0)
	})
}
