package limit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// An attempt must fit all limits of a guard. A refused attempt takes nothing.
func ExampleNewSlidingWindow() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(time.Minute)) // the default is 100 ms
	mails := limit.NewSlidingWindow(gate, "mails", limit.PerMinute(3), limit.PerDay(100))

	for _, cost := range []int64{2, 2, 1} {
		d, err := mails.Check(ctx, core.Attempt{Actor: "ann", Cost: cost})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Reason, d.Remaining, "of", d.Limit, "in", d.Window)
	}
	// Output:
	// ok 1 of 3 in 1m0s
	// limited 1 of 3 in 1m0s
	// ok 0 of 3 in 1m0s
}
