package limit

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// This file settles attempts: it gives back units that were not used, and charges those that were used beyond
// the estimate.

// taken is what the limiter needs to settle an allowed attempt.
type taken struct {
	*limitSet
	stamp int64  // when the attempt took its units
	lease *lease // of the limit that it took them of; or nil

	mu     sync.Mutex // held while the attempt is settled
	ending *ending    // nil: nobody has settled it
	local  bool       // whether it took them inside the process
}

// ending is how an attempt is settled. The first call decides it, and further calls repeat it: the first one
// may have been done although its reply was lost.
type ending struct {
	units int64 // to give back; below 0, to charge
	done  bool
	name  string    // by which Redis remembers it
	sent  time.Time // when it was sent first; zero: it has certainly not run
}

// again is for how long after an ending was sent first it may be sent again. It is half of what the script
// remembers, so that no clock has to be exact.
const again = time.Minute

// since returns how long ago the ending was sent first, in milliseconds, and 0 if it has certainly not run.
// The server's clock may be a 32nd faster.
func (e *ending) since() int64 {
	if e.sent.IsZero() {
		return 0
	}
	passed := time.Since(e.sent)
	return (passed + passed/32).Milliseconds() + 2
}

// newName returns a name for an ending, 7 characters. It is random: who may choose the IDs of attempts must
// not be able to make two of them the same. Of the few that Redis remembers of one actor no two are.
func newName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])[:7]
}

// end settles an attempt that has really cost so many units.
func (l *limiter) end(ctx context.Context, op string, d core.Decision, actual int64) error {
	if !d.Allowed {
		return nil
	}
	begun := time.Now()
	return l.Observe(ctx, op, begun, d, l.settle(ctx, begun, d, actual))
}

func (l *limiter) settle(ctx context.Context, begun time.Time, d core.Decision, actual int64) error {
	took, err := core.Claimed[*taken](&l.Base, d)
	switch {
	case err != nil:
		return err
	case actual < 0:
		return fmt.Errorf("%w: an actual cost of %d is negative", core.ErrInvalid, actual)
	case len(took.limits) == 0:
		return nil
	}
	took.mu.Lock()
	defer took.mu.Unlock()
	if took.ending == nil {
		took.ending = &ending{units: d.Attempt.Cost - actual}
		l.settleHere(took, d.Attempt, begun)
	}
	if took.ending.done {
		return nil
	}
	defer l.refusals.drop(core.TagOf(d.Attempt)) // also after an error, since the server may have done it
	ctx, cancel := context.WithTimeout(ctx, l.Engine().SettleTimeout())
	defer cancel()
	return l.settleThere(ctx, took, d.Attempt)
}

// settleHere does what it can without Redis, and notes what is left to do.
func (l *limiter) settleHere(took *taken, a core.Attempt, begun time.Time) {
	e := took.ending
	switch {
	case e.units == 0:
	case took.local && e.units > 0:
		l.local().giveBack(&a, took.limits, l.micros(begun), took.stamp, e.units)
		e.units = 0
	case took.local:
		l.local().charge(&a, took.limits, l.micros(begun), -e.units)
		e.units = 0
	case took.lease != nil:
		l.refusals.drop(core.TagOf(a))
		e.units = took.lease.settle(took, e.units, l.Engine().Now())
	}
	e.done = e.units == 0
}

// settleThere settles the rest in Redis. The first call tries twice: the reply may be lost, or the connection
// was a dead one.
func (l *limiter) settleThere(ctx context.Context, took *taken, a core.Attempt) error {
	e := took.ending
	if e.name == "" {
		e.name = newName()
	}
	repeated := !e.sent.IsZero()
	err := l.send(ctx, took, a)
	if err != nil && !repeated {
		err = l.send(ctx, took, a)
	}
	e.done = err == nil
	return err
}

// send sends an ending. It says whether an earlier call may have run, and when.
func (l *limiter) send(ctx context.Context, took *taken, a core.Attempt) error {
	e := took.ending
	since := e.since()
	repeated := since > 0
	unknown := fmt.Errorf("%w: the attempt may have been settled", core.ErrGone)
	if repeated && time.Since(e.sent) > again {
		return unknown
	}
	if !repeated {
		e.sent = time.Now()
	}
	script, args := l.settleCall(took, since)
	core.Expect(ctx, always)
	reply, err := l.Engine().RunWithin(ctx, l.Engine().SettleTimeout(), script,
		append([]string{l.Key(core.TagOf(a), "refunds")}, l.keysOf(took.limitSet, a)...), args...)
	switch {
	case !repeated && core.NotRun(err):
		e.sent = time.Time{}
	case err == nil && reply == int64(-1):
		return unknown
	}
	return err
}

// settleCall returns the script that settles an attempt, and its arguments behind the keys.
func (l *limiter) settleCall(took *taken, since int64) (*core.Script, []any) {
	e, now := took.ending, l.Engine().ScriptNow(time.Microsecond)
	if l.algorithm.log {
		of := took.log
		return slidingSettleScript, []any{of.oneByOne, of.byParts, now, e.units, took.stamp, e.name, since, of.part}
	}
	script, args := l.algorithm.refund, slices.Clone(took.args)
	if e.units > 0 {
		args = append(args, e.units, took.stamp, e.name)
	} else {
		script, args = l.algorithm.charge, append(args, -e.units, e.name)
	}
	if since > 0 || now != "" {
		args = append(args, since, now)
	}
	return script, args
}
