package semaphore

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/leases"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestLeaseOfADeadProcessEnds: its permits are free when the lease is over, and no sooner.
func TestLeaseOfADeadProcessEnds(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{Max: 2})
		dead := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Cost: 2})
		held, stop := g.Hold(t.Context(), dead)
		defer stop()
		clock.Advance(defaultLease - time.Millisecond)
		d := guardtest.Check(t, g, bob)
		if guardtest.WantReason(t, d, core.ReasonBusy); d.RetryAfter != time.Millisecond {
			t.Errorf("%+v: want a retry when the lease is over", d)
		}
		clock.Advance(time.Millisecond)
		guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonOK)
		renewNow(g, "p") // the process was not dead
		wantLost(t, held)
		wantHeld(t, g, 1)
		guardtest.Settle(t, g, dead, core.Commit) // takes nothing from bob
		wantHeld(t, g, 1)
	})
}

// TestLeasesAreRenewed: by one call for many holders, for as long as they hold.
func TestLeasesAreRenewed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock, calls := guardtest.NewClock(), &guardtest.Counting{Client: b.Client}
		g := New(guardtest.NewEngineOver(b, calls, guardtest.WithClock(clock)), "s", Options{Max: 700})
		// Not through the counting client, which is no cluster client: the scripts would be on one server only.
		if err := New(guardtest.NewEngine(b), "s", Options{Max: 700}).Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		const holders = leases.Chunk + 1
		var held []core.Decision
		for i := range holders {
			held = append(held, guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint("user", i), Resource: "p"}))
		}
		for range 3 {
			clock.Advance(defaultLease * 2 / 3)
			before := calls.Sent.Load()
			renewNow(g, "p")
			if n := calls.Sent.Load() - before; n != 2 && b.Mini == nil { // where EVALSHA was known
				t.Errorf("%d calls for %d holders", n, holders)
			}
		}
		wantHeld(t, g, holders)
		for _, d := range held[1:] {
			guardtest.Settle(t, g, d, core.Commit)
		}
		wantHeld(t, g, 1)
		guardtest.Settle(t, g, held[0], core.Commit)
	})
}

// TestLeasesAreRenewedInTime: without a call by the application.
func TestLeasesAreRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		defer m.Close()
		rdb := redis.NewClient(&redis.Options{Addr: "redis", DisableIdentity: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
		defer func() { _ = rdb.Close() }()
		b := redistest.Backend{Client: rdb, Prefix: "gatehouse"}
		g := New(guardtest.NewEngine(b, core.WithClock(time.Now)), "s", Options{Max: 1})
		d := guardtest.Check(t, g, ann)
		held, stop := g.Hold(t.Context(), d)
		defer stop()
		for range 10 {
			<-time.After(defaultLease / 3)
			wantHeld(t, g, 1)
		}
		if held.Err() != nil {
			t.Errorf("the lease was lost: %v", held.Err())
		}
		guardtest.Settle(t, g, d, core.Commit)
	})
}

// TestLeaseIsLostWhileRedisStandsStill: the process stops the work before another can get the permit.
func TestLeaseIsLostWhileRedisStandsStill(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	b := redistest.Backend{Client: server.Client(t), Prefix: "gatehouse"}
	g := New(guardtest.NewEngine(b, core.WithDeadline(time.Minute)), "s", Options{Max: 1, Lease: minLease})
	d := guardtest.Check(t, g, ann)
	held, stop := g.Hold(t.Context(), d)
	defer stop()
	server.Pause()
	wantLost(t, held)
	server.Resume()
	redistest.Eventually(t, time.Minute, func() bool {
		another, err := g.Check(t.Context(), bob)
		return err == nil && another.Allowed
	}, "the permit is not free")
}

// TestLeasesAfterAScriptFlush: a server that has forgotten the scripts renews and gives back all the same.
func TestLeasesAfterAScriptFlush(t *testing.T) {
	server := redistest.StartServer(t)
	b := redistest.Backend{Client: server.Client(t), Prefix: "gatehouse"}
	g := New(guardtest.NewEngine(b), "s", Options{Max: 1})
	flush := func() {
		t.Helper()
		if err := b.Client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	d := guardtest.Check(t, g, ann)
	held, stop := g.Hold(t.Context(), d)
	defer stop()
	flush()
	renewNow(g, "p")
	if held.Err() != nil {
		t.Error("the lease was lost")
	}
	flush()
	guardtest.Settle(t, g, d, core.Commit)
	wantHeld(t, g, 0)
}

// TestLeasesWhenTheClockJumps: set back, it makes no lease longer; set forward, it ends them.
//
// Promise: After a clock was set back, no lease keeps attempts out for longer than its length. A clock set
// forward ends leases.
func TestLeasesWhenTheClockJumps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{Max: 2})
		dead, lives := guardtest.Check(t, g, ann), guardtest.Check(t, g, bob)
		g.keeper.Forget(dead) // nobody renews it
		clock.Advance(-time.Hour)
		d := guardtest.Check(t, g, ann)
		if guardtest.WantReason(t, d, core.ReasonBusy); d.RetryAfter != defaultLease {
			t.Errorf("%+v: want a retry after a lease", d)
		}
		clock.Advance(defaultLease - time.Millisecond)
		renewNow(g, "p")
		clock.Advance(time.Millisecond)
		wantHeld(t, g, 1)
		guardtest.WantReason(t, guardtest.Check(t, g, ann), core.ReasonOK)
		clock.Advance(time.Hour)
		wantHeld(t, g, 0)
		held, stop := g.Hold(t.Context(), lives)
		defer stop()
		renewNow(g, "p")
		wantLost(t, held)
	})
}

// TestLeasesOfTwoLengths: while a deployment changes the lease, neither release cuts the other's short.
func TestLeasesOfTwoLengths(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		long := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{Max: 3, Lease: time.Minute})
		short := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{Max: 3, Lease: time.Second})
		guardtest.WantReason(t, guardtest.Check(t, long, ann), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, short, bob), core.ReasonOK)
		renewNow(short, "p")
		clock.Advance(59 * time.Second)
		if ttl := b.Client.PTTL(t.Context(), long.Key("p", "permits")).Val(); ttl < 50*time.Second {
			t.Errorf("the permits have a TTL of %v", ttl)
		}
		wantHeld(t, long, 1)
	})
}

// claimOf returns what a decision holds.
func claimOf(t *testing.T, d core.Decision) *leases.Holder {
	t.Helper()
	h, ok := core.ClaimOf[*leases.Holder](d)
	if !ok {
		t.Fatalf("%+v holds nothing", d)
	}
	return h
}

// TestHoldOfARequestThatEnds: the context ends with the one that it was made of, without a loss.
func TestHoldOfARequestThatEnds(t *testing.T) {
	g := New(guardtest.NewEngine(redistest.Backend{}), "s", Options{Max: 1})
	d := guardtest.Check(t, g, ann)
	held, stop := g.Hold(t.Context(), d)
	stop()
	if held.Err() == nil {
		t.Error("the context outlives stop")
	}
	guardtest.Settle(t, g, d, core.Commit)
	if ctx, stop := g.Hold(t.Context(), core.Decision{}); ctx != t.Context() {
		t.Error("a decision of nobody is held")
		stop()
	}
}

// TestSemaphoreFullRedis: nothing is taken, and what is held is renewed and given back.
//
// Promise (Lock): On a full Redis nothing is taken; held locks are renewed and given back.
func TestSemaphoreFullRedis(t *testing.T) {
	server := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb, clock := server.Client(t), guardtest.NewClock()
	b := redistest.Backend{Client: rdb, Prefix: "full"}
	g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{Max: 4})
	d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Cost: 2})
	claimOf(t, d).Late = true // its release leaves a tombstone
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	if _, err := g.Check(t.Context(), bob); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("in a full Redis: %v, want its OOM error", err)
	}
	wantHeld(t, g, 2)
	clock.Advance(defaultLease * 2 / 3)
	renewNow(g, "p")
	clock.Advance(defaultLease * 2 / 3)
	wantHeld(t, g, 2)
	guardtest.Settle(t, g, d, core.Commit)
	wantHeld(t, g, 0)
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonOK)
}
