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
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// This file settles attempts: it gives back units that were not used, and charges those that were used beyond
// the estimate.

// taken is what the limiter needs to settle an allowed attempt.
type taken struct {
	*limitSet
	stamp int64 // when the attempt took its units
	rest  int64 // microseconds from then to the end of the part as which they count; 0: see Ahead.Take

	local  bool       // whether it took them inside the process
	mu     sync.Mutex // not held while Redis is asked
	ending *ending    // nil: nobody has settled it
}

// ending is how an attempt is settled. The first call decides it, and further calls repeat it: the first one
// may have been done although its reply was lost.
type ending struct {
	units int64 // to give back; below 0, to charge
	done  bool
	name  string        // by which Redis remembers it
	sent  time.Time     // when it was sent first; zero: it has certainly not run
	under chan struct{} // closed when the call under way has ended; nil: there is none
}

// again is the time after its first sending in which an ending may be sent again. It is half of the
// script's memory, so that no clock has to be exact.
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

// newName returns a name for an ending, 7 characters. It is random, so that a client who chooses the IDs of
// attempts cannot make two names the same. The few names that Redis remembers of one actor are all
// different.
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
	_, err := kit.InTurn(core.Settling(ctx), l.beginEnding(begun, d, actual))
	return l.Observe(ctx, op, begun, d, err)
}

// settling is an ending between its phases.
type settling struct {
	l        *limiter
	tag      string // of the attempt
	d        core.Decision
	err      error
	took     *taken // settled by this call; nil: there is nothing to do in Redis
	call     script.Call
	repeated bool            // an earlier call may have run
	other    <-chan struct{} // closed when the call that settles it now has ended; nil: none does
	actual   int64
}

// BeginSettle implements [kit.Phased], for endings that change something: see Settle.
func (l *limiter) BeginSettle(_ context.Context, d core.Decision, end core.Ending) kit.Prepared {
	actual, _ := end.Cost()
	return l.beginEnding(time.Now(), d, actual)
}

// beginEnding settles what it can without Redis.
func (l *limiter) beginEnding(begun time.Time, d core.Decision, actual int64) kit.Prepared {
	s := &settling{l: l, d: d, actual: actual}
	b := kit.Prepared{Batchable: true, Finisher: s}
	took, err := kit.Claimed[*taken](&l.Base, d)
	switch {
	case err != nil:
		s.err = err
		return b
	case actual < 0:
		s.err = fmt.Errorf("%w: an actual cost of %d is negative", core.ErrInvalid, actual)
		return b
	case len(took.limits) == 0:
		return b
	}
	took.mu.Lock()
	defer took.mu.Unlock()
	if took.ending == nil {
		took.ending = &ending{units: d.Attempt.Cost - actual}
		l.settleHere(took, d.Attempt, begun)
	}
	switch {
	case took.ending.done:
		return b
	case took.ending.under != nil:
		s.other = took.ending.under
		return b
	}
	s.took, s.tag = took, kit.TagOf(d.Attempt)
	if s.err = s.prepare(l.Engine().SettleTimeout()); s.err != nil {
		s.took = nil
		return b
	}
	took.ending.under = make(chan struct{})
	b.Call = &s.call
	return b
}

// release lets others settle the attempt, which is done if this call has.
func (s *settling) release(done bool) {
	s.took.mu.Lock()
	defer s.took.mu.Unlock()
	s.took.ending.done = done
	close(s.took.ending.under)
	s.took.ending.under = nil
}

// wait waits until the call that settles the attempt has ended, and settles it if that has failed.
func (s *settling) wait(ctx context.Context) error {
	late := time.NewTimer(s.l.Engine().SettleTimeout())
	defer late.Stop()
	select {
	case <-s.other:
	case <-late.C:
		return fmt.Errorf("another call settles the attempt: %w", context.DeadlineExceeded)
	}
	_, err := kit.InTurn(ctx, s.l.beginEnding(time.Now(), s.d, s.actual))
	return err
}

// End implements [kit.Finisher]. The first ending tries twice, since the reply may be lost, or the
// connection dead. It does not repeat a call that Redis has refused.
func (s *settling) End(ctx context.Context) (core.Decision, error) {
	if s.other != nil {
		return s.d, s.wait(ctx)
	}
	if s.took == nil {
		return s.d, s.err
	}
	defer func() { s.release(s.err == nil) }()
	defer s.l.freed(s.tag) // also after an error, since the server may have done it
	first := !s.repeated
	s.err = s.heard()
	if s.err != nil && first && !script.NotRun(s.err) {
		if s.err = s.prepare(s.call.Limit - time.Since(s.call.Sent)); s.err == nil {
			script.Send(ctx, &s.call)
			s.err = s.heard()
		}
	}
	return s.d, s.err
}

// Drop implements [kit.Finisher].
func (s *settling) Drop() {
	if s.took == nil {
		return
	}
	if !s.repeated && s.call.Sent.IsZero() {
		s.took.ending.sent = time.Time{}
	}
	s.release(false)
}

// settleHere does what it can without Redis, and notes what is left to do.
func (l *limiter) settleHere(took *taken, a core.Attempt, begun time.Time) {
	e := took.ending
	switch {
	case e.units == 0:
	case took.local && e.units > 0:
		l.local().giveBack(&a, took.limits, l.micros(begun), took.stamp, e.units)
		e.units = 0
		l.freed(kit.TagOf(a))
	case took.local:
		l.local().charge(&a, took.limits, l.micros(begun), -e.units)
		e.units = 0
	case l.ahead != nil && took.rest > 0:
		e.units = l.ahead.settle(a, took.limits[0], took.stamp, e.units)
		l.freed(kit.TagOf(a))
	}
	e.done = e.units == 0
}

// errUnknown is the error of an ending that comes too late to be sent again.
var errUnknown = fmt.Errorf("%w: the attempt may have been settled", core.ErrGone)

// prepare makes the call that settles the rest in Redis. It says whether an earlier call may have run, and
// when.
func (s *settling) prepare(limit time.Duration) error {
	took, e := s.took, s.took.ending
	if e.name == "" {
		e.name = newName()
	}
	since := e.since()
	s.repeated = since > 0
	switch {
	case !s.repeated:
		e.sent = time.Now()
	case time.Since(e.sent) > again:
		return errUnknown
	}
	settle, args := s.l.settleCall(took, since)
	keys := []string{s.l.Key(s.tag, "refunds")}
	s.call = script.Call{Runner: s.l.Engine().Runner, Script: settle, Limit: limit,
		Keys: s.l.addKeys(keys, took.limitSet, s.tag), Args: args}
	return nil
}

// heard returns the error of the ending that was sent.
func (s *settling) heard() error {
	switch c := &s.call; {
	case !s.repeated && script.NotRun(c.Err):
		s.took.ending.sent = time.Time{}
		return c.Err
	case c.Err == nil && c.Reply == int64(-1):
		return errUnknown
	default:
		return c.Err
	}
}

// settleCall returns the script that settles an attempt, and its arguments.
func (l *limiter) settleCall(took *taken, since int64) (*script.Script, []any) {
	e, now := took.ending, l.Engine().ScriptNow(time.Microsecond)
	if l.algorithm.log {
		of := &took.log
		return slidingSettleScript, []any{of.oneByOne, of.byParts, now, e.units, took.stamp, e.name, since, of.part}
	}
	args := append(slices.Clone(took.args), e.units, took.stamp, e.name)
	if since > 0 || now != "" {
		args = append(args, since, now)
	}
	return l.algorithm.settle, args
}
