package script_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// sentinelFailovers are the ways in which Sentinel replaces a primary. Each returns once all know the new
// one.
var sentinelFailovers = map[string]func(s *redistest.SentinelServers){
	"on demand": func(s *redistest.SentinelServers) { s.Failover() },
	"killed": func(s *redistest.SentinelServers) {
		old := s.Primary()
		old.Kill()
		s.AwaitFailover(old)
	},
}

// TestLimitsThroughASentinelFailover: units that a replica has count after the failover, and the limit is
// decided again soon after the new primary is known, whatever the client has pooled.
//
// Promise (Outages): After a Sentinel failover the replica's data counts. Redis is used again within 2 s
// after the new primary is known.
func TestLimitsThroughASentinelFailover(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	quiet(t)
	for name, failOver := range sentinelFailovers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timed.Test(t, time.Second, func(t *timed.T) { limitThroughAFailover(t, failOver) })
		})
	}
}

func limitThroughAFailover(t testing.TB, failOver func(*redistest.SentinelServers)) {
	s := redistest.StartSentinels(t, 1)
	opt := s.Options().Failover()
	opt.ContextTimeoutEnabled, opt.PoolSize = true, 40
	rdb := redis.NewFailoverClient(opt)
	closing(t, rdb)
	fill(t, rdb, 40)
	e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithRefusalMemory(0),
		core.WithDeadline(2*time.Second)) // a busy machine takes its time for a call
	g := limit.NewSlidingWindow(e, "w", limit.PerHour(10))
	ann := core.Attempt{Actor: "ann"}
	for n := range int64(6) {
		if n == 5 {
			failOver(s)
			back := time.Now()
			redistest.Eventually(t, time.Minute, func() bool {
				_, err := g.Peek(t.Context(), ann)
				return err == nil
			}, "the new primary decides")
			took := time.Since(back)
			t.Logf("back after %v", took)
			if took > 8*time.Second { // four times what is promised, since the machine may be busy
				t.Errorf("back after %v", took)
			}
		}
		if d := guardtest.Check(t, g, ann); !d.Allowed || d.Remaining != 9-n {
			t.Fatalf("attempt %d: %+v", n, d)
		}
		if n == 4 {
			waitForReplica(t, s.Primary().Client(t))
		}
	}
}

// waitForReplica waits until a replica has all that the server has. The slot of {p} is the server's.
func waitForReplica(t testing.TB, rdb *redis.Client) {
	t.Helper()
	conn := rdb.Conn()
	defer func() { _ = conn.Close() }()
	// WAIT counts the writes of its connection.
	if err := conn.Set(t.Context(), "written:{p}", "x", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, time.Minute, func() bool {
		return conn.Wait(t.Context(), 1, time.Second).Val() == 1
	}, "a replica has it")
}
