package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
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
	show := every(100*time.Millisecond, func() {
		if c, err := r.counts(ctx, in); err == nil {
			send("counts", c)
		}
	})
	defer show()
	shopping, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var both sync.WaitGroup
	both.Go(func() { in.crowd(shopping, cancel, r.buy(in)) })
	both.Go(func() { in.crowd(shopping, cancel, r.buyNaively(in)) })
	both.Wait()
	show()
	if shopping.Err() != nil {
		return context.Cause(shopping)
	}
	if err := in.keepRace(ctx, r); err != nil {
		return err
	}
	return r.done(ctx, in, send)
}

// sendTheSameOrders sends the orders of the last race again, with their operation IDs, as impatient buyers
// and lost answers do. Those who have a ticket get a replay of the answer, and nothing is sold again. Events:
// "counts" and "done", with raceCounts; their answers are those of this run only.
func sendTheSameOrders(ctx context.Context, in *instance, send func(string, any)) error {
	in.mu.Lock()
	last := in.lastRace
	in.mu.Unlock()
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
	return r.done(ctx, in, send)
}

// keepRace remembers a race for its orders to be sent again, and deletes the one before.
func (in *instance) keepRace(ctx context.Context, r *race) error {
	in.mu.Lock()
	before := in.lastRace
	in.lastRace = r
	in.mu.Unlock()
	if before == nil {
		return nil
	}
	return in.labs.sale.Discard(ctx, before.item)
}

// crowd serves all buyers, crowdSize at a time.
func (in *instance) crowd(ctx context.Context, cancel context.CancelCauseFunc,
	buy func(ctx context.Context, buyer int) error) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range crowdSize {
		all.Go(func() {
			for ctx.Err() == nil {
				buyer := int(next.Add(1))
				if buyer > in.sizes.Buyers {
					return
				}
				if err := buy(ctx, buyer); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
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

func (r *race) counts(ctx context.Context, in *instance) (raceCounts, error) {
	status, err := in.labs.sale.Status(ctx, r.item)
	if err != nil {
		return raceCounts{}, err
	}
	status.Epoch = 0 // buyers have no use for it
	text, err := in.store.client.Get(ctx, r.naive).Result()
	if err != nil {
		return raceCounts{}, err
	}
	left, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return raceCounts{}, fmt.Errorf("the naive sale's counter: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := make(map[string]int, len(r.answers))
	for reason, n := range r.answers {
		answers[reason] = n
	}
	return raceCounts{Sale: status, Sum: status.Left + status.Held + status.Sold, Answers: answers,
		Buyers: in.sizes.Buyers,
		Naive:  naiveCounts{Left: left, Sold: r.sold, Oversold: max(0, r.sold-r.stock), Refused: r.refused}}, nil
}

func (r *race) done(ctx context.Context, in *instance, send func(string, any)) error {
	c, err := r.counts(ctx, in)
	if err != nil {
		return err
	}
	send("done", c)
	return nil
}
