package limit

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

// heard is what Redis has said about the limit that was binding for an attempt.
type heard struct {
	limit  Limit
	at     int64 // when the answer arrived
	left   int64
	more   int64 // so many units more are left in resets
	resets int64
	tick   uint64 // differs between answers; 0: nothing was heard
}

// lastAnswers are the last answers of Redis, one per actor and window. Each check notes its answer, so that
// costs little; in an outage the counters of the process go on from it.
type lastAnswers struct {
	of    *bounded.Map[string, lastAnswer]
	ticks atomic.Uint64
}

type lastAnswer struct {
	heard
	others []heard // about other windows; it is not changed
}

// newLastAnswers has room for more keys: they do not spread evenly over the parts of the map. With twice as
// many, and 48 more in each part at least, a part is too small once in 10^7 processes.
func newLastAnswers(keys int) *lastAnswers {
	more := min(max(keys, 48*bounded.Parts), 1<<20)
	return &lastAnswers{of: bounded.New[string, lastAnswer](keys + more)}
}

// note notes the answer to an attempt of this cost by the actor of the tag.
func (s *lastAnswers) note(tag string, l Limit, v verdict, cost, now int64) {
	h := heard{limit: l, at: now, left: v.remaining, more: 1, resets: v.resets, tick: s.ticks.Add(1)}
	if !v.allowed {
		h.more, h.resets = max(cost-max(v.remaining, 0), 1), v.moment // until the cost fits
	}
	p := s.of.Of(tag)
	p.Lock()
	defer p.Unlock()
	known, ok := p.Get(tag)
	switch {
	case !ok:
		tag = strings.Clone(tag) // the caller's may be a part of a longer text
	case known.tick > 0 && known.limit.Window != l.Window:
		known.others = append(without(known.others, l.Window), known.heard)
		known.others = known.others[max(0, len(known.others)-manyWindows):]
	}
	known.heard = h
	p.Add(tag, known)
}

// without returns a copy of the answers without those about a window, with room for another.
func without(others []heard, window time.Duration) []heard {
	kept := make([]heard, 0, len(others)+1)
	for _, h := range others {
		if h.limit.Window != window {
			kept = append(kept, h)
		}
	}
	return kept
}

// find returns the answers about the actor of the tag.
func (s *lastAnswers) find(tag string) lastAnswer {
	p := s.of.Of(tag)
	p.Lock()
	defer p.Unlock()
	known, _ := p.Get(tag)
	return known
}

// forget forgets the answers about the limits of the actor of the tag.
func (s *lastAnswers) forget(tag string, limits []Limit) {
	p := s.of.Of(tag)
	p.Lock()
	defer p.Unlock()
	known, _ := p.Get(tag)
	for _, l := range limits {
		known.others = without(known.others, l.Window)
		if known.limit.Window == l.Window {
			known.heard = heard{}
		}
	}
	if known.tick == 0 && len(known.others) == 0 {
		p.Remove(tag)
	} else {
		p.Add(tag, known)
	}
}

// goOn makes the counters go on from the answers that are new to them. It returns the counters, and now, or
// the moment of the last of these answers: one may arrive after the caller has read the time.
func (m *memory) goOn(held counters, known lastAnswer, now int64) (counters, int64) {
	for i := -1; i < len(known.others); i++ {
		h := known.heard
		if i >= 0 {
			h = known.others[i]
		}
		if h.tick == 0 {
			continue
		}
		of := []Limit{h.limit}
		held = m.withCounters(held, of, h.at)
		c := held.of(h.limit)
		if c.heard == h.tick {
			continue
		}
		if m.store.ordered { // the answer may have arrived before a unit was taken here
			h.at = max(h.at, c.used)
			now = max(now, h.at)
		}
		c.hear(of, h)
		c.heard = h.tick
	}
	return held, now
}

// hear is what Redis has said of this limit. While units count that were taken inside the process, of which
// Redis does not know, it only makes what is left less.
func (c *windowCounter) hear(of []Limit, h heard) {
	l := of[0]
	left := min(max(h.left, 0), l.Max-1) // the attempt took a unit, or found too few
	c.align(of, h.at)
	c.used = h.at
	if c.until <= h.at {
		c.seed(l, h.at, left, h.more, min(h.resets, l.Window.Microseconds()))
	} else if mine, _ := c.look(l, h.at, 0); mine > left {
		c.take(of, h.at, mine-left, true)
	}
}
