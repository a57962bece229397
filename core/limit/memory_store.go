package limit

import (
	"container/heap"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// store holds the counters of at most a given number of keys. Its keys are divided among parts, each with a
// lock of its own, but the bound is one for all parts.
//
// When all places are taken, the counters that are full again first are dropped. If they are full already,
// nothing is lost. Otherwise they begin anew when their key is used again, so its actor may take the same
// units once more.
type store struct {
	most int64
	// ordered says that the time never goes back: see inOrder.
	ordered bool

	held  atomic.Int64 // never more than most
	room  sync.Mutex   // held by the one goroutine that makes room
	parts [storeParts]storePart
}

const storeParts = 64

// lingers is for how long counters that are full again stay where there is room, in microseconds. Their actor
// may be about to use them, and to make them anew costs twice as much as a check.
const lingers = 1_000_000

type storePart struct {
	sync.Mutex
	of map[uint64]*heldCounters // by the hash of the key
	// order is a heap by heldCounters.full.
	order storeOrder
	// soonest is the full of the top of order, which goroutines that make room read without the lock.
	soonest atomic.Int64
	// latest is what inOrder has returned last.
	latest int64
}

// heldCounters are the counters of a key.
type heldCounters struct {
	counters
	key  memoryKey
	next *heldCounters // of a key with the same hash
	// full is when they are full again, as it was when somebody last looked. To take units does not change it,
	// since that would cost more than to look again at the counters that are to give way.
	full int64
	at   int // the index in order
}

func newStore(most int) *store {
	s := &store{most: int64(most)}
	for i := range s.parts {
		s.parts[i].of = map[uint64]*heldCounters{}
		s.parts[i].soonest.Store(math.MaxInt64)
	}
	return s
}

// use calls f with the counters of the key, which are none if it has none, and holds what f returns. The
// part of the key is locked meanwhile. When room has to be made for a new key, f is called again, and its
// first result is forgotten.
func (s *store) use(key *memoryKey, now int64, f func(counters) counters) {
	p := s.part(key)
	p.Lock()
	defer p.Unlock()
	if s.useHeld(p, key, f) {
		return
	}
	b := f(nil)
	if len(b) == 0 {
		return
	}
	if !s.reserve() {
		p.Unlock()
		s.room.Lock()
		defer s.room.Unlock()
		for !s.reserve() {
			s.evict()
		}
		p.Lock()
		if s.useHeld(p, key, f) { // another goroutine has added it meanwhile
			s.held.Add(-1)
			return
		}
		if b = f(nil); len(b) == 0 {
			s.held.Add(-1)
			return
		}
	}
	for range 2 { // so that counters that are full again do not pile up
		if top := p.top(); top != nil && top.full <= now-lingers {
			s.remove(p, top)
		}
	}
	p.add(key.own(), b)
}

// inOrder returns now, or a later time that it has returned for a key of the same part. A call reads the
// time before it has the lock of the part, so another call may overtake it. That does not set the clock
// back. f of use calls it, so that the part is locked.
func (s *store) inOrder(key *memoryKey, now int64) int64 {
	if !s.ordered {
		return now
	}
	p := s.part(key)
	p.latest = max(p.latest, now)
	return p.latest
}

// part returns the part that may hold the counters of the key.
func (s *store) part(key *memoryKey) *storePart {
	return &s.parts[key.hash%storeParts]
}

// useHeld is use for a key that has counters, and reports whether it has. The part is locked.
func (s *store) useHeld(p *storePart, key *memoryKey, f func(counters) counters) bool {
	h := p.find(key)
	if h == nil {
		return false
	}
	if h.counters = f(h.counters); len(h.counters) == 0 {
		s.remove(p, h)
	}
	return true
}

// reserve takes a place, and reports whether there was one.
func (s *store) reserve() bool {
	for {
		held := s.held.Load()
		if held >= s.most {
			return false
		}
		if s.held.CompareAndSwap(held, held+1) {
			return true
		}
	}
}

// evict removes the counters that are full again first. It may remove none, and then has to be called
// again. The caller holds the lock room, and no part's lock.
func (s *store) evict() {
	first := &s.parts[0]
	for i := range s.parts {
		if p := &s.parts[i]; p.soonest.Load() < first.soonest.Load() {
			first = p
		}
	}
	expected := first.soonest.Load()
	if expected == math.MaxInt64 {
		runtime.Gosched() // all places are taken by goroutines that are about to add their counters
		return
	}
	first.Lock()
	defer first.Unlock()
	if top := first.top(); top != nil && top.full <= expected { // else another part may have an earlier one
		s.remove(first, top)
	}
}

// size returns the number of keys.
func (s *store) size() int { return int(s.held.Load()) }

// remove removes a key of the part, which is locked.
func (s *store) remove(p *storePart, h *heldCounters) {
	heap.Remove(&p.order, h.at)
	p.forget(h)
	p.noteSoonest()
	s.held.Add(-1)
}

// add adds a key to the part, which is locked.
func (p *storePart) add(key memoryKey, b counters) {
	h := &heldCounters{counters: b, key: key, full: b.full(), next: p.of[key.hash]}
	p.of[key.hash] = h
	heap.Push(&p.order, h)
	p.noteSoonest()
}

// find returns what the part holds of the key, or nil. The part is locked.
func (p *storePart) find(key *memoryKey) *heldCounters {
	h := p.of[key.hash]
	for h != nil && h.key != *key {
		h = h.next
	}
	return h
}

// forget takes a key out of the map. The part is locked.
func (p *storePart) forget(h *heldCounters) {
	first := p.of[h.key.hash]
	switch {
	case first != h:
		for first.next != h {
			first = first.next
		}
		first.next = h.next
	case h.next != nil:
		p.of[h.key.hash] = h.next
	default:
		delete(p.of, h.key.hash)
	}
}

// top returns the counters of the part that are full again first, or nil. The part is locked.
func (p *storePart) top() *heldCounters {
	if len(p.order) == 0 {
		return nil
	}
	for {
		h := p.order[0]
		full := h.counters.full()
		later := full > h.full
		h.full = full
		if !later {
			p.noteSoonest()
			return h
		}
		heap.Fix(&p.order, 0)
	}
}

func (p *storePart) noteSoonest() {
	soonest := int64(math.MaxInt64)
	if len(p.order) > 0 {
		soonest = p.order[0].full
	}
	p.soonest.Store(soonest)
}

// storeOrder implements [heap.Interface].
type storeOrder []*heldCounters

func (o storeOrder) Len() int           { return len(o) }
func (o storeOrder) Less(i, j int) bool { return o[i].full < o[j].full }
func (o storeOrder) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].at, o[j].at = i, j
}

func (o *storeOrder) Push(x any) {
	h := x.(*heldCounters)
	h.at = len(*o)
	*o = append(*o, h)
}

func (o *storeOrder) Pop() any {
	last := len(*o) - 1
	h := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return h
}
