package buckets_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/seckill/buckets"
)

// An item that is too hot for one server is spread over eight slots of a cluster. Buyers see no difference.
// An order system reads one outbox per bucket.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()
	gate := core.New(rdb, core.WithDeadline(time.Minute))
	sale := buckets.New(gate, "sale", buckets.Options{Buckets: 8})
	if _, err := sale.Open(ctx, "tv-55", seckill.Sale{Stock: 10, PerBuyer: 10}); err != nil {
		panic(err)
	}

	d, err := sale.Check(ctx, core.Attempt{Actor: "ann", Resource: "tv-55", Cost: 10})
	fmt.Println(d.Reason, err)
	d, err = sale.Check(ctx, core.Attempt{Actor: "bob", Resource: "tv-55"})
	fmt.Println(d.Reason, err)
	outboxes, err := sale.OutboxKeys(ctx, "tv-55")
	fmt.Println(len(outboxes), "outboxes", err)
	// Output:
	// ok <nil>
	// sold_out <nil>
	// 8 outboxes <nil>
}
