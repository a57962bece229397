package votes_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// A second vote is a duplicate. A vote whose request failed is undone.
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
	poll := votes.New(gate, "poll", votes.Options{Poll: votes.Poll{Choices: []string{"red", "blue"}}})

	first, err := poll.Check(ctx, core.Attempt{Actor: "ann", Resource: "final", Item: "red"})
	if err != nil {
		log.Fatal(err)
	}
	second, err := poll.Check(ctx, core.Attempt{Actor: "ann", Resource: "final", Item: "blue"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Reason, second.Reason, votes.Choices(second))

	tally, err := poll.Tally(ctx, "final")
	fmt.Println(tally, err)

	if err := poll.Settle(ctx, first, core.Rollback); err != nil {
		log.Fatal(err)
	}
	tally, err = poll.Tally(ctx, "final")
	fmt.Println(tally, err)
	// Output:
	// ok duplicate [red]
	// map[blue:0 red:1] <nil>
	// map[blue:0 red:0] <nil>
}
