package idempotency_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
)

// A worker does each job once and keeps its outcome for repeated attempts.
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
	jobs := idempotency.New(gate, "jobs", idempotency.Options{MaxBody: 1024})

	job := core.Attempt{Actor: "billing", ID: "invoice-7"}
	first, err := jobs.Check(ctx, job)
	fmt.Println(first.Reason, err)
	d, err := jobs.Check(ctx, job) // another worker, meanwhile
	fmt.Println(d.Reason, err)

	if err := jobs.Settle(ctx, first, core.CommitWith(&core.Outcome{Body: []byte("sent")})); err != nil {
		log.Fatal(err)
	}
	d, err = jobs.Check(ctx, job)
	fmt.Println(d.Reason, string(core.OutcomeOf(d).Body), err)
	// Output:
	// ok <nil>
	// in_progress <nil>
	// done sent <nil>
}
