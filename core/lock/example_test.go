package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
)

// One at a time works on an account. Each write takes the fence along, so that a holder who has lost the lock
// without knowing it overwrites nothing.
func ExampleGuard_Do() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx := context.Background()

	var row struct{ balance, fence int64 } // of a table
	update := func(balance, fence int64) { // SET balance = $1, fence = $2 WHERE fence < $2
		if row.fence < fence {
			row.balance, row.fence = balance, fence
		}
	}

	gate := core.New(rdb, core.WithDeadline(5*time.Second)) // the default is 100 ms
	accounts := lock.New(gate, "account", lock.Options{})
	var late func()
	err = accounts.Do(ctx, "ann", "a7", func(ctx context.Context, fence int64) error {
		update(10, fence)
		late = func() { update(99, fence) } // paused here, for longer than the lease
		err := accounts.Do(ctx, "bob", "a7", func(context.Context, int64) error { return nil })
		fmt.Println(errors.Is(err, lock.ErrBusy))
		return nil
	})
	fmt.Println(err)
	err = accounts.Do(ctx, "bob", "a7", func(_ context.Context, fence int64) error {
		update(20, fence)
		return nil
	})
	late()
	fmt.Println(err, row.balance)
	// Output:
	// true
	// <nil>
	// <nil> 20
}
