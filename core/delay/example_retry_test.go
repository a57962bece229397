package delay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
)

// A task whose handler fails is tried again. After MaxTries it is dead, until an operator retries it.
func ExampleWork_retries() {
	server, err := miniredis.Run() // in production: your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()

	gate := core.New(rdb, core.WithDeadline(5*time.Second)) // the default is 100 ms
	mails := delay.New(gate, "mails", delay.Options{MaxTries: 2, Lease: 10 * time.Second})
	options := delay.WorkOptions{
		Backoff: func(int) time.Duration { return time.Millisecond }, // the default doubles, up to an hour
	}
	serverIsUp := false
	work := func(tries int) { // a worker runs on, but the example ends
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		err := delay.Work(ctx, mails, func(_ context.Context, t delay.Task) error {
			if tries--; tries == 0 {
				defer stop()
			}
			fmt.Println("send", string(t.Payload), "try", t.Try)
			if !serverIsUp {
				return errors.New("no mail server") // delay.SkipRetry(err): dead at once
			}
			return nil
		}, options)
		if err != nil {
			log.Fatal(err)
		}
	}

	ctx := context.Background()
	if _, err := mails.Schedule(ctx, "welcome:ann", time.Now(), []byte("a letter")); err != nil {
		log.Fatal(err)
	}
	work(2)
	s, err := mails.Find(ctx, "welcome:ann")
	fmt.Println(s.State, s.Reason, err)

	serverIsUp = true
	fmt.Println(mails.Retry(ctx, "welcome:ann"))
	work(1)
	s, err = mails.Find(ctx, "welcome:ann")
	fmt.Println(s.State, err)
	// Output:
	// send a letter try 1
	// send a letter try 2
	// dead no mail server <nil>
	// <nil>
	// send a letter try 1
	// done <nil>
}
