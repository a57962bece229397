// Package keymutex has a mutex per key. A key's mutex exists while a caller holds it or waits for it.
package keymutex

import (
	"context"
	"sync"
)

// Mutex lets one caller at a time through for each key. The zero value is ready to use.
type Mutex[V any] struct {
	mu   sync.Mutex
	keys map[string]*Held[V]
}

// Held is the lock of one key.
type Held[V any] struct {
	// Value belongs to the holder of the lock. It begins as the zero value, and is dropped when no caller holds
	// the lock or waits for it.
	Value V

	of    *Mutex[V]
	key   string
	users int           // callers that hold the lock or wait for it
	free  chan struct{} // has a token while nobody holds the lock
}

// Lock waits until the key is free, or returns the context's error.
func (m *Mutex[V]) Lock(ctx context.Context, key string) (*Held[V], error) {
	h := m.use(key)
	select {
	case <-h.free:
		return h, nil
	case <-ctx.Done():
		m.drop(h)
		return nil, ctx.Err()
	}
}

// Unlock frees the key. The caller must not use h afterwards.
func (h *Held[V]) Unlock() {
	h.free <- struct{}{}
	h.of.drop(h)
}

func (m *Mutex[V]) use(key string) *Held[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.keys[key]
	if h == nil {
		h = &Held[V]{of: m, key: key, free: make(chan struct{}, 1)}
		h.free <- struct{}{}
		if m.keys == nil {
			m.keys = map[string]*Held[V]{}
		}
		m.keys[key] = h
	}
	h.users++
	return h
}

func (m *Mutex[V]) drop(h *Held[V]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(m.keys, h.key)
	}
}
