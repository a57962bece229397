package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/leases"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

const (
	defaultLease, minLease, maxWait = leases.DefaultLease, leases.MinLease, leases.MaxWait
	localRetry                      = leases.LocalRetry
)

// ann and bob are attempts of two holders at the pool p.
var (
	ann = core.Attempt{Actor: "ann", Resource: "p"}
	bob = core.Attempt{Actor: "bob", Resource: "p"}
)

// eachEngine runs f with engines on all backends, and with one without Redis.
func eachEngine(t *testing.T, f func(t *testing.T, e *core.Engine)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) { f(t, guardtest.NewEngine(b)) })
	t.Run("memory", func(t *testing.T) { f(t, guardtest.NewEngine(redistest.Backend{})) })
}

// wantHeld wants this many permits of the pool p to be held.
func wantHeld(t *testing.T, g *Guard, want int64) {
	t.Helper()
	if s, err := g.Peek(t.Context(), ann); err != nil || s.Held != want {
		t.Errorf("%+v, %v: want %d permits held", s, err, want)
	}
}

// wantLost wants the context to end because the lease was lost.
func wantLost(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("the context lives on")
	}
	if err := context.Cause(ctx); !errors.Is(err, ErrLost) || !errors.Is(err, core.ErrGone) {
		t.Errorf("the context ended with %v", err)
	}
}

// renewNow renews all leases at once, as the timer of the pool would.
func renewNow(g *Guard, tag string) {
	g.keeper.RenewNow(tag)
}

func TestSemaphoreTakesAndGivesBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *core.Engine) {
		g := New(e, "s", Options{Max: 3})
		var held []core.Decision
		for _, step := range []struct {
			cost      int64
			reason    core.Reason
			remaining int64
		}{
			{2, core.ReasonOK, 1},
			{2, core.ReasonBusy, 1},
			{4, core.ReasonOverLimit, 0},
			{1, core.ReasonOK, 0},
			{0, core.ReasonBusy, 0},
		} {
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Cost: step.cost})
			guardtest.WantReason(t, d, step.reason)
			busy := step.reason == core.ReasonBusy
			if d.Limit != 3 || d.Remaining != step.remaining || (d.RetryAfter > 0) != busy ||
				d.RetryAfter > defaultLease || d.Attempt.Call() != "" {
				t.Errorf("%+v: want %+v", d, step)
			}
			if d.Allowed {
				held = append(held, d)
			}
		}
		for _, resource := range []string{"", "q"} { // other pools
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: resource, Cost: 3})
			guardtest.WantReason(t, d, core.ReasonOK)
			guardtest.Settle(t, g, d, core.Commit)
		}
		wantHeld(t, g, 3)
		for _, ok := range []bool{true, false} { // once and twice, with both endings
			guardtest.Settle(t, g, held[0], guardtest.Ending(ok))
			wantHeld(t, g, 1)
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Cost: 2})
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.Settle(t, g, held[1], core.Rollback)
		guardtest.Settle(t, g, d, core.Commit)
		wantHeld(t, g, 0)
		if n := g.keeper.Pools(); n != 0 {
			t.Errorf("the process still knows %d pools", n)
		}
		foreign := core.Decision{Guard: "s", Allowed: true}
		if err := g.Settle(t.Context(), foreign, core.Commit); !guardtest.IsInvalid(err) {
			t.Errorf("a decision without a claim: %v", err)
		}
	})
}

// TestSemaphoreRace: many callers of two engines never hold more than there are, and all get through.
func TestSemaphoreRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		guards := []*Guard{
			New(guardtest.NewEngine(b), "s", Options{Max: 5}), New(guardtest.NewEngine(b), "s", Options{Max: 5}),
		}
		var held, most, allowed atomic.Int64
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				g := guards[i%2]
				for got := 0; got < 3; {
					a := core.Attempt{Actor: fmt.Sprint("user", i), Resource: "p", Cost: int64(1 + i%3)}
					d := guardtest.Check(t, g, a)
					if !d.Allowed {
						runtime.Gosched()
						continue
					}
					got++
					now := held.Add(d.Attempt.Cost)
					for seen := most.Load(); seen < now && !most.CompareAndSwap(seen, now); seen = most.Load() {
					}
					allowed.Add(1)
					held.Add(-d.Attempt.Cost)
					guardtest.Settle(t, g, d, guardtest.Ending(i%2 == 0))
				}
			})
		}
		all.Wait()
		if most.Load() > 5 || most.Load() < 2 || allowed.Load() != 60 {
			t.Errorf("%d permits were held at a time, %d attempts allowed", most.Load(), allowed.Load())
		}
		wantHeld(t, guards[0], 0)
	})
}

func TestSemaphoreRefusalsWriteNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{Max: 1})
		defer guardtest.Settle(t, g, guardtest.Check(t, g, ann), core.Commit)
		contents := func() string {
			return fmt.Sprint(b.Client.ZRangeWithScores(t.Context(), g.Key("p", "permits"), 0, -1).Val())
		}
		before := contents()
		guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonBusy)
		if after := contents(); after != before {
			t.Errorf("%s, after a refusal %s", before, after)
		}
	})
}

// TestSemaphoreLostReply: the client library sends the calls again, and the permit is taken and given back
// once.
func TestSemaphoreLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b), "s", Options{Max: 2})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		faults.SwallowReply("evalsha")
		d := guardtest.Check(t, g, ann)
		guardtest.WantReason(t, d, core.ReasonOK)
		if d.Remaining != 1 {
			t.Errorf("%+v: want one permit taken", d)
		}
		faults.SwallowReply("evalsha")
		renewNow(g, "p")
		wantHeld(t, g, 1)
		faults.SwallowReply("evalsha")
		guardtest.Settle(t, g, d, core.Commit)
		wantHeld(t, g, 0)
		if faults.Swallowed() != 3 {
			t.Errorf("%d replies lost", faults.Swallowed())
		}
	})
}

// TestSemaphoreReleaseThatOvertakes: a call that arrives after its release takes nothing.
func TestSemaphoreReleaseThatOvertakes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{Max: 2})
		h := leases.NewHolder("p", core.Attempt{Actor: "ann", Cost: 2}.WithCall(), 2, defaultLease)
		h.Late = true
		if err := g.keeper.Give(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		value, err := g.Engine().Run(t.Context(), leases.AcquireScript, g.keeper.KeysOf(h), 2, 10000, h.Name)
		if err != nil || script.ReadReply(value, 3, 3).Text() != string(core.ReasonGone) {
			t.Errorf("%v, %v: want gone", value, err)
		}
		wantHeld(t, g, 0)
	})
}

// TestSemaphoreAnswerThatComesTooLate: what the call has taken is given back in the background.
func TestSemaphoreAnswerThatComesTooLate(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		witness := New(guardtest.NewEngine(b), "s", Options{Max: 2})
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b, core.WithDeadline(50*time.Millisecond)), "s",
			Options{Max: 2, Lease: time.Hour}) // so that the permit does not come back by itself
		if err := witness.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		faults.SwallowReplies("evalsha", 100)
		d, err := g.Check(t.Context(), ann)
		if err == nil || d.Limit != 0 {
			t.Fatalf("%+v, %v: want an error, without figures", d, err)
		}
		faults.Heal()
		redistest.Eventually(t, time.Minute, func() bool {
			s, err := witness.Peek(t.Context(), ann)
			return err == nil && s.Held == 0 && g.Engine().Pending() == 0
		}, "the permit is still held")
	})
}

// TestSemaphoreHostileText: any text names a holder and a pool of its own.
func TestSemaphoreHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{Max: 2})
		for _, text := range guardtest.Hostile {
			for _, a := range []core.Attempt{{Actor: "ann", Resource: text}, {Actor: text}} {
				d := guardtest.Check(t, g, a)
				if guardtest.WantReason(t, d, core.ReasonOK); d.Remaining != 1 {
					t.Errorf("%.40q: %+v", text, d)
				}
				s, err := g.Peek(t.Context(), a)
				if err != nil || len(s.Holders) != 1 ||
					s.Holders[0].Actor != a.Actor && s.Holders[0].Actor != script.Encode(a.Actor) {
					t.Errorf("%.40q: %+v, %v", text, s, err)
				}
				guardtest.Settle(t, g, d, core.Commit)
			}
		}
	})
}

// TestSemaphoreMaxByAttempt: the number of permits may depend on the attempt.
func TestSemaphoreMaxByAttempt(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *core.Engine) {
		failure := errors.New("no tier")
		g := New(e, "s", Options{MaxOf: func(_ context.Context, a core.Attempt) (int64, error) {
			switch a.Resource {
			case "small":
				return 1, nil
			case "none":
				return 0, nil
			case "huge":
				return maxPermits + 1, nil
			}
			return 0, failure
		}})
		small := core.Attempt{Actor: "ann", Resource: "small"}
		defer guardtest.Settle(t, g, guardtest.Check(t, g, small), core.Commit)
		guardtest.WantReason(t, guardtest.Check(t, g, small), core.ReasonBusy)
		none := core.Attempt{Actor: "ann", Resource: "none"}
		guardtest.WantReason(t, guardtest.Check(t, g, none), core.ReasonOverLimit)
		if s, err := g.Peek(t.Context(), small); err != nil || s.Max != 1 {
			t.Errorf("%+v, %v", s, err)
		}
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "huge"}); err == nil {
			t.Error("too many permits are no error")
		}
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "?"}); !errors.Is(err, failure) {
			t.Errorf("error %v", err)
		}
		if _, err := g.Peek(t.Context(), core.Attempt{Resource: "?"}); !errors.Is(err, failure) {
			t.Errorf("error %v", err)
		}
	})
}

// TestSemaphoreEviction: the permits of one holder, or of all, are free at once, and those who had them hear
// of it with the next renewal.
func TestSemaphoreEviction(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *core.Engine) {
		g := New(e, "s", Options{Max: 3})
		var held []context.Context
		for _, a := range []core.Attempt{ann, ann, bob} {
			ctx, stop := g.Hold(t.Context(), guardtest.Check(t, g, a))
			defer stop()
			held = append(held, ctx)
		}
		for _, step := range []struct {
			whose   core.Attempt
			permits int64
			lost    []context.Context
		}{{ann, 2, held[:2]}, {core.Attempt{Resource: "p"}, 1, held[2:]}, {ann, 0, nil}} {
			if n, err := g.Evict(t.Context(), step.whose); err != nil || n != step.permits {
				t.Errorf("%d, %v: want %d evicted", n, err, step.permits)
			}
			if e.HasRedis() && len(step.lost) > 0 {
				renewNow(g, "p")
			}
			for _, ctx := range step.lost {
				wantLost(t, ctx)
			}
		}
		wantHeld(t, g, 0)
	})
}

// TestSemaphoreInOutages: by FailLocal a process counts what it holds itself, from Redis or not.
//
// Promise: The guard works inside one process, without Redis or under FailLocal.
func TestSemaphoreInOutages(t *testing.T) {
	b := redistest.Single(t)
	g := New(guardtest.NewEngine(b), "s", Options{Max: 2})
	first := guardtest.Check(t, g, ann)
	second, err := g.CheckLocal(t.Context(), ann)
	if err != nil || !second.Allowed || second.Remaining != 0 || second.Source != core.SourceLocal {
		t.Errorf("%+v, %v", second, err)
	}
	third, err := g.CheckLocal(t.Context(), bob)
	if err != nil || third.Reason != core.ReasonBusy || third.RetryAfter != localRetry {
		t.Errorf("%+v, %v", third, err)
	}
	if d, err := g.CheckLocal(t.Context(), core.Attempt{}); !guardtest.IsInvalid(err) {
		t.Errorf("%+v, %v", d, err)
	}
	guardtest.Settle(t, g, first, core.Commit)
	guardtest.Settle(t, g, second, core.Commit)
	both := core.Attempt{Actor: "bob", Resource: "p", Cost: 2}
	if d, err := g.CheckLocal(t.Context(), both); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestManyPermitsCostAsMuchAsOne: a holder has one record, whatever its permits. With a record for each, an
// attempt with a Cost of 10,000 took Redis 17.5 ms.
func TestManyPermitsCostAsMuchAsOne(t *testing.T) {
	rdb := redistest.StartServer(t).Client(t)
	g := New(core.New(rdb, core.WithDeadline(time.Minute)), "s", Options{Max: maxPermits})
	commands := func(cost int64) (calls int) {
		if err := rdb.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Cost: cost})
		guardtest.WantReason(t, d, core.ReasonOK)
		g.keeper.RenewNow("p")
		wantHeld(t, g, cost)
		guardtest.Settle(t, g, d, core.Commit)
		for line := range strings.Lines(rdb.Info(t.Context(), "commandstats").Val()) {
			name, n := "", 0
			if _, err := fmt.Sscanf(strings.Replace(line, ":calls=", " ", 1), "%s %d", &name, &n); err == nil {
				calls += n
			}
		}
		return calls
	}
	commands(1) // the scripts are loaded
	if one, all := commands(1), commands(maxPermits); all != one {
		t.Errorf("%d commands for %d permits, %d for one", all, maxPermits, one)
	}
}

// TestSemaphoreAgainstModel: random calls of two processes, whose clock moves, do what a plain model does.
//
// Promise: All processes together hold at most N permits of a pool. An attempt gets all or none.
func TestSemaphoreAgainstModel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng, clock := rand.New(rand.NewPCG(seed, 0)), guardtest.NewClock()
		const most, lease = 4, time.Hour // nothing is renewed but by the test
		var guards []*Guard
		for range 2 {
			g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{Max: most, Lease: lease})
			guards = append(guards, g)
		}
		type hold struct {
			g    *Guard
			d    core.Decision
			ends time.Time
		}
		var holds []*hold
		held := func() (n int64) {
			for _, h := range holds {
				if h.ends.After(clock.Now()) {
					n += h.d.Attempt.Cost
				}
			}
			return n
		}
		steps := 150
		if guardtest.Soak() {
			steps = 20_000
		}
		for step := range steps {
			switch action := rng.IntN(10); {
			case action < 5:
				g, cost, before := guards[rng.IntN(2)], 1+rng.Int64N(3), held()
				d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Cost: cost})
				if d.Allowed != (before+cost <= most) {
					t.Fatalf("step %d: %+v, of which %d are held", step, d, before)
				}
				if !d.Allowed {
					var ends []time.Duration
					for _, h := range holds {
						for range h.d.Attempt.Cost {
							if h.ends.After(clock.Now()) {
								ends = append(ends, h.ends.Sub(clock.Now()))
							}
						}
					}
					slices.Sort(ends)
					if want := ends[before+cost-most-1]; d.RetryAfter != want {
						t.Fatalf("step %d: %+v: want a retry after %v", step, d, want)
					}
					break
				}
				holds = append(holds, &hold{g, d, clock.Now().Add(lease)})
			case action < 7 && len(holds) > 0:
				i := rng.IntN(len(holds))
				guardtest.Settle(t, holds[i].g, holds[i].d, guardtest.Ending(rng.IntN(2) == 0))
				holds = slices.Delete(holds, i, i+1)
			case action < 9 && len(holds) > 0:
				h := holds[rng.IntN(len(holds))]
				err := h.g.keeper.Extend(t.Context(), h.d)
				if lives := h.ends.After(clock.Now()); lives != (err == nil) || !lives && !errors.Is(err, ErrLost) {
					t.Fatalf("step %d: %v: want that it lives: %v", step, err, lives)
				} else if lives {
					h.ends = clock.Now().Add(lease)
				}
			default:
				clock.Advance(time.Duration(rng.Int64N(2_400_000)) * time.Millisecond)
			}
			wantHeld(t, guards[0], held())
		}
		for _, h := range holds {
			guardtest.Settle(t, h.g, h.d, core.Commit)
		}
		wantHeld(t, guards[1], 0)
	})
}

func TestSemaphoreSetUpMistakes(t *testing.T) {
	e := guardtest.NewEngine(redistest.Backend{})
	maxOf := func(context.Context, core.Attempt) (int64, error) { return 1, nil }
	for text, options := range map[string]Options{
		"semaphore: Max is 0":              {},
		"semaphore: Max is 10001":          {Max: maxPermits + 1},
		"semaphore: Max and MaxOf are set": {Max: 1, MaxOf: maxOf},
		"semaphore: Lease is 1ms":          {Max: 1, Lease: time.Millisecond},
		"semaphore: Lease is 2h0m0s":       {Max: 1, Lease: 2 * time.Hour},
		"semaphore: Wait is 1h0m0s":        {Max: 1, Wait: time.Hour},
	} {
		guardtest.WantPanic(t, text, func() { New(e, "s", options) })
	}
}
