package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/backlog"
)

// This file has the lines of Wait. A line asks about its first waiters together: for the sum of their costs.
// What Redis takes for all of them counts from one moment, as if they had come one after the other.

// lines are the lines of a limiter in this process: one per actor and resource.
type lines struct {
	l      *limiter
	decide func(ctx context.Context, a core.Attempt) (core.Decision, error)

	turns    func() *turns // nil: nobody else asks
	patience int64         // in microseconds: a waiter who has less time does not ask for itself

	some  atomic.Int64 // how many there are
	mu    sync.Mutex   // of all lines; not held while anybody is asked
	byTag map[string]*line
}

// line are attempts that wait for units of one actor and resource. Whoever finds no line makes one, and asks
// for itself. If that was not enough, or others have come, a goroutine serves them while there are any.
type line struct {
	tag                 string
	actor, resource, id string
	first, last         *waiter
	unchecked           *waiter // from this one on nobody was told whether there is time enough

	units float64 // that all of them ask for

	left int64     // units that are probably free, by the last answer
	due  time.Time // when fits units are free, by the last answer, and not before; zero: perhaps now
	look time.Time // when to ask next
	fits int64
	by   *limitSet      // under these limits
	said *core.Decision // that was told

	head *waiter // the first one when it was refused last
	turn bool    // it is this line's: see turns

	release func()        // of backlog.Hold: a line is pending from its first waiter to its last
	served  bool          // by a goroutine; else by the waiter who found no line
	again   bool          // units may have come back since the last call was made
	wake    chan struct{} // holds one: look at once; nil without a goroutine
}

// waiter is an attempt in line. It takes 200 bytes with its channel.
type waiter struct {
	ctx        context.Context
	own        *ownLimits // where a function returns the limits; or nil
	cost       int64
	came       int64 // see elapsed
	deadline   int64
	prev, next *waiter
	asked      bool // with a call that is under way
	over       bool // is answered, or gone
	answer     *core.Decision
	err        error
	ready      chan struct{} // closed when it is answered; nil while it asks for itself
}

// ownLimits are the limits of an attempt when it came, where a function returns them.
type ownLimits struct {
	attempt core.Attempt
	limits  *limitSet
}

// limitsOf returns the limits of a waiter when it came.
func (s *lines) limitsOf(w *waiter) *limitSet {
	if w.own != nil {
		return w.own.limits
	}
	return s.l.limits
}

const (
	// lookAfter is the longest time until a line is asked about: other processes give units back, too.
	lookAfter = 10 * time.Second
	// lookAfterClock is the same where a test has set a clock, by which nobody sleeps.
	lookAfterClock = 10 * time.Millisecond
	// yieldMost is for how long a line that took the last unit lets others ask first, and yieldPart which part
	// of the window it is at most. Else the process with the shortest way to Redis would have all units.
	yieldMost, yieldPart = 5 * time.Millisecond, 256
)

func newLines(
	l *limiter, decide func(ctx context.Context, a core.Attempt) (core.Decision, error),
) *lines {
	patience := l.Engine().Deadline().Microseconds()
	return &lines{l: l, decide: decide, patience: patience, byTag: map[string]*line{}}
}

// enter puts a waiter in line, unless it cannot be served in time. It reports whether there was no line, so
// that the waiter has to ask for itself.
func (s *lines) enter(tag string, a *core.Attempt, w *waiter) (n *line, alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n = s.byTag[tag]; n == nil {
		n = &line{tag: tag, actor: a.Actor, resource: a.Resource, id: a.ID}
		s.byTag[tag] = n
		s.some.Add(1)
		n.release = backlog.Hold(s.l.Engine(), func() { s.end(n) })
		n.push(w)
		n.unchecked = w
		if alone = w.deadline == never || w.deadline-elapsed(present()) > s.patience; alone {
			w.asked = true
			return n, true
		}
		w.ready = make(chan struct{})
		s.serveSoon(n)
		return n, false
	}
	w.ready = make(chan struct{})
	n.push(w)
	if n.unchecked == nil {
		n.unchecked = w
	}
	s.refuseLate(n, time.Now())
	return n, false
}

// askAlone asks about the only waiter of a line, and reports whether that is answered then.
func (s *lines) askAlone(n *line, w *waiter) (answered bool) {
	defer func() { // also if the application's function ends the goroutine
		s.mu.Lock()
		defer s.mu.Unlock()
		if answered = w.over; !answered {
			w.ready = make(chan struct{})
		}
		if n.first == nil {
			s.gone(n)
			n.release()
		} else {
			s.serveSoon(n)
		}
	}()
	s.ask(n, []*waiter{w})
	return answered
}

// serveSoon starts the goroutine of a line. The caller holds the lock.
func (s *lines) serveSoon(n *line) {
	n.served, n.wake = true, make(chan struct{}, 1)
	go s.serveAll(n)
}

// serveAll serves a line until nobody is left, also if the application's function ends the goroutine.
func (s *lines) serveAll(n *line) {
	defer func() {
		if s.has(n) {
			go s.serveAll(n)
			return
		}
		n.release()
	}()
	s.serve(n)
}

// has reports whether a line has waiters, or was not seen to have none.
func (s *lines) has(n *line) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byTag[n.tag] == n
}

// gone removes a line without waiters. The caller holds the lock.
func (s *lines) gone(n *line) {
	delete(s.byTag, n.tag)
	s.some.Add(-1)
}

// leave takes a waiter out of the line, unless it is answered already. It returns for how long the first one
// still has to wait.
func (s *lines) leave(n *line, w *waiter) (left bool, retry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.over {
		return false, 0
	}
	w.over = true
	n.remove(w)
	return true, max(time.Until(n.due), 0)
}

// freed has a line look at once whether there are units.
func (s *lines) freed(tag string) {
	if s.some.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.byTag[tag]; n != nil {
		n.again = true
		n.forget()
	}
}

// end ends all waits of a line.
func (s *lines) end(n *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n.first != nil {
		n.first.answered(n, &core.Decision{}, core.ErrDrained)
	}
	n.forget()
}

// serve asks for the units of those in line, until nobody is left.
func (s *lines) serve(n *line) {
	for {
		asked, pause := s.next(n)
		switch {
		case len(asked) > 0:
			s.ask(n, asked)
		case pause == 0:
			s.takeTurn(context.Background(), n, 0) // others must not wait for a waiter who has left
			return
		default:
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-n.wake:
			}
			timer.Stop()
		}
	}
}

// next returns those to ask about now, or for how long to sleep. Without either the line is empty, and gone.
func (s *lines) next(n *line) (asked []*waiter, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.first == nil {
		s.gone(n)
		return nil, 0
	}
	if pause = time.Until(n.look); pause > 0 {
		return nil, pause
	}
	// Half of what is free is left to other processes.
	most := max(n.first.cost, (n.left+1)/2)
	for w := n.first; w != nil && w.cost <= most; w = w.next {
		most -= w.cost
		w.asked = true
		asked = append(asked, w)
	}
	n.again = false
	return asked, 0
}

// ask asks for the units of waiters together, and answers them.
func (s *lines) ask(n *line, asked []*waiter) {
	ended := true
	defer func() {
		if ended {
			s.hear(n, asked, len(asked), &core.Decision{}, errExited)
		}
	}()
	ctx := context.WithoutCancel(asked[0].ctx)
	if wait := s.othersTurn(ctx, n, asked[0]); wait > 0 {
		s.postpone(n, asked, wait)
		ended = false
		return
	}
	same, d, err := s.decideFor(ctx, n, asked)
	ended = false
	s.takeTurn(ctx, n, s.hear(n, asked, same, &d, err))
}

// postpone has the line ask later.
func (s *lines) postpone(n *line, asked []*waiter, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range asked {
		w.asked = false
	}
	n.look = time.Now().Add(wait)
}

// hear hears what was decided about the first ones of those who were asked about, and answers them. It
// returns for how long the line needs the turn.
func (s *lines) hear(n *line, asked []*waiter, same int, d *core.Decision, err error) (turn time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range asked {
		w.asked = false
	}
	asked = asked[:same]
	now, first := time.Now(), asked[0]
	n.left, n.due, n.look, n.by, n.said = 0, time.Time{}, time.Time{}, s.limitsOf(first), d
	switch {
	case err != nil:
		n.fail(asked, d, err)
	case d.Allowed:
		s.share(n, d, asked)
		if n.left = d.Remaining; n.left <= 0 {
			n.wait(now, d.ResetAfter, 1)
			n.look = n.look.Add(min(yieldMost, d.Window/yieldPart))
		}
	case len(asked) > 1: // others were faster: ask about the first one
	case d.Reason == core.ReasonLimited:
		turn = n.passedBy(first, d, now)
		n.head = first
		n.wait(now, d.RetryAfter, first.cost)
		n.look = now.Add(s.l.refusals.certain(n.by.limits, d.RetryAfter))
	default:
		first.answered(n, d, nil)
	}
	s.refuseLate(n, now)
	if n.again || !n.due.IsZero() && n.first != nil && !n.first.waits(n) {
		n.forget()
	}
	n.look = earlier(n.look, now.Add(s.longest()))
	if first.over { // it is served, or cannot be
		turn = 0
	}
	return turn
}

// longest is the longest time until a line is asked about.
func (s *lines) longest() time.Duration {
	if s.l.Engine().HasClock() {
		return lookAfterClock
	}
	return lookAfter
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// share gives each of those who were asked about together their part of what was taken.
func (s *lines) share(n *line, all *core.Decision, asked []*waiter) {
	took, counted := core.ClaimOf[*taken](*all)
	left := all.Remaining
	for i := len(asked) - 1; i >= 0; i-- {
		w, part := asked[i], all
		if len(asked) > 1 {
			own := *all
			part = &own
			part.Remaining, part.Attempt.Cost = left, w.cost
			if counted {
				part.SetClaim(&taken{limitSet: took.limitSet, stamp: took.stamp, rest: took.rest, local: took.local})
			}
		}
		if w.over {
			s.giveBack(n, *part)
		} else {
			w.answered(n, part, nil)
		}
		left += w.cost
	}
}

// errPanicked is wrapped by the error of waiters about whom somebody panicked when they were asked about.
// errExited is the same for runtime.Goexit.
var (
	errPanicked = errors.New("panic")
	errExited   = errors.New("the goroutine that asked was ended")
)

// fail answers those who were asked about. When Redis has not answered, it answers all: nobody waits behind
// the timeouts of others.
func (n *line) fail(asked []*waiter, d *core.Decision, err error) {
	for _, w := range asked {
		w.answered(n, d, err)
	}
	if !errors.Is(err, errLimits) && !errors.Is(err, errPanicked) && !errors.Is(err, errExited) {
		for n.first != nil {
			n.first.answered(n, d, err)
		}
	}
}

// decideFor decides about the first of the waiters together: about all that have the same limits.
func (s *lines) decideFor(
	ctx context.Context, n *line, asked []*waiter,
) (same int, d core.Decision, err error) {
	same = len(asked)
	defer func() {
		if value := recover(); value != nil { // of the application's function, or of a hook of the client
			err = fmt.Errorf("%w: %v", errPanicked, value)
		}
	}()
	a := core.Attempt{Actor: n.actor, Resource: n.resource, ID: n.id}
	if s.l.by != nil {
		a = asked[0].own.attempt
		same = s.alike(ctx, asked)
	}
	a.Cost = 0
	for _, w := range asked[:same] {
		a.Cost += w.cost
	}
	d, err = s.decide(ctx, a)
	return same, d, err
}

// alike returns how many of the waiters, from the first on, have the same limits now.
func (s *lines) alike(ctx context.Context, asked []*waiter) int {
	if len(asked) == 1 {
		return 1
	}
	first, err := s.l.limitsBy(ctx, asked[0].own.attempt)
	for i := 1; i < len(asked) && err == nil; i++ {
		var of *limitSet
		if of, err = s.l.limitsBy(ctx, asked[i].own.attempt); err != nil || !slices.Equal(of.limits, first.limits) {
			return i
		}
	}
	if err != nil {
		return 1
	}
	return len(asked)
}

// giveBack gives back the units of a waiter that has gone while it was asked about.
func (s *lines) giveBack(n *line, d core.Decision) {
	d.Attempt.Actor, d.Attempt.Resource = n.actor, n.resource
	var p core.Place
	p.SettleLater(s.l.phases, d, core.Rollback)
}

// wait has the line wait until so many units fit.
func (n *line) wait(now time.Time, until time.Duration, fits int64) {
	n.due, n.fits = now.Add(until), fits
	n.look = n.due
}

// forget forgets when the line is due.
func (n *line) forget() {
	n.due, n.look = time.Time{}, time.Time{}
	if !n.served {
		return
	}
	select {
	case n.wake <- struct{}{}:
	default: // it is awake already
	}
}

// refuseLate answers the first ones, and those that were not told yet, if they cannot be served before their
// deadlines.
func (s *lines) refuseLate(n *line, now time.Time) {
	if !n.due.After(now) {
		return
	}
	for n.first != nil && n.first.waits(n) && n.first.refused(n, n.due, now) {
	}
	ahead := n.units
	for w := n.unchecked; w != nil; w = w.next {
		ahead -= float64(w.cost)
	}
	for w := n.unchecked; w != nil; {
		next := w.next
		if !w.refused(n, n.earliest(ahead+float64(w.cost), s.l.algorithm == tokenBucket), now) {
			ahead += float64(w.cost)
		}
		w = next
	}
	n.unchecked = nil
}

// refused refuses a waiter that cannot be served before that moment, if it cannot wait so long.
func (w *waiter) refused(n *line, before, now time.Time) bool {
	if w.asked || elapsed(before) <= w.deadline {
		return false
	}
	d := *n.said
	d.Allowed, d.Reason, d.Source = false, core.ReasonLimited, core.SourceRemembered
	d.Remaining, d.RetryAfter, d.ResetAfter = 0, before.Sub(now), before.Sub(now)
	w.answered(n, &d, nil)
	return true
}

// earliest returns the moment before which those in line cannot all have had so many units.
func (n *line) earliest(units float64, flows bool) time.Time {
	windows := math.Floor((units - 1) / float64(n.said.Limit))
	if flows {
		windows = max(units-float64(n.fits), 0) / float64(n.said.Limit)
	}
	const longest = 100 * 365 * 24 * time.Hour
	return n.due.Add(time.Duration(min(windows*float64(n.said.Window), float64(longest))))
}

func (n *line) push(w *waiter) {
	if w.prev = n.last; w.prev == nil {
		n.first = w
	} else {
		w.prev.next = w
	}
	n.last = w
	n.units += float64(w.cost)
}

// remove takes a waiter out. The line looks at once if the one behind it may be served before.
func (n *line) remove(w *waiter) {
	if w.prev == nil {
		n.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		n.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	if n.unchecked == w {
		n.unchecked = w.next
	}
	n.units -= float64(w.cost)
	if w.prev == nil && !w.asked && !n.due.IsZero() && (n.first == nil || !n.first.waits(n)) {
		n.forget()
	}
}

// waits reports whether the waiter, as the first one, has to wait until the line is due.
func (w *waiter) waits(n *line) bool {
	return w.cost >= n.fits && (w.own == nil || slices.Equal(w.own.limits.limits, n.by.limits))
}

// answered answers a waiter, unless it is over.
func (w *waiter) answered(n *line, d *core.Decision, err error) {
	if w.over {
		return
	}
	w.over, w.answer, w.err = true, d, err
	n.remove(w)
	if w.ready != nil {
		close(w.ready)
	}
}
