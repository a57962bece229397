package core

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestMemoryDecidesAsTheScript runs random attempts through both under one clock: costs, several limits, limits that change,
// units given back, a clock that is set back.
func TestMemoryDecidesAsTheScript(t *testing.T) {
	attempts := 2_000
	if soak() {
		attempts = 100_000
	}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		if b.Name == "cluster" && !soak() {
			attempts = 1_000
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))

		clock := newTestClock()
		engine := newEngine(b, withClock(clock), WithRefusalMemory(0)) // the guards are each other's other processes
		windows := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}
		var tiers []*SlidingWindow
		for _, n := range []int64{2, 5, 20} {
			g := engine.SlidingWindow(fmt.Sprintf("w%d", n), Per(n, windows[0]), Per(n*2, windows[1]), Per(n*3, windows[2]))
			g.keys = keyspace{b.Prefix + ":shared:"} // one log, whatever the tier
			tiers = append(tiers, g)
		}
		m := newMemory()
		type taken struct {
			g *SlidingWindow
			d Decision
		}
		var allowed []taken
		for i := range attempts {
			clock.Advance(time.Duration(rng.IntN(400_000)) * time.Microsecond)
			if rng.IntN(500) == 0 {
				clock.Advance(-time.Duration(rng.IntN(5_000_000)) * time.Microsecond)
			}
			g := tiers[rng.IntN(len(tiers))]
			key := fmt.Sprint("actor ", rng.IntN(4))
			if len(allowed) > 0 && rng.IntN(10) == 0 {
				old := allowed[rng.IntN(len(allowed))]
				settle(t, old.g, old.d, false)
				if !old.d.Replayed { // marks here that it was given back
					m.giveBack(old.d.Attempt.Actor, old.d.Attempt.Cost, old.d.stamp)
				}
				for i := range allowed {
					if allowed[i].d.Attempt.ID == old.d.Attempt.ID {
						allowed = append(allowed[:i], allowed[i+1:]...)
						break
					}
				}
				continue
			}
			d := check(t, g, Attempt{Actor: key, Cost: rng.Int64N(2) + 1})
			v := m.take(key, g.limits.limits, d.Attempt.Cost, clock.Now().UnixMicro())
			l := g.limits.limits[v.limit]
			if d.Allowed != v.allowed || d.Limit != l.Max || d.Window != l.Window || d.Remaining != v.remaining ||
				!v.allowed && d.RetryAfter != time.Duration(v.moment)*time.Microsecond || v.allowed && d.stamp != v.moment {
				t.Fatalf("attempt %d: Redis says %+v, the memory %+v", i, d, v)
			}
			if d.Allowed {
				allowed = append(allowed, taken{g, d})
			}
			if len(allowed) > 50 {
				allowed = allowed[1:]
			}
		}
	})
}

func TestMemoryRace(t *testing.T) {
	m := newMemory()
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range 400 {
		all.Go(func() {
			if m.take("a", []Limit{PerHour(50)}, 1, 1).allowed {
				allowed.Add(1)
			}
		})
	}
	all.Wait()
	if allowed.Load() != 50 {
		t.Errorf("%d were allowed, want 50", allowed.Load())
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := newMemory()
	for i := range 3 * memoryKeys {
		m.take(fmt.Sprint(i), []Limit{PerHour(5)}, 1, 1)
	}
	if n := m.logs.len(); n > memoryKeys {
		t.Errorf("%d keys, want at most %d", n, memoryKeys)
	}
	m.take("a", []Limit{PerHour(1)}, 1, 1)
	m.forget("a")
	if !m.take("a", []Limit{PerHour(1)}, 1, 1).allowed {
		t.Error("what was forgotten still counts")
	}
}

func BenchmarkMemory(b *testing.B) {
	m := newMemory()
	limits := []Limit{PerMinute(100)}
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("203.0.113.", i)
	}
	b.ReportAllocs()
	now := time.Now().UnixMicro()
	for i := 0; b.Loop(); i++ {
		m.take(keys[i%len(keys)], limits, 1, now+int64(i)*10)
	}
}

// TestCheckLocal: while Redis is away a limit goes on for this process alone, and what it gives back it gives back there.
func TestCheckLocal(t *testing.T) {
	e := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1}), WithObserver(ignore{}))
	for _, g := range []LocalGuard{
		e.SlidingWindow("w", PerHour(2)), e.FixedWindow("f", PerHour(2)), e.TokenBucket("b", PerHour(2)),
	} {
		local := func(a Attempt) Decision {
			t.Helper()
			d, err := g.CheckLocal(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		first := local(Attempt{Actor: "ann"})
		wantReason(t, first, ReasonOK)
		wantReason(t, local(Attempt{Actor: "ann"}), ReasonOK)
		d := local(Attempt{Actor: "ann"})
		wantReason(t, d, ReasonLimited)
		if d.RetryAfter <= 59*time.Minute || d.RetryAfter > time.Hour+100*time.Microsecond {
			t.Errorf("%+v", d)
		}
		wantReason(t, local(Attempt{Actor: "ann", Resource: "other"}), ReasonOK)
		wantReason(t, local(Attempt{Actor: "ann", Cost: 3}), ReasonOverLimit)
		settle(t, g, first, true)
		wantReason(t, local(Attempt{Actor: "ann"}), ReasonLimited)
		settle(t, g, first, false)
		settle(t, g, first, false)
		wantReason(t, local(Attempt{Actor: "ann"}), ReasonOK)
		wantReason(t, local(Attempt{Actor: "ann"}), ReasonLimited)
		if _, err := g.CheckLocal(t.Context(), Attempt{}); !isInvalid(err) {
			t.Errorf("no actor: %v", err)
		}
		if g.Traits().Outage != OutageLocal {
			t.Errorf("%s: %+v", g.Name(), g.Traits())
		}
	}
}
