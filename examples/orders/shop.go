package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// shop lets the given number of buyers, counted from first, race for an item, in trials and tests. Most
// buyers who get a unit pay, some of them late; some cancel and some never pay. It returns the confirmed
// reservations with their buyers.
func shop(ctx context.Context, sale sales, item string, first, buyers int) map[string]string {
	confirmed := map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := first; i < first+buyers; i++ {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			a := core.Attempt{Actor: fmt.Sprintf("buyer %d", i), Resource: item, ID: fmt.Sprintf("order-%d", i)}
			if d, err := sale.Check(ctx, a); err != nil || !d.Allowed {
				return
			}
			switch rand.IntN(10) {
			case 0: // never pays
				return
			case 1, 2:
				_, _ = sale.Cancel(ctx, a)
				return
			case 3:
				wait(ctx, rand.N(time.Second)) // perhaps until after the hold has expired
			}
			if d, err := sale.Confirm(ctx, a); err == nil && d.Allowed {
				mu.Lock()
				defer mu.Unlock()
				confirmed[a.ID] = a.Actor
			}
		})
	}
	all.Wait()
	return confirmed
}
