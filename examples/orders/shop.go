package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// shop lets buyers race for an item, to try the consumer by hand and to test it: so many, the first of this number. Most who get a unit
// pay, some of them late; some cancel and some walk away. It returns who has confirmed, by reservation.
func shop(ctx context.Context, sale *seckill.Guard, item string, first, buyers int) map[string]string {
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
			case 0: // walks away
				return
			case 1, 2:
				_, _ = sale.Cancel(ctx, item, a.ID)
				return
			case 3:
				wait(ctx, rand.N(time.Second)) // perhaps after the hold
			}
			if d, err := sale.Confirm(ctx, item, a.ID); err == nil && d.Allowed {
				mu.Lock()
				defer mu.Unlock()
				confirmed[a.ID] = a.Actor
			}
		})
	}
	all.Wait()
	return confirmed
}
