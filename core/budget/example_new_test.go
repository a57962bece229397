package budget_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
)

// Three calls an hour for an organisation, two for each of its users.
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
	calls := budget.New(gate, "calls", budget.Options{
		Levels: []string{"org", "user"},
		Find: func(path []string) ([]budget.Limit, error) {
			if path[0] != "acme" {
				return nil, budget.ErrUnknown
			}
			return []budget.Limit{{Max: int64(4 - len(path)), Window: time.Hour}}, nil
		},
	})

	for _, user := range []string{"ann", "ann", "ann", "bob", "cid"} {
		d, err := calls.Check(ctx, core.Attempt{Actor: budget.Path("acme", user)})
		if err != nil {
			log.Fatal(err)
		}
		binding, _ := budget.Binding(d)
		fmt.Println(user, d.Reason, binding.Level, d.Remaining)
	}
	// Output:
	// ann ok user 1
	// ann ok user 0
	// ann limited user 0
	// bob ok org 0
	// cid limited org 0
}
