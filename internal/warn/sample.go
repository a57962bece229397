package warn

import (
	"sync"
	"time"
)

const (
	// sampledEvery is how often a message of one kind is logged: clients can cause any number of them.
	sampledEvery = time.Minute
	// sampledKinds is how many kinds a Sample tells apart; all others count as one. Kinds come from the
	// program, so there are few. More would be a mistake of an application's own guards, and must not fill the
	// memory.
	sampledKinds = 1000
)

// Sample says which of the messages that requests cause are logged: of each kind the first one, and then one
// per minute, with the number of those in between. The zero value is ready. It is safe for concurrent use.
type Sample[K comparable] struct {
	mu    sync.Mutex
	kinds map[K]*sampled
}

type sampled struct {
	last    time.Time
	skipped int
}

// Due reports whether a message of this kind is logged now, and how many were not logged since the last one.
func (s *Sample[K]) Due(kind K) (skipped int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[K]*sampled{}
	}
	logged := s.kinds[kind]
	if logged == nil && len(s.kinds) >= sampledKinds {
		kind = *new(K)
		logged = s.kinds[kind]
	}
	now := time.Now()
	switch {
	case logged == nil:
		s.kinds[kind] = &sampled{last: now}
	case now.Sub(logged.last) < sampledEvery:
		logged.skipped++
		return 0, false
	default:
		skipped, logged.last, logged.skipped = logged.skipped, now, 0
	}
	return skipped, true
}
