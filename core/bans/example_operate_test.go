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

// An operator sees how an actor stands, bans by hand, and lifts a ban.
func ExampleGuard_Ban() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(time.Minute))                         // the default is 100 ms
	shut := bans.New(gate, "bans", bans.Options{Refusals: 1, First: time.Minute}) // the second refusal bans
	client := core.Attempt{Actor: "203.0.113.7"}
	show := func(what string) {
		s, err := shut.Status(ctx, client)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: strikes %d, banned for %v\n", what, s.Strikes, s.Left.Round(time.Minute))
	}

	for _, what := range []string{"first refusal", "second refusal"} {
		if _, err := shut.Strike(ctx, client); err != nil {
			log.Fatal(err)
		}
		show(what)
	}
	if err := shut.Ban(ctx, client, 24*time.Hour); err != nil {
		log.Fatal(err)
	}
	show("by hand")
	if err := shut.Unban(ctx, client); err != nil {
		log.Fatal(err)
	}
	show("lifted")
	// Output:
	// first refusal: strikes 1, banned for 0s
	// second refusal: strikes 0, banned for 1m0s
	// by hand: strikes 0, banned for 24h0m0s
	// lifted: strikes 0, banned for 0s
}
