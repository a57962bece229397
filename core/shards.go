package core

import (
	"hash/maphash"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// shards is what a process remembers of keys: a map that many goroutines use at once, and that is bounded. Beyond its size it
// forgets the keys that were not used for the longest time.
type shards[K comparable, V any] struct {
	seed  maphash.Seed
	parts [shardCount]shard[K, V]
}

const shardCount = 64

// shard is one part of the keys. Its lock is held while its map is used.
type shard[K comparable, V any] struct {
	sync.Mutex
	*simplelru.LRU[K, V]
}

// newShards makes a map for so many keys, which is rounded up to a multiple of shardCount.
func newShards[K comparable, V any](size int) *shards[K, V] {
	s := &shards[K, V]{seed: maphash.MakeSeed()}
	for i := range s.parts {
		lru, err := simplelru.NewLRU[K, V]((size+shardCount-1)/shardCount, nil)
		if err != nil {
			panic(err) // only for a size that is not positive
		}
		s.parts[i].LRU = lru
	}
	return s
}

// of returns the shard of a key, for the caller to lock.
func (s *shards[K, V]) of(key K) *shard[K, V] {
	return &s.parts[s.hash(key)%shardCount]
}

// len returns how many keys there are.
func (s *shards[K, V]) len() int {
	n := 0
	for i := range s.parts {
		p := &s.parts[i]
		p.Lock()
		n += p.Len()
		p.Unlock()
	}
	return n
}

// hash returns a number that is the same for the same key, in this map.
func (s *shards[K, V]) hash(key K) uint64 { return maphash.Comparable(s.seed, key) }
