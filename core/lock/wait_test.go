package lock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
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

// wantWaiting waits until this many attempts wait for the lock of p.
func wantWaiting(t *testing.T, g *Guard, want int64) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool {
		s, err := g.Peek(t.Context(), "p")
		return err == nil && s.Waiting == want
	}, fmt.Sprintf("not %d attempts wait", want))
}

// waiting is an attempt that waits in the background.
type waiting struct {
	d       core.Decision
	giveUp  context.CancelFunc
	decided chan struct{}
}

// wait makes an attempt wait for the lock of p.
func wait(t *testing.T, g *Guard) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiting{giveUp: cancel, decided: make(chan struct{})}
	go func() {
		defer close(w.decided)
		var err error
		if w.d, err = g.Check(ctx, core.Attempt{Actor: "waiter", Resource: "p"}); err != nil {
			t.Errorf("Check: %v", err)
		}
	}()
	return w
}

// eachPair runs f with two guards of one lock on all backends, and with one guard twice without Redis.
func eachPair(t *testing.T, options Options, f func(t *testing.T, one, two *Guard)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		stands := guardtest.WithClock(guardtest.NewClock()) // else who waits behind passes a stalled one by
		f(t, New(lineEngine(b, stands), "l", options), New(lineEngine(b, stands), "l", options))
	})
	t.Run("memory", func(t *testing.T) {
		g := New(lineEngine(redistest.Backend{}), "l", options)
		f(t, g, g)
	})
}

// TestLockWaitersAreServedInTheirOrder, whatever the process, with fences that grow. Nobody overtakes them,
// and one that gives up blocks nobody.
//
// Promise: Waiters are served as those of a [semaphore](#semaphore), ten of an owner per thing and process.
func TestLockWaitersAreServedInTheirOrder(t *testing.T) {
	eachPair(t, Options{Wait: leases.MaxWait}, func(t *testing.T, one, two *Guard) {
		guards := []*Guard{one, two}
		d, last := take(t, one, ann)
		var waiters []*waiting
		for i := range 5 {
			waiters = append(waiters, wait(t, guards[i%2]))
			wantWaiting(t, one, int64(i+1))
		}
		waiters[1].giveUp()
		<-waiters[1].decided
		guardtest.WantReason(t, waiters[1].d, core.ReasonBusy)
		wantWaiting(t, one, 4)
		by := one
		for i, w := range waiters {
			if i == 1 {
				continue
			}
			guardtest.Settle(t, by, d, core.Commit)
			<-w.decided
			d, by = w.d, guards[i%2]
			fence, ok := by.Fence(d)
			if guardtest.WantReason(t, d, core.ReasonOK); !ok || fence <= last {
				t.Errorf("waiter %d: the fence %d after %d", i, fence, last)
			}
			if s, err := one.Peek(t.Context(), "p"); err != nil || s.Fence != fence {
				t.Errorf("%+v, %v: the waiter was told %d", s, err, fence)
			}
			last = fence
		}
		guardtest.Settle(t, by, d, core.Commit)
		wantWaiting(t, two, 0)
		wantHeld(t, two, "")
	})
}

// TestLockWaitThatIsOver: the attempt is refused, and leaves nothing behind.
func TestLockWaitThatIsOver(t *testing.T) {
	eachPair(t, Options{Wait: 20 * time.Millisecond}, func(t *testing.T, one, two *Guard) {
		held, _ := take(t, one, ann)
		d := guardtest.Check(t, two, bob)
		if guardtest.WantReason(t, d, core.ReasonBusy); d.RetryAfter <= 0 {
			t.Errorf("%+v: want to hear when to try again", d)
		}
		wantWaiting(t, two, 0)
		guardtest.Settle(t, one, held, core.Commit)
		redistest.Eventually(t, time.Minute, func() bool {
			d = guardtest.Check(t, two, bob)
			return d.Allowed
		}, "the lock is not free")
		guardtest.Settle(t, two, d, core.Commit)
	})
}

// TestLockWaitersWhoseRepliesAreLost: each gets the lock once, with the fence that Redis has noted.
func TestLockWaitersWhoseRepliesAreLost(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		// Who was not told would wait for the end of the lease.
		options := Options{Wait: leases.MaxWait, Waiters: 12, Lease: time.Hour}
		one := New(lineEngine(b), "l", options)
		faults, rng := redistest.NewFaults(t), rand.New(rand.NewPCG(1, 2))
		// One in five is lost: with go-redis's three retries, one call in 600 loses all its replies, and fails.
		b.Client = b.NewClientWith(t, faults, func(o *redis.UniversalOptions) {
			o.MaxRetries, o.MaxRedirects = 12, 12
		})
		two := New(lineEngine(b), "l", options)
		if err := two.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		held, _ := take(t, one, ann)
		faults.SwallowEvery("evalsha", 0.2, rng)
		decided := make(chan core.Decision, 12)
		for range cap(decided) {
			w := wait(t, two)
			go func() {
				<-w.decided
				decided <- w.d
			}()
		}
		wantWaiting(t, one, int64(cap(decided)))
		guardtest.Settle(t, one, held, core.Commit)
		for range cap(decided) {
			d := <-decided
			guardtest.WantReason(t, d, core.ReasonOK)
			fence, _ := two.Fence(d)
			if s, err := one.Peek(t.Context(), "p"); err != nil || s.Fence != fence || s.Owner != "waiter" {
				t.Errorf("%+v, %v: the waiter was told %d", s, err, fence)
			}
			guardtest.Settle(t, two, d, core.Commit)
		}
		wantHeld(t, one, "")
	})
}
