package script_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// fill makes a client pool n connections.
func fill(t testing.TB, rdb *redis.Client, n int) {
	t.Helper()
	for range n { // all are held until the last is there
		conn := rdb.Conn()
		if err := conn.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
}

// TestDeadConnectionsDoNotKeepRedisAway: what a client has pooled is of no use after these outages, though
// each connection looks as it did. A probe that tries one of them every half second needs half a second for
// each.
func TestDeadConnectionsDoNotKeepRedisAway(t *testing.T) {
	redistest.LeftToCI(t)
	quiet(t)
	const pooled = 60
	for _, c := range []struct {
		name, kind string
		tls, obeys bool
	}{
		{"repointed", "repointed", false, true},
		{"vanished", "vanished", false, true},
		{"vanished, the client ignores contexts", "vanished", false, false},
		{"TLS, stopped", "stopped", true, true},
		{"TLS, vanished", "vanished", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			timed.Test(t, recoveryDeadline/2, func(t *timed.T) {
				o := redistest.StartOutages(t)
				opt := o.Options()
				if c.tls {
					opt.Dialer = o.OverTLS()
				}
				opt.PoolSize, opt.ContextTimeoutEnabled = pooled, c.obeys
				rdb := redis.NewClient(opt)
				closing(t, rdb)
				fill(t, rdb, pooled)
				took, slow := comesBack(t, o, rdb, c.kind)
				if took > 8*time.Second || slow > 40 { // four times what is promised; it was 25 s and more
					t.Errorf("back after %v, and %d requests waited in vain", took, slow)
				}
			})
		})
	}
}

// recoveryDeadline is longer than the default, with which calls on a busy machine are late without an outage.
const recoveryDeadline = 500 * time.Millisecond

// comesBack lets an outage last for 0.7 s, and returns how long it took until Redis was used again, and how
// many requests waited in vain.
func comesBack(
	t testing.TB, o *redistest.Outages, rdb *redis.Client, kind string,
) (took time.Duration, timeouts int64) {
	t.Helper()
	e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(recoveryDeadline))
	g := limit.NewTokenBucket(e, "w", limit.PerHour(1e6))
	var slow, failed atomic.Int64
	try := func() bool { // four requests at a time
		before := failed.Load()
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				_, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i)})
				if err != nil {
					failed.Add(1)
				}
				if (core.Event{Err: err}).ErrorKind() == "timeout" {
					slow.Add(1)
				}
			})
		}
		all.Wait()
		return failed.Load() == before
	}
	redistest.Eventually(t, time.Minute, try, "Redis is asked")

	end := o.Begin(kind)
	begun := time.Now()
	redistest.Eventually(t, time.Minute, func() bool {
		try()
		return time.Since(begun) > 700*time.Millisecond
	}, "the outage has lasted")
	duringSlow, during := slow.Load(), failed.Load()
	end()

	ended := time.Now()
	last, row := ended, 0
	redistest.Eventually(t, time.Minute, func() bool {
		if row++; !try() {
			last, row = time.Now(), 0
		}
		return row == 25
	}, "Redis is used again")
	took = last.Sub(ended)
	t.Logf("back after %v; timeouts: %d during the outage, %d after it; failed %d and %d", took, duringSlow,
		slow.Load()-duringSlow, during, failed.Load()-during)
	return took, slow.Load()
}
