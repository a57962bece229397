package kit

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

// Recall remembers answers of Redis inside the process, so that a question is not repeated at once. It is a
// bounded map: when it is full, it forgets the least recently used key. It is safe for concurrent use.
//
// # Use
//
// An answer is remembered in three steps. [Recall.Ask] records the moment before the call, the call is made,
// and [Recall.Hear] stores its answer. [Recall.Find] returns the answer while it is fresh:
//
//	if left, ok := r.Find(key, now); ok {
//		return left
//	}
//	asked := r.Ask(key, now)
//	left, err := ... // the call
//	if err == nil {
//		r.Hear(asked, left, time.Second)
//	}
//
// The age of an answer counts from Ask, because the script ran after it. Times are those of [Engine.Now].
// When a clock is set back, answers with a later time are not found.
//
// # Invalidation
//
// A caller that changes what the answers depend on calls [Recall.Drop] after the change, even when it does
// not know whether the change was made. Drop forgets the answer and rejects those of calls in progress:
// Hear stores no answer if its Ask came before the last Drop of its key. Changes by other processes become
// visible when the answer expires.
//
// All callers share the values: do not modify a value, or anything it points to, once it is in the Recall.
type Recall[K comparable, V any] struct {
	longest time.Duration
	clone   func(K) K
	answers *bounded.Map[K, answer[V]]
	// ticks orders the calls of Ask and Drop. The clock of the process is too coarse to order two successive
	// events, and tests can set it back.
	ticks atomic.Uint64
	// drops holds, for each hash of keys, the tick of the last Drop. The keys of one element are in one part of
	// the map. The lock of that part is held while the element is set, so the element only grows.
	drops [16 * bounded.Parts]atomic.Uint64
}

// answer is what is remembered of a key.
type answer[V any] struct {
	value V
	at    time.Time // when it was asked for
	lasts time.Duration
	tick  uint64
}

// Asked is a question in progress: see [Recall.Ask].
type Asked[K comparable] struct {
	// Key is what the question is about.
	Key K
	// At is the moment before the call was sent.
	At   time.Time
	tick uint64
}

// NewRecall makes a Recall for the given number of keys, rounded up to a multiple of 64. No answer is found
// for longer than longest. If longest is zero or negative, nothing is remembered. NewRecall panics when
// keys is not positive.
//
// A key that is a string is cloned, so that it does not keep a longer string in memory. A key of a type with
// a method Clone is cloned by it.
func NewRecall[K comparable, V any](keys int, longest time.Duration) *Recall[K, V] {
	if keys < 1 {
		panic(fmt.Sprintf("core: a Recall for %d keys: pass 1 or more; to remember nothing, a longest of 0", keys))
	}
	return &Recall[K, V]{longest: longest, clone: cloneOf[K](), answers: bounded.New[K, answer[V]](keys)}
}

// cloneOf returns the function that clones keys of type K.
func cloneOf[K comparable]() func(K) K {
	var key any = *new(K)
	switch key.(type) {
	case string:
		return func(key K) K { return any(strings.Clone(any(key).(string))).(K) }
	case interface{ Clone() K }:
		return func(key K) K { return any(key).(interface{ Clone() K }).Clone() }
	}
	return func(key K) K { return key }
}

// Longest returns the longest time for which an answer is found: see [NewRecall].
func (r *Recall[K, V]) Longest() time.Duration { return r.longest }

// Len returns how many keys are held, including those whose answers are no longer fresh.
func (r *Recall[K, V]) Len() int { return r.answers.Len() }

// Find returns the answer for a key, if one is remembered and fresh at the time now.
func (r *Recall[K, V]) Find(key K, now time.Time) (value V, ok bool) {
	if r.longest <= 0 {
		return value, false
	}
	known, ok := r.get(key)
	if age := now.Sub(known.at); !ok || age < 0 || age >= known.lasts {
		return value, false
	}
	return known.value, true
}

// Last returns the answer for a key, if one is held, fresh or not.
func (r *Recall[K, V]) Last(key K) (value V, ok bool) {
	if r.longest <= 0 {
		return value, false
	}
	known, ok := r.get(key)
	return known.value, ok
}

func (r *Recall[K, V]) get(key K) (answer[V], bool) {
	s := r.answers.Of(key)
	s.Lock()
	defer s.Unlock()
	return s.Get(key)
}

// Ask records that a question about a key is asked now. Call it before the call is sent.
func (r *Recall[K, V]) Ask(key K, now time.Time) Asked[K] {
	return Asked[K]{Key: key, At: now, tick: r.ticks.Add(1)}
}

// Hear remembers the answer to a question. The answer is fresh for the duration lasts after Ask, but at most
// for the longest time of the Recall. Hear remembers nothing when lasts is not positive, when the key has
// been dropped since Ask, or when the Recall already holds the answer to a later question.
func (r *Recall[K, V]) Hear(asked Asked[K], value V, lasts time.Duration) {
	r.keep(asked, lasts, func(known answer[V], ok bool) (V, bool) {
		return value, !ok || known.tick <= asked.tick
	})
}

// Set is [Recall.Hear] for a call that has changed the answers for its key: it drops the key as [Recall.Drop]
// does, and remembers the answer of the call. When the key has been dropped since Ask, Set only drops,
// because the order of the two changes is unknown.
func (r *Recall[K, V]) Set(asked Asked[K], value V, lasts time.Duration) {
	if r.longest <= 0 {
		return
	}
	s := r.answers.Of(asked.Key)
	s.Lock()
	defer s.Unlock()
	dropped, tick := r.Dropped(asked), r.ticks.Add(1)
	r.dropsOf(asked.Key).Store(tick)
	s.Remove(asked.Key)
	if lasts = min(lasts, r.longest); lasts > 0 && !dropped {
		s.Add(r.clone(asked.Key), answer[V]{value, asked.At, lasts, tick})
	}
}

// Merge is [Recall.Hear] for values that combine several answers. The function f gets the held value, fresh
// or not, and returns the new one. ok is false when no value is held. f must not modify the old value. It
// runs with a lock held, so it must not call the Recall. It is not called when the key has been dropped
// since Ask.
func (r *Recall[K, V]) Merge(asked Asked[K], lasts time.Duration, f func(old V, ok bool) V) {
	r.keep(asked, lasts, func(known answer[V], ok bool) (V, bool) { return f(known.value, ok), true })
}

func (r *Recall[K, V]) keep(asked Asked[K], lasts time.Duration, f func(answer[V], bool) (V, bool)) {
	if lasts = min(lasts, r.longest); lasts <= 0 {
		return
	}
	s := r.answers.Of(asked.Key)
	s.Lock()
	defer s.Unlock()
	if r.Dropped(asked) {
		return
	}
	known, ok := s.Get(asked.Key)
	value, keeps := f(known, ok)
	if !keeps {
		return
	}
	key := asked.Key
	if !ok {
		key = r.clone(key)
	}
	s.Add(key, answer[V]{value, asked.At, lasts, max(asked.tick, known.tick)})
}

// Update replaces the value for a key by the result of f. The answer stays as fresh as it was. When no value
// is held, ok is false and the new value is never fresh: only [Recall.Last] returns it, until a Hear. When f
// returns false, nothing changes. It must not modify the old value. It runs with a lock held, so it must not
// call the Recall. Unlike Drop, Update does not reject answers of calls in progress.
func (r *Recall[K, V]) Update(key K, f func(old V, ok bool) (value V, change bool)) {
	if r.longest <= 0 {
		return
	}
	s := r.answers.Of(key)
	s.Lock()
	defer s.Unlock()
	known, ok := s.Get(key)
	value, change := f(known.value, ok)
	if !change {
		return
	}
	if !ok {
		key = r.clone(key)
	}
	known.value = value
	s.Add(key, known)
}

// Drop forgets the answer for a key and rejects the answers of calls in progress.
func (r *Recall[K, V]) Drop(key K) {
	if r.longest <= 0 {
		return
	}
	s := r.answers.Of(key)
	s.Lock()
	defer s.Unlock()
	r.dropsOf(key).Store(r.ticks.Add(1))
	s.Remove(key)
}

// Dropped reports whether the key of a question has been dropped since Ask. It can be true for a key that has
// not been dropped: about one key in a thousand shares its mark with a given other key. That costs one more
// question.
//
// With Dropped, answers can depend on something that many of them share, such as the item that they are
// about. Ask for that as well, keep the Asked with the value, and ignore a value whose Asked has been
// dropped.
func (r *Recall[K, V]) Dropped(asked Asked[K]) bool { return r.dropsOf(asked.Key).Load() > asked.tick }

func (r *Recall[K, V]) dropsOf(key K) *atomic.Uint64 {
	return &r.drops[r.answers.Hash(key)%uint64(len(r.drops))]
}
