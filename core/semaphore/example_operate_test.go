package semaphore_test

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
)

// An operator looks at who holds permits, and takes those of ann away.
func ExampleGuard_Peek() {
	ctx := context.Background()
	gate := core.NewMemory() // in production: core.New(rdb)
	exports := semaphore.New(gate, "exports", semaphore.Options{Max: 5})
	_, err := exports.Check(ctx, core.Attempt{Actor: "ann", Cost: 2})
	fmt.Println(err)

	state, err := exports.Peek(ctx, core.Attempt{})
	fmt.Println(state.Held, "of", state.Max, err)

	permits, err := exports.Evict(ctx, core.Attempt{Actor: "ann"})
	fmt.Println(permits, err)
	// Output:
	// <nil>
	// 2 of 5 <nil>
	// 2 <nil>
}
