package script_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestReadsThatDecideAskTheMaster: with these options the client sends reads to replicas. Right after Open 5
// of 200 sales were unknown; and a silent replica opened the breaker of its master. Here all replicas are
// paused, so a read that goes to one gets no answer.
//
// Promise (Outages): The master answers reads, also with ReadOnly, RouteByLatency or RouteRandomly. A silent
// replica opens no breaker.
func TestReadsThatDecideAskTheMaster(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	c := calmCluster(t)
	for name, change := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":      func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteRandomly": func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		t.Run(name, func(t *testing.T) {
			opt := patientOptions(c)
			opt.ContextTimeoutEnabled = true
			change(opt)
			rdb := redis.NewClusterClient(opt)
			closing(t, rdb)
			// go-redis asks any node, once, for the list of commands, and for the slots.
			if err := rdb.Set(t.Context(), "known", "x", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			replicas := pauseReplicas(t, c)
			var h guardtest.Recorder
			e := core.New(rdb, core.WithPrefix(strings.ToLower(name)), core.WithObserver(&h),
				core.WithDeadline(time.Minute), core.WithLogger(slog.New(slog.DiscardHandler)))
			sales, ballots := seckill.New(e, "s", seckill.Options{}), votes.New(e, "v", votes.Options{})
			for i := range 20 {
				item := fmt.Sprint("item ", i)
				openSale(t, sales, item, seckill.Sale{Stock: 3})
				wantStatus(t, sales, item, 3, 0, 0)
				guardtest.Check(t, ballots, core.Attempt{Actor: "ann", Resource: item, Item: "red"})
				wantTally(t, ballots, item, map[string]int64{"red": 1})
			}
			for _, event := range h.Events {
				if event.Breaker != nil {
					t.Errorf("a breaker: %+v, %v", event.Breaker, event.Err)
				}
			}
			for _, node := range replicas {
				node.Resume()
			}
		})
	}
}

// pauseReplicas pauses all replicas of the cluster.
func pauseReplicas(t testing.TB, c *redistest.ClusterServers) (paused []*redistest.Server) {
	t.Helper()
	for _, node := range c.Nodes {
		role, err := node.Client(t).Do(t.Context(), "role").Slice()
		if err != nil {
			t.Fatal(err)
		}
		if role[0] == "slave" {
			node.Pause()
			paused = append(paused, node)
		}
	}
	if len(paused) != 3 {
		t.Fatalf("%d replicas", len(paused))
	}
	return paused
}
