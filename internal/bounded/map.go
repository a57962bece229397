// Package bounded is a map that remembers a bounded number of keys.
package bounded

import (
	"hash/maphash"
	"iter"
	"sync"
)

// A Map remembers values for a bounded number of keys. Beyond that number it forgets the least recently used
// ones. It is safe for concurrent use: its keys are divided among parts, and a caller locks the part of its
// key.
type Map[K comparable, V any] struct {
	seed  maphash.Seed
	parts [Parts]Part[K, V]
}

// Parts is how many parts a Map has.
const Parts = 64

// A Part holds a part of the keys. Hold its lock while using its other methods.
type Part[K comparable, V any] struct {
	sync.Mutex
	most int
	of   map[K]*entry[K, V]
	ends entry[K, V] // closes the ring: newer is the least recently used entry, older the most recently used
}

// An entry is a key with its value, in the ring of its part.
type entry[K comparable, V any] struct {
	key          K
	value        V
	older, newer *entry[K, V]
}

// New makes a map for that many keys, rounded up to a multiple of Parts. It panics unless size is positive.
func New[K comparable, V any](size int) *Map[K, V] {
	if size <= 0 {
		panic("gatehouse: a bounded map has a positive size")
	}
	s := &Map[K, V]{seed: maphash.MakeSeed()}
	for i := range s.parts {
		p := &s.parts[i]
		p.most, p.of = (size+Parts-1)/Parts, map[K]*entry[K, V]{}
		p.ends.older, p.ends.newer = &p.ends, &p.ends
	}
	return s
}

// Of returns the part that holds the key, for the caller to lock.
func (s *Map[K, V]) Of(key K) *Part[K, V] {
	return &s.parts[s.Hash(key)%Parts]
}

// Each calls f with each part, locked. f may remove keys.
func (s *Map[K, V]) Each(f func(*Part[K, V])) {
	for i := range s.parts {
		p := &s.parts[i]
		p.Lock()
		f(p)
		p.Unlock()
	}
}

// Len returns how many keys the map holds. It locks one part after another.
func (s *Map[K, V]) Len() int {
	n := 0
	s.Each(func(p *Part[K, V]) { n += p.Len() })
	return n
}

// Hash returns a hash of the key, which is the same in this map for equal keys.
func (s *Map[K, V]) Hash(key K) uint64 { return maphash.Comparable(s.seed, key) }

// Len returns how many keys the part holds.
func (p *Part[K, V]) Len() int { return len(p.of) }

// Get returns the value of a key, which becomes the most recently used one.
func (p *Part[K, V]) Get(key K) (value V, ok bool) {
	e := p.of[key]
	if e == nil {
		return value, false
	}
	e.leave()
	e.enter(&p.ends)
	return e.value, true
}

// Has reports whether the part holds a key, and leaves its place.
func (p *Part[K, V]) Has(key K) bool { return p.of[key] != nil }

// Add sets the value of a key, which becomes the most recently used one. A key too many forgets the least
// recently used one.
func (p *Part[K, V]) Add(key K, value V) {
	e := p.of[key]
	if e != nil { // the key stays the one that it was: this one may be a part of a longer text
		e.value = value
		e.leave()
		e.enter(&p.ends)
		return
	}
	if len(p.of) == p.most { // its entry is used again
		e = p.ends.newer
		e.leave()
		delete(p.of, e.key)
	} else {
		e = &entry[K, V]{}
	}
	e.key, e.value = key, value
	p.of[key] = e
	e.enter(&p.ends)
}

// Remove forgets a key.
func (p *Part[K, V]) Remove(key K) {
	if e := p.of[key]; e != nil {
		e.leave()
		delete(p.of, key)
	}
}

// RemoveOldest forgets the least recently used key, and returns it with its value.
func (p *Part[K, V]) RemoveOldest() (key K, value V, ok bool) {
	e := p.ends.newer
	if e == &p.ends {
		return key, value, false
	}
	p.Remove(e.key)
	return e.key, e.value, true
}

// All yields the keys with their values, the least recently used one first. The key that was yielded last may
// be removed.
func (p *Part[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := p.ends.newer; e != &p.ends && yield(e.key, e.value); e = e.newer {
		}
	}
}

// enter makes the entry the most recently used one.
func (e *entry[K, V]) enter(ends *entry[K, V]) {
	e.older, e.newer = ends.older, ends
	e.older.newer, ends.older = e, e
}

func (e *entry[K, V]) leave() { e.older.newer, e.newer.older = e.newer, e.older }
