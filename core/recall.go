package core

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/bounded"
)

// Recall remembers answers of Redis inside the process, so that the same question is not asked again at once. It
// holds a bounded number of keys and forgets the least recently used beyond that. It is safe for concurrent use.
//
// An answer is remembered in three steps. [Recall.Ask] notes the moment before the call is sent, the call is made, and
// [Recall.Hear] keeps its answer. [Recall.Find] returns the answer while it is fresh:
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
// The time of an answer counts from when it was asked for, because the script ran later than that. Moments are those of
// [Engine.Now]. After a clock is set back, answers from what is now the future are not found.
//
// Whoever changes what the answers depend on calls [Recall.Drop] after the change, also where the change may have been
// made. Drop forgets the answer, and refuses the answers of calls that are under way: Hear keeps no answer whose Ask
// came before the last Drop of its key. Changes by other processes are seen when the time of the answer is over.
//
// Values are shared by all callers: do not modify a value, or what it points to, once it is in the Recall.
type Recall[K comparable, V any] struct {
	longest time.Duration
	clone   func(K) K
	answers *bounded.Map[K, answer[V]]
	// ticks orders the calls of Ask and Drop. The process's clock would not do: it is too coarse for two events in a row,
	// and it can be set back in tests.
	ticks atomic.Uint64
	// drops has, for each hash of keys, the tick of the last Drop. Keys of one element are in one shard, whose lock is
	// held while the element is set, so it only grows.
	drops [16 * bounded.Shards]atomic.Uint64
}

// answer is what is remembered of a key.
type answer[V any] struct {
	value V
	at    time.Time // when it was asked for
	lasts time.Duration
	tick  uint64
}

// Asked is a question that is under way: see [Recall.Ask].
type Asked[K comparable] struct {
	// Key is what the question is about.
	Key K
	// At is the moment before the call was sent.
	At   time.Time
	tick uint64
}

// NewRecall makes a Recall for so many keys, rounded up to a multiple of 64. No answer is found for longer than longest;
// with a longest of zero or less, nothing is remembered. It panics when keys is not positive.
//
// A text that is remembered as a key is copied, so that it does not keep a longer text alive that it is a piece of. So is
// a key of a type that has a method Clone, which returns the copy.
func NewRecall[K comparable, V any](keys int, longest time.Duration) *Recall[K, V] {
	if keys < 1 {
		panic(fmt.Sprintf("core: a Recall for %d keys: pass 1 or more, and a longest of 0 to remember nothing", keys))
	}
	return &Recall[K, V]{longest: longest, clone: cloneOf[K](), answers: bounded.New[K, answer[V]](keys)}
}

// cloneOf returns what copies a key.
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

// Longest returns the longest time for which an answer is found, as it was given to [NewRecall].
func (r *Recall[K, V]) Longest() time.Duration { return r.longest }

// Len returns how many keys are held, those whose answers are no longer fresh included.
func (r *Recall[K, V]) Len() int { return r.answers.Len() }

// Find returns the answer for a key, if one is remembered that is fresh now.
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

// Last returns the answer for a key, if one is held, whether it is fresh or not.
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

// Ask notes that a question about a key is asked now. Call it before the call is sent.
func (r *Recall[K, V]) Ask(key K, now time.Time) Asked[K] {
	return Asked[K]{Key: key, At: now, tick: r.ticks.Add(1)}
}

// Hear remembers the answer to a question. It is found for as long as lasts says from the moment of Ask on, and for the
// longest time of the Recall at most. Nothing is remembered when lasts is not positive, when the key has been dropped
// since Ask, or when the answer to a question that was asked later is remembered already.
func (r *Recall[K, V]) Hear(asked Asked[K], value V, lasts time.Duration) {
	r.keep(asked, lasts, func(known answer[V], ok bool) (V, bool) { return value, !ok || known.tick <= asked.tick })
}

// Merge is [Recall.Hear] for values that have several answers in them: f returns the new value from the one that is
// held, fresh or not; ok is false when there is none. It must not modify the old value. It is called with a lock held, so
// it must not call the Recall. It is not called when the key has been dropped since Ask.
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

// Update replaces the value that is held for a key by what f returns for it; fresh or not, it stays as fresh as it was.
// Where there is no value, ok is false, and the new one is never fresh: only [Recall.Last] returns it, until a Hear. When
// f returns false, nothing changes. It must not modify the old value. It is called with a lock held, so it must
// not call the Recall. Answers that are under way are kept when they come.
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

// Drop forgets the answer for a key, and the answers that are under way.
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

// Dropped reports whether the key of a question has been dropped since Ask. One key in a thousand shares its mark with
// a given other one and is reported with it, which costs a question more.
//
// It makes answers depend on something that many of them have in common, such as the item that they are about: ask for
// that as well, keep the Asked with the value, and take no value for which it has been dropped.
func (r *Recall[K, V]) Dropped(asked Asked[K]) bool { return r.dropsOf(asked.Key).Load() > asked.tick }

func (r *Recall[K, V]) dropsOf(key K) *atomic.Uint64 {
	return &r.drops[r.answers.Hash(key)%uint64(len(r.drops))]
}
