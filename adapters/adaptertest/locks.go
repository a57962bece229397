package adaptertest

import (
	"time"

	"github.com/gatehouse-go/gatehouse/core/lock"
)

// lock makes a lock for the things.
func (s *scene) lock() *lock.Guard {
	return lock.New(s.gate, "thing", lock.Options{Lease: time.Minute})
}

// wantUnlocked wants nobody to hold the lock of the thing.
func (s *scene) wantUnlocked(g *lock.Guard) {
	s.Helper()
	if state, err := g.Peek(s.Context(), "t1"); err != nil || state.Held {
		s.Errorf("%+v, %v: want that nobody holds the lock", state, err)
	}
}
