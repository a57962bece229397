package limit

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

// memory counts the units of a limiter inside the process, on an engine without Redis or while Redis cannot
// be asked.
type memory struct {
	newCounter func() counter
	budgets    *bounded.Map[memoryKey, budget]
}

// counter counts the units of one limit for one actor and resource, as the scripts of its algorithm do. Its
// zero value stands for a missing key. Moments are microseconds since 1970. The caller holds the lock of the
// counter's part of the bounded map.
type counter interface {
	// align makes the counter one of this limit, whose Max and Resolution may have changed, and one of the past
	// where the clock was set back.
	align(l Limit, now int64)
	// look returns how many units are left, how long to wait for need units if fewer are left, and the stamp of
	// units that are taken now. It changes nothing.
	look(l Limit, now, need int64) (left, wait, moment int64)
	// take takes units that look has found. moment is the latest that look has returned for any of the attempt's
	// limits.
	take(l Limit, now, moment, cost int64)
	// refused is called after a refusal, and drops what a script drops then.
	refused(l Limit, now int64)
	// giveBack returns units with the given stamp, except those that no longer count.
	giveBack(l Limit, now, stamp, cost int64)
}

// budget holds the counters of one actor and resource, one per window.
type budget []windowCounter

type windowCounter struct {
	Limit // without its Max and its Resolution, which may change
	counter
}

// windowOf returns what identifies a limit's counter, as limitSet.windows identifies its key.
func windowOf(l Limit) Limit {
	l.Max, l.Resolution = 0, 0
	return l
}

// of returns the counter of a limit, or nil.
func (b budget) of(l Limit) counter {
	for i := range b {
		if b[i].Limit == windowOf(l) {
			return b[i].counter
		}
	}
	return nil
}

// memoryKey identifies a budget. Text longer than core.MaxPlain is hashed and marked as hashed, so that no
// other text equals it.
type memoryKey struct {
	resource, actor             string
	resourceHashed, actorHashed bool
}

func memoryKeyOf(a core.Attempt) (k memoryKey) {
	k.resource, k.resourceHashed = shorten(a.Resource)
	k.actor, k.actorHashed = shorten(a.Actor)
	return k
}

func shorten(text string) (short string, hashed bool) {
	if len(text) <= core.MaxPlain {
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
}

func newMemory(newCounter func() counter, keys int) *memory {
	return &memory{newCounter: newCounter, budgets: bounded.New[memoryKey, budget](keys)}
}

// decide decides an attempt at now and takes its units if it is allowed. A cost of 0 takes none, and the
// verdict is about an attempt of one unit.
func (m *memory) decide(a core.Attempt, limits []Limit, cost, now int64) verdict {
	key := memoryKeyOf(a)
	s := m.budgets.Of(key)
	s.Lock()
	defer s.Unlock()

	kept, found := s.Get(key)
	b, changed := m.withCounters(kept, limits, now)
	for _, l := range limits {
		b.of(l).align(l, now)
	}
	v := b.weigh(limits, cost, now)
	switch {
	case cost == 0:
	case v.allowed:
		for _, l := range limits {
			b.of(l).take(l, now, v.moment, cost)
		}
		if !found {
			key = key.own()
		}
		if changed {
			s.Add(key, b)
		}
	default:
		for _, l := range limits {
			b.of(l).refused(l, now)
		}
	}
	return v
}

// manyWindows is the number of windows from which on a budget drops idle ones before it adds another. Only a
// Func leads to that many.
const manyWindows = 16

// withCounters returns the budget with a counter for each limit, and whether it differs from kept.
func (m *memory) withCounters(kept budget, limits []Limit, now int64) (b budget, changed bool) {
	b = kept
	for _, l := range limits {
		if b.of(l) != nil {
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
		b = append(b, windowCounter{windowOf(l), m.newCounter()})
	}
	return b, changed
}

// idle reports whether no unit counts any more, so that the counter equals a new one.
func (c windowCounter) idle(now int64) bool {
	l := c.Limit
	l.Max = 1
	left, _, _ := c.look(l, now, 1)
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

// giveBack returns the units that an attempt took at stamp.
func (m *memory) giveBack(a core.Attempt, limits []Limit, now, stamp int64) {
	key := memoryKeyOf(a)
	s := m.budgets.Of(key)
	s.Lock()
	defer s.Unlock()
	b, _ := s.Get(key)
	for _, l := range limits {
		if c := b.of(l); c != nil {
			c.giveBack(l, now, stamp, a.Cost)
		}
	}
}

// forget drops the counters of the limits.
func (m *memory) forget(a core.Attempt, limits []Limit) {
	key := memoryKeyOf(a)
	s := m.budgets.Of(key)
	s.Lock()
	defer s.Unlock()
	b, found := s.Get(key)
	if !found {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(b), func(c windowCounter) bool {
		return slices.ContainsFunc(limits, func(l Limit) bool { return windowOf(l) == c.Limit })
	})
	if len(rest) > 0 {
		s.Add(key, rest)
	} else {
		s.Remove(key)
	}
}
