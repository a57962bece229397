package seckill

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

// The stock of a sale of several buckets moves to where buyers ask for it, by loans. A loan is written down in the bucket that lends, in the
// script that takes its units out (seckill_lend), and stays there until the other bucket has accepted it (seckill_accept) and it
// is finished (seckill_finish). Accepting twice is accepting once: loans between two buckets are numbered, there is one at a time, and the
// bucket that borrows remembers the last number. So it does not matter who brings a loan to its end, nor how often, nor how late;
// whoever finds one on its way does so.
//
// "Sold out" has to be true of all buckets at one moment. They are asked twice. Each has a number that grows whenever it gets units
// back, lends or accepts; when no number has grown in between and no loan was on its way, then at the moment between the two rounds
// each bucket had at most what it said in the first.

var (
	seckillLendScript   = core.NewScript("seckill_lend", lua.SeckillLend, core.Idempotent)
	seckillAcceptScript = core.NewScript("seckill_accept", lua.SeckillAccept, core.Idempotent)
	seckillFinishScript = core.NewScript("seckill_finish", lua.SeckillFinish, core.Idempotent)
)

// errBucketLost says that one of the buckets does not exist. What it had nobody knows, so the sale is not "sold out".
var errBucketLost = errors.New("a bucket of the sale is lost")

// loan is units on their way between two buckets.
type loan struct {
	from, to int
	number   int64
	units    int64
}

// collected is what the buckets have said in one round.
type collected struct {
	left, moves []int64
	loans       []loan // on their way
	swept       int64  // holds whose time was over
	more        bool   // there may be more of those
}

func (c collected) total() (sum int64) {
	for _, left := range c.left {
		sum += left
	}
	return sum
}

// collectWords is how many words a bucket's answer has without loans.
const collectWords = 4

// collect asks all buckets what they have left, after they have given back holds whose time is over, and for the loans on their way.
func (g *Guard) collect(ctx context.Context, at place) (collected, error) {
	c := collected{left: make([]int64, at.buckets), moves: make([]int64, at.buckets)}
	var mu sync.Mutex
	err := at.each(func(bucket int) error {
		value, err := g.runUntil(ctx, hasLoans, g.Engine().SettleTimeout(), seckillSweepScript, g.keysAt(at, bucket),
			sweepMost, g.Engine().ScriptNow(time.Millisecond))
		if err != nil {
			return err
		}
		r := core.ReadReply(value, collectWords, collectWords+3*maxBuckets)
		reason, swept := r.Text(), r.Number()
		mu.Lock()
		defer mu.Unlock()
		c.swept += swept
		c.more = c.more || swept == sweepMost
		c.left[bucket], c.moves[bucket] = r.Number(), r.Number()
		for r.More() {
			c.loans = append(c.loans, loan{bucket, int(r.Number()), r.Number(), r.Number()})
		}
		if r.Err == nil && reason == "not_ready" {
			return errBucketLost
		}
		return r.Err
	})
	return c, err
}

// complete brings loans to their end.
func (g *Guard) complete(ctx context.Context, at place, loans []loan) error {
	for _, l := range loans {
		if err := g.accept(ctx, at, l); err != nil {
			return err
		}
		if err := g.finish(ctx, at, l); err != nil {
			return err
		}
	}
	return nil
}

// lend takes units out of a bucket for another one. The loan is of no units when there are none, and an earlier one when that is still on its way.
func (g *Guard) lend(ctx context.Context, at place, from, to int, want int64) (loan, error) {
	value, err := g.runYes(ctx, g.Engine().SettleTimeout(), seckillLendScript, g.keysAt(at, from),
		from, to, want, g.Engine().ScriptNow(time.Millisecond))
	if err != nil {
		return loan{}, err
	}
	r := core.ReadReply(value, 3, 3)
	reason := r.Text()
	l := loan{from, to, r.Number(), r.Number()}
	if r.Err == nil && reason == "not_ready" {
		return loan{}, errBucketLost
	}
	return l, r.Err
}

func (g *Guard) accept(ctx context.Context, at place, l loan) error {
	return g.ofLoan(g.runYes(ctx, g.Engine().SettleTimeout(), seckillAcceptScript, g.keysAt(at, l.to),
		l.from, l.to, l.number, l.units, g.Engine().ScriptNow(time.Millisecond)))
}

func (g *Guard) finish(ctx context.Context, at place, l loan) error {
	return g.ofLoan(g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), seckillFinishScript, g.keysAt(at, l.from),
		l.to, l.number, g.Engine().ScriptNow(time.Millisecond)))
}

// ofLoan reads the reply of a step of a loan.
func (g *Guard) ofLoan(value any, err error) error {
	if err != nil {
		return err
	}
	done, err := core.ReadNumber(value)
	if err == nil && done < 0 {
		err = errBucketLost
	}
	return err
}

// gather brings units to a bucket until it has as many as are wanted, and reports whether it could. If not, the whole sale had fewer left at one
// moment, and asked is one before that. Others may take what was brought, so the caller asks again.
//
// It goes on until the context ends, so that needs a deadline.
func (g *Guard) gather(ctx context.Context, at place, home int, want int64) (enough bool, asked time.Time, err error) {
	var before *collected // the round before, when too little was left in it
	var beforeAt time.Time
	for {
		now := g.Engine().Now()
		c, err := g.collect(ctx, at)
		if err == nil {
			err = g.complete(ctx, at, c.loans)
		}
		switch {
		case err != nil:
			return false, now, err
		case len(c.loans) > 0 || c.more && c.total() < want:
			before = nil
		case c.left[home] >= want:
			return true, now, nil
		case c.total() < want:
			if before != nil && slices.Equal(before.moves, c.moves) {
				return false, beforeAt, nil
			}
			before, beforeAt = &c, now
		default:
			before = nil
			if err := g.borrowFrom(ctx, at, home, want-c.left[home], c.left); err != nil {
				return false, now, err
			}
		}
	}
}

// borrowFrom brings so many units to a bucket from those that have the most, as far as they still have them.
func (g *Guard) borrowFrom(ctx context.Context, at place, home int, short int64, left []int64) error {
	var others []int
	for bucket := range at.buckets {
		if bucket != home && left[bucket] > 0 {
			others = append(others, bucket)
		}
	}
	slices.SortFunc(others, func(a, b int) int { return cmp.Compare(left[b], left[a]) })
	for _, from := range others {
		if short <= 0 {
			return nil
		}
		l, err := g.lend(ctx, at, from, home, short)
		if err != nil {
			return err
		}
		if l.units == 0 {
			continue
		}
		if err := g.complete(ctx, at, []loan{l}); err != nil {
			return err
		}
		short -= l.units
	}
	return nil
}

// reserveAgain goes on with an attempt that one call could not decide.
func (g *Guard) reserveAgain(ctx context.Context, begun time.Time, at place, d core.Decision, more bool) (core.Decision, place, error) {
	ctx, cancel := context.WithDeadline(ctx, begun.Add(g.Engine().Deadline()))
	defer cancel()
	undecided := core.Decision{Guard: d.Guard, Attempt: d.Attempt}
	for asked := begun; ; {
		var err error
		switch {
		case more: // a script takes back only so many holds whose time is over
		case d.Reason == core.ReasonNotReady:
			found, err := g.find(ctx, d.Attempt.Resource)
			if err != nil {
				return undecided, at, err
			}
			if found.same(at) {
				return d, at, nil
			}
			at = found
		case d.Reason == core.ReasonSoldOut && at.buckets > 1:
			again, err := g.borrow(ctx, at, &d, asked)
			switch {
			case errors.Is(err, errBucketLost):
				d.Reason = core.ReasonNotReady
				continue
			case err != nil:
				return undecided, at, err
			case !again:
				return d, at, nil
			}
		default:
			return d, at, nil
		}
		asked = time.Now()
		if d, more, err = g.reserveOnce(ctx, at, d.Attempt); err != nil {
			return d, at, err
		}
	}
}

// borrow brings units to the bucket of a buyer who has found too few there, and reports whether he is to ask again. If not, the whole sale has
// too few left, and d says so.
//
// Of those who ask for that at once in this process one at a time does it, and the others hear how it went: that all is sold is
// found out once for all of them, and units are brought to a bucket once for all of its buyers.
func (g *Guard) borrow(ctx context.Context, at place, d *core.Decision, asked time.Time) (again bool, err error) {
	home := at.home(d.Attempt.Actor)
	if g.memory.answerSoldOut(d, g.Engine().Now()) { // the bucket was asked, so d is no winner who tries again
		return false, nil
	}
	t, err := g.turns.take(ctx, g.keyAt(at, 0, "sale"))
	if err != nil {
		return false, err
	}
	defer g.turns.leave(t)
	if g.memory.answerSoldOut(d, g.Engine().Now()) {
		return false, nil
	}
	if t.brought[home].After(asked) {
		return true, nil
	}
	enough, sent, err := g.gather(ctx, at, home, d.Attempt.Cost)
	switch {
	case err != nil:
		return false, err
	case enough:
		t.brought[home] = time.Now()
	default:
		g.memory.hear(*d, sent)
	}
	return enough, nil
}

// turns lets one at a time through for each key.
type turns struct {
	mu   sync.Mutex
	keys map[string]*turn
}

type turn struct {
	key     string
	users   int               // that have it or wait for it
	free    chan struct{}     // holds a token while nobody has it
	brought map[int]time.Time // when units were last brought to a bucket; for who has it
}

func newTurns() *turns { return &turns{keys: map[string]*turn{}} }

// take waits for the key's turn, or for the context's end.
func (ts *turns) take(ctx context.Context, key string) (*turn, error) {
	ts.mu.Lock()
	t := ts.keys[key]
	if t == nil {
		t = &turn{key: key, free: make(chan struct{}, 1), brought: map[int]time.Time{}}
		t.free <- struct{}{}
		ts.keys[key] = t
	}
	t.users++
	ts.mu.Unlock()
	select {
	case <-t.free:
		return t, nil
	case <-ctx.Done():
		ts.drop(t)
		return nil, ctx.Err()
	}
}

func (ts *turns) leave(t *turn) {
	t.free <- struct{}{}
	ts.drop(t)
}

func (ts *turns) drop(t *turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(ts.keys, t.key)
	}
}

// lacksUnits reports whether a reservation could not be confirmed because its bucket has too few units.
func (g *Guard) lacksUnits(d core.Decision) bool {
	return d.Reason == core.ReasonGone && d.Attempt.Cost > 0 && d.Remaining < d.Attempt.Cost
}

// endBorrowing confirms a reservation whose time was over with units of other buckets, while there are any.
func (g *Guard) endBorrowing(
	ctx context.Context, run runScript, s *core.Script, state State, at place, bucket int, a core.Attempt, d core.Decision, more ...any,
) (core.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, g.Engine().SettleTimeout())
	defer cancel()
	undecided := core.Decision{Guard: d.Guard, Attempt: d.Attempt}
	for g.lacksUnits(d) {
		enough, _, err := g.gather(ctx, at, bucket, d.Attempt.Cost)
		if err != nil {
			return undecided, err
		}
		if !enough {
			return d, nil
		}
		if d, err = g.endOnce(ctx, run, s, state, at, bucket, a, more...); err != nil {
			return d, err
		}
	}
	return d, nil
}
