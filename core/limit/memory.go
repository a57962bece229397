package limit

import (
	"cmp"
	"crypto/sha256"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// memory counts the units of a limiter inside the process, on an engine without Redis or while Redis cannot
// be asked.
type memory struct {
	newCounter func() counter
	budgets    *budgets
	// alone is whether there is no Redis. Then all limits of a sliding window count all units of an actor, as
	// the views of a log in Redis do: see complete. Beside Redis a counter holds what was heard of its limit.
	alone bool
}

// counter counts the units of one limit for one actor and resource, as the scripts of its algorithm do. Its
// zero value stands for a missing key. Moments are microseconds since 1970. The caller holds the lock of the
// part of the budgets in which the counter is.
type counter interface {
	// align makes the counter one of this limit, whose Max and Resolution may have changed, and one of the
	// past where the clock was set back.
	align(l Limit, now int64)
	// look returns how many units are left, how long to wait for need units if fewer are left, and the stamp
	// of units that are taken now. It changes nothing.
	look(l Limit, now, need int64) (left, wait, moment int64)
	// take takes units that look has found. moment is the latest that look has returned for any of the
	// attempt's limits.
	take(l Limit, now, moment, cost int64)
	// refused is called after a refusal, and drops what a script drops then.
	refused(l Limit, now int64)
	// giveBack returns units with the given stamp, except those that no longer count.
	giveBack(l Limit, now, stamp, cost int64)
	// charge takes units at now, whether or not look finds them.
	charge(l Limit, now, units int64)
	// full returns from when on all units are there again, 0 if they are. After the clock was set back it may
	// be too late, until align is called.
	full(l Limit) int64
	// seed makes the counter one that has left units, fewer than Max, and gets more units in resets. The
	// others count as taken now.
	seed(l Limit, now, left, more, resets int64)
}

// budget holds the counters of one actor and resource, one per window.
type budget []windowCounter

type windowCounter struct {
	window time.Duration // of the limit, by which limitSet.windows identifies its key too
	counter
	// until is when the last units that decide has taken no longer count.
	until int64
	// missed is whether other limits have taken units since, which this one does not have.
	missed bool
}

// of returns the counter of a limit, or nil.
func (b budget) of(l Limit) *windowCounter {
	for i := range b {
		if b[i].window == l.Window {
			return &b[i]
		}
	}
	return nil
}

// full returns from when on the budget equals a new one.
func (b budget) full() int64 {
	full := int64(0)
	for _, c := range b {
		full = max(full, c.full(Limit{Window: c.window}))
	}
	return full
}

// memoryKey identifies a budget. Text longer than script.MaxPlain is hashed and marked as hashed, so that no
// other text equals it.
type memoryKey struct {
	resource, actor             string
	resourceHashed, actorHashed bool
	hash                        uint64 // of the texts
}

// memorySeed is random, so that nobody can choose actors whose budgets get in each other's way.
var memorySeed = maphash.MakeSeed()

func memoryKeyOf(a *core.Attempt) (k memoryKey) {
	k.resource, k.resourceHashed = shorten(a.Resource)
	k.actor, k.actorHashed = shorten(a.Actor)
	k.hash = maphash.String(memorySeed, k.actor)
	if k.resource != "" {
		k.hash = 31*k.hash + maphash.String(memorySeed, k.resource)
	}
	return k
}

func shorten(text string) (short string, hashed bool) {
	if len(text) <= script.MaxPlain {
		return text, false
	}
	sum := sha256.Sum256([]byte(text))
	return string(sum[:]), true
}

// own returns the key with copied text. The caller's text may be part of a much larger string, which the key
// must not keep in memory.
func (k memoryKey) own() memoryKey {
	k.resource, k.actor = strings.Clone(k.resource), strings.Clone(k.actor)
	return k
}

// verdict is what a limiter's script returns. If allowed, moment is the stamp, else the wait, in
// microseconds.
type verdict struct {
	allowed   bool
	binding   int // the index of the binding limit
	remaining int64
	moment    int64
	resets    int64 // if allowed, the microseconds until the binding limit has a unit more, 0 if it has all
	rest      int64 // see taken.rest
}

func newMemory(newCounter func() counter, keys int, alone bool) *memory {
	return &memory{newCounter: newCounter, budgets: newBudgets(keys), alone: alone}
}

// decide decides an attempt at now and takes its units if it is allowed. A cost of 0 takes none, and the
// verdict is about an attempt of one unit.
func (m *memory) decide(a *core.Attempt, limits []Limit, cost, now int64) (v verdict) {
	key := memoryKeyOf(a)
	m.budgets.use(&key, now, func(held budget) budget {
		now = m.budgets.inOrder(&key, now)
		b := m.withCounters(held, limits, now)
		for _, l := range limits {
			b.of(l).align(l, now)
		}
		v = b.weigh(limits, cost, now)
		switch {
		case cost == 0:
			v.resets = b.resets(limits[v.binding], now, v.remaining)
			return held
		case v.allowed:
			for _, l := range limits {
				c := b.of(l)
				c.take(l, now, v.moment, cost)
				c.until = now + l.Window.Microseconds()
			}
			if m.alone {
				b.others(limits, now, func(s *slidingLog) { s.charge(Limit{}, now, cost) })
			}
			v.resets = b.resets(limits[v.binding], now, v.remaining)
			return b
		default:
			for _, l := range limits {
				b.of(l).refused(l, now)
			}
			return held
		}
	})
	return v
}

// manyWindows is the number of windows from which on a budget drops idle ones before it adds another. Only a
// Func leads to that many.
const manyWindows = 16

// withCounters returns the budget with a counter for each limit. It does not change the one that is kept. A
// sliding window whose counter is new, or was not asked for in a window, begins with what the others have.
func (m *memory) withCounters(kept budget, limits []Limit, now int64) budget {
	b, changed := kept, false
	for _, l := range limits {
		c := b.of(l)
		if c != nil && !c.missed {
			continue
		}
		if !changed {
			changed = true
			b = make(budget, 0, len(kept)+len(limits))
			for _, c := range kept {
				if len(kept) < manyWindows || !c.idle(now) {
					b = append(b, c)
				}
			}
		}
		added := windowCounter{window: l.Window, counter: m.newCounter()}
		if log, ok := added.counter.(*slidingLog); ok && m.alone {
			log.copyFrom(b.source(), l, now)
		}
		if c = b.of(l); c != nil {
			*c = added
		} else {
			b = append(b, added)
		}
	}
	return b
}

// source returns the log with the longest window of those that have all units, or nil.
func (b budget) source() *slidingLog {
	var source *slidingLog
	var window time.Duration
	for _, c := range b {
		if log, ok := c.counter.(*slidingLog); ok && !c.missed && c.window > window {
			source, window = log, c.window
		}
	}
	return source
}

// others calls f with the logs of sliding windows that are not among the limits. It leaves out those that
// were not asked for in a window: they miss what happens from now on.
func (b budget) others(limits []Limit, now int64, f func(*slidingLog)) {
	for i := range b {
		c := &b[i]
		log, ok := c.counter.(*slidingLog)
		if !ok || c.missed || slices.ContainsFunc(limits, func(l Limit) bool { return l.Window == c.window }) {
			continue
		}
		if c.missed = c.until <= now; !c.missed {
			f(log)
		}
	}
}

// idle reports whether no unit counts any more, so that the counter equals a new one.
func (c windowCounter) idle(now int64) bool {
	left, _, _ := c.look(Limit{Max: 1, Window: c.window}, now, 1)
	return left == 1
}

// weigh finds the binding limit, as the scripts do: of the limits that refuse, the one with the longest wait;
// if none does, the limit with the fewest units left.
func (b budget) weigh(limits []Limit, cost, now int64) verdict {
	need := max(cost, 1)
	binding, moment := -1, now
	var refused bool
	var remaining, retry int64
	for i, l := range limits {
		left, wait, stamp := b.of(l).look(l, now, need)
		moment = max(moment, stamp)
		if left < need {
			if !refused || wait > retry {
				refused, binding, remaining, retry = true, i, left, wait
			}
		} else if !refused && (binding < 0 || left-cost < remaining) {
			binding, remaining = i, left-cost
		}
	}
	if refused {
		moment = retry
	}
	return verdict{allowed: !refused, binding: binding, remaining: remaining, moment: moment}
}

// resets returns how long it takes until a limit that has left units has one more, in microseconds.
func (b budget) resets(l Limit, now, left int64) int64 {
	if left >= l.Max {
		return 0
	}
	_, wait, _ := b.of(l).look(l, now, left+1)
	return wait
}

// hear lets the counter of the binding limit go on from what Redis has answered to an attempt. The answer
// says nothing about the other limits.
func (m *memory) hear(a *core.Attempt, limits []Limit, v verdict, now int64) {
	binding, more, resets := limits[v.binding:v.binding+1], int64(1), v.resets
	if !v.allowed {
		resets = v.moment // until the cost fits
		more = max(a.Cost-max(v.remaining, 0), 1)
	}
	key := memoryKeyOf(a)
	m.budgets.use(&key, now, func(held budget) budget {
		now = m.budgets.inOrder(&key, now)
		b := m.withCounters(held, binding, now)
		b.of(binding[0]).hear(binding[0], now, v.remaining, more, resets)
		return b
	})
}

// hear is what Redis has said of this limit. While units count that were taken inside the process, of which
// Redis does not know, it only makes what is left less.
func (c *windowCounter) hear(l Limit, now, left, more, resets int64) {
	left = min(max(left, 0), l.Max-1) // the attempt took a unit, or found too few
	c.align(l, now)
	if c.until <= now {
		c.seed(l, now, left, more, min(resets, l.Window.Microseconds()))
	} else if mine, _, _ := c.look(l, now, 0); mine > left {
		c.take(l, now, now, mine-left)
	}
}

// giveBack returns units of those that an attempt took at stamp.
func (m *memory) giveBack(a *core.Attempt, limits []Limit, now, stamp, units int64) {
	key := memoryKeyOf(a)
	m.budgets.use(&key, now, func(held budget) budget {
		now = m.budgets.inOrder(&key, now)
		for _, l := range limits {
			if c := held.of(l); c != nil {
				c.giveBack(l, now, stamp, units)
			}
		}
		for i := range held {
			c := &held[i]
			log, ok := c.counter.(*slidingLog)
			if ok && m.alone && !slices.ContainsFunc(limits, func(l Limit) bool { return l.Window == c.window }) {
				log.remove(stamp, units)
			}
		}
		return held
	})
}

// charge takes units that an attempt has cost beyond those that it took.
func (m *memory) charge(a *core.Attempt, limits []Limit, now, units int64) {
	key := memoryKeyOf(a)
	m.budgets.use(&key, now, func(held budget) budget {
		now = m.budgets.inOrder(&key, now)
		b := m.withCounters(held, limits, now)
		if _, ok := b.of(limits[0]).counter.(*slidingLog); ok { // more would change nothing
			largest := slices.MaxFunc(limits, func(l, other Limit) int { return cmp.Compare(l.Max, other.Max) })
			units = min(units, largest.Max)
		}
		for _, l := range limits {
			c := b.of(l)
			c.charge(l, now, units)
			c.until = now + l.Window.Microseconds()
		}
		if m.alone {
			b.others(limits, now, func(s *slidingLog) { s.charge(Limit{}, now, units) })
		}
		return b
	})
}

// forget drops the counters of the limits; of a sliding window all, which have the same units.
func (m *memory) forget(a *core.Attempt, limits []Limit, now int64) {
	key := memoryKeyOf(a)
	m.budgets.use(&key, now, func(held budget) budget {
		return slices.DeleteFunc(slices.Clone(held), func(c windowCounter) bool {
			if _, ok := c.counter.(*slidingLog); ok && m.alone {
				return true
			}
			return slices.ContainsFunc(limits, func(l Limit) bool { return l.Window == c.window })
		})
	})
}
