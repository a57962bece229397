package limit

import (
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

// heard is what Redis has said about the limit that was binding for an attempt.
type heard struct {
	limit  Limit // the zero value: nothing
	at     int64 // when the answer arrived
	left   int64
	more   int64 // so many units more are left in resets
	resets int64
}

// lastAnswers are the last answers of Redis that the counters in the process have not gone on from yet. A
// key has one answer per window. There are as many keys as the process counts. Each check notes its answer,
// so that costs little; in an outage counters are made of it.
type lastAnswers struct {
	of *bounded.Map[string, lastAnswer]
}

type lastAnswer struct {
	heard
	others []heard // about other windows; it is not changed
}

// newLastAnswers has room for twice as many keys: they do not spread evenly over the parts of the map.
func newLastAnswers(keys int) *lastAnswers {
	room := max(keys+min(keys, 1<<20), 16*bounded.Parts)
	return &lastAnswers{bounded.New[string, lastAnswer](room)}
}

// note notes the answer to an attempt of this cost by the actor of the tag.
func (s *lastAnswers) note(tag string, l Limit, v verdict, cost, now int64) {
	h := heard{limit: l, at: now, left: v.remaining, more: 1, resets: v.resets}
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
	case known.limit.Window != l.Window && known.limit.Window > 0:
		known.others = append(without(known.others, l.Window), known.heard)
		known.others = known.others[max(0, len(known.others)-manyWindows):]
	}
	known.heard = h
	p.Add(tag, known)
}

// without returns a copy of the answers without those about a window.
func without(others []heard, window time.Duration) []heard {
	kept := make([]heard, 0, len(others)+1) // with room for another
	for _, h := range others {
		if h.limit.Window != window {
			kept = append(kept, h)
		}
	}
	return kept
}

// take returns the answers about the actor of the tag, and forgets them.
func (s *lastAnswers) take(tag string) (known lastAnswer) {
	p := s.of.Of(tag)
	p.Lock()
	defer p.Unlock()
	if known, _ = p.Get(tag); known.limit.Window > 0 {
		p.Add(tag, lastAnswer{}) // the next answer needs the place again
	}
	return known
}

// goOn makes the counters go on from the answers.
func (m *memory) goOn(held counters, known lastAnswer) counters {
	if known.limit.Window == 0 {
		return held
	}
	for _, h := range append(known.others, known.heard) {
		of := []Limit{h.limit}
		held = m.withCounters(held, of, h.at)
		c := held.of(h.limit)
		if m.store.ordered { // the answer may have arrived while a unit was taken here
			h.at = max(h.at, c.full(h.limit)-h.limit.Window.Microseconds())
		}
		c.hear(of, h)
	}
	return held
}

// hear is what Redis has said of this limit. While units count that were taken inside the process, of which
// Redis does not know, it only makes what is left less.
func (c *windowCounter) hear(of []Limit, h heard) {
	l := of[0]
	left := min(max(h.left, 0), l.Max-1) // the attempt took a unit, or found too few
	c.align(of, h.at)
	if c.until <= h.at {
		c.seed(l, h.at, left, h.more, min(h.resets, l.Window.Microseconds()))
	} else if mine, _ := c.look(l, h.at, 0); mine > left {
		c.take(of, h.at, mine-left, true)
	}
}
