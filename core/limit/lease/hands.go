package lease

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

const (
	// mostHands is for how many actors and resources a guard keeps what is in hand.
	mostHands = 1 << 16
	// batch is how many calls that give back units go out together.
	batch = 256
)

// hands has what a guard has in hand, for a bounded number of actors and resources. One sweep after another
// gives back what is over, for all of them.
type hands struct {
	g    *Guard
	of   *bounded.Map[key, *hand]
	most int // of a part of the map

	mu    sync.Mutex
	tick  time.Duration // until the next sweep; 0: there is none
	sweep int           // the number of the sweep that is due next
	back  []limit.Lot   // to be given back at once
	gives bool          // somebody does
}

func newHands(g *Guard, most int) *hands {
	return &hands{g: g, of: bounded.New[key, *hand](most), most: most / bounded.Parts}
}

// find returns the hand of a key, or nil.
func (s *hands) find(k key) *hand {
	p := s.of.Of(k)
	p.Lock()
	defer p.Unlock()
	h, _ := p.Get(k)
	return h
}

// get returns the hand of a key. Where there is no room for a new one, the least recently used one gives way.
func (s *hands) get(k key) *hand {
	p := s.of.Of(k)
	p.Lock()
	defer p.Unlock()
	h, ok := p.Get(k)
	if !ok {
		if p.Len() >= s.most {
			_, old, _ := p.RemoveOldest()
			s.giveBack(old.leave())
		}
		h = &hand{share: 1}
		p.Add(k, h)
	}
	return h
}

// leave takes the units out of a hand that is removed from the map.
func (h *hand) leave() limit.Lot {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
	return h.takeOut()
}

// drop forgets what is in hand, and what is being fetched: the log was deleted.
func (s *hands) drop(k key) {
	if h := s.find(k); h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lot = limit.Lot{}
		h.drops++
	}
}

// settle takes units that come back into a hand, or units to be charged out of it: see [limit.Ahead].
func (s *hands) settle(a core.Attempt, of limit.Limit, stamp, units int64) (rest int64) {
	h := s.find(keyOf(&a))
	if h == nil {
		return units
	}
	return h.settle(of, stamp, units, s.g.Engine().Now())
}

// giveBack gives units back in the background, together with others.
func (s *hands) giveBack(t limit.Lot) {
	if t.Units == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back = append(s.back, t)
	if !s.gives {
		s.gives = true
		s.g.After(0, s.giveAll)
	}
}

func (s *hands) giveAll(ctx context.Context) {
	for {
		s.mu.Lock()
		back := s.back
		s.back, s.gives = nil, len(back) > 0
		s.mu.Unlock()
		if len(back) == 0 {
			return
		}
		s.give(ctx, back)
	}
}

func (s *hands) give(ctx context.Context, back []limit.Lot) {
	for lots := range slices.Chunk(back, batch) {
		s.g.giveBack(ctx, nil, lots...)
	}
}

// arrange makes sure that the next sweep is a part away at most.
func (s *hands) arrange(part time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tick > 0 && s.tick <= part {
		return
	}
	s.tick = part
	s.sweepIn(part)
}

// sweepIn arranges the next sweep. The caller holds the lock.
func (s *hands) sweepIn(wait time.Duration) {
	s.sweep++
	number, due := s.sweep, time.Now().Add(wait)
	s.g.After(wait, func(ctx context.Context) { s.sweepAll(ctx, number, due) })
}

// sweepAll gives back what is over, or all if Drain has called it before it was due, and forgets hands that
// nobody has asked about for two parts.
func (s *hands) sweepAll(ctx context.Context, number int, due time.Time) {
	begun := time.Now()
	drains := begun.Before(due)
	s.mu.Lock()
	late, tick := s.sweep != number, s.tick
	if !late {
		s.tick = 0
	}
	s.mu.Unlock()
	if late && !drains {
		return // an earlier one has been arranged since
	}
	now := s.g.Engine().Now()
	var back []limit.Lot
	s.of.Each(func(p *bounded.Part[key, *hand]) {
		for k, h := range p.All() {
			lot, idle := h.swept(now, drains)
			if lot.Units > 0 {
				back = append(back, lot)
			}
			if idle {
				p.Remove(k)
			}
		}
	})
	wait := max(tick, 16*time.Since(begun)) // so that sweeps of many hands take little of a processor
	s.give(ctx, back)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !drains && s.of.Len() > 0 && (s.tick == 0 || s.tick > tick) {
		s.tick = tick
		s.sweepIn(wait)
	}
}

// swept takes the units out of the hand if they are over, or in any case, and reports whether nobody has
// asked about it for two parts. Then it must leave the map.
func (h *hand) swept(now time.Time, all bool) (out limit.Lot, idle bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all || !h.current(now) {
		out = h.takeOut()
	}
	if all {
		h.lot = limit.Lot{} // what comes back now goes to Redis
	}
	if h.asking == nil && now.Sub(h.last) > 2*h.part {
		h.gone = true
	}
	return out, h.gone
}
