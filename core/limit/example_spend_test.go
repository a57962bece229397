package limit_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// The cost of an attempt is an estimate. Spend settles it with what was really used.
func ExampleSlidingWindow_Spend() {
	ctx := context.Background()
	tokens := limit.NewSlidingWindow(core.NewMemory(), "tokens", limit.PerMinute(1000))
	for _, used := range []int64{120, 1500} {
		d, err := tokens.Check(ctx, core.Attempt{Actor: "ann", Cost: 400})
		if err != nil {
			log.Fatal(err)
		}
		if err := tokens.Spend(ctx, d, used); err != nil {
			log.Fatal(err)
		}
		left, err := tokens.Peek(ctx, core.Attempt{Actor: "ann"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(used, "used,", left.Remaining, "left", left.Reason)
	}
	// Output:
	// 120 used, 880 left ok
	// 1500 used, 0 left limited
}
