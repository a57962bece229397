package docs_test

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
)

func Example_delay() {
	gate, _, _ := rules()
	ctx, stop := context.WithCancel(context.Background())
	stop() // an example; a worker runs on
	cancelOrder := func(context.Context, string) error { return nil }

	unpaid := delay.New(gate, "unpaid", delay.Options{})
	created, err := unpaid.Schedule(ctx, "order 7", time.Now().Add(30*time.Minute), []byte("7"))

	stopped := delay.Work(ctx, unpaid, func(ctx context.Context, t delay.Task) error {
		return cancelOrder(ctx, string(t.Payload))
	}, delay.WorkOptions{Concurrency: 10})

	_, _, _ = created, err, stopped
}
