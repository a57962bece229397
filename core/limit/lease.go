package limit

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

// This file hands out units of a sliding window inside the process: see Limit.WithLease. A unit of a limit by
// parts counts as taken at the end of its part. So units that a process has fetched may be handed out until
// then, and the log counts them for at least a window after that. Why no window has more than Max: take all
// units that are handed out in some window, and let m be the moment at which the last of them was fetched.
// All of them still count at m, and the script saw to it then that no more than Max did.

const (
	// leaseParts is the resolution that WithLease sets. A unit counts for up to a 20th of the window longer.
	leaseParts = 20
	// leaseLeast is how many units a part must have at the full rate, so that some can be spared.
	leaseLeast = 8
	// leaseKeys is for how many actors and resources a guard has units in hand. The least recently used one
	// gives way, and its units come back at the end of their part.
	leaseKeys = 1 << 16
	// leaseMargin is the part of the time that the process does not use, so that its clock may run a 32nd
	// slower than the server's.
	leaseMargin = 32
	// leaseWait is the longest that a check waits for units that another one fetches.
	leaseWait = 25 * time.Millisecond
)

// lends reports whether units of the limit are lent. Where a part has few units there is nothing to spare.
func (l Limit) lends() bool { return l.Lease && l.Max >= leaseLeast*l.Resolution }

// leases holds what a limiter has in hand.
type leases struct {
	name string // of the process, among those that share a limit
	of   *bounded.Map[leaseKey, *lease]
}

// leaseKey is what units are in hand for. Its window and resolution say in which log and in which parts they
// are.
type leaseKey struct {
	actor, resource string
	window          time.Duration
	resolution      int64
}

func newLeases() *leases {
	return &leases{rand.Text()[:7], bounded.New[leaseKey, *lease](leaseKeys)}
}

// lease is what the process has in hand of one limit, for one actor and resource.
type lease struct {
	mu     sync.Mutex
	hand   lot
	ahead  int64         // units to fetch for a whole part
	spared bool          // the last call has lent some, or there was none
	drops  int           // how often the units were dropped
	asking chan struct{} // closed when the call that is under way has ended; nil without one

	remaining int64     // units left in Redis, as the last call has said
	resets    time.Time // when the next unit leaves the window, as the last call has said
}

// lot is units that were fetched by one call.
type lot struct {
	units, all  int64     // that are left, and that were fetched
	max         int64     // of the limit
	part, stamp int64     // the number of the part, and the moment in it, in microseconds
	sent        time.Time // when the call was sent
	lasts       time.Duration
}

// current reports whether units may be handed out at now. The script ran after the call was sent, so the part
// ends later than by this count. The monotonic clock does not count while the machine is suspended, so the
// wall clock must not say that more has passed either.
func (u *lot) current(now time.Time) bool {
	passed := now.Sub(u.sent)
	return passed >= 0 && passed < u.lasts && now.Round(0).Sub(u.sent.Round(0)) < u.lasts
}

// get returns the lease of an attempt, or nil where the limits lend nothing.
func (all *leases) get(limits *limitSet, a core.Attempt) *lease {
	if !limits.lends {
		return nil
	}
	of := limits.limits[0]
	key := leaseKey{a.Actor, a.Resource, of.Window, of.Resolution}
	p := all.of.Of(key)
	p.Lock()
	defer p.Unlock()
	s, ok := p.Get(key)
	if !ok {
		s = &lease{ahead: 1, spared: true}
		key.actor, key.resource = strings.Clone(key.actor), strings.Clone(key.resource)
		p.Add(key, s)
	}
	return s
}

// handOut decides the attempt by what is in hand. It reports false when that is not enough. The attempt is
// decided when the clock is read: a process that is stopped before finds its units over.
func (l *limiter) handOut(s *lease, limits *limitSet, d *core.Decision) bool {
	cost, of := d.Attempt.Cost, limits.limits[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := l.Engine().Now()
	if s.hand.units < cost || s.hand.max != of.Max || !s.hand.current(now) {
		return false
	}
	s.hand.units -= cost
	fill(d, true, s.remaining+s.hand.units, 0, of)
	d.ResetAfter, d.Source = max(s.resets.Sub(now), 0), core.SourceLease
	d.SetClaim(&taken{limitSet: limits, stamp: s.hand.stamp, lease: s})
	return true
}

// join makes the caller the one that fetches units, or waits for the one that does. It reports whether the
// caller fetches; then it has to call asked.
func (l *limiter) join(ctx context.Context, s *lease) (fetches bool) {
	s.mu.Lock()
	asking, spared := s.asking, s.spared
	if asking == nil {
		s.asking = make(chan struct{})
	}
	s.mu.Unlock()
	if asking == nil || !spared {
		return asking == nil
	}
	timer := time.NewTimer(min(leaseWait, l.Engine().Deadline()/4))
	defer timer.Stop()
	select {
	case <-asking:
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// asked lets those go on who wait for the call that has ended.
func (s *lease) asked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.asking)
	s.asking = nil
}

// has reports whether the units in hand are enough for an attempt.
func (s *lease) has(cost int64, of Limit, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hand.units >= cost && s.hand.max == of.Max && s.hand.current(now)
}

// decideByLease decides an attempt by what is in hand, or by a call that fetches units: its own, or that of
// another caller, for which it waits. All calls together have the engine's deadline.
func (l *limiter) decideByLease(ctx context.Context, s *lease, limits *limitSet, d *core.Decision) error {
	if l.handOut(s, limits, d) {
		return nil
	}
	a, key, now := d.Attempt, kit.TagOf(d.Attempt), l.Engine().Now()
	if r, ok := l.refusals.find(key, limits.limits, a.Cost, now); ok {
		r.answer(d, now)
		return nil
	}
	asked := l.refusals.ask(key, now)
	ctx, cancel := context.WithTimeout(ctx, l.Engine().Deadline())
	defer cancel()
	fetches := l.join(ctx, s)
	if fetches {
		defer s.asked()
	} else if l.handOut(s, limits, d) {
		return nil
	}
	value, err := l.askLending(ctx, s, limits, a, fetches)
	if err == nil {
		err = l.hear(d, value, limits, s, asked)
	}
	if err == nil && fetches && d.Allowed { // what is in hand is left, too
		s.count(d, limits.limits[0], l.Engine().Now())
	}
	return err
}

// askLending asks Redis about an attempt, and for units ahead if the caller is the one that fetches them.
func (l *limiter) askLending(
	ctx context.Context, s *lease, limits *limitSet, a core.Attempt, fetches bool,
) (any, error) {
	if fetches {
		value, err := l.fetch(ctx, l.Engine().Deadline(), s, limits, a)
		if !isUndecided(value) {
			return value, err
		}
	}
	c := l.callOf(nil, limits, fetches, a, false, l.Engine().Deadline())
	script.Send(ctx, &c)
	return l.replyTo(ctx, &c, limits, a, false)
}

// fetch asks Redis about an attempt, and for units ahead. What is in hand goes back with the same call: it is
// too few, or its part is over. The reply is that of the other scripts.
func (l *limiter) fetch(
	ctx context.Context, within time.Duration, s *lease, limits *limitSet, a core.Attempt,
) (any, error) {
	of, sent := limits.limits[0], l.Engine().Now()
	unused, ahead, drops := s.next(a.Cost, of.Max, sent)
	keys, args := l.leaseCall(limits, a, a.Cost, ahead, unused)
	value, err := l.Engine().RunWithin(ctx, within, slidingPartsScript.check, keys, args...)
	reply, ok := value.([]any)
	if err != nil || !ok || len(reply) != 6 {
		return value, err
	}
	r := script.ReadReply(value, 6, 6)
	r.Flag()
	remaining, stamp, _, resets, units := r.Number(), r.Number(), r.Number(), r.Number(), r.Number()
	if r.Err != nil {
		return nil, r.Err
	}
	grain := of.grain()
	part := ceilDiv(stamp, grain)
	rest := script.DurationOf(part*grain-stamp, time.Microsecond)
	s.hear(lot{units, units, of.Max, part, stamp, sent, rest - rest/leaseMargin}, drops, remaining,
		l.Engine().Now().Add(script.DurationOf(resets, time.Microsecond)))
	if units > 0 { // the next call takes them back, unless there is none in the next part
		l.After(rest+script.DurationOf(grain, time.Microsecond), func(ctx context.Context) {
			l.takeBack(ctx, s, part, limits, a)
		})
	}
	return reply[:5], nil
}

// leaseCall returns the keys and the arguments of the script.
func (l *limiter) leaseCall(
	limits *limitSet, a core.Attempt, cost, ahead int64, unused lot,
) ([]string, []any) {
	tag := kit.TagOf(a)
	keys := []string{l.Key(tag, "log"), l.Key(tag, "lessees")}
	args := append([]any{limits.log.front[0], l.Engine().ScriptNow(time.Microsecond)}, limits.log.back...)
	args[len(args)-1] = fmt.Sprintf("%d %s %d %d", ahead, l.leases.name, unused.units, unused.stamp)
	return keys, append(args, cost)
}

// takeBack gives back what is in hand of a part.
func (l *limiter) takeBack(ctx context.Context, s *lease, part int64, limits *limitSet, a core.Attempt) {
	s.mu.Lock()
	unused := s.hand
	if unused.part == part {
		s.hand = lot{} // also where it is empty: what keep puts there nobody would take back
	}
	s.mu.Unlock()
	if unused.part != part || unused.units == 0 {
		return
	}
	_ = l.Call(ctx, "give_back", a, func() error { // the observer hears of an error
		keys, args := l.leaseCall(limits, a, 0, 1, unused)
		_, err := l.Engine().RunWithin(ctx, l.Engine().SettleTimeout(), slidingPartsScript.check, keys, args...)
		return err
	})
}

// next returns what to give back, and how many units to ask for: twice as many as before when they were used
// up, half when most of them were not.
func (s *lease) next(cost, most int64, now time.Time) (unused lot, ahead int64, drops int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unused, s.hand = s.hand, lot{}
	switch {
	case unused.all == 0:
	case unused.units < cost && unused.current(now):
		s.ahead = min(2*s.ahead, most)
	case unused.units > unused.all/2:
		s.ahead = max(s.ahead/2, 1)
	}
	return unused, s.ahead, s.drops
}

// hear takes what a call has fetched, unless the units were dropped since it was sent.
func (s *lease) hear(fetched lot, drops int, remaining int64, resets time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spared, s.remaining, s.resets = fetched.units > 0, remaining, resets
	if s.drops == drops && s.spared {
		s.hand = fetched
	}
}

// drop forgets what is in hand, and what is being fetched: the log was deleted.
func (s *lease) drop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hand = lot{}
	s.drops++
}

// settle takes units that come back into the hand, if that has others of the same call or of a call before.
// Those to be charged (units below 0) it takes from the hand, as far as that has them. It returns what is
// left to do in Redis.
func (s *lease) settle(took *taken, units int64, now time.Time) (rest int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := took.limits[0]
	switch {
	case !s.hand.current(now):
		return units
	case units < 0 && s.hand.max == of.Max:
		n := min(-units, s.hand.units)
		s.hand.units -= n
		return units + n
	case units > 0 && s.hand.part == ceilDiv(took.stamp, of.grain()) && took.stamp >= s.hand.stamp:
		s.hand.units += units
		return 0
	}
	return units
}

// count adds what is in hand to what a call has said is left.
func (s *lease) count(d *core.Decision, of Limit, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hand.units == 0 || s.hand.max != of.Max || !s.hand.current(now) {
		return
	}
	if !d.Allowed {
		fill(d, true, 0, 0, of)
		d.RetryAfter, d.ResetAfter = 0, max(s.resets.Sub(now), 0)
	}
	d.Remaining += s.hand.units
}

// checkLease returns an error where limits cannot lend.
func checkLease(limits []Limit) error {
	for _, l := range limits {
		if l.Lease && len(limits) > 1 {
			return fmt.Errorf("a lease of %v beside other limits: a guard that lends has one limit, "+
				"so give the others a guard and a rule of their own", l)
		}
	}
	return nil
}
