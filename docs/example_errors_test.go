package docs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// The kind of an error says what a program can do about it.
func Example_kindsOfErrors() {
	ctx := context.Background()
	gate := core.New(client(), core.WithDeadline(30*time.Second)) // a test machine may be busy
	sale := seckill.New(gate, "sale", seckill.Options{})

	status, err := sale.Status(ctx, "tv-55")
	switch {
	case err == nil:
		fmt.Println(status.Left, "left")
	case errors.Is(err, core.ErrNotFound): // here seckill.ErrNoSale: open the sale
		fmt.Println("not on sale")
	case errors.Is(err, core.ErrInvalid): // a mistake in the call: the same again next time
		fmt.Println("a mistake of ours:", err)
	case errors.Is(err, core.ErrNotNow): // the state of the sale does not allow it
		fmt.Println("not now:", err)
	default: // Redis could not be asked, or its answer was lost: ask again
		fmt.Println("not known:", err)
	}
	// Output: not on sale
}
