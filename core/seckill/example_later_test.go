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

// A buyer pays later, so the attempt is not settled. Keep the buyer, the item and the ID with the order:
// they name the reservation. When the payment arrives, any process calls Confirm with them, or else the hold
// ends. A second click with the same ID gets the same reservation.
func ExampleGuard_Check() {
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
	if _, err := sale.Open(ctx, "tv-55", seckill.Sale{Stock: 10, Hold: 15 * time.Minute}); err != nil {
		log.Fatal(err)
	}

	for range 2 {
		d, err := sale.Check(ctx, core.Attempt{Actor: "ann", Resource: "tv-55", ID: "ann:order-7"})
		if err != nil {
			log.Fatal(err) // undecided: call again with the same ID, it counts once
		}
		fmt.Println(d.Allowed, d.Replayed, d.Attempt.Resource, d.Attempt.ID,
			"to be paid within", d.ResetAfter.Round(time.Minute))
	}
	paid := core.Attempt{Actor: "ann", Resource: "tv-55", ID: "ann:order-7"} // from the order
	if _, err := sale.Confirm(ctx, paid); err != nil {
		log.Fatal(err)
	}
	status, err := sale.Status(ctx, "tv-55")
	fmt.Println(status.Left, "left,", status.Held, "held,", status.Sold, "sold", err)
	// Output:
	// true false tv-55 ann:order-7 to be paid within 15m0s
	// true true tv-55 ann:order-7 to be paid within 15m0s
	// 9 left, 0 held, 1 sold <nil>
}
