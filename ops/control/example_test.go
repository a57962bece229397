package control_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// Support raises the limit of one customer for an hour.
func Example() {
	server, err := miniredis.Run() // an application has a Redis of its own
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	gate := core.New(rdb, core.WithDeadline(5*time.Second))
	desk := control.New(ctx, gate, "desk")
	api := limit.NewSlidingWindow(gate, "api", limit.PerMinute(60))
	desk.Limits(api)

	acme := control.Decision{
		Kind: control.Limits, Name: "api", Of: "acme", Value: "600/min", Until: time.Now().Add(time.Hour),
	}
	if err := desk.Decide(ctx, acme, "sue", "launch day"); err != nil {
		log.Fatal(err)
	}
	for _, actor := range []string{"acme", "zenith"} {
		d, err := api.Check(ctx, core.Attempt{Actor: actor})
		fmt.Println(actor, d.Limit, err)
	}
	// Output:
	// acme 600 <nil>
	// zenith 60 <nil>
}
