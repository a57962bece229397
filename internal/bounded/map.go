// Package bounded has a map that many goroutines use at once and that is bounded.
package bounded

import (
	"hash/maphash"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Map is a map that many goroutines use at once, and that is bounded. Beyond its size it forgets the least recently used
// keys of a shard.
type Map[K comparable, V any] struct {
	seed  maphash.Seed
	parts [Shards]Shard[K, V]
}

// Shards is the number of parts, each with a lock of its own.
const Shards = 64

// Shard is one part of the keys. Its lock is held while its map is used.
type Shard[K comparable, V any] struct {
	sync.Mutex
	*simplelru.LRU[K, V]
}

// New makes a map for so many keys, rounded up to a multiple of Shards. It panics when size is not positive.
func New[K comparable, V any](size int) *Map[K, V] {
	s := &Map[K, V]{seed: maphash.MakeSeed()}
	for i := range s.parts {
		lru, err := simplelru.NewLRU[K, V]((size+Shards-1)/Shards, nil)
		if err != nil {
			panic(err) // only for a size that is not positive
		}
		s.parts[i].LRU = lru
	}
	return s
}

// Of returns the shard of a key, for the caller to lock.
func (s *Map[K, V]) Of(key K) *Shard[K, V] {
	return &s.parts[s.Hash(key)%Shards]
}

// Len returns how many keys there are.
func (s *Map[K, V]) Len() int {
	n := 0
	for i := range s.parts {
		p := &s.parts[i]
		p.Lock()
		n += p.Len()
		p.Unlock()
	}
	return n
}

// Hash returns a number that is the same for the same key, in this map.
func (s *Map[K, V]) Hash(key K) uint64 { return maphash.Comparable(s.seed, key) }
