package bans_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
)

// The third refusal within a minute bans the actor for a minute.
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
	shut := bans.New(gate, "bans", bans.Options{Refusals: 2, Period: time.Minute, First: time.Minute})

	client := core.Attempt{Actor: "203.0.113.7"}
	for range 3 {
		banned, err := shut.Strike(ctx, client)
		fmt.Println(banned, err)
	}
	d, err := shut.Check(ctx, client)
	fmt.Println(d.Allowed, d.Reason, err)

	err = shut.Unban(ctx, client)
	fmt.Println(err)
	d, err = shut.Check(ctx, client)
	fmt.Println(d.Allowed, err)
	// Output:
	// false <nil>
	// false <nil>
	// true <nil>
	// false banned <nil>
	// <nil>
	// true <nil>
}
