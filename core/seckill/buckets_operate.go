package seckill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/redis/go-redis/v9"
)

// sweepBuckets is Sweep for several buckets; -1 when one of them is lost.
func (g *Guard) sweepBuckets(ctx context.Context, at place) (int64, error) {
	c, err := g.collect(ctx, at)
	if err == nil {
		err = g.complete(ctx, at, c.loans)
	}
	if errors.Is(err, errBucketLost) {
		return -1, nil
	}
	if c.swept > 0 {
		g.changed(ctx, at)
	}
	return c.swept, err
}

// restockBuckets changes the stock of one bucket. Units that are to be taken away, and that it does not have, it borrows first.
func (g *Guard) restockBuckets(ctx context.Context, at place, id string, units int64) (reason string, status Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.Engine().SettleTimeout())
	defer cancel()
	before, found, err := g.statusOfBuckets(ctx, at)
	if err != nil || !found {
		return "not_ready", status, err
	}
	bucket := at.home(id)
	if before.Stock+units > core.MaxAmount { // no bucket sees that, and one knows whether it has been done
		done, err := core.Query(ctx, g.Engine(), redis.NewBoolCmd(ctx, "hexists", g.keyAt(at, bucket, "reservations"), "restock|"+core.Encode(id)))
		if err != nil || !done {
			return "too_many", before, err
		}
	}
	for {
		reason, _, err = g.restockOnce(ctx, at, bucket, id, units)
		enough := false
		if err == nil && reason == "too_few" {
			enough, _, err = g.gather(ctx, at, bucket, -units)
		}
		if err != nil {
			return reason, status, err
		}
		if !enough {
			break
		}
	}
	g.changed(ctx, at)
	status, _, err = g.statusOfBuckets(ctx, at)
	return reason, status, err
}

// closeBuckets closes all buckets. When it returns no error none lets a buyer in.
func (g *Guard) closeBuckets(ctx context.Context, at place) (missing bool, err error) {
	lost := make([]bool, at.buckets)
	err = at.each(func(bucket int) error {
		closed, err := g.closeOnce(ctx, at, bucket)
		lost[bucket] = closed < 0
		return err
	})
	if err == nil {
		_, _, err = g.root(ctx, at, true) // it is kept as long as they are
	}
	return slices.Contains(lost, true), err
}

// bucketState is what the hash of one bucket says.
type bucketState struct {
	Status
	moves    int64
	lent     map[int]loan  // the last to each bucket; of no units when it is finished
	accepted map[int]int64 // the number of the last loan from each bucket
}

// look reads the hash of one bucket.
func (g *Guard) look(ctx context.Context, at place, bucket int) (state bucketState, found bool, err error) {
	fields, err := core.Query(ctx, g.Engine(), redis.NewMapStringStringCmd(ctx, "hgetall", g.keyAt(at, bucket, "sale")))
	if err != nil {
		return state, false, err
	}
	if _, found = fields["stock"]; !found {
		return state, false, nil
	}
	number := func(text string) int64 {
		n, wrong := strconv.ParseInt(text, 10, 64)
		if wrong != nil && err == nil {
			err = fmt.Errorf("status of %.100q: %w", at.item, wrong)
		}
		return n
	}
	state.lent, state.accepted = map[int]loan{}, map[int]int64{}
	for field, text := range fields {
		what, other, _ := strings.Cut(field, "|")
		switch what {
		case "stock":
			state.Stock = number(text)
		case "left":
			state.Left = number(text)
		case "held":
			state.Held = number(text)
		case "sold":
			state.Sold = number(text)
		case "epoch":
			state.Epoch = number(text)
		case "moves":
			state.moves = number(text)
		case "lent":
			to := int(number(other))
			nth, units, _ := strings.Cut(text, " ")
			state.lent[to] = loan{bucket, to, number(nth), number(units)}
		case "accepted":
			state.accepted[int(number(other))] = number(text)
		}
	}
	for _, field := range []string{"left", "held", "sold"} {
		if _, ok := fields[field]; !ok && err == nil {
			err = fmt.Errorf("status of %.100q: %s is missing", at.item, field)
		}
	}
	return state, err == nil, err
}

// saleState is what the hashes of all buckets say.
type saleState []bucketState

// lookAll reads the hashes of all buckets, one after the other or at once, so they are of different moments.
func (g *Guard) lookAll(ctx context.Context, at place) (state saleState, found bool, err error) {
	state = make(saleState, at.buckets)
	there := make([]bool, at.buckets)
	err = at.each(func(bucket int) (err error) {
		state[bucket], there[bucket], err = g.look(ctx, at, bucket)
		return err
	})
	return state, !slices.Contains(there, false), err
}

// sameLoans reports whether two states have the same loans. Then no units have moved from the first to the second.
func (s saleState) sameLoans(other saleState) bool {
	return slices.EqualFunc(s, other, func(a, b bucketState) bool {
		return maps.Equal(a.lent, b.lent) && maps.Equal(a.accepted, b.accepted)
	})
}

// same reports whether two states are the same in all.
func (s saleState) same(other saleState) bool {
	return s.sameLoans(other) && slices.EqualFunc(s, other, func(a, b bucketState) bool {
		return a.Status == b.Status && a.moves == b.moves
	})
}

// inTransit is how many units are on their way: lent, and not accepted.
func (s saleState) inTransit() (units int64) {
	for _, bucket := range s {
		for _, l := range bucket.lent {
			if l.to < len(s) && s[l.to].accepted[l.from] < l.number {
				units += l.units
			}
		}
	}
	return units
}

// sum adds up the buckets; what is on its way is left.
func (s saleState) sum() (sum Status) {
	for _, bucket := range s {
		sum = sum.plus(bucket.Status)
	}
	sum.Stock += s.inTransit()
	sum.Left += s.inTransit()
	sum.Epoch = s[0].Epoch
	return sum
}

func (s Status) plus(other Status) Status {
	return Status{
		Stock: s.Stock + other.Stock, Left: s.Left + other.Left, Held: s.Held + other.Held, Sold: s.Sold + other.Sold, Epoch: s.Epoch,
	}
}

// statusOfBuckets looks until no units have moved between two looks, so that none is counted twice or missed. What the buckets have held
// and sold is of moments between the two.
func (g *Guard) statusOfBuckets(ctx context.Context, at place) (status Status, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.Engine().SettleTimeout())
	defer cancel()
	var before saleState
	for {
		state, found, err := g.lookAll(ctx, at)
		if err != nil || !found {
			return status, found, err
		}
		if before != nil && before.sameLoans(state) {
			return state.sum(), true, nil
		}
		before = state
	}
}
