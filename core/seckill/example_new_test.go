package seckill_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// A reservation is held first. Commit sells it, Rollback gives it back.
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
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(ctx, "tv-55", seckill.Sale{Stock: 1, Hold: 5 * time.Minute}); err != nil {
		log.Fatal(err)
	}

	ann, err := sale.Check(ctx, core.Attempt{Actor: "ann", Resource: "tv-55"})
	fmt.Println(ann.Reason, err)
	bob, err := sale.Check(ctx, core.Attempt{Actor: "bob", Resource: "tv-55"})
	fmt.Println(bob.Reason, err)

	if err := sale.Settle(ctx, ann, core.Commit); err != nil {
		log.Fatal(err) // core.ErrGone: the hold has ended and its unit is taken
	}
	status, err := sale.Status(ctx, "tv-55")
	fmt.Println(status.Left, status.Held, status.Sold, err)
	// Output:
	// ok <nil>
	// sold_out <nil>
	// 0 0 1 <nil>
}
