// Package bounded is a map that remembers a bounded number of keys.
package bounded

import (
	"hash/maphash"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
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

// A Part holds a part of the keys. Hold its lock while using its LRU.
type Part[K comparable, V any] struct {
	sync.Mutex
	*simplelru.LRU[K, V]
}

// New makes a map for that many keys, rounded up to a multiple of Parts. It panics unless size is positive.
func New[K comparable, V any](size int) *Map[K, V] {
	s := &Map[K, V]{seed: maphash.MakeSeed()}
	for i := range s.parts {
		lru, err := simplelru.NewLRU[K, V]((size+Parts-1)/Parts, nil)
		if err != nil {
			panic(err) // the size is not positive
		}
		s.parts[i].LRU = lru
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
