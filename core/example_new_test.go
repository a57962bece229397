package core_test

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

// An engine over the application's client makes guards; a guard decides attempts.
func ExampleNew() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(5*time.Second)) // the default is 100 ms
	logins := limit.NewSlidingWindow(gate, "logins", limit.PerHour(2))

	for range 3 {
		d, err := logins.Check(ctx, core.Attempt{Actor: "203.0.113.7"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Reason, d.Remaining)
	}
	// Output:
	// true ok 1
	// true ok 0
	// false limited 0
}
