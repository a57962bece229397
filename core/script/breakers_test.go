package script

import (
	"context"
	"fmt"
	"testing"
	"time"
)

func TestServersThatComeAndGoLeaveNoBreakers(t *testing.T) {
	s := newBreakers(0, 0, nil)
	s.changed = func(context.Context, BreakerChange, time.Duration, error) {}
	stays := s.of(t.Context(), "open")
	stays.turn(true)
	stays.turn(true) // a forgotten breaker may report a change twice
	if n := s.open.Load(); n != 1 {
		t.Errorf("%d are open", n)
	}
	for i := range 10 * breakersMost {
		s.of(t.Context(), fmt.Sprint(i))
	}
	if len(s.nodes) > breakersMost || s.of(t.Context(), "open") != stays {
		t.Errorf("%d breakers, want at most %d, including the open ones", len(s.nodes), breakersMost)
	}
}
