package semaphore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
)

// Two exports at a time. The work runs under a context that ends when its permit is lost.
func ExampleNew() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx := context.Background()

	gate := core.New(rdb, core.WithDeadline(5*time.Second)) // the default is 100 ms
	exports := semaphore.New(gate, "exports", semaphore.Options{Max: 2})

	export := func(user string, work func(ctx context.Context)) {
		d, err := exports.Check(ctx, core.Attempt{Actor: user})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, d.Reason, d.Remaining)
		if !d.Allowed {
			return
		}
		defer func() { _ = exports.Settle(ctx, d, core.Commit) }()
		held, stop := exports.Hold(ctx, d)
		defer stop()
		work(held)
	}
	export("ann", func(context.Context) {
		export("bob", func(context.Context) {
			export("cid", func(context.Context) {})
		})
	})
	export("dan", func(context.Context) {})
	// Output:
	// ann ok 1
	// bob ok 0
	// cid busy 0
	// dan ok 1
}
