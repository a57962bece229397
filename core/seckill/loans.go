package seckill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// In a sale of several buckets, loans move stock to where buyers ask for it. The script that takes the units
// out of a bucket (seckill_lend) records the loan in that bucket. The record stays until the other bucket has
// accepted the loan (seckill_accept) and the loan is finished (seckill_finish). To accept twice has the
// effect of accepting once: loans between two buckets are numbered, there is one at a time, and the borrowing
// bucket keeps the last number. So any process may complete a loan, at any time and any number of times, and
// each process completes the open loans that it finds.
//
// "Sold out" must be true of all buckets at one moment, so the buckets are asked in two rounds. Each has a
// number that grows whenever it gets units back, lends or accepts. If no number grew and no loan was open,
// then between the two rounds each bucket had at most the units that it reported in the first.

var (
	seckillLendScript   = script.New("seckill_lend", lua.Source("seckill/lend"), script.Idempotent)
	seckillAcceptScript = script.New("seckill_accept", lua.Source("seckill/accept"), script.Idempotent)
	seckillFinishScript = script.New("seckill_finish", lua.Source("seckill/finish"), script.Idempotent)
)

// errBucketLost means that one of the buckets does not exist. Its stock is unknown, so the sale is not "sold
// out".
var errBucketLost = errors.New("a bucket of the sale is lost")

// loan is a number of units that move between two buckets.
type loan struct {
	from, to int
	number   int64
	units    int64
}

// collected holds the replies of all buckets in one round.
type collected struct {
	left, moves []int64
	loans       []loan // open ones
	swept       int64  // expired holds
	more        bool   // there may be more expired holds
}

func (c collected) total() (sum int64) {
	for _, left := range c.left {
		sum += left
	}
	return sum
}

// collect asks all buckets to take back expired holds, and returns their remaining units and open loans.
func (s *spread) collect(ctx context.Context) (collected, error) {
	c := collected{left: make([]int64, len(s.buckets)), moves: make([]int64, len(s.buckets))}
	var mu sync.Mutex
	err := s.each(func(n int, b *bucket) error {
		value, err := s.g.runUntil(ctx, hasLoans, s.g.Engine().SettleTimeout(),
			seckillSweepScript, b.keys(), sweepMost, b.now())
		if err != nil {
			return err
		}
		r := script.ReadReply(value, sweepWords, sweepWords+3*maxBuckets)
		reason, swept := r.Text(), r.Number()
		mu.Lock()
		defer mu.Unlock()
		c.swept += swept
		c.more = c.more || swept == sweepMost
		c.left[n], c.moves[n] = r.Number(), r.Number()
		for r.More() {
			l := loan{n, int(r.Number()), r.Number(), r.Number()}
			if r.Err == nil && (l.to < 0 || l.to >= len(s.buckets)) {
				return fmt.Errorf("bucket %d of %.100q has lent to bucket %d of %d", n, s.item, l.to, len(s.buckets))
			}
			c.loans = append(c.loans, l)
		}
		if r.Err == nil && reason == "not_ready" {
			return errBucketLost
		}
		if err := lostError(s.item, reason); err != nil {
			return err
		}
		return r.Err
	})
	return c, err
}

// complete completes loans.
func (s *spread) complete(ctx context.Context, loans []loan) error {
	for _, l := range loans {
		if err := s.accept(ctx, l); err != nil {
			return err
		}
		if err := s.finish(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// lend takes units out of a bucket for another one. It returns a loan of 0 units if there are none, and the
// earlier loan if that is still open.
func (s *spread) lend(ctx context.Context, from, to int, want int64) (loan, error) {
	b := s.buckets[from]
	value, err := b.runYes(ctx, seckillLendScript, from, to, want, b.now())
	if err != nil {
		return loan{}, err
	}
	r := script.ReadReply(value, 3, 3)
	reason := r.Text()
	l := loan{from, to, r.Number(), r.Number()}
	if r.Err == nil && reason == "not_ready" {
		return loan{}, errBucketLost
	}
	if err := lostError(s.item, reason); err != nil {
		return loan{}, err
	}
	return l, r.Err
}

func (s *spread) accept(ctx context.Context, l loan) error {
	b := s.buckets[l.to]
	return stepOfLoan(b.runYes(ctx, seckillAcceptScript, l.from, l.to, l.number, l.units, b.now()))
}

func (s *spread) finish(ctx context.Context, l loan) error {
	b := s.buckets[l.from]
	return stepOfLoan(b.run(ctx, seckillFinishScript, l.to, l.number, b.now()))
}

// stepOfLoan reads the reply of a step of a loan.
func stepOfLoan(value any, err error) error {
	if err != nil {
		return err
	}
	done, err := script.ReadNumber(value)
	if err == nil && done < 0 {
		err = errBucketLost
	}
	return err
}

// gather moves units to a bucket until it has the wanted number, and reports whether it could. If not, the
// whole sale had fewer left at one moment, and asked is from before that moment. Other buyers may take the
// units, so the caller asks again.
//
// gather goes on until the context ends, so the context needs a deadline.
func (s *spread) gather(
	ctx context.Context, home int, want int64,
) (enough bool, asked kit.Asked[string], err error) {
	var before *collected // the round before, if too few units were left in it
	var beforeAsked kit.Asked[string]
	for {
		asked := s.g.memory.askSoldOut(s.item, s.g.Engine().Now())
		c, err := s.collect(ctx)
		if err == nil {
			err = s.complete(ctx, c.loans)
		}
		switch {
		case err != nil:
			return false, asked, err
		case len(c.loans) > 0 || c.more && c.total() < want:
			before = nil
		case c.left[home] >= want:
			return true, asked, nil
		case c.total() < want:
			if before != nil && slices.Equal(before.moves, c.moves) {
				return false, beforeAsked, nil
			}
			before, beforeAsked = &c, asked
		default:
			before = nil
			if err := s.borrowFrom(ctx, home, want-c.left[home], c.left); err != nil {
				return false, asked, err
			}
		}
	}
}

// borrowFrom moves the missing units to a bucket from the buckets that have the most, as far as they still
// have them.
func (s *spread) borrowFrom(ctx context.Context, home int, short int64, left []int64) error {
	var others []int
	for bucket := range s.buckets {
		if bucket != home && left[bucket] > 0 {
			others = append(others, bucket)
		}
	}
	slices.SortFunc(others, func(a, b int) int { return cmp.Compare(left[b], left[a]) })
	for _, from := range others {
		if short <= 0 {
			return nil
		}
		l, err := s.lend(ctx, from, home, short)
		if err != nil {
			return err
		}
		if l.units == 0 {
			continue
		}
		if err := s.complete(ctx, []loan{l}); err != nil {
			return err
		}
		short -= l.units
	}
	return nil
}

// borrow moves units to the bucket of a buyer, which has too few. If the whole sale has too few left, d says
// so.
//
// In this process one call at a time does this for an item, and the waiting calls use its result. So one call
// finds out for all of them that the item is sold out, and one call moves units to a bucket for all of its
// buyers.
func (s *spread) borrow(ctx context.Context, d *core.Decision, asked time.Time) (next, error) {
	home := s.homeOf(d.Attempt.Actor)
	// The bucket was asked before, so this is not the retry of a reservation that it holds.
	if s.g.memory.answerSoldOut(d, s.g.Engine().Now()) {
		return decided, nil
	}
	mine, err := s.g.borrowing.Lock(ctx, s.buckets[0].key("sale"))
	if err != nil {
		return decided, err
	}
	defer mine.Unlock()
	if s.g.memory.answerSoldOut(d, s.g.Engine().Now()) {
		return decided, nil
	}
	if mine.Value[home].After(asked) {
		return askAgain, nil
	}
	enough, soldOut, err := s.gather(ctx, home, d.Attempt.Cost)
	switch {
	case errors.Is(err, errBucketLost), errors.Is(err, ErrLost):
		d.Reason = core.ReasonNotReady
		return askRoot, nil
	case err != nil:
		return decided, err
	case !enough:
		s.g.memory.hearSoldOut(*d, soldOut)
		return decided, nil
	}
	if mine.Value == nil {
		mine.Value = lastBrought{}
	}
	mine.Value[home] = time.Now()
	return askAgain, nil
}

// lastBrought holds the time at which units were last moved to each bucket, while a call borrows or waits.
type lastBrought map[int]time.Time

// lacksUnits reports whether a reservation could not be confirmed because its bucket has too few units.
func lacksUnits(d core.Decision) bool {
	return d.Reason == core.ReasonGone && d.Attempt.Cost > 0 && d.Remaining < d.Attempt.Cost
}

// endBorrowing confirms an expired reservation with units of other buckets, as long as there are any.
func (s *spread) endBorrowing(
	ctx context.Context, e ending, home int, a core.Attempt, d core.Decision,
) (core.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.g.Engine().SettleTimeout())
	defer cancel()
	undecided := core.Decision{Guard: d.Guard, Attempt: d.Attempt}
	// When there is not enough, the bucket is asked once more: another call may have confirmed it meanwhile.
	for enough := true; enough && lacksUnits(d); {
		var err error
		if enough, _, err = s.gather(ctx, home, d.Attempt.Cost); err != nil {
			return undecided, err
		}
		if d, err = s.buckets[home].end(ctx, e, a); err != nil {
			return d, err
		}
	}
	return d, nil
}
