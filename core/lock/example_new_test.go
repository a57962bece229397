package lock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
)

// One at a time works on an account. Each holder's fence is greater than those before.
func ExampleNew() {
	ctx := context.Background()
	accounts := lock.New(core.NewMemory(), "account", lock.Options{}) // in production: core.New(rdb)

	ann, err := accounts.Check(ctx, core.Attempt{Actor: "ann", Resource: "a7"})
	if err != nil {
		log.Fatal(err)
	}
	bob, err := accounts.Check(ctx, core.Attempt{Actor: "bob", Resource: "a7"})
	fmt.Println(ann.Reason, bob.Reason, err)

	first, _ := accounts.Fence(ann)
	if err := accounts.Settle(ctx, ann, core.Commit); err != nil {
		log.Fatal(err)
	}
	bob, err = accounts.Check(ctx, core.Attempt{Actor: "bob", Resource: "a7"})
	second, _ := accounts.Fence(bob)
	fmt.Println(bob.Reason, second > first, err)
	// Output:
	// ok busy <nil>
	// ok true <nil>
}
