package limit

import (
	"crypto/sha256"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"slices"
	"strings"
)

// memory is what a limiter counts inside the process, in an engine without Redis or while Redis can not be asked.
type memory struct {
	newCounter func() counter
	budgets    *bounded.Map[memoryKey, budget]
}

// counter is what one limit has counted of one actor and resource, as its algorithm's scripts do. Its zero value is what a missing
// key is to a script. Moments are microseconds since 1970. It is used under its shard's lock.
type counter interface {
	// look returns how many units are left, at least need of them or how long to wait for that many, and the moment by which a
	// refund knows units that are taken now. It changes nothing.
	look(l Limit, now, need int64) (left, wait, moment int64)
	// take takes units that look has found. moment is the latest that look has returned for any of the attempt's limits.
	take(l Limit, now, moment, cost int64)
	// refused is told when an attempt was refused, for what a script clears away then.
	refused(l Limit, now int64)
	// giveBack gives back units that were taken at the moment stamp, as far as they are not back already.
	giveBack(l Limit, now, stamp, cost int64)
}

// budget has the counters of one actor and resource, one for each window.
type budget []windowCounter

type windowCounter struct {
	Limit // without its Max, which may change
	counter
}

// windowOf is what a limit's counter is known by, as limitSet.windows is what its key is named by.
func windowOf(l Limit) Limit {
	l.Max = 0
	return l
}

// of returns the counter of a limit, nil when there is none.
func (b budget) of(l Limit) counter {
	for i := range b {
		if b[i].Limit == windowOf(l) {
			return b[i].counter
		}
	}
	return nil
}

// memoryKey names a budget. Text that is longer than maxPlain is hashed, and marked as such: no other text is like it.
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

// own returns the key with text of its own: a caller's may be a part of a much larger one, which must not stay because of it.
func (k memoryKey) own() memoryKey {
	k.resource, k.actor = strings.Clone(k.resource), strings.Clone(k.actor)
	return k
}

// verdict is what a limiter's script returns: moment is the stamp when allowed, else how long to wait, in microseconds.
type verdict struct {
	allowed   bool
	limit     int // which one speaks
	remaining int64
	moment    int64
}

func newMemory(newCounter func() counter, keys int) *memory {
	return &memory{newCounter: newCounter, budgets: bounded.New[memoryKey, budget](keys)}
}

// decide decides an attempt at now and takes its units when it is allowed. A cost of 0 takes none, and the verdict is whether one
// unit would be allowed.
func (m *memory) decide(a core.Attempt, limits []Limit, cost, now int64) verdict {
	key := memoryKeyOf(a)
	s := m.budgets.Of(key)
	s.Lock()
	defer s.Unlock()

	kept, found := s.Get(key)
	b, changed := m.withCounters(kept, limits, now)
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

// manyWindows is how many windows a budget counts before it looks which of them it still needs. More come from limits by attempt only.
const manyWindows = 16

// withCounters returns the budget with a counter for each limit, and whether that is another one than before.
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

// idle reports whether all units are back, so that the counter is as good as a new one.
func (c windowCounter) idle(now int64) bool {
	l := c.Limit
	l.Max = 1
	left, _, _ := c.look(l, now, 1)
	return left == 1
}

// weigh finds the limit that speaks, as the scripts do: of those that refuse the one that does so for the longest time, else the one
// with least left.
func (b budget) weigh(limits []Limit, cost, now int64) verdict {
	need := max(cost, 1)
	speaks, moment := -1, now
	var refused bool
	var remaining, retry int64
	for i, l := range limits {
		left, wait, stamp := b.of(l).look(l, now, need)
		moment = max(moment, stamp)
		if left < need {
			if !refused || wait > retry {
				refused, speaks, remaining, retry = true, i, left, wait
			}
		} else if !refused && (speaks < 0 || left-cost < remaining) {
			speaks, remaining = i, left-cost
		}
	}
	if refused {
		moment = retry
	}
	return verdict{allowed: !refused, limit: speaks, remaining: remaining, moment: moment}
}

// giveBack gives back what an attempt took at the moment stamp.
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

// forget drops what was counted by the limits.
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
