package buckets

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/lua"
)

// Loans move stock to where buyers ask for it. The script that takes the units out of a bucket (buckets_lend)
// records the loan in that bucket. The record stays until the other bucket has accepted the loan
// (buckets_accept) and the loan is finished (buckets_keep). To accept twice has the
// effect of accepting once: loans between two buckets are numbered, there is one at a time, and the borrowing
// bucket keeps the last number. So any process may complete a loan, at any time and any number of times, and
// each process completes the open loans that it finds.
//
// "Sold out" must be true of all buckets at one moment, so the buckets are asked in two rounds. Each has a
// number that grows whenever it gets units back, lends or accepts. If no number grew and no loan was open,
// then between the two rounds each bucket had at most the units that it reported in the first.

var (
	loansScript  = script.New("buckets_loans", lua.Source("buckets/loans"), script.Idempotent)
	lendScript   = script.New("buckets_lend", lua.Source("buckets/lend"), script.Idempotent)
	acceptScript = script.New("buckets_accept", lua.Source("buckets/accept"), script.Idempotent)
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
	more        bool   // there are expired holds
}

func (c collected) total() (sum int64) {
	for _, left := range c.left {
		sum += left
	}
	return sum
}

// collect asks all buckets for their remaining units and open loans. A bucket with expired holds takes some
// of them back, and is asked again.
func (s *spread) collect(ctx context.Context) (collected, error) {
	c := collected{left: make([]int64, len(s.tags)), moves: make([]int64, len(s.tags))}
	var mu sync.Mutex
	err := s.each(func(n int, tag string) error {
		r, over, err := s.ask(ctx, n)
		if err == nil && over > 0 {
			if _, err = s.g.parts.Sweep(ctx, tag); err == nil {
				r, over, err = s.ask(ctx, n)
			}
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		c.more = c.more || over > 0
		c.left[n], c.moves[n] = r.left, r.moves
		c.loans = append(c.loans, r.loans...)
		return nil
	})
	return c, err
}

// asked is what a bucket has.
type asked struct {
	left, moves int64
	loans       []loan // open ones that it has made
}

// ask asks a bucket what it has, and for the number of expired holds. The caller moves the units of loans to
// the other bucket, so a loan itself must last, whichever process made it: if it were lost with its primary,
// the lending bucket would have the units again.
func (s *spread) ask(ctx context.Context, n int) (has asked, over int64, err error) {
	const words = 4 // without loans
	value, err := s.run(ctx, func(reply any) bool {
		got, _ := reply.([]any)
		return len(got) > words
	}, n, loansScript)
	if err != nil {
		return has, 0, err
	}
	r := script.ReadReply(value, words, words+3*maxBuckets)
	reason := r.Text()
	has.left, has.moves, over = r.Number(), r.Number(), r.Number()
	for r.More() {
		l := loan{n, int(r.Number()), r.Number(), r.Number()}
		if r.Err == nil && (l.to < 0 || l.to >= len(s.tags)) {
			return has, 0, fmt.Errorf("bucket %d of %.100q has lent to bucket %d of %d", n, s.item, l.to, len(s.tags))
		}
		has.loans = append(has.loans, l)
	}
	if r.Err == nil {
		r.Err = s.lostError(n, reason)
	}
	return has, over, r.Err
}

// lostError returns an error when the reason of a script's reply says that the bucket or a part of it was
// lost.
func (s *spread) lostError(n int, reason string) error {
	if part, lost := strings.CutPrefix(reason, "lost "); lost {
		return fmt.Errorf("%w: %s of %.100q, bucket %d: call Repair", seckill.ErrLost, part, s.item, n)
	}
	if reason == "not_ready" {
		return errBucketLost
	}
	return nil
}

// saysYes reports whether the reply of buckets_lend or buckets_accept must last: loans and their acceptance,
// or after a failover two buckets would have the same units.
func saysYes(reply any) bool {
	if words, ok := reply.([]any); ok {
		return len(words) > 0 && words[0] == string(core.ReasonOK)
	}
	number, ok := reply.(int64)
	return ok && number >= 0
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
	value, err := s.run(ctx, saysYes, from, lendScript, from, to, want)
	if err != nil {
		return loan{}, err
	}
	r := script.ReadReply(value, 3, 3)
	reason := r.Text()
	l := loan{from, to, r.Number(), r.Number()}
	if r.Err == nil {
		r.Err = s.lostError(from, reason)
	}
	if r.Err != nil {
		return loan{}, r.Err
	}
	return l, nil
}

func (s *spread) accept(ctx context.Context, l loan) error {
	return stepOfLoan(s.run(ctx, saysYes, l.to, acceptScript, l.from, l.to, l.number, l.units))
}

func (s *spread) finish(ctx context.Context, l loan) error {
	return stepOfLoan(s.run(ctx, nil, l.from, keepScript, l.to, l.number))
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
		asked := s.g.soldOut.Ask(s.item, s.g.Engine().Now())
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
	for bucket := range s.tags {
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

// borrow moves units to the bucket of a buyer, which has too few, and reports whether the bucket is worth
// asking again. If not, d says why: the whole sale has too few left, or is not whole.
//
// In this process one call at a time does this for an item, and the waiting calls use its result. So one call
// finds out for all of them that the item is sold out, and one call moves units to a bucket for all of its
// buyers.
func (s *spread) borrow(ctx context.Context, d *core.Decision, asked time.Time) (brought bool, err error) {
	home := s.homeOf(d.Attempt.Actor)
	// The bucket was asked before, so this is not the retry of a reservation that it holds.
	if s.g.answerSoldOut(d, s.g.Engine().Now()) {
		return false, nil
	}
	mine, err := s.g.borrowing.Lock(ctx, s.tags[0])
	if err != nil {
		return false, err
	}
	defer mine.Unlock()
	if s.g.answerSoldOut(d, s.g.Engine().Now()) {
		return false, nil
	}
	if mine.Value[home].After(asked) {
		return true, nil
	}
	enough, soldOut, err := s.gather(ctx, home, d.Attempt.Cost)
	switch {
	case errors.Is(err, errBucketLost), errors.Is(err, seckill.ErrLost):
		d.Reason = core.ReasonNotReady
		return false, nil
	case err != nil:
		return false, err
	case !enough:
		s.g.soldOut.Hear(soldOut, refusal{d.Attempt.Cost, d.Limit, d.Remaining}, refusalFor)
		return false, nil
	}
	if mine.Value == nil {
		mine.Value = lastBrought{}
	}
	mine.Value[home] = time.Now()
	return true, nil
}

// lastBrought holds the time at which units were last moved to each bucket, while a call borrows or waits.
type lastBrought map[int]time.Time

// lacksUnits reports whether a reservation could not be confirmed because its bucket has too few units.
func lacksUnits(d core.Decision) bool {
	return d.Reason == core.ReasonGone && d.Attempt.Cost > 0 && d.Remaining < d.Attempt.Cost
}

// endBorrowing confirms an expired reservation with units of other buckets, as long as there are any.
func (s *spread) endBorrowing(
	ctx context.Context, home int, d core.Decision, f func(ctx context.Context) (core.Decision, error),
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
		if d, err = f(ctx); err != nil {
			return d, err
		}
	}
	return d, nil
}
