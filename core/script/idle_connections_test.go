package script_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestIdleTLSConnectionsThatTheServerClosedCostOneCall: go-redis does not see that a server has closed a TLS
// connection, and a limit's check is not sent twice, so each of 30 such connections cost a check. The first
// that is lost now finds out about the others.
//
// Promise (Outages): Idle TLS connections that the server closed open no breaker. They fail one call, and up
// to 100 that come during the probe; these are not sent again.
func TestIdleTLSConnectionsThatTheServerClosedCostOneCall(t *testing.T) {
	t.Parallel()
	var log guardtest.Output
	o := redistest.StartOutages(t)
	opt := o.Options()
	opt.Dialer, opt.PoolSize, opt.ContextTimeoutEnabled = o.OverTLS(), 30, true
	rdb := redis.NewClient(opt)
	closing(t, rdb)
	var h guardtest.Recorder
	e := core.New(rdb, core.WithObserver(&h), core.WithDeadline(time.Minute),
		core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	g := limit.NewSlidingWindow(e, "w", limit.PerHour(1000))
	ask := func() error { _, err := g.Check(t.Context(), core.Attempt{Actor: "ann"}); return err }
	fill(t, rdb, 30)
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	rounds := 1
	if redistest.All() {
		rounds = 2
	}
	for round := range rounds {
		fill(t, rdb, 30)
		before := rdb.PoolStats().StaleConns
		o.CutAll() // as a server does with connections that were idle for long
		if err := ask(); err == nil || !strings.Contains(err.Error(), "redis at "+o.Addr()) {
			t.Fatalf("%v, want an error that names the server", err)
		}
		redistest.Eventually(t, time.Minute, func() bool { return rdb.PoolStats().StaleConns-before >= 30 },
			"the client has dropped the others")
		for range 50 {
			if err := ask(); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		redistest.Eventually(t, time.Minute, e.ProbeIsDue, "another probe may start")
	}
	for _, event := range h.Events {
		if event.Breaker != nil {
			t.Errorf("a breaker: %+v, %v", event.Breaker, event.Err)
		}
	}
	if n := strings.Count(log.String(), "ConnMaxIdleTime"); n != 1 {
		t.Errorf("%d warnings, want one:\n%s", n, log.String())
	}
}
