package votes

import (
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"strings"
	"sync/atomic"
	"time"
)

// duplicates is which attempts this process remembers as duplicates, so that those who try again and again stay out of Redis.
// V is what has to be known of one to answer it.
//
// "Duplicate" can end: by what is taken back. What this process takes back drops the memory, and what is under way meanwhile; what
// others take back is seen when the time is over. Only attempts that came without an operation ID may be answered: an ID from
// outside may be that of the first attempt, which has to hear its stored answer.
type duplicates[V any] struct {
	most time.Duration // how long one is remembered at most; 0: not at all
	keys *bounded.Map[string, duplicate[V]]
	// drops counts, for each hash of keys, what has made duplicates void, so that one that was under way meanwhile is not kept.
	drops [1 << 10]atomic.Uint32
}

// duplicateKeys is how many duplicates are remembered.
const duplicateKeys = 1 << 16

// duplicate is what Redis has answered to a call that was sent at a moment.
type duplicate[V any] struct {
	value V
	sent  time.Time
}

// asked is a call that is sent to Redis: what has to be known from before.
type asked struct {
	key   string
	sent  time.Time
	drops uint32
}

// newDuplicates makes a memory for so long, a second at most.
func newDuplicates[V any](most time.Duration) *duplicates[V] {
	return &duplicates[V]{most: min(most, time.Second), keys: bounded.New[string, duplicate[V]](duplicateKeys)}
}

// find returns what is remembered of a key.
func (m *duplicates[V]) find(key string, now time.Time) (value V, found bool) {
	if m.most == 0 {
		return value, false
	}
	s := m.keys.Of(key)
	s.Lock()
	defer s.Unlock()
	known, ok := s.Get(key)
	age := now.Sub(known.sent) // negative when the clock was set back
	if !ok || age < 0 || age >= m.most {
		return value, false
	}
	return known.value, true
}

// ask has to be called before a call is sent.
func (m *duplicates[V]) ask(key string, now time.Time) asked {
	return asked{key: key, sent: now, drops: m.dropsOf(key).Load()}
}

// hear remembers that a call was refused as a duplicate.
func (m *duplicates[V]) hear(call asked, value V) {
	if m.most == 0 {
		return
	}
	s := m.keys.Of(call.key)
	s.Lock()
	defer s.Unlock()
	if m.dropsOf(call.key).Load() == call.drops {
		s.Add(strings.Clone(call.key), duplicate[V]{value, call.sent}) // the key may be a piece of a long text
	}
}

// drop forgets a key, and what is under way. It is called when what was taken may have been taken back.
func (m *duplicates[V]) drop(key string) {
	if m.most == 0 {
		return
	}
	s := m.keys.Of(key)
	s.Lock()
	defer s.Unlock()
	m.dropsOf(key).Add(1)
	s.Remove(key)
}

func (m *duplicates[V]) dropsOf(key string) *atomic.Uint32 {
	return &m.drops[m.keys.Hash(key)%uint64(len(m.drops))]
}
