package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

const (
	crowdSize = 32               // buyers of each sale who are served at a time
	raceKeep  = 10 * time.Minute // of the naive sale's key
)

// race is one sale and the naive one beside it.
type race struct {
	item  string
	naive string // its key
	stock int

	mu      sync.Mutex
	answers map[string]int // of Gatehouse, by reason; "replayed" where nothing was taken again
	sold    int            // orders that the naive sale has taken
	refused int            // by the naive sale
}

// raceCounts is how a race stands. Left, Held and Sold of the sale come from one script, so they add up.
type raceCounts struct {
	Sale    seckill.Status `json:"sale"`
	Sum     int64          `json:"sum"` // left + held + sold
	Answers map[string]int `json:"answers"`
	Naive   naiveCounts    `json:"naive"`
	Buyers  int            `json:"buyers"`
}

type naiveCounts struct {
	Left     int64 `json:"left"` // by its counter, which may be below zero
	Sold     int   `json:"sold"`
	Oversold int   `json:"oversold"` // orders for which there is no ticket
	Refused  int   `json:"refused"`
}

// raceForTickets sends all buyers to a sale of Gatehouse and to a naive one at the same time. Events:
// "counts" while it runs, and "done", with raceCounts.
func raceForTickets(ctx context.Context, in *instance, send func(string, any)) error {
	r := &race{stock: in.sizes.Stock, answers: map[string]int{}}
	r.item = in.fresh("race")
	r.naive = in.gate.Key("naive-sale", r.item)
	if _, err := in.labs.sale.Open(ctx, r.item, seckill.Sale{Stock: int64(r.stock)}); err != nil {
		return err
	}
	if err := in.store.client.Set(ctx, r.naive, r.stock, raceKeep).Err(); err != nil {
		return err
	}
	return counting(ctx, send, 100*time.Millisecond, r.counts(in), func() error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var both sync.WaitGroup
		both.Go(func() { in.crowd(ctx, cancel, r.buy(in)) })
		both.Go(func() { in.crowd(ctx, cancel, r.buyNaively(in)) })
		both.Wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if before := in.lastRace.Swap(r); before != nil {
			return in.labs.sale.Discard(ctx, before.item)
		}
		return nil
	})
}

// sendTheSameOrders sends the orders of the last race again, with their operation IDs, as impatient buyers
// and lost answers do. Those who have a ticket get a replay of the answer, and nothing is sold again. Events:
// "counts" and "done", with raceCounts; their answers are those of this run only.
func sendTheSameOrders(ctx context.Context, in *instance, send func(string, any)) error {
	last := in.lastRace.Load()
	if last == nil {
		return errNoRace
	}
	r := &race{item: last.item, naive: last.naive, stock: last.stock, answers: map[string]int{},
		sold: last.sold, refused: last.refused}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in.crowd(ctx, cancel, r.buy(in))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c, err := r.counts(in)(ctx)
	if err == nil {
		send("done", c)
	}
	return err
}

// crowd serves all buyers, crowdSize at a time.
func (in *instance) crowd(ctx context.Context, cancel context.CancelCauseFunc,
	buy func(ctx context.Context, buyer int) error) {
	together(ctx, crowdSize, in.sizes.Buyers, func(i int) {
		if err := buy(ctx, i+1); err != nil {
			cancel(err)
		}
	})
}

// buy reserves a ticket, waits for the payment, and confirms.
func (r *race) buy(in *instance) func(context.Context, int) error {
	return func(ctx context.Context, buyer int) error {
		sale := in.labs.sale
		d, err := sale.Check(ctx, core.Attempt{Actor: fmt.Sprint("buyer-", buyer), Resource: r.item,
			ID: fmt.Sprint("order-", buyer)})
		if err != nil {
			return err
		}
		answer := string(d.Reason)
		if d.Kept {
			answer = string(core.ReasonReplayed)
		}
		if d.Allowed && !d.Kept {
			if err := pause(ctx, in.sizes.Payment); err != nil {
				return err
			}
			if err := sale.Settle(ctx, d, core.Commit); err != nil {
				return err
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answers[answer]++
		return nil
	}
}

// buyNaively looks whether there is a ticket, and then takes it: between the two, others do the same.
func (r *race) buyNaively(in *instance) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		left, err := in.store.client.Get(ctx, r.naive).Int64()
		if err != nil {
			return err
		}
		if left > 0 {
			if err := in.store.client.Decr(ctx, r.naive).Err(); err != nil {
				return err
			}
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
}

// counts looks at both sales.
func (r *race) counts(in *instance) func(context.Context) (raceCounts, error) {
	return func(ctx context.Context) (raceCounts, error) {
		status, err := in.labs.sale.Status(ctx, r.item)
		if err != nil {
			return raceCounts{}, err
		}
		status.Epoch = 0 // buyers have no use for it
		left, err := in.store.client.Get(ctx, r.naive).Int64()
		r.mu.Lock()
		defer r.mu.Unlock()
		return raceCounts{Sale: status, Sum: status.Left + status.Held + status.Sold, Buyers: in.sizes.Buyers,
			Answers: maps.Clone(r.answers), Naive: naiveCounts{Left: left, Sold: r.sold,
				Oversold: max(0, r.sold-r.stock), Refused: r.refused}}, err
	}
}
