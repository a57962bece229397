package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

const (
	crowdSize = 32               // buyers of each sale who are served at a time
	raceKeep  = 10 * time.Minute // of the naive sale's key
)

// race is one sale and the naive one beside it.
type race struct {
	sale   *seckill.Guard
	client *redis.Client
	sizes  sizes
	item   string
	naive  string // its key

	mu            sync.Mutex
	answers       map[string]int // of Gatehouse, by reason; "replayed" where nothing was taken again
	sold, refused int            // by the naive sale
}

// raceForTickets sends all buyers to a sale of Gatehouse and to a naive one at the same time. Events:
// "counts" while it runs, and "done".
func raceForTickets(ctx context.Context, in *instance, t *tape) error {
	item := fresh("race")
	r := &race{sale: in.orders, client: in.store.client, sizes: in.sizes, item: item,
		naive: in.gate.Key("naive-sale", item), answers: map[string]int{}}
	if _, err := r.sale.Open(ctx, item, seckill.Sale{Stock: int64(r.sizes.Stock)}); err != nil {
		return err
	}
	if err := r.client.Set(ctx, r.naive, r.sizes.Stock, raceKeep).Err(); err != nil {
		return err
	}
	return counting(ctx, t, 100*time.Millisecond, r.counts, func(ctx context.Context) error {
		sales := []func(context.Context, int) error{r.buy, r.buyNaively}
		err := together(ctx, len(sales), len(sales), func(ctx context.Context, i int) error {
			return together(ctx, crowdSize, r.sizes.Buyers, sales[i])
		})
		if err != nil {
			return err
		}
		if before := in.lastRace.Swap(r); before != nil {
			return r.sale.Discard(ctx, before.item)
		}
		return nil
	})
}

// sendTheSameOrders sends the orders of the last race again, with their operation IDs, as impatient buyers
// and lost answers do. Buyers with a ticket get a replay of the answer, and nothing is sold again. Event:
// "done", with the answers of this run only.
func sendTheSameOrders(ctx context.Context, in *instance, t *tape) error {
	r := in.lastRace.Load()
	if r == nil {
		return errNoRace
	}
	r.mu.Lock()
	r.answers = map[string]int{}
	r.mu.Unlock()
	if err := together(ctx, crowdSize, r.sizes.Buyers, r.buy); err != nil {
		return err
	}
	counts, err := r.counts(ctx)
	t.send("done", counts)
	return err
}

// buy reserves a ticket, waits for the payment, and confirms.
func (r *race) buy(ctx context.Context, buyer int) error {
	d, err := r.sale.Check(ctx, core.Attempt{Actor: fmt.Sprint("buyer-", buyer), Resource: r.item,
		ID: fmt.Sprint("order-", buyer)})
	if err != nil {
		return err
	}
	answer := d.Reason
	switch {
	case d.Kept:
		answer = core.ReasonReplayed
	case d.Allowed:
		if err := pause(ctx, r.sizes.Payment); err != nil {
			return err
		}
		if err := r.sale.Settle(ctx, d, core.Commit); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[string(answer)]++
	return nil
}

// buyNaively looks whether there is a ticket, and then takes it: between the two, others do the same.
func (r *race) buyNaively(ctx context.Context, _ int) error {
	left, err := r.client.Get(ctx, r.naive).Int64()
	if err == nil && left > 0 {
		err = r.client.Decr(ctx, r.naive).Err()
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if left > 0 {
		r.sold++
	} else {
		r.refused++
	}
	return nil
}

// counts looks at both sales. Left, held and sold of one come from one script, so they add up.
func (r *race) counts(ctx context.Context) (object, error) {
	sale, err := statusOf(ctx, r.sale, r.item)
	if err != nil {
		return nil, err
	}
	left, err := r.client.Get(ctx, r.naive).Int64() // may be below zero
	r.mu.Lock()
	defer r.mu.Unlock()
	return object{
		"sale": sale, "sum": sale.Left + sale.Held + sale.Sold, "buyers": r.sizes.Buyers,
		"answers": maps.Clone(r.answers),
		"naive": map[string]int{"left": int(left), "sold": r.sold, "refused": r.refused,
			"oversold": max(0, r.sold-r.sizes.Stock)}, // orders for which there is no ticket
	}, err
}
