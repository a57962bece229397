package core_test

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// Limits of one process, without Redis.
func ExampleNewMemory() {
	gate := core.NewMemory()
	site := limit.NewSlidingWindow(gate, "site", limit.PerMinute(2))

	for range 3 {
		d, err := site.Check(context.Background(), core.Attempt{Actor: "203.0.113.7"})
		fmt.Println(d.Allowed, d.Reason, d.Remaining, err)
	}
	// Output:
	// true ok 1 <nil>
	// true ok 0 <nil>
	// false limited 0 <nil>
}
