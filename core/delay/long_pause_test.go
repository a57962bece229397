package delay_test

import (
	"math"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// TestTheLongestPause of a failed task is no short one.
func TestTheLongestPause(t *testing.T) {
	each(t, delay.Options{}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		schedule(t, q, "long", time.Time{})
		task := claim(t, q, 1, "long")[0]
		if err := q.Nack(t.Context(), task, "no paper", math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		claim(t, q, 1)
		clock.Advance(99 * 365 * 24 * time.Hour)
		claim(t, q, 1)
		s := wantStatus(t, q, "long", delay.Pending, 1, "no paper")
		if wait := s.At.Sub(clock.Now()); wait < 0 {
			t.Errorf("%+v: it is due", s)
		}
	})
}
