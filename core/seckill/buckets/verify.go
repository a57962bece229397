package buckets

import (
	"context"
	"fmt"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// Verification is the result of [Guard.Verify]: the totals of the whole sale, and those of each bucket.
type Verification struct {
	seckill.Verification

	// Buckets has the result for each bucket. Its Counters.Stock is the bucket's present share of the stock.
	Buckets []seckill.Verification `json:"buckets"`
	// InTransit is the number of units on their way between buckets. They belong to no bucket's stock. The
	// sale's Counters include them in Left.
	InTransit int64 `json:"in_transit"`
}

// Consistent reports whether all parts were counted at one moment and agree.
func (v Verification) Consistent() bool { return !v.Moving && len(v.Differences()) == 0 }

// Differences lists where the parts differ, one per line.
func (v Verification) Differences() []string {
	found := v.Verification.Differences()
	for n, bucket := range v.Buckets {
		for _, difference := range bucket.Differences() {
			found = append(found, fmt.Sprintf("bucket %d: %s", n, difference))
		}
	}
	return found
}

// String shows the whole sale and its buckets, for an operator.
func (v Verification) String() string {
	verdict := "consistent"
	if v.Moving {
		verdict = "moving"
	} else if !v.Consistent() {
		verdict = "NOT consistent"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d buckets: %s, %d on their way between buckets, counted as left\n",
		len(v.Buckets), verdict, v.InTransit)
	b.WriteString(v.Verification.String())
	for n, bucket := range v.Buckets {
		fmt.Fprintf(&b, "bucket %d: %s", n, bucket.String())
	}
	return b.String()
}

// Verify is [seckill.Guard.Verify]. It counts one bucket after the other.
func (g *Guard) Verify(ctx context.Context, item string) (Verification, error) {
	return kit.Look(ctx, &g.Base, "verify", core.Attempt{}, func() (v Verification, err error) {
		err = g.ofSale(ctx, item, func(at *spread) (found bool, err error) {
			for range 3 { // a sale that changes
				if v, found, err = at.count(ctx); err != nil || !found || !v.Moving {
					break
				}
			}
			return found, err
		})
		return v, err
	})
}

func (s *spread) count(ctx context.Context) (whole Verification, found bool, err error) {
	whole.Item, whole.NoOutbox = s.item, s.g.options.NoOutbox
	before, found, err := s.lookAll(ctx)
	if err != nil || !found {
		return whole, found, err
	}
	for _, tag := range s.tags {
		part, err := s.g.parts.Verify(ctx, tag)
		if err != nil {
			return whole, true, err
		}
		whole.Buckets = append(whole.Buckets, part)
		whole.Reservations = plus(whole.Reservations, part.Reservations)
		whole.Outbox = plus(whole.Outbox, part.Outbox)
		whole.Outbox.Stock -= part.Borrowed
		whole.Buyers += part.Buyers
		whole.WrongTimers += part.WrongTimers
		whole.Moving = whole.Moving || part.Moving
	}
	after, found, err := s.lookAll(ctx)
	whole.Moving = whole.Moving || !before.same(after)
	whole.InTransit, whole.Counters = before.inTransit(), before.sum()
	whole.Reservations.Stock = whole.Counters.Stock
	for _, sum := range []*seckill.Status{&whole.Reservations, &whole.Outbox} {
		sum.Left = sum.Stock - sum.Held - sum.Sold
	}
	return whole, found, err
}
