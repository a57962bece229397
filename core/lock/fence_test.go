package lock

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/leases"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestFencesGrow by the server's own clock: over releases, breaks, SCRIPT FLUSH and deletions of the key.
//
// Promise: A holder's fence is greater than all before, also after a failover or a clock set back by less
// than a day. If the last fence is lost and the clock goes back behind it, fences fall.
func TestFencesGrow(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "l", Options{})
		var last int64
		for i := range 60 {
			d, fence := take(t, g, ann)
			if fence <= last {
				t.Fatalf("round %d: the fence %d after %d", i, fence, last)
			}
			last = fence
			var err error
			switch i % 6 {
			case 0:
				_, err = g.Break(t.Context(), "p")
			case 1, 2:
				err = b.Client.Del(t.Context(), g.Key("p", "permits")).Err() // as by a failover that loses it
			case 3:
				err = b.Client.ScriptFlush(t.Context()).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
			guardtest.Settle(t, g, d, core.Commit)
		}
		ttl := b.Client.PTTL(t.Context(), g.Key("p", "permits")).Val()
		if ttl < 24*time.Hour || ttl > 24*time.Hour+leases.DefaultLease {
			t.Errorf("the last fence is kept for %v, want a day", ttl)
		}
	})
}

// TestFencesGrowWhenTheClockJumps: back and forth, by less than the day for which the last fence is kept.
func TestFencesGrowWhenTheClockJumps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "l", Options{})
		var last int64
		for i, jump := range []time.Duration{
			0, -time.Hour, -20 * time.Hour, time.Minute, 30 * time.Hour, -time.Second,
		} {
			clock.Advance(jump)
			d, fence := take(t, g, ann)
			if fence <= last || jump >= 30*time.Hour && fence != clock.Now().UnixMicro() {
				t.Errorf("step %d: the fence %d after %d, at %d", i, fence, last, clock.Now().UnixMicro())
			}
			last = fence
			if i == 2 || i == 3 {
				g.keeper.Forget(d) // its process has died; the next jump is longer than its lease
			} else {
				guardtest.Settle(t, g, d, core.Commit)
			}
		}
	})
}

// TestLeaseOfALockWhenTheClockJumps: set back, it does not last longer; set forward, it ends.
func TestLeaseOfALockWhenTheClockJumps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "l", Options{})
		dead, _ := take(t, g, ann)
		g.keeper.Forget(dead)
		clock.Advance(-time.Hour)
		d := guardtest.Check(t, g, bob)
		if guardtest.WantReason(t, d, core.ReasonBusy); d.RetryAfter != leases.DefaultLease {
			t.Errorf("%+v: want a retry after a lease", d)
		}
		clock.Advance(leases.DefaultLease - time.Millisecond)
		guardtest.WantReason(t, guardtest.Check(t, g, bob), core.ReasonBusy)
		clock.Advance(time.Millisecond)
		d, _ = take(t, g, bob)
		held, stop := g.Hold(t.Context(), d)
		defer stop()
		clock.Advance(time.Hour)
		g.keeper.RenewNow("p")
		wantLost(t, held)
		wantHeld(t, g, "")
	})
}

// TestFencesGrowOverAFailover: the replica takes over without the last grants, or without the key at all.
func TestFencesGrowOverAFailover(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		primary, replica := redistest.StartServer(t), redistest.StartServer(t)
		old := New(guardtest.NewEngine(redistest.Backend{Client: primary.Client(t), Prefix: "p"}), "l",
			Options{Lease: time.Hour}) // else it is lost while the primary is dead
		now := New(guardtest.NewEngine(redistest.Backend{Client: replica.Client(t), Prefix: "p"}), "l", Options{})
		var first int64
		if known {
			var d core.Decision
			d, first = take(t, old, ann)
			guardtest.Settle(t, old, d, core.Commit)
		}
		replica.ReplicaOf(primary)
		if known {
			redistest.Eventually(t, time.Minute, func() bool {
				return replica.Client(t).ZScore(t.Context(), old.Key("p", "permits"), "").Err() == nil
			}, "the replica does not know the fence")
		}
		if err := replica.Client(t).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		d, lost := take(t, old, ann) // a grant that is not replicated
		held, stop := old.Hold(t.Context(), d)
		primary.Kill()
		other, next := take(t, now, bob)
		if lost <= first || next <= lost {
			t.Errorf("fences %d, %d, and %d after the failover", first, lost, next)
		}
		guardtest.Settle(t, now, other, core.Commit)
		if held.Err() != nil {
			t.Error("the first holder knows already")
		}
		stop()
	}
}

// TestLockAgainstModel: random calls of two processes, whose clock moves, do what a plain model does.
func TestLockAgainstModel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng, clock := rand.New(rand.NewPCG(seed, 0)), guardtest.NewClock()
		const lease = time.Hour // nothing is renewed but by the test
		var guards []*Guard
		for range 2 {
			e := guardtest.NewEngine(b, guardtest.WithClock(clock))
			guards = append(guards, New(e, "l", Options{Lease: lease}))
		}
		var decisions []core.Decision
		var by []*Guard
		holder, last := -1, int64(0) // of decisions
		var ends time.Time
		owner := func() string {
			if holder < 0 || !ends.After(clock.Now()) {
				return ""
			}
			return decisions[holder].Attempt.Actor
		}
		steps := 150
		if guardtest.Soak() {
			steps = 20_000
		}
		for step := range steps {
			switch action := rng.IntN(10); {
			case action < 4:
				i := rng.IntN(2)
				d := guardtest.Check(t, guards[i], []core.Attempt{ann, bob}[rng.IntN(2)])
				if free := owner() == ""; d.Allowed != free || !free && d.RetryAfter != ends.Sub(clock.Now()) {
					t.Fatalf("step %d: %+v: held by %q until %v", step, d, owner(), ends)
				}
				if d.Allowed {
					fence, _ := guards[i].Fence(d)
					if fence <= last || fence != max(last+1, clock.Now().UnixMicro()) {
						t.Fatalf("step %d: the fence %d after %d", step, fence, last)
					}
					decisions, by = append(decisions, d), append(by, guards[i])
					holder, last, ends = len(decisions)-1, fence, clock.Now().Add(lease)
				}
			case action < 6 && len(decisions) > 0:
				i := max(len(decisions)-1-rng.IntN(3), 0)
				guardtest.Settle(t, by[i], decisions[i], guardtest.Ending(rng.IntN(2) == 0))
				if i == holder {
					holder = -1
				}
			case action < 7 && len(decisions) > 0:
				i := max(len(decisions)-1-rng.IntN(3), 0)
				err := by[i].Extend(t.Context(), decisions[i])
				if lives := i == holder && owner() != ""; lives != (err == nil) {
					t.Fatalf("step %d: %v: want that it lives: %v", step, err, lives)
				} else if lives {
					ends = clock.Now().Add(lease)
				}
			case action < 8:
				broken, err := guards[0].Break(t.Context(), "p")
				if err != nil || broken != (holder >= 0) {
					t.Fatalf("step %d: %v, %v: want %v", step, broken, err, holder >= 0)
				}
				holder = -1
			default:
				clock.Advance(time.Duration(rng.Int64N(lease.Milliseconds())) * time.Millisecond)
			}
			wantHeld(t, guards[1], owner())
		}
		for i, d := range decisions {
			guardtest.Settle(t, by[i], d, core.Commit)
		}
		wantHeld(t, guards[1], "")
	})
}
