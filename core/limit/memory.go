package limit

import (
	"crypto/sha256"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// memory counts the units of a limiter inside the process, on an engine without Redis or while Redis cannot
// be asked.
type memory struct {
	newCounter func() counter
	store      *store
	last       *lastAnswers // of Redis; nil on an engine without
	// oneLog says that one counter counts for all limits: the limits of a sliding window without Redis are
	// views of one log, as in Redis. Else each window has a counter. Beside Redis it begins with the last
	// answer.
	oneLog bool
}

// counter counts the units of one actor and resource for a limit, or for all, as the scripts of its algorithm
// do. Its zero value stands for a missing key. Moments are microseconds since 1970. The caller holds the lock
// of the part of the store in which the counter is.
type counter interface {
	// align adapts the counter to these limits, whose Max and Resolution may have changed, and to a clock that
	// was set back.
	align(of []Limit, now int64)
	// look returns how many units are left, and how long to wait for need units if fewer are left. It changes
	// nothing.
	look(l Limit, now, need int64) (left, wait int64)
	// take takes units at now: those of an attempt that look has admitted, or else whether or not it finds
	// them.
	take(of []Limit, now, units int64, admitted bool)
	// giveBack returns units that were taken at stamp, except those that no longer count.
	giveBack(of []Limit, now, stamp, units int64)
	// full returns from when on all units are there again, 0 if they are. After the clock was set back it may
	// be too late, until align is called.
	full(l Limit) int64
	// seed makes the counter one that has left units, fewer than Max, and gets more units in resets. The
	// others count as taken now.
	seed(l Limit, now, left, more, resets int64)
}

// counters are those of one actor and resource.
type counters []windowCounter

type windowCounter struct {
	window time.Duration // of the limit; identifies its key too (limitSet.windows); 0: of all limits
	counter
	// until is when the last units that the process has taken leave the window.
	until int64
	used  int64  // when it was used last
	heard uint64 // the tick of the answer of Redis that it has gone on from
}

// of returns the counter of a limit, or nil.
func (b counters) of(l Limit) *windowCounter {
	for i := range b {
		if c := &b[i]; c.window == 0 || c.window == l.Window {
			return c
		}
	}
	return nil
}

// mine returns those of the limits for which the counter counts.
func (c *windowCounter) mine(limits []Limit) []Limit {
	if c.window == 0 {
		return limits
	}
	for i := range limits {
		if limits[i].Window == c.window {
			return limits[i : i+1]
		}
	}
	return nil
}

// each calls f with each counter of the limits, and those of them for which it counts.
func (b counters) each(limits []Limit, f func(c *windowCounter, of []Limit)) {
	for i := range b {
		if of := b[i].mine(limits); len(of) > 0 {
			f(&b[i], of)
		}
	}
}

// take takes units for the limits.
func (b counters) take(limits []Limit, now, units int64, admitted bool) {
	b.each(limits, func(c *windowCounter, of []Limit) {
		c.take(of, now, units, admitted)
		c.until, c.used = now+c.window.Microseconds(), now
	})
}

// full returns from when on they equal new ones.
func (b counters) full() int64 {
	full := int64(0)
	for _, c := range b {
		full = max(full, c.full(Limit{Window: c.window}))
	}
	return full
}

// memoryKey identifies an actor and a resource. Text longer than script.MaxPlain is hashed and marked as
// hashed, so that no other text equals it.
type memoryKey struct {
	resource, actor             string
	resourceHashed, actorHashed bool
	hash                        uint64 // of the texts
}

// memorySeed is random, so that nobody can choose actors whose counters get in each other's way.
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

func newMemory(newCounter func() counter, keys int, oneLog bool) *memory {
	return &memory{newCounter: newCounter, store: newStore(keys), oneLog: oneLog}
}

// use calls f with the attempt's counters, which have gone on from the last answers of Redis, and the time.
// It keeps what f returns: see store.
func (m *memory) use(a *core.Attempt, now int64, f func(held counters, now int64) counters) {
	key := memoryKeyOf(a)
	m.store.use(&key, now, func(held counters) counters {
		moment := now
		if m.last != nil {
			held, moment = m.goOn(held, m.last.find(kit.TagOf(*a)), now)
		}
		return f(held, m.store.inOrder(&key, moment))
	})
}

// decide decides an attempt at now and takes its units if it is allowed. A cost of 0 takes none, and the
// verdict is about an attempt of one unit.
func (m *memory) decide(a *core.Attempt, limits []Limit, cost, now int64) (v verdict) {
	m.use(a, now, func(held counters, now int64) counters {
		b := m.withCounters(held, limits, now)
		b.each(limits, func(c *windowCounter, of []Limit) {
			c.align(of, now)
			c.used = now
		})
		if v = b.weigh(limits, cost, now); !v.allowed {
			if log, ok := b[0].counter.(*slidingLog); ok && m.oneLog && cost > 0 {
				log.refused(limits, now)
			}
			return held
		}
		if cost > 0 {
			b.take(limits, now, cost, true)
			held = b
		}
		if l := limits[v.binding]; v.remaining < l.Max {
			_, v.resets = b.of(l).look(l, now, v.remaining+1)
		}
		return held
	})
	return v
}

// manyWindows is the number of windows from which on idle ones are dropped before another is added. Only a
// Func leads to that many.
const manyWindows = 16

// withCounters returns the counters with one for each limit. It does not change those that are kept.
func (m *memory) withCounters(kept counters, limits []Limit, now int64) counters {
	if !slices.ContainsFunc(limits, func(l Limit) bool { return kept.of(l) == nil }) {
		return kept
	}
	b := make(counters, 0, len(kept)+len(limits))
	for _, c := range kept {
		if len(kept) < manyWindows || c.full(Limit{Window: c.window}) > now {
			b = append(b, c)
		}
	}
	for _, l := range limits {
		if m.oneLog {
			l.Window = 0
		}
		if b.of(l) == nil {
			b = append(b, windowCounter{window: l.Window, counter: m.newCounter()})
		}
	}
	return b
}

// weigh finds the binding limit, as the scripts do: the limit that refuses with the longest wait, or if
// none refuses, the limit with the fewest units left.
func (b counters) weigh(limits []Limit, cost, now int64) verdict {
	need := max(cost, 1)
	v := verdict{allowed: true, binding: -1, moment: now}
	for i, l := range limits {
		left, wait := b.of(l).look(l, now, need)
		switch {
		case left < need && (v.allowed || wait > v.moment):
			v.allowed, v.binding, v.remaining, v.moment = false, i, left, wait
		case left >= need && v.allowed && (v.binding < 0 || left-cost < v.remaining):
			v.binding, v.remaining = i, left-cost
		}
	}
	return v
}

// giveBack returns units that an attempt took at stamp.
func (m *memory) giveBack(a *core.Attempt, limits []Limit, now, stamp, units int64) {
	m.use(a, now, func(held counters, now int64) counters {
		held.each(limits, func(c *windowCounter, of []Limit) { c.giveBack(of, now, stamp, units) })
		return held
	})
}

// charge takes units that an attempt has cost beyond those that it took.
func (m *memory) charge(a *core.Attempt, limits []Limit, now, units int64) {
	m.use(a, now, func(held counters, now int64) counters {
		b := m.withCounters(held, limits, now)
		b.take(limits, now, units, false)
		return b
	})
}

// forget drops the counters of the limits, and what Redis has said about them.
func (m *memory) forget(a *core.Attempt, limits []Limit, now int64) {
	m.use(a, now, func(held counters, _ int64) counters {
		if m.last != nil {
			m.last.forget(kit.TagOf(*a), limits)
		}
		return slices.DeleteFunc(slices.Clone(held), func(c windowCounter) bool { return len(c.mine(limits)) > 0 })
	})
}
