package lease

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestLeasesWhenAFailoverLosesUnits: no window has more than Max and what the former primary alone has
// counted: the units that it admitted since, and those that processes have fetched since and not handed out.
// Units in hand that were fetched before count.
//
// Promise: With leases a failover admits N plus the units, in hand or used, that only the former primary
// counted.
func TestLeasesWhenAFailoverLosesUnits(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			name := fmt.Sprintf("lost%d", number)
			f := newFleet(rt, func(of limit.Limit, clock *guardtest.Clock) *leasing {
				return newLeasing(b, name, of, guardtest.WithClock(clock))
			})
			f.steps(t, rt, f.of.Max)
			f.clock.Advance(time.Microsecond)
			since := f.clock.Now()
			failOver := whatIsReplicated(t, b, logKey(f.processes[0]))
			lost := int64(0)
			f.admits = func(one grant) { lost += one.d.Attempt.Cost }
			f.steps(t, rt, f.of.Max)
			f.admits = nil
			lost += f.inHand(since)
			failOver()
			f.steps(t, rt, f.of.Max+lost)
			f.end(t, rt)
		})
	})
}

// TestUnitsInHandThroughAFailover: processes hand out what they have in hand while no server answers. A
// replica that has all units admits the rest of Max, and no more; from one that was cut off, as many more as
// the former primary alone has counted.
func TestUnitsInHandThroughAFailover(t *testing.T) {
	for _, cutOff := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut off %v", cutOff), func(t *testing.T) {
			t.Parallel()
			primary, replica := redistest.StartServer(t), redistest.StartServer(t)
			replica.ReplicaOf(primary)
			old, promoted := primary.Client(t), replica.Client(t)
			client := &switched{Client: old}
			of, clock := limit.PerHour(1000), guardtest.NewClockAt(partBegins)
			processes := make([]*leasing, 3)
			for i := range processes {
				b := redistest.Backend{Prefix: "app"}
				processes[i] = newLeasingOver(b, client, "w", of, guardtest.WithClock(clock), core.WithRefusalMemory(0))
			}
			admitted, inHand := int64(0), func() (units int64) {
				for _, p := range processes {
					units += p.inHand()
				}
				return units
			}
			take := func(p *leasing) bool {
				d, err := p.Check(t.Context(), tenant)
				if err == nil && d.Allowed {
					admitted++
				}
				return err == nil && d.Allowed
			}
			hold := func(least int64) {
				for inHand() < least {
					for _, p := range processes {
						if !take(p) {
							t.Fatalf("refused with %d in hand, want %d", inHand(), least)
						}
					}
				}
			}
			hold(50)
			key := logKey(processes[0])
			redistest.Eventually(t, time.Minute, func() bool {
				was, is := old.LRange(t.Context(), key, 0, 0).Val(), promoted.LRange(t.Context(), key, 0, 0).Val()
				return len(is) > 0 && is[0] == was[0]
			}, "the replica has all units")
			if err := promoted.Do(t.Context(), "replicaof", "no", "one").Err(); err != nil {
				t.Fatal(err)
			}
			lost := int64(0)
			if cutOff { // what was in hand goes back to the former primary, and what it lends since is lost
				before := admitted + inHand()
				for range 300 {
					take(processes[admitted%3])
				}
				hold(20)
				lost = admitted + inHand() - before
			}
			primary.Kill()
			handed := inHand()
			if handed == 0 {
				t.Fatal("nothing is in hand")
			}
			for _, p := range processes {
				for n := p.inHand(); n > 0; n-- {
					if !take(p) {
						t.Fatal("a unit in hand is not handed out without a server")
					}
				}
			}
			client.Client = promoted
			for _, p := range processes {
				for take(p) {
				}
				if err := p.engine.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for take(processes[0]) {
			}
			t.Logf("%d admitted of %d, %d of them without a server, %d lost", admitted, of.Max, handed, lost)
			if admitted != of.Max+lost {
				t.Errorf("%d admitted, want %d and %d that were lost", admitted, of.Max, lost)
			}
		})
	}
}

// switched is a client that a test leads to another server.
type switched struct{ script.Client }

func (c *switched) Process(ctx context.Context, cmd redis.Cmder) error {
	return c.Client.Process(ctx, cmd)
}

func logKey(p *leasing) string { return p.Key(kit.TagOf(tenant), "log") }

// whatIsReplicated returns what brings a log back to what it is now.
func whatIsReplicated(t *testing.T, b redistest.Backend, key string) func() {
	t.Helper()
	was := b.Client.LRange(t.Context(), key, 0, -1).Val()
	return func() {
		p := b.Client.TxPipeline()
		p.Del(t.Context(), key)
		if len(was) > 0 {
			p.RPush(t.Context(), key, was)
			p.PExpire(t.Context(), key, time.Hour)
		}
		if _, err := p.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
