package limit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// Limits from a configuration.
func ExampleParseAll() {
	limits, err := limit.ParseAll("10/s, 100/min, 100_000/day/1440")
	fmt.Println(limits, err)

	_, err = limit.Parse("100/fortnight")
	fmt.Println(err != nil)
	// Output:
	// [10/1s 100/1m 100000/24h/1440] <nil>
	// true
}

// A window begins with its first unit.
func ExampleNewFixedWindow() {
	ctx := context.Background()
	mails := limit.NewFixedWindow(core.NewMemory(), "mails", limit.PerHour(2))

	for range 3 {
		d, err := mails.Check(ctx, core.Attempt{Actor: "ann"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Reason, d.Remaining, d.RetryAfter > 59*time.Minute)
	}
	// Output:
	// ok 1 false
	// ok 0 false
	// limited 0 true
}

// Two units at once, and one more each half hour.
func ExampleNewTokenBucket() {
	ctx := context.Background()
	calls := limit.NewTokenBucket(core.NewMemory(), "calls", limit.PerHour(2))

	for range 3 {
		d, err := calls.Check(ctx, core.Attempt{Actor: "ann"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Reason, d.Remaining, d.RetryAfter > 29*time.Minute && d.RetryAfter <= 30*time.Minute)
	}
	// Output:
	// ok 1 false
	// ok 0 false
	// limited 0 true
}

// Limits by tier. No limits means not limited.
func ExampleNewSlidingWindowBy() {
	ctx := context.Background()
	tiers := map[string][]limit.Limit{"ann": {limit.PerMinute(1)}, "batch": nil}
	api := limit.NewSlidingWindowBy(core.NewMemory(), "api",
		func(_ context.Context, a core.Attempt) ([]limit.Limit, error) { return tiers[a.Actor], nil })

	for _, actor := range []string{"ann", "ann", "batch", "batch"} {
		d, err := api.Check(ctx, core.Attempt{Actor: actor})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(actor, d.Reason)
	}
	// Output:
	// ann ok
	// ann limited
	// batch ok
	// batch ok
}
