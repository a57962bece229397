package seckill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// sweep also completes open loans.
func (s *spread) sweep(ctx context.Context) (swept int64, found bool, err error) {
	c, err := s.collect(ctx)
	if err == nil {
		err = s.complete(ctx, c.loans)
	}
	if errors.Is(err, errBucketLost) {
		return 0, false, nil
	}
	if c.swept > 0 {
		s.changed(ctx)
	}
	return c.swept, true, err
}

// restock changes the stock of one bucket. If it must take away more units than the bucket has, it borrows
// them first.
func (s *spread) restock(
	ctx context.Context, id string, units int64,
) (reason string, status Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.g.Engine().SettleTimeout())
	defer cancel()
	before, found, err := s.status(ctx)
	if err != nil || !found {
		return "not_ready", status, err
	}
	home := s.homeOf(id)
	if before.Stock+units > core.MaxAmount { // no bucket knows the sum; one knows whether the restock was done
		done, err := s.buckets[home].restocked(ctx, id)
		if err != nil || !done {
			return "too_many", before, err
		}
	}
	for enough := true; ; {
		reason, _, err = s.buckets[home].restock(ctx, id, units)
		if err == nil && (reason != "too_few" || !enough) {
			break
		}
		if err == nil {
			// When there is not enough, the bucket is asked once more: another call with the same ID may have
			// taken the units meanwhile, and then it is done.
			enough, _, err = s.gather(ctx, home, -units)
		}
		if err != nil {
			return reason, status, err
		}
	}
	s.changed(ctx)
	status, _, err = s.status(ctx)
	return reason, status, err
}

// restocked reports whether the bucket has done the restock with this ID.
func (b *bucket) restocked(ctx context.Context, id string) (bool, error) {
	return script.Query(ctx, b.g.Engine().Runner,
		redis.NewBoolCmd(ctx, "hexists", b.key("reservations"), "restock|"+script.Encode(id)))
}

// close closes all buckets. After it returned no error, no bucket admits a buyer.
func (s *spread) close(ctx context.Context) (found bool, err error) {
	there := make([]bool, len(s.buckets))
	err = s.each(func(n int, b *bucket) (err error) {
		there[n], err = b.close(ctx)
		return err
	})
	if err == nil {
		_, _, err = s.g.askRoot(ctx, s.g.runYes, s.item, s.epoch, "1") // it is kept as long as they are
	}
	return !slices.Contains(there, false), err
}

// status reads the buckets until no units have moved between two reads, so that none is counted twice or
// missed. The buckets' Held and Sold are from moments between the two.
func (s *spread) status(ctx context.Context) (status Status, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.g.Engine().SettleTimeout())
	defer cancel()
	var before saleState
	for {
		state, found, err := s.lookAll(ctx)
		if err != nil || !found {
			return status, found, err
		}
		if before != nil && before.sameLoans(state) {
			return state.sum(), true, nil
		}
		before = state
	}
}

// terms are those of the first bucket: all have the same.
func (s *spread) terms(ctx context.Context) (string, bool, error) { return s.buckets[0].terms(ctx) }

// count counts all buckets, one after the other.
func (s *spread) count(ctx context.Context) (whole Verification, found bool, err error) {
	whole.Item, whole.NoOutbox = s.item, s.g.options.NoOutbox
	before, found, err := s.lookAll(ctx)
	if err != nil || !found {
		return whole, found, err
	}
	for _, b := range s.buckets {
		part, found, err := b.count(ctx)
		if err != nil || !found {
			return whole, found, err
		}
		whole.Buckets = append(whole.Buckets, part)
		whole.Reservations = whole.Reservations.plus(part.Reservations)
		whole.Outbox = whole.Outbox.plus(part.Outbox)
		whole.Outbox.Stock -= part.loans
		whole.Buyers += part.Buyers
		whole.WrongTimers += part.WrongTimers
		whole.Moving = whole.Moving || part.Moving
	}
	after, found, err := s.lookAll(ctx)
	whole.Moving = whole.Moving || !before.same(after)
	whole.InTransit, whole.Counters = before.inTransit(), before.sum()
	whole.Reservations.Stock = whole.Counters.Stock
	for _, sum := range []*Status{&whole.Reservations, &whole.Outbox} {
		sum.Left = sum.Stock - sum.Held - sum.Sold
	}
	return whole, found, err
}

// events reads the outboxes of all buckets and merges them. The position of an event is the sale's epoch and
// the list of the last positions in each outbox: "epoch:position,position,...".
func (s *spread) events(ctx context.Context, after string, count int) ([]Event, error) {
	last := make([]string, len(s.buckets))
	epoch, positions, _ := strings.Cut(after, ":")
	if epoch == s.epoch {
		if last = strings.Split(positions, ","); len(last) != len(s.buckets) {
			return nil, fmt.Errorf("%w: %.100q is no position", core.ErrInvalid, after)
		}
	}
	waiting := make([][]Event, len(s.buckets))
	err := s.each(func(n int, b *bucket) (err error) {
		waiting[n], err = b.read(ctx, last[n], count)
		return err
	})
	if err != nil {
		return nil, err
	}
	var events []Event
	for len(events) < count {
		next := earliest(waiting)
		if next < 0 {
			break
		}
		event := waiting[next][0]
		waiting[next] = waiting[next][1:]
		last[next] = event.Position
		event.Position = s.epoch + ":" + strings.Join(last, ",")
		events = append(events, event)
	}
	return events, nil
}

// earliest returns the index of the stream with the earliest first event, or -1 if all are empty.
func earliest(streams [][]Event) int {
	first := -1
	for n, events := range streams {
		if len(events) > 0 && (first < 0 || earlier(events[0].Position, streams[first][0].Position)) {
			first = n
		}
	}
	return first
}

// earlier compares two positions in streams.
func earlier(a, b string) bool {
	read := func(position string) (ms, number uint64) {
		left, right, _ := strings.Cut(position, "-")
		ms, _ = strconv.ParseUint(left, 10, 64)
		number, _ = strconv.ParseUint(right, 10, 64)
		return ms, number
	}
	aMS, aNumber := read(a)
	bMS, bNumber := read(b)
	return aMS < bMS || aMS == bMS && aNumber < bNumber
}

func (s *spread) outboxes(ctx context.Context) (keys []string, found bool, err error) {
	if _, found, err = s.buckets[0].look(ctx); err != nil || !found {
		return nil, found, err
	}
	for _, b := range s.buckets {
		keys = append(keys, b.key("outbox"))
	}
	return keys, true, nil
}

// saleState holds the contents of the hashes of all buckets.
type saleState []bucketState

// lookAll reads the hashes of all buckets concurrently, so they are from different moments.
func (s *spread) lookAll(ctx context.Context) (state saleState, found bool, err error) {
	state = make(saleState, len(s.buckets))
	there := make([]bool, len(s.buckets))
	err = s.each(func(n int, b *bucket) (err error) {
		state[n], there[n], err = b.look(ctx)
		return err
	})
	return state, !slices.Contains(there, false), err
}

// sameLoans reports whether two states have the same loans. Then no units moved from the first to the second.
func (s saleState) sameLoans(other saleState) bool {
	return slices.EqualFunc(s, other, func(a, b bucketState) bool {
		return maps.Equal(a.lent, b.lent) && maps.Equal(a.accepted, b.accepted)
	})
}

// same reports whether two states are equal.
func (s saleState) same(other saleState) bool {
	return s.sameLoans(other) && slices.EqualFunc(s, other, func(a, b bucketState) bool {
		return a.Status == b.Status && a.moves == b.moves
	})
}

// inTransit returns the number of units on their way: lent, and not accepted.
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

// sum adds up the buckets. Units on their way count as left.
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
		Stock: s.Stock + other.Stock, Left: s.Left + other.Left,
		Held: s.Held + other.Held, Sold: s.Sold + other.Sold, Epoch: s.Epoch,
	}
}
