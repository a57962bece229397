package delay_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
)

// Orders that are not paid within half an hour are cancelled.
func ExampleNew() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	gate := core.New(rdb, core.WithDeadline(5*time.Second)) // the default is 100 ms
	unpaid := delay.New(gate, "unpaid", delay.Options{Lease: 10 * time.Second})

	const halfAnHour = time.Millisecond // or the example would take long
	for range 2 {
		created, err := unpaid.Schedule(ctx, "order 7", time.Now().Add(halfAnHour), []byte("7"))
		fmt.Println(created, err)
	}
	err = delay.Work(ctx, unpaid, func(ctx context.Context, t delay.Task) error {
		defer stop() // a worker runs on, but the example ends
		fmt.Println("cancel order", string(t.Payload), "try", t.Try)
		return delay.Result(ctx, []byte("cancelled"))
	}, delay.WorkOptions{Concurrency: 4})
	fmt.Println(err)

	s, err := unpaid.Find(context.Background(), "order 7")
	fmt.Println(s.State, string(s.Result), err)
	// Output:
	// true <nil>
	// false <nil>
	// cancel order 7 try 1
	// <nil>
	// done cancelled <nil>
}
