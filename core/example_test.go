package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// What an application uses of package core, on the vote of one user.
func Example() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(5*time.Second)) // the default is 100 ms
	poll := votes.New(gate, "poll", votes.Options{})

	for range 2 {
		d, err := poll.Check(ctx, core.Attempt{Actor: "ann", Resource: "final", Item: "red"})
		switch {
		case errors.Is(err, core.ErrInvalid): // a mistake of the caller, such as no Actor
			fmt.Println("invalid:", err)
		case err != nil: // undecided: Redis did not answer
			fmt.Println("undecided:", err)
		case !d.Allowed:
			fmt.Println("refused:", d.Reason)
		default: // do the work, and then say how it ended
			err := poll.Settle(ctx, d, core.Commit) // or core.Rollback, which takes the vote back
			fmt.Println("voted:", err)
		}
	}
	fmt.Println(gate.Drain(ctx)) // at the end of the process core.Drain, which waits for all engines
	// Output:
	// voted: <nil>
	// refused: duplicate
	// <nil>
}

// An attempt with an operation ID can be made again: a client that did not hear the answer gets the same one,
// and nothing is taken twice.
func ExampleAttempt() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(5*time.Second)) // the default is 100 ms
	poll := votes.New(gate, "poll", votes.Options{})

	vote := core.Attempt{
		Actor:    "ann",     // who
		Resource: "final",   // the poll
		Item:     "red",     // the choice
		Cost:     3,         // the weight of the vote
		ID:       "click-7", // the operation, as the client names it
	}
	first, err := poll.Check(ctx, vote)
	fmt.Println(first.Allowed, first.Replayed, err)
	again, err := poll.Check(ctx, vote)
	fmt.Println(again.Allowed, again.Replayed, err)

	vote.Item = "blue" // another vote under the same ID
	other, err := poll.Check(ctx, vote)
	fmt.Println(other.Allowed, other.Reason, err)

	tally, err := poll.Tally(ctx, "final")
	fmt.Println(tally, err)
	// Output:
	// true false <nil>
	// true true <nil>
	// false conflict <nil>
	// map[red:3] <nil>
}
