package quota_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
)

// Two different articles per day; the same article again is free.
func ExampleNew() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(time.Minute)) // the default is 100 ms
	points := quota.New(gate, "points", quota.Options{Items: 2, Period: period.Daily(time.UTC)})

	for _, article := range []string{"a", "b", "a", "c"} {
		d, err := points.Check(ctx, core.Attempt{Actor: "ann", Item: article})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(article, d.Reason, d.Remaining)
	}
	// Output:
	// a ok 1
	// b ok 0
	// a again 0
	// c quota 0
}
