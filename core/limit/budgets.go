package limit

import (
	"container/heap"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// budgets holds at most a given number of budgets. Its keys are divided among parts, each with a lock of its
// own, but the bound is one for all parts: a map of n budgets holds any n.
//
// When all places are taken, the budget that is full again first gives way: one that is full again already is
// no loss. A budget that is not full begins anew when it is used again, so its actor may take the units that
// it had taken once more.
type budgets struct {
	most int64
	// ordered says that the time never goes back: see inOrder.
	ordered bool

	held  atomic.Int64 // never more than most
	room  sync.Mutex   // held by the one goroutine that makes room
	parts [budgetParts]budgetPart
}

const budgetParts = 64

// lingers is for how long a budget that is full again stays where there is room, in microseconds. Its actor
// may be about to use it, and to make it anew costs twice as much as a check.
const lingers = 1_000_000

type budgetPart struct {
	sync.Mutex
	of map[uint64]*heldBudget // by the hash of the key
	// order is a heap by heldBudget.full.
	order budgetOrder
	// soonest is the full of the top of order, which goroutines that make room read without the lock.
	soonest atomic.Int64
	// latest is what inOrder has returned last.
	latest int64
}

// heldBudget is a budget in a part.
type heldBudget struct {
	budget
	key  memoryKey
	next *heldBudget // of a key with the same hash
	// full is when the budget is full again, as it was when somebody last looked. To take units does not
	// change it, since that would cost more than to look again at the budget that is to give way.
	full int64
	at   int // the index in order
}

func newBudgets(most int) *budgets {
	s := &budgets{most: int64(most)}
	for i := range s.parts {
		s.parts[i].of = map[uint64]*heldBudget{}
		s.parts[i].soonest.Store(math.MaxInt64)
	}
	return s
}

// use calls f with the budget of the key, which is empty if there is none, and holds what f returns, or
// nothing if that is empty. The part of the key is locked meanwhile. When there has to be made room for a new
// budget, f is called again, and what it returned first is forgotten.
func (s *budgets) use(key *memoryKey, now int64, f func(budget) budget) {
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
	for range 2 { // so that budgets that are full again do not pile up
		if top := p.top(); top != nil && top.full <= now-lingers {
			s.remove(p, top)
		}
	}
	p.add(key.own(), b)
}

// inOrder returns now, or a later time that it has returned for a key of the same part. A call reads the time
// before it has the lock of the part, so another one may overtake it; that does not set the clock back. f of
// use calls it, so that the part is locked.
func (s *budgets) inOrder(key *memoryKey, now int64) int64 {
	if !s.ordered {
		return now
	}
	p := s.part(key)
	p.latest = max(p.latest, now)
	return p.latest
}

// part returns the part that may hold the budget of the key.
func (s *budgets) part(key *memoryKey) *budgetPart {
	return &s.parts[key.hash%budgetParts]
}

// useHeld is use for a budget that is held, and reports whether it is. The part is locked.
func (s *budgets) useHeld(p *budgetPart, key *memoryKey, f func(budget) budget) bool {
	h := p.find(key)
	if h == nil {
		return false
	}
	if h.budget = f(h.budget); len(h.budget) == 0 {
		s.remove(p, h)
	}
	return true
}

// reserve takes a place, and reports whether there was one.
func (s *budgets) reserve() bool {
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

// evict removes the budget that is full again first. It may remove none, and then has to be called again. The
// caller holds the lock room, and that of no part.
func (s *budgets) evict() {
	first := &s.parts[0]
	for i := range s.parts {
		if p := &s.parts[i]; p.soonest.Load() < first.soonest.Load() {
			first = p
		}
	}
	expected := first.soonest.Load()
	if expected == math.MaxInt64 {
		runtime.Gosched() // all places are taken by goroutines that are about to add their budgets
		return
	}
	first.Lock()
	defer first.Unlock()
	if top := first.top(); top != nil && top.full <= expected { // else another part may have an earlier one
		s.remove(first, top)
	}
}

// size returns the number of budgets.
func (s *budgets) size() int { return int(s.held.Load()) }

// remove removes a budget of the part, which is locked.
func (s *budgets) remove(p *budgetPart, h *heldBudget) {
	heap.Remove(&p.order, h.at)
	p.forget(h)
	p.noteSoonest()
	s.held.Add(-1)
}

// add adds a budget to the part, which is locked.
func (p *budgetPart) add(key memoryKey, b budget) {
	h := &heldBudget{budget: b, key: key, full: b.full(), next: p.of[key.hash]}
	p.of[key.hash] = h
	heap.Push(&p.order, h)
	p.noteSoonest()
}

// find returns the budget of the key, or nil. The part is locked.
func (p *budgetPart) find(key *memoryKey) *heldBudget {
	h := p.of[key.hash]
	for h != nil && h.key != *key {
		h = h.next
	}
	return h
}

// forget takes a budget out of the map. The part is locked.
func (p *budgetPart) forget(h *heldBudget) {
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

// top returns the budget of the part that is full again first, or nil. The part is locked.
func (p *budgetPart) top() *heldBudget {
	if len(p.order) == 0 {
		return nil
	}
	for {
		h := p.order[0]
		full := h.budget.full()
		later := full > h.full
		h.full = full
		if !later {
			p.noteSoonest()
			return h
		}
		heap.Fix(&p.order, 0)
	}
}

func (p *budgetPart) noteSoonest() {
	soonest := int64(math.MaxInt64)
	if len(p.order) > 0 {
		soonest = p.order[0].full
	}
	p.soonest.Store(soonest)
}

// budgetOrder implements [heap.Interface].
type budgetOrder []*heldBudget

func (o budgetOrder) Len() int           { return len(o) }
func (o budgetOrder) Less(i, j int) bool { return o[i].full < o[j].full }
func (o budgetOrder) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].at, o[j].at = i, j
}

func (o *budgetOrder) Push(x any) {
	h := x.(*heldBudget)
	h.at = len(*o)
	*o = append(*o, h)
}

func (o *budgetOrder) Pop() any {
	last := len(*o) - 1
	h := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return h
}
