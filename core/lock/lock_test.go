package lock

import (
	"context"
	"errors"
	"fmt"
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

// ann and bob are attempts of two owners at the thing p.
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

// wantHeld wants the lock of p to be held by this owner; empty: by nobody.
func wantHeld(t *testing.T, g *Guard, owner string) {
	t.Helper()
	s, err := g.Peek(t.Context(), "p")
	if err != nil || s.Owner != owner || s.Held != (owner != "") || owner == "" && s.Ends != 0 {
		t.Errorf("%+v, %v: want it held by %q", s, err, owner)
	}
}

// take takes the lock and returns the decision and its fence.
func take(t *testing.T, g *Guard, a core.Attempt) (core.Decision, int64) {
	t.Helper()
	d := guardtest.Check(t, g, a)
	guardtest.WantReason(t, d, core.ReasonOK)
	fence, ok := g.Fence(d)
	if !ok || fence <= 0 || fence >= 1<<53 {
		t.Fatalf("the fence is %d, %v", fence, ok)
	}
	return d, fence
}

// wantLost wants the context to end because the lock was lost.
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

// TestLockHasOneHolder: not the same owner again, and not the same operation.
//
// Promise: A thing has one holder in all processes. The owner or operation that asks again is refused like
// any other.
func TestLockHasOneHolder(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *core.Engine) {
		g := New(e, "l", Options{})
		first := core.Attempt{Actor: "ann", Resource: "p", ID: "op", Cost: 7}
		d, fence := take(t, g, first)
		for _, a := range []core.Attempt{bob, ann, first} {
			refused := guardtest.Check(t, g, a)
			guardtest.WantReason(t, refused, core.ReasonBusy)
			if refused.RetryAfter <= 0 || refused.RetryAfter > leases.DefaultLease {
				t.Errorf("%+v: want to hear when to try again", refused)
			}
			if _, ok := g.Fence(refused); ok {
				t.Error("a refusal has a fence")
			}
			guardtest.Settle(t, g, refused, core.Rollback)
		}
		wantHeld(t, g, "ann")
		other, _ := take(t, g, core.Attempt{Actor: "bob", Resource: "q"})
		guardtest.Settle(t, g, other, core.Commit)
		for _, ok := range []bool{true, false} { // once and twice, with both endings
			guardtest.Settle(t, g, d, guardtest.Ending(ok))
			wantHeld(t, g, "")
		}
		next, greater := take(t, g, bob)
		if greater <= fence {
			t.Errorf("the fence %d after %d", greater, fence)
		}
		guardtest.Settle(t, g, d, core.Commit) // of the first holder: takes nothing from bob
		wantHeld(t, g, "bob")
		guardtest.Settle(t, g, next, core.Rollback)
		foreign := core.Decision{Guard: "l", Allowed: true}
		if err := g.Settle(t.Context(), foreign, core.Commit); !guardtest.IsInvalid(err) {
			t.Errorf("a decision without a claim: %v", err)
		}
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "ann"}); !guardtest.IsInvalid(err) {
			t.Errorf("an attempt without a thing: %v", err)
		}
		if n := g.keeper.Pools(); n != 0 {
			t.Errorf("the process still knows %d locks", n)
		}
	})
}

// TestLockRace: many callers of two engines hold it one at a time, and their fences grow in that order.
func TestLockRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		guards := []*Guard{New(guardtest.NewEngine(b), "l", Options{Wait: leases.MaxWait}),
			New(guardtest.NewEngine(b), "l", Options{Wait: leases.MaxWait})}
		var holding atomic.Int64
		var last int64 // of the holder before: guarded by the lock alone
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for range 4 {
					d, fence := take(t, guards[i%2], core.Attempt{Actor: fmt.Sprint("user", i), Resource: "p"})
					if holding.Add(1) != 1 {
						t.Error("two hold the lock")
					}
					if before := atomic.SwapInt64(&last, fence); before >= fence {
						t.Errorf("the fence %d after %d", fence, before)
					}
					holding.Add(-1)
					guardtest.Settle(t, guards[i%2], d, guardtest.Ending(i%2 == 0))
				}
			})
		}
		all.Wait()
		wantHeld(t, guards[0], "")
	})
}

func TestLockRefusalsWriteNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "l", Options{})
		d, _ := take(t, g, ann)
		defer guardtest.Settle(t, g, d, core.Commit)
		contents := func() string {
			keys := b.Client.Exists(t.Context(), g.Key("p", "line"), g.Key("p", "present")) // one slot
			return fmt.Sprint(b.Client.ZRangeWithScores(t.Context(), g.Key("p", "permits"), 0, -1).Val(), keys.Val())
		}
		before := contents()
		guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonBusy)
		if after := contents(); after != before {
			t.Errorf("%s, after a refusal %s", before, after)
		}
	})
}

// TestLockLostReply: the client library sends the calls again: the lock is taken once, with one fence,
// renewed and given back.
func TestLockLostReply(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		witness := New(guardtest.NewEngine(b), "l", Options{})
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b), "l", Options{})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		faults.SwallowReply("evalsha")
		d, fence := take(t, g, ann)
		if s, err := witness.Peek(t.Context(), "p"); err != nil || s.Fence != fence {
			t.Errorf("%+v, %v: the holder was told %d", s, err, fence)
		}
		faults.SwallowReply("evalsha")
		if err := g.Extend(t.Context(), d); err != nil {
			t.Error(err)
		}
		faults.SwallowReply("evalsha")
		guardtest.Settle(t, g, d, core.Commit)
		wantHeld(t, witness, "")
		if faults.Swallowed() != 3 {
			t.Errorf("%d replies lost", faults.Swallowed())
		}
	})
}

// TestLockReleaseThatOvertakes: a call that arrives after its release takes nothing, and neither does a late
// copy of one that had the lock: it is somebody else's by then.
func TestLockReleaseThatOvertakes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "l", Options{})
		h := leases.NewHolder("p", core.Attempt{Actor: "ann", Cost: 1}.WithCall(), 1, leases.DefaultLease)
		h.Late = true
		if err := g.keeper.Give(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		arrive := func() string {
			t.Helper()
			value, err := g.Engine().Run(t.Context(), leases.AcquireScript, g.keeper.KeysOf(h), 1, 10000, h.Name,
				86410000)
			if err != nil {
				t.Fatal(err)
			}
			return script.ReadReply(value, 3, 3).Text()
		}
		if got := arrive(); got != string(core.ReasonGone) {
			t.Errorf("%s: want gone", got)
		}
		wantHeld(t, g, "")
		d, _ := take(t, g, bob)
		if got := arrive(); got != string(core.ReasonGone) {
			t.Errorf("%s: want gone", got)
		}
		wantHeld(t, g, "bob")
		guardtest.Settle(t, g, d, core.Commit)
	})
}

// TestLockAnswerThatComesTooLate: what the call has taken is given back in the background.
func TestLockAnswerThatComesTooLate(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		witness := New(guardtest.NewEngine(b), "l", Options{})
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b, core.WithDeadline(50*time.Millisecond)), "l", Options{})
		if err := witness.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		faults.SwallowReplies("evalsha", 100)
		if d, err := g.Check(t.Context(), ann); err == nil {
			t.Fatalf("%+v: want an error", d)
		}
		faults.Heal()
		redistest.Eventually(t, time.Minute, func() bool {
			s, err := witness.Peek(t.Context(), "p")
			return err == nil && !s.Held && g.Engine().Pending() == 0
		}, "the lock is still held")
	})
}

// TestLockHostileText: any text names an owner and a thing of its own.
func TestLockHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "l", Options{})
		for _, text := range guardtest.Hostile {
			for _, a := range []core.Attempt{{Actor: "ann", Resource: text}, {Actor: text, Resource: "p"}} {
				d, fence := take(t, g, a)
				s, err := g.Peek(t.Context(), a.Resource)
				if err != nil || s.Fence != fence || s.Owner != a.Actor && s.Owner != script.Encode(a.Actor) {
					t.Errorf("%.40q: %+v, %v", text, s, err)
				}
				guardtest.Settle(t, g, d, core.Commit)
			}
		}
	})
}

// TestLockDo: f runs under the lock, and Do says what became of it.
//
// Promise: `Do` runs a function under the lock, and gives it back however that ends. It says when the lock
// was lost, and so does `Extend`.
func TestLockDo(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *core.Engine) {
		g := New(e, "l", Options{})
		failure := errors.New("no paper")
		var last int64
		for _, want := range []error{nil, failure} {
			err := g.Do(t.Context(), "ann", "p", func(ctx context.Context, fence int64) error {
				if told, ok := Fence(ctx); !ok || told != fence || fence <= last {
					t.Errorf("the fence %d after %d, of the context %d", fence, last, told)
				}
				last = fence
				nested := g.Do(ctx, "ann", "p", func(context.Context, int64) error { t.Error("both run"); return nil })
				if !errors.Is(nested, ErrBusy) || !errors.Is(nested, core.ErrNotNow) {
					t.Errorf("inside: %v, want busy", nested)
				}
				return want
			})
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%v: want %v", err, want)
			}
			wantHeld(t, g, "")
		}
		err := g.Do(t.Context(), "ann", "p", func(ctx context.Context, _ int64) error {
			if broken, err := g.Break(ctx, "p"); err != nil || !broken {
				t.Errorf("%v, %v: want it broken", broken, err)
			}
			g.keeper.RenewNow("p")
			wantLost(t, ctx)
			return nil
		})
		if !errors.Is(err, ErrLost) {
			t.Errorf("%v: want that the lock was lost", err)
		}
		func() {
			defer func() { _ = recover() }() // f's
			_ = g.Do(t.Context(), "ann", "p", func(context.Context, int64) error { panic("no paper") })
		}()
		wantHeld(t, g, "")
		if err := g.Do(t.Context(), "", "p", nil); !guardtest.IsInvalid(err) {
			t.Errorf("without an owner: %v", err)
		}
	})
}

// TestLockExtend: renews the lease, and says so when it is lost.
func TestLockExtend(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "l", Options{Lease: time.Hour})
		d, _ := take(t, g, ann)
		held, stop := g.Hold(t.Context(), d)
		defer stop()
		for range 2 {
			clock.Advance(40 * time.Minute)
			if err := g.Extend(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := g.Peek(t.Context(), "p"); err != nil || s.Ends != time.Hour {
			t.Errorf("%+v, %v: want a whole lease", s, err)
		}
		clock.Advance(time.Hour)
		if err := g.Extend(t.Context(), d); !errors.Is(err, ErrLost) {
			t.Errorf("after the lease: %v", err)
		}
		wantLost(t, held)
		other, _ := take(t, g, bob)
		guardtest.Settle(t, g, other, core.Commit)
		if err := g.Extend(t.Context(), other); !errors.Is(err, ErrLost) {
			t.Errorf("after it was given back: %v", err)
		}
		if err := g.Extend(t.Context(), core.Decision{}); !guardtest.IsInvalid(err) {
			t.Errorf("a decision of nobody: %v", err)
		}
	})
}

// TestLockThatIsBroken: it is free at once, and who had it hears of it with the next renewal.
func TestLockThatIsBroken(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *core.Engine) {
		g := New(e, "l", Options{})
		d, fence := take(t, g, ann)
		held, stop := g.Hold(t.Context(), d)
		defer stop()
		for _, want := range []bool{true, false} {
			if broken, err := g.Break(t.Context(), "p"); err != nil || broken != want {
				t.Errorf("%v, %v: want %v", broken, err, want)
			}
		}
		other, greater := take(t, g, bob)
		if greater <= fence {
			t.Errorf("the fence %d after %d", greater, fence)
		}
		g.keeper.RenewNow("p")
		wantLost(t, held)
		guardtest.Settle(t, g, d, core.Commit)
		wantHeld(t, g, "bob")
		guardtest.Settle(t, g, other, core.Commit)
		if _, err := g.Break(t.Context(), ""); !guardtest.IsInvalid(err) {
			t.Errorf("no thing: %v", err)
		}
		if _, err := g.Peek(t.Context(), ""); !guardtest.IsInvalid(err) {
			t.Errorf("no thing: %v", err)
		}
	})
}

func TestLockSetUpMistakes(t *testing.T) {
	e := guardtest.NewEngine(redistest.Backend{})
	for text, options := range map[string]Options{
		"lock: Lease is 1ms":    {Lease: time.Millisecond},
		"lock: Lease is 2h0m0s": {Lease: 2 * time.Hour},
		"lock: Wait is 1h0m0s":  {Wait: time.Hour},
	} {
		guardtest.WantPanic(t, text, func() { New(e, "l", options) })
	}
}
