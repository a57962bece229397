package seckill

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// TestAckedSentinelFailover: Sentinel replaces the primary of an Acked sale while buyers buy, once on demand,
// and once because it is dead. Confirmed sales stay sold, and no unit is sold twice.
func TestAckedSentinelFailover(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	timed.Test(t, time.Second, sentinelFailover) // Sentinel replaces a primary that stands still
}

func sentinelFailover(t *timed.T) {
	const stock, buyers = 150, 400
	s := redistest.StartSentinels(t, 1)
	opt := s.Options().Failover()
	opt.PoolSize, opt.DialerRetries = 40, 1
	rdb := redis.NewFailoverClient(opt)
	t.Cleanup(func() { _ = rdb.Close() })
	e := core.New(rdb, core.WithDeadline(5*time.Second), core.WithObserver(guardtest.Ignore{}))
	sale := newShop(New(e, "s", Options{Durability: Acked, AckWithin: 250 * time.Millisecond}))
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := sale.Open(t.Context(), "tv", Sale{Stock: stock})
		return err == nil
	}, "the sale is open")

	sale.buy(t, 0, 29)
	redistest.Eventually(t, time.Minute, func() bool { return sale.bought.Load() >= 10 }, "some have bought")
	first := s.Primary()
	second := s.Failover()
	sale.all.Wait() // the former primary is a replica by now, so the new one confirms
	if n := sale.bought.Load(); n != 30 {
		t.Errorf("%d have bought by the end of the failover, want 30", n)
	}

	sale.buy(t, 30, 59)
	redistest.Eventually(t, time.Minute, func() bool { return sale.bought.Load() >= 40 }, "and more")
	second.Kill()
	s.AwaitFailover(second)
	if third := s.Primary(); third != first {
		t.Errorf("the primary is %s, want %s", third.Addr(), first.Addr())
	}
	second.Start() // empty
	second.ReplicaOf(first)
	sale.buy(t, 60, buyers-1)
	sale.all.Wait()
	if n := sale.lost(t); n != 0 {
		t.Errorf("%d confirmed sales are lost", n)
	}
	if n := sale.bought.Load(); n != stock {
		t.Errorf("%d of %d units were sold, over all lives", n, stock)
	}
	wantStatus(t, sale.Guard, "tv", 0, 0, stock)
	t.Logf("%d answers were unconfirmed", sale.unconfirmed.Load())
}
