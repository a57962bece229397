package lives

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// The lives of limits: limit_definition_test.go has their definitions. Each sequence is run on Redis and on an
// engine in memory. What concerns Redis alone (a flush, a failover, a call that arrives again) the other
// does not see.
//
// A limit whose Max changes: of an exact log, of one by parts, of a fixed window, of a bucket.
var (
	_ = explore(limitLife("limit", limitKind{
		make:   func(e *core.Engine, by limit.Func) limitGuard { return limit.NewSlidingWindowBy(e, "l", by) },
		ledger: func() ledger { return &slidingLedger{part: 100, last: map[int64]int64{}} },
	}))
	_ = explore(limitLife("limit-by-parts", limitKind{
		make:   func(e *core.Engine, by limit.Func) limitGuard { return limit.NewSlidingWindowBy(e, "p", by) },
		ledger: func() ledger { return &slidingLedger{part: 10e6, last: map[int64]int64{}} },
		parts:  6,
	}))
	_ = explore(limitLife("limit-fixed-window", limitKind{
		make:   func(e *core.Engine, by limit.Func) limitGuard { return limit.NewFixedWindowBy(e, "f", by) },
		ledger: func() ledger { return &fixedLedger{} },
	}))
	_ = explore(limitLife("limit-token-bucket", limitKind{
		make:   func(e *core.Engine, by limit.Func) limitGuard { return limit.NewTokenBucketBy(e, "t", by) },
		ledger: func() ledger { return &bucketLedger{} },
	}))
	_ = explore(routesLife())
)

// A limitGuard is a rate limit of any algorithm.
type limitGuard interface {
	core.Guard
	Peek(ctx context.Context, a core.Attempt) (core.Decision, error)
	Reset(ctx context.Context, a core.Attempt) error
}

type decided = core.Decision

type limitKind struct {
	make   func(e *core.Engine, by limit.Func) limitGuard
	ledger func() ledger
	parts  int64
	routes bool // two limits of one actor
}

func limitLife(name string, kind limitKind) life {
	l := life{
		name: name,
		events: alphabet("use use3 give-back give-first-back give-back-again check-again peek reset",
			"max2 max6 just-before at earlier save failover flush"),
		same:  sameLimits,
		world: func(p *place) world { return newLimitWorld(p, kind) },
		found: []string{"use use use3 earlier give-back just-before use",
			"use3 use earlier give-first-back earlier just-before check-again",
			"use3 use earlier give-first-back flush check-again use3"},
	}
	if name == "limit" {
		l.of = []string{"limit"}
		l.row = row{
			over:      "The last unit leaves its window; `Reset`.",
			remembers: "Nothing. A changed limit counts what the former one admitted.",
			forgets:   "The units, and which windows were asked for.",
			back:      "A refund gives back nothing that was taken later, and counts once.",
		}
	}
	return l
}

// routesLife is a guard with two limits on one actor, each of a route of its own: the second may only refuse.
func routesLife() life {
	kind := limitKind{
		make:   func(e *core.Engine, by limit.Func) limitGuard { return limit.NewSlidingWindowBy(e, "r", by) },
		ledger: func() ledger { return &slidingLedger{part: 100, last: map[int64]int64{}} },
		routes: true,
	}
	return life{
		name: "limit-of-two-routes",
		events: alphabet("a b both b-later-a give-back give-first-back peek-b reset",
			"just-before at earlier flush"),
		same:  sameLimits,
		world: func(p *place) world { return newLimitWorld(p, kind) },
	}
}

// sameLimits: of two changes the later counts, and a change of Max commutes with what has no answer.
func sameLimits(a, b string) bool {
	isMax := func(e string) bool { return e == "max2" || e == "max6" }
	silent := func(e string) bool {
		return isMax(e) || slices.Contains([]string{"just-before", "at", "earlier", "save", "failover", "flush"}, e)
	}
	switch {
	case isMax(a) && isMax(b),
		a == b && slices.Contains([]string{"save", "failover", "flush", "reset", "peek"}, a),
		a == "save" && b == "failover", a == "flush" && b == "failover", a == "failover" && b == "flush":
		return true
	}
	return isMax(b) && silent(a) && a != "at" && a != "just-before" // borders are those of the limit
}

// A limitWorld is a life on Redis, and the same in memory.
type limitWorld struct {
	*place
	kind  limitKind
	sides []*limitSide

	name   string
	most   int64
	limits []limit.Limit // of the next attempt
	ids    int
	saved  *savedLimit
}

// A savedLimit is an older state of Redis.
type savedLimit struct {
	in      snapshot
	def     ledger
	settled map[int]time.Time
}

type limitSide struct {
	guard   limitGuard
	redis   bool
	def     ledger
	given   []*taking
	checks  []*taking // all that were sent, also those that were refused
	undone  []*taking
	settled map[int]time.Time // what Redis remembers of refunds
}

func newLimitWorld(p *place, kind limitKind) *limitWorld {
	w := &limitWorld{place: p, kind: kind}
	by := func(context.Context, core.Attempt) ([]limit.Limit, error) { return w.limits, nil }
	w.sides = []*limitSide{{guard: kind.make(p.Engine(), by), redis: true},
		{guard: kind.make(p.MemoryEngine(), by)}}
	return w
}

func (w *limitWorld) begin(name string) {
	w.name, w.most, w.ids, w.saved = name, 4, 0, nil
	for _, s := range w.sides {
		*s = limitSide{guard: s.guard, redis: s.redis, def: w.kind.ledger(), settled: map[int]time.Time{}}
	}
}

// of returns the limits of a route, or the limit of a life with one.
func (w *limitWorld) of(route string) []limit.Limit {
	if w.kind.routes {
		a, b := limit.Per(4, 10*time.Second), limit.Per(4, time.Minute)
		switch route {
		case "a":
			return []limit.Limit{a}
		case "both":
			return []limit.Limit{a, b}
		}
		return []limit.Limit{b}
	}
	return []limit.Limit{{Max: w.most, Window: time.Minute, Resolution: w.kind.parts}}
}

func (w *limitWorld) now() int64 { return w.Now().UnixMicro() }

func (w *limitWorld) attempt(cost int64) core.Attempt { return core.Attempt{Actor: w.name, Cost: cost} }

// end looks at what is left.
func (w *limitWorld) end() error {
	routes := []string{"a", "b"}
	if !w.kind.routes {
		routes = routes[:1]
	}
	for _, route := range routes {
		w.limits = w.of(route)
		for _, s := range w.sides {
			if told, err := w.peek(s); err != nil && !w.late() {
				return fmt.Errorf("%w (at the end: %s)", err, told)
			}
		}
	}
	return nil
}

// both does something on Redis and in memory.
func (w *limitWorld) both(do func(s *limitSide) (string, error)) (told string, err error) {
	for _, s := range w.sides {
		one, err := do(s)
		if told += one + " "; err != nil {
			if !s.redis {
				err = fmt.Errorf("%w (in memory)", err)
			}
			return told, err
		}
	}
	return told, nil
}

func (w *limitWorld) do(event string) (string, error) {
	told, err := w.event(event)
	if err != nil && w.late() {
		err = errImpossible
	}
	return told, err
}

// late reports that a life took so long that keys may be gone: they outlive their units by a second, of the
// clock of the machine.
func (p *place) late() bool { return time.Since(p.begun) > 800*time.Millisecond }

func (w *limitWorld) event(event string) (string, error) {
	w.limits = w.of("a")
	redis := w.sides[0]
	switch event {
	case "use", "use3":
		cost := int64(1)
		if event == "use3" {
			cost = 3
		}
		return w.both(func(s *limitSide) (string, error) { return w.check(s, cost) })
	case "b-later-a": // most of b's Window passes, so that b is asked for, and a keeps little of what it admits
		w.limits = w.of("b")
		told, err := w.both(func(s *limitSide) (string, error) { return w.check(s, 1) })
		if err != nil {
			return told, err
		}
		w.Pass(42 * time.Second)
		w.limits = w.of("a")
		return w.both(func(s *limitSide) (string, error) { return w.check(s, 3) })
	case "a":
		return w.both(func(s *limitSide) (string, error) { return w.check(s, 3) })
	case "b", "both":
		w.limits = w.of(event)
		return w.both(func(s *limitSide) (string, error) { return w.check(s, 1) })
	case "peek":
		return w.both(w.peek)
	case "peek-b":
		w.limits = w.of("b")
		return w.both(w.peek)
	case "give-back", "give-first-back":
		if len(redis.given) == 0 || event == "give-first-back" && len(redis.given) == 1 {
			return "", errImpossible
		}
		return w.both(func(s *limitSide) (string, error) { return w.giveBack(s, event == "give-first-back") })
	case "give-back-again":
		return w.giveBackAgain(redis)
	case "check-again":
		return w.checkAgain(redis)
	case "reset":
		return w.both(func(s *limitSide) (string, error) {
			if err := s.guard.Reset(context.Background(), w.attempt(1)); err != nil {
				return "", broken("Reset is no error", "%v", err)
			}
			if !s.redis {
				w.Clock.Advance(time.Millisecond) // so that what comes is no unit of the same moment
			}
			s.def.forget(w.now())
			return "", nil
		})
	case "max2", "max6":
		w.most = map[string]int64{"max2": 2, "max6": 6}[event]
	case "just-before", "at":
		return w.border(event == "at")
	case "earlier":
		w.Pass(-5 * time.Second)
	case "flush":
		w.Flush()
		clear(redis.settled)
		w.Clock.Advance(time.Millisecond)
		redis.def.forget(w.now())
	case "save":
		w.saved = &savedLimit{w.Save(), redis.def.clone(), cloneTimes(redis.settled)}
	case "failover":
		if w.saved == nil {
			return "", errImpossible
		}
		w.Load(w.saved.in)
		redis.def, redis.settled = w.saved.def.clone(), cloneTimes(w.saved.settled)
		w.Clock.Advance(time.Millisecond)
	}
	return "", nil
}

func cloneTimes(of map[int]time.Time) map[int]time.Time {
	c := map[int]time.Time{}
	for id, at := range of {
		c[id] = at
	}
	return c
}

// border moves the clock to the next moment at which a unit comes back, or a millisecond before.
func (w *limitWorld) border(at bool) (string, error) {
	soonest := int64(0)
	for _, l := range w.of("both") {
		for _, moment := range w.sides[0].def.borders(l) {
			if !at {
				moment -= 1000
			}
			if moment > w.now() && (soonest == 0 || moment < soonest) {
				soonest = moment
			}
		}
	}
	if soonest == 0 {
		return "", errImpossible
	}
	w.PassUntil(time.UnixMicro(soonest))
	return fmt.Sprintf("%.4f s", w.Now().Sub(epoch).Seconds()), nil
}

// fits reports whether a cost certainly fits the limits, or may, and how many units are left then.
func (w *limitWorld) fits(s *limitSide, need, at int64) (certain, may bool, least, most int64) {
	least, most = 1<<40, 1<<40
	for _, l := range w.limits {
		low, high := s.def.used(l, at)
		least, most = min(least, l.Max-high), min(most, l.Max-low)
	}
	return least >= need, most >= need, least, most
}

// judge compares a decision of an attempt with the definition.
func (w *limitWorld) judge(s *limitSide, d core.Decision, cost int64) (string, error) {
	now, need := w.now(), max(cost, 1)
	told := fmt.Sprintf("%s left %d wait %.4f", d.Reason, d.Remaining, d.RetryAfter.Seconds())
	certain, may, least, most := w.fits(s, need, now)
	switch {
	case d.Allowed && !may:
		return told, broken("No window has more than Max", "%d of %v, %d left", cost, w.limits, most)
	case !d.Allowed && certain:
		return told, broken("Nobody below Max is refused", "%d of %v, %d left", cost, w.limits, least)
	}
	if d.Allowed {
		least, most = least-cost, most-cost
	}
	if (d.Allowed || len(w.limits) == 1) && (d.Remaining < max(least, 0) || d.Remaining > max(most, 0)) {
		return told, broken("Remaining is what is left", "%d, want %d to %d", d.Remaining, max(least, 0), max(most, 0))
	}
	if !d.Allowed && least == most {
		wait, unsure := w.wait(s, need), time.Duration(0)
		if b, ok := s.def.(*bucketLedger); ok {
			unsure = time.Duration(b.unsure) * time.Microsecond
		}
		if d.RetryAfter < wait || d.RetryAfter > wait+unsure {
			return told, broken("RetryAfter is exact", "%v, want %v", d.RetryAfter, wait)
		}
	}
	return told, nil
}

// wait returns how long it is until a cost fits.
func (w *limitWorld) wait(s *limitSide, need int64) time.Duration {
	soonest := int64(0)
	for _, l := range w.limits {
		for _, at := range s.def.borders(l) {
			if _, may, _, _ := w.fits(s, need, at); may && at > w.now() && (soonest == 0 || at < soonest) {
				soonest = at
			}
		}
	}
	return time.Duration(soonest-w.now()) * time.Microsecond
}

func (w *limitWorld) check(s *limitSide, cost int64) (string, error) {
	d, err := s.guard.Check(context.Background(), w.attempt(cost))
	if err != nil {
		return "", broken("A check is no error", "%v", err)
	}
	for _, l := range w.limits {
		if cost > l.Max {
			if d.Reason != core.ReasonOverLimit {
				return string(d.Reason), broken("A cost above Max is refused as such", "%s", d.Reason)
			}
			return string(d.Reason), nil
		}
	}
	s.def.look(w.now())
	told, err := w.judge(s, d, cost)
	if err != nil {
		return told, err
	}
	w.ids++
	t := &taking{id: w.ids, d: d, limits: w.limits, cost: cost, stamp: w.now(), refund: w.Sent() - 1}
	s.checks = append(s.checks, t)
	if d.Allowed {
		s.given = append(s.given, t)
		s.def.asked(w.limits, w.now(), t.id, cost)
	} else {
		s.def.asked(w.limits, w.now(), 0, cost)
	}
	return told, nil
}

func (w *limitWorld) peek(s *limitSide) (string, error) {
	d, err := s.guard.Peek(context.Background(), w.attempt(1))
	if err != nil {
		return "", broken("A peek is no error", "%v", err)
	}
	s.def.look(w.now())
	return w.judge(s, d, 0)
}

func (w *limitWorld) giveBack(s *limitSide, first bool) (string, error) {
	if len(s.given) == 0 {
		return "", nil
	}
	place := len(s.given) - 1
	if first {
		place = 0
	}
	t := s.given[place]
	w.Clock.Advance(100 * time.Microsecond) // so that Again knows the time of the refund from that of the check
	if !s.def.giveBack(t, w.now()) {
		return "", errImpossible
	}
	s.given = slices.Delete(s.given, place, place+1)
	s.settled[t.id] = w.Now()
	call := w.Sent()
	for range 2 { // a second time it does nothing
		if err := s.guard.Settle(context.Background(), t.d, core.Rollback); err != nil {
			return "", broken("Giving back is no error", "%v", err)
		}
	}
	if s.redis {
		u := *t
		u.refund, u.when = call, w.Now()
		s.undone = append(s.undone, &u)
	}
	return "", nil
}

// giveBackAgain sends the refund before the last one again, within the time in which a client may.
func (w *limitWorld) giveBackAgain(s *limitSide) (string, error) {
	if len(s.undone) == 0 {
		return "", errImpossible
	}
	t := s.undone[max(0, len(s.undone)-2)]
	if passed := w.Now().Sub(t.when); passed > time.Minute || passed < -time.Minute {
		return "", errImpossible
	}
	if _, known := s.settled[t.id]; !known && !s.def.giveBack(t, w.now()) {
		return "", errImpossible
	}
	s.settled[t.id] = w.Now()
	if err := w.Again(t.refund); err != nil {
		return "", broken("A call that arrives twice is no error", "%v", err)
	}
	return "", nil
}

// checkAgain lets the check before the last one arrive again: it is another attempt, of which nobody hears.
func (w *limitWorld) checkAgain(s *limitSide) (string, error) {
	if len(s.checks) == 0 {
		return "", errImpossible
	}
	t := s.checks[max(0, len(s.checks)-2)]
	w.limits = t.limits
	reply, err := w.AgainFor(t.refund)
	if err != nil {
		return "", broken("A call that arrives twice is no error", "%v", err)
	}
	told := fmt.Sprint(reply)
	numbers, _ := reply.([]any)
	if len(numbers) > 0 && fmt.Sprint(numbers[0]) == "2" {
		return told, nil // the short script has left it to the long one, which nobody asks
	}
	s.def.look(w.now())
	_, allowed := reply.(string)
	switch certain, may, _, _ := w.fits(s, t.cost, w.now()); {
	case allowed && !may:
		return told, broken("No window has more than Max", "again: %d of %v", t.cost, w.limits)
	case !allowed && certain:
		return told, broken("Nobody below Max is refused", "again: %d of %v", t.cost, w.limits)
	}
	id := 0
	if allowed {
		w.ids++
		id = w.ids
	}
	s.def.asked(t.limits, w.now(), id, t.cost)
	return told, nil
}
