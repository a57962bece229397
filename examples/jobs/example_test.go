package jobs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/examples/jobs"
)

// Five jobs of a queue run at a time, and each tenant has one report per hour.
func Example() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	gate := core.New(rdb, core.WithDeadline(time.Minute)) // the default is 100 ms
	options := asynq.RedisClientOpt{Addr: server.Addr()}
	report := func(_ context.Context, task *asynq.Task) error {
		fmt.Println("a report for", task.Headers()["tenant"])
		return nil
	}

	perQueue := jobs.Rule{
		Guard: semaphore.New(gate, "slots", semaphore.Options{Max: 5}),
		Who:   jobs.Header("tenant"),
		What:  jobs.Queue,
	}
	perTenant := jobs.Rule{
		Guard: limit.NewSlidingWindow(gate, "reports", limit.PerHour(1)),
		Who:   jobs.Header("tenant"),
	}
	mux := asynq.NewServeMux()
	mux.Use(jobs.Guarded(perQueue), jobs.Guarded(perTenant))
	mux.HandleFunc("report", report)
	workers := asynq.NewServer(options, jobs.PutBack(asynq.Config{
		Concurrency: 1,
		LogLevel:    asynq.ErrorLevel,
	}))
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}
	defer workers.Shutdown()

	client, inspector := asynq.NewClient(options), asynq.NewInspector(options)
	defer func() { _, _ = client.Close(), inspector.Close() }()
	for range 2 {
		task := asynq.NewTaskWithHeaders("report", nil, map[string]string{"tenant": "ann"})
		if _, err := client.Enqueue(task, asynq.MaxRetry(5)); err != nil {
			log.Fatal(err)
		}
	}
	var back []*asynq.TaskInfo
	for len(back) == 0 && err == nil {
		back, err = inspector.ListRetryTasks("default")
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the second in", time.Until(back[0].NextProcessAt).Round(time.Minute))
	// Output:
	// a report for ann
	// the second in 1h0m0s
}
