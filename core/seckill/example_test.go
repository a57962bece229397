package seckill

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
)

// An order system reads the outbox of a sale with a consumer group: each event goes to one of its workers,
// and comes again until it is acknowledged.
func ExampleGuard_OutboxKey() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	sale := New(core.New(rdb, core.WithDeadline(time.Minute)), "sale", Options{})
	if _, err := sale.Open(ctx, "tv-55", Sale{Stock: 2}); err != nil {
		panic(err)
	}
	outbox := sale.OutboxKey("tv-55")
	if err := rdb.XGroupCreate(ctx, outbox, "orders", "0").Err(); err != nil {
		panic(err)
	}

	d, err := sale.Check(ctx, core.Attempt{Actor: "ann", Resource: "tv-55", ID: "order-7"})
	if err != nil {
		panic(err)
	}
	if err := sale.Settle(ctx, d, core.Commit); err != nil {
		panic(err)
	}

	streams, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: "orders", Consumer: "worker-1", Streams: []string{outbox, ">"}, Count: 100, Block: time.Second,
	}).Result()
	if err != nil {
		panic(err)
	}
	for _, message := range streams[0].Messages {
		event, err := ParseEvent(message)
		if err != nil {
			panic(err)
		}
		if event.Kind == EventSold {
			fmt.Printf("ship %d to %s for %s\n", event.Quantity, event.Buyer, event.ID)
		}
		rdb.XAck(ctx, outbox, "orders", message.ID)
	}
	// Output:
	// ship 1 to ann for order-7
}

// An operator adds units and compares the sale with its records. The job that adds them has an ID, so it adds
// once even if it runs twice.
func ExampleGuard_Verify() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	sale := New(core.New(rdb, core.WithDeadline(time.Minute)), "sale", Options{})
	if _, err := sale.Open(ctx, "tv-55", Sale{Stock: 2}); err != nil {
		panic(err)
	}
	for range 2 {
		status, err := sale.Restock(ctx, "tv-55", "delivery-4711", 10)
		fmt.Println(status.Stock, "units,", status.Left, "left", err)
	}

	r, err := sale.Verify(ctx, "tv-55")
	fmt.Println(r.Consistent(), err)
	fmt.Print(r)
	// Output:
	// 12 units, 12 left <nil>
	// 12 units, 12 left <nil>
	// true <nil>
	// sale "tv-55": consistent
	//                     stock         left         held         sold
	// counters               12           12            0            0
	// reservations           12           12            0            0
	// outbox                 12           12            0            0
	// buyers have 0
}
