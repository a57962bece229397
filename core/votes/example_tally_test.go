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

// The sums of a poll: of each choice that it names, by weight, and in order.
func ExampleGuard_Tally() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(time.Minute)) // the default is 100 ms
	poll := votes.New(gate, "poll", votes.Options{
		Poll: votes.Poll{Choices: []string{"red", "green", "blue"}},
	})
	for _, vote := range []core.Attempt{
		{Actor: "ann", Resource: "final", Item: "blue"},
		{Actor: "bob", Resource: "final", Item: "blue"},
		{Actor: "eve", Resource: "final", Item: "red", Cost: 3}, // the weight
	} {
		d, err := poll.Check(ctx, vote)
		if err != nil {
			log.Fatal(err)
		}
		if err := poll.Settle(ctx, d, core.Commit); err != nil {
			log.Fatal(err)
		}
	}

	tally, err := poll.Tally(ctx, "final")
	fmt.Println(tally["red"], tally["green"], tally["blue"], err)
	for _, rank := range votes.Top(tally, 2) {
		fmt.Println(rank.Choice, rank.Weight)
	}
	// Output:
	// 3 0 2 <nil>
	// red 3
	// blue 2
}
