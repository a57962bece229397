package seckill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// switchboard connects a client to one server at a time, like a name that moves to the new primary after a
// failover.
type switchboard struct {
	server atomic.Pointer[redistest.Server]
}

func (s *switchboard) client(t testing.TB) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: "192.0.2.1:6379", // no name, which go-redis would look up
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.server.Load().Addr())
		},
		DisableIdentity: true, DialerRetries: 1, PoolSize: 100, ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// shop is a sale whose buyers retry until they get a definite answer.
type shop struct {
	*Guard
	bought, unconfirmed atomic.Int64
	all                 sync.WaitGroup
	mu                  sync.Mutex
	buyers              map[int]bool // those who were told that they have bought
}

func newShop(g *Guard) *shop { return &shop{Guard: g, buyers: map[int]bool{}} }

// orderOf is what a buyer asks for.
func orderOf(i int) core.Attempt {
	return core.Attempt{Actor: fmt.Sprint("buyer ", i), Resource: "tv", ID: fmt.Sprint("order ", i)}
}

// patience is how long a buyer retries: longer than an outage lasts on a busy machine.
const patience = 3 * time.Minute

// buy lets the buyers from first to last buy a unit each, all at once.
func (s *shop) buy(t testing.TB, first, last int) {
	for i := first; i <= last; i++ {
		s.all.Go(func() {
			a, begun := orderOf(i), time.Now()
			for {
				d, err := s.Check(t.Context(), a)
				switch {
				case d.Allowed && err == nil:
					if s.confirm(t, i) {
						return
					}
				case d.Reason == core.ReasonUnconfirmed:
					s.unconfirmed.Add(1)
				case err == nil:
					if d.Reason != core.ReasonSoldOut {
						t.Errorf("buyer %d: %+v", i, d)
					}
					return
				default:
					<-time.After(time.Millisecond) // nobody clicks faster
				}
				if t.Context().Err() != nil {
					return
				}
				if time.Since(begun) > patience {
					t.Errorf("buyer %d has no answer yet: %+v, %v", i, d, err)
					return
				}
			}
		})
	}
}

// confirm confirms the reservation of a buyer, and reports whether it could: a hold can be lost.
func (s *shop) confirm(t testing.TB, i int) bool {
	for begun := time.Now(); t.Context().Err() == nil; {
		d, err := s.Confirm(t.Context(), orderOf(i))
		if time.Since(begun) > patience {
			t.Errorf("buyer %d cannot confirm: %+v, %v", i, d, err)
			return false
		}
		switch {
		case errors.Is(err, core.ErrUnconfirmed):
			s.unconfirmed.Add(1)
		case err == nil && d.Allowed:
			s.bought.Add(1)
			s.mu.Lock()
			s.buyers[i] = true
			s.mu.Unlock()
			return true
		case err == nil:
			return false
		default:
			<-time.After(time.Millisecond)
		}
	}
	return false
}

// lost returns how many buyers were told that they had bought, but have not.
func (s *shop) lost(t testing.TB) (n int) {
	t.Helper()
	s.all.Wait()
	for i := range s.buyers {
		state := recordOf(t, s.Guard, i)
		if !strings.HasPrefix(state, "sold ") {
			n++
		}
	}
	return n
}

// recordOf returns the record of a buyer's reservation.
func recordOf(t testing.TB, g *Guard, i int) string {
	t.Helper()
	id := script.Encode(fmt.Sprint("order ", i))
	record, err := script.Query(t.Context(), g.Engine().Runner,
		redis.NewStringCmd(t.Context(), "hget", g.saleKeys("tv")[3], id))
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return record
}

func promote(t testing.TB, s *redistest.Server) {
	t.Helper()
	if err := s.Client(t).ReplicaOf(t.Context(), "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
}

// TestAckedFailoverLosesNoSale: the replica is cut off, then the primary dies and the replica takes over,
// with its own replica. Confirmed sales stay sold, and no unit is sold twice.
//
// Promise: An Acked sale loses no confirmed sale in a failover.
func TestAckedFailoverLosesNoSale(t *testing.T) {
	t.Parallel()
	const stock = 60
	primary, replica, spare := redistest.StartServer(t), redistest.StartServer(t), redistest.StartServer(t)
	replica.ReplicaOf(primary)
	var now switchboard
	now.server.Store(primary)
	e := core.New(now.client(t), core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}))
	sale := newShop(New(e, "s", Options{Durability: Acked, AckWithin: 250 * time.Millisecond}))
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := sale.Open(t.Context(), "tv", Sale{Stock: stock})
		return err == nil
	}, "the sale is open")

	sale.buy(t, 0, 19)
	sale.all.Wait()
	// a hold that was confirmed before the cut, and is sold after it
	redistest.Eventually(t, time.Minute, func() bool {
		d, err := sale.Check(t.Context(), core.Attempt{Actor: "buyer 20", Resource: "tv", ID: "order 20"})
		return err == nil && d.Allowed
	}, "a unit is held")

	promote(t, replica) // which cuts it off
	spare.ReplicaOf(replica)
	sale.all.Go(func() { sale.confirm(t, 20) })
	sale.buy(t, 21, 119)
	redistest.Eventually(t, time.Minute, func() bool { return sale.unconfirmed.Load() >= 100 },
		"buyers hear that nothing is confirmed")
	if n := sale.bought.Load(); n != 20 {
		t.Errorf("%d have bought before the failover, want the 20 of before the cut", n)
	}

	now.server.Store(replica)
	primary.Kill()
	sale.all.Wait()
	if n := sale.lost(t); n != 0 {
		t.Errorf("%d confirmed sales are lost", n)
	}
	if n := sale.bought.Load(); n != stock {
		t.Errorf("%d of %d units were sold, over both lives", n, stock)
	}
	wantStatus(t, sale.Guard, "tv", 0, 0, stock)
	t.Logf("%d answers were unconfirmed", sale.unconfirmed.Load())
}

// TestFastFailoverSellsTwice measures the README's figure for the worst case: the primary goes on selling
// while the replica is cut off, and the replica sells the same units after it has taken over.
//
// Promise: A Fast sale loses in a failover what [its page](guards/seckill.md#outages-and-failover) says.
func TestFastFailoverSellsTwice(t *testing.T) {
	t.Parallel()
	const stock = 100
	primary, replica := redistest.StartServer(t), redistest.StartServer(t)
	replica.ReplicaOf(primary)
	var now switchboard
	now.server.Store(primary)
	sale := newShop(New(core.New(now.client(t), core.WithDeadline(time.Minute),
		core.WithObserver(guardtest.Ignore{})), "s", Options{}))
	openSale(t, sale.Guard, "tv", Sale{Stock: stock})
	wantReplica(t, sale.Guard, replica)

	promote(t, replica)
	sale.buy(t, 0, 149)
	sale.all.Wait()
	if n := sale.bought.Load(); n != stock {
		t.Errorf("the primary sold %d", n)
	}
	now.server.Store(replica)
	primary.Kill()
	if n := sale.lost(t); n != stock {
		t.Errorf("%d confirmed sales are lost, and this test exists because it is all %d", n, stock)
	}
	sale.buy(t, 150, 299)
	sale.all.Wait()
	if n := sale.bought.Load(); n != 2*stock {
		t.Errorf("%d of %d units were sold", n, stock)
	}
	wantStatus(t, sale.Guard, "tv", 0, 0, stock)
}

// wantReplica waits until the replica has the sale.
func wantReplica(t *testing.T, g *Guard, replica *redistest.Server) {
	t.Helper()
	rdb := replica.Client(t)
	redistest.Eventually(t, time.Minute,
		func() bool { return rdb.Exists(t.Context(), g.saleKeys("tv")[0]).Val() == 1 }, "the replica has the sale")
}

// TestFastFailoverLosesWhatWasInFlight: with a replica that follows, a failover may lose sales that the
// primary confirmed in its last moment. The test logs their number for the README, and checks that every sale
// that is not lost counts once.
func TestFastFailoverLosesWhatWasInFlight(t *testing.T) {
	t.Parallel()
	buyers, rounds := 200, 1
	if redistest.All() {
		buyers = 500
	}
	if guardtest.Soak() {
		rounds = 50
	}
	most, total, told := 0, 0, int64(0)
	for range rounds {
		primary, replica := redistest.StartServer(t), redistest.StartServer(t)
		replica.ReplicaOf(primary)
		var now switchboard
		now.server.Store(primary)
		sale := newShop(New(core.New(now.client(t), core.WithDeadline(time.Minute),
			core.WithObserver(guardtest.Ignore{})), "s", Options{}))
		openSale(t, sale.Guard, "tv", Sale{Stock: int64(2 * buyers)})
		wantReplica(t, sale.Guard, replica)

		sale.buy(t, 0, buyers-1)
		redistest.Eventually(t, time.Minute, func() bool { return sale.bought.Load() >= 50 },
			"the sale is under way")
		primary.Kill()
		rdb := replica.Client(t)
		redistest.Eventually(t, time.Minute, func() bool {
			return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "master_link_status:down")
		}, "the replica has read what there is")
		told += sale.bought.Load()
		promote(t, replica)
		now.server.Store(replica)
		lost := sale.lost(t)
		most, total = max(most, lost), total+lost
		wantConsistent(t, sale.Guard, "tv")
		if s, err := sale.Status(t.Context(), "tv"); err != nil || s.Sold != int64(buyers-lost) {
			t.Errorf("%+v, %v: %d buyers have bought, and %d sales are lost", s, err, buyers, lost)
		}
		replica.Stop()
	}
	t.Logf("%d failovers with 100 calls at once, %d sales confirmed before: %d lost, %d at most in one", rounds,
		told, total, most)
}

// TestAckedClusterFailover cuts off the replica of an Acked sale's master and kills the master. After the
// replica has taken over and has its own replica, it sells the units that were not confirmed.
func TestAckedClusterFailover(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	timed.Test(t, time.Second, clusterFailover) // after 2 s of silence a master is replaced
}

func clusterFailover(t *timed.T) {
	const stock = 40
	c := redistest.StartCluster(t)
	e := core.New(c.Client(t), core.WithDeadline(5*time.Second), core.WithObserver(guardtest.Ignore{}))
	sale := newShop(New(e, "s", Options{Durability: Acked, AckWithin: 250 * time.Millisecond}))
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := sale.Open(t.Context(), "tv", Sale{Stock: stock})
		return err == nil
	}, "the sale is open")
	slot := redistest.Slot(sale.saleKeys("tv")[0])
	old := c.MasterOfSlot(slot)
	replica := replicaOf(t, c, old)
	sale.buy(t, 0, 9)
	sale.all.Wait()

	replica.Pause() // and what is on its way to it when it goes on is not to be all:
	if err := old.Client(t).ClientKillByFilter(t.Context(), "type", "replica").Err(); err != nil {
		t.Fatal(err)
	}
	sale.buy(t, 10, 79)
	redistest.Eventually(t, time.Minute, func() bool { return sale.unconfirmed.Load() >= 40 },
		"buyers hear that nothing is confirmed")
	old.Kill()
	replica.Resume()
	c.AwaitFailover(slot, old)
	old.Start() // as a replica of the one that was its own
	sale.all.Wait()
	if n := sale.lost(t); n != 0 {
		t.Errorf("%d confirmed sales are lost", n)
	}
	if n := sale.bought.Load(); n != stock {
		t.Errorf("%d of %d units were sold, over both lives", n, stock)
	}
	wantStatus(t, sale.Guard, "tv", 0, 0, stock)
}

// replicaOf returns the replica of a master.
func replicaOf(t testing.TB, c *redistest.ClusterServers, master *redistest.Server) *redistest.Server {
	t.Helper()
	_, port, _ := net.SplitHostPort(master.Addr())
	for _, node := range c.Nodes {
		info := node.Client(t).Info(t.Context(), "replication").Val()
		if strings.Contains(info, "role:slave") && strings.Contains(info, "master_port:"+port+"\r") {
			return node
		}
	}
	t.Fatalf("nobody follows %s", master.Addr())
	return nil
}

// TestTooFewReplicasToWrite: a primary with min-replicas-to-write that has lost its replicas refuses whole
// scripts, so a Fast sale stops too, and nothing is half done.
func TestTooFewReplicasToWrite(t *testing.T) {
	t.Parallel()
	s := redistest.StartServer(t)
	rdb := s.Client(t)
	engine := func() *core.Engine {
		return core.New(rdb, core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}),
			core.WithoutBreaker())
	}
	g, acked := New(engine(), "s", Options{}), New(engine(), "s", Options{Durability: Acked})
	openSale(t, g, "tv", Sale{Stock: 5})
	ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
	bob := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"})
	rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1")
	for _, g := range []*Guard{g, acked} {
		_, reserve := g.Check(t.Context(), core.Attempt{Actor: "cid", Resource: "tv"})
		_, restock := g.Restock(t.Context(), "tv", "r", 3)
		for name, err := range map[string]error{
			"reserve": reserve, "confirm": g.Settle(t.Context(), ann, core.Commit),
			"cancel":  g.Settle(t.Context(), bob, core.Rollback),
			"restock": restock, "close": g.Close(t.Context(), "tv"),
		} {
			if err == nil || !strings.Contains(err.Error(), "NOREPLICAS") {
				t.Errorf("%s: %v", name, err)
			}
		}
		wantStatus(t, New(engine(), "s", Options{}), "tv", 3, 2, 0)
	}
	rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0")
	guardtest.Settle(t, g, ann, core.Commit)
	guardtest.Settle(t, g, bob, core.Rollback)
	wantStatus(t, g, "tv", 4, 0, 1)
}

// TestAckedByFewerThanAllReplicas shows what Acked does not promise: a sale that one of two replicas has is
// lost when the other one is promoted. If both must have it, it is not sold.
func TestAckedByFewerThanAllReplicas(t *testing.T) {
	t.Parallel()
	primary, ahead, behind := redistest.StartServer(t), redistest.StartServer(t), redistest.StartServer(t)
	ahead.ReplicaOf(primary)
	behind.ReplicaOf(primary)
	guard := func(s *redistest.Server, replicas int, within time.Duration) *Guard {
		e := core.New(s.Client(t), core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}))
		return New(e, "s", Options{Durability: Acked, Replicas: replicas, AckWithin: within})
	}
	openSale(t, guard(primary, 2, 50*time.Second), "tv", Sale{Stock: 5})
	promote(t, behind)
	guardtest.Settle(t, guard(primary, 1, 50*time.Second),
		guardtest.Check(t, guard(primary, 1, 50*time.Second), core.Attempt{Actor: "ann", Resource: "tv"}),
		core.Commit)
	guardtest.WantReason(t, guardtest.Check(t, guard(primary, 2, 50*time.Millisecond),
		core.Attempt{Actor: "bob", Resource: "tv", ID: "op"}), core.ReasonUnconfirmed)
	redistest.Eventually(t, time.Minute, func() bool {
		status, err := guard(ahead, 1, 50*time.Second).Status(t.Context(), "tv")
		return err == nil && status.Left == 3 && status.Held == 1 && status.Sold == 1
	}, "the one replica has everything")
	primary.Kill()
	promote(t, ahead)
	// bob's hold, of which bob was not told, expires
	wantStatus(t, guard(ahead, 1, 50*time.Second), "tv", 3, 1, 1)
	wantStatus(t, guard(behind, 1, 50*time.Second), "tv", 5, 0, 0)
}
