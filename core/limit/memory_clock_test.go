package limit

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// whenSet returns the time that time.Now would return, had somebody set the wall clock by so many seconds:
// another wall clock time, with the same monotonic reading. Package time has no function for it.
func whenSet(t *testing.T, now time.Time, seconds int64) time.Time {
	t.Helper()
	jumped := now
	wall := reflect.ValueOf(&jumped).Elem().FieldByName("wall")
	// The upper 33 of 63 bits are seconds, the lower 30 nanoseconds.
	*(*uint64)(unsafe.Pointer(wall.UnsafeAddr())) += uint64(seconds) << 30
	if got := jumped.Unix() - now.Unix(); got != seconds || jumped.Sub(now) != 0 {
		t.Fatalf("the wall clock was set by %d s, the monotonic one by %v: package time has changed", got,
			jumped.Sub(now))
	}
	return jumped
}

// TestAWallClockThatIsSetChangesNothingInTheProcess: the memory counted by the wall clock, so a step of 10
// minutes forward admitted 2N at once, and a step back locked full actors out for its length.
//
// Promise: Setting the wall clock changes nothing in the memory engine.
func TestAWallClockThatIsSetChangesNothingInTheProcess(t *testing.T) {
	for _, k := range kinds {
		for _, by := range []time.Duration{10 * time.Minute, -10 * time.Minute, 60 * time.Hour, -60 * time.Hour} {
			g := limiterOf(k.make(core.NewMemory(), "w", Per(2, time.Minute)))
			now := time.Now()
			ask := func(at time.Time) (d core.Decision) {
				d.Attempt.Actor = "a"
				limits, err := g.begin(t.Context(), &d)
				if err != nil {
					t.Fatal(err)
				}
				g.decideLocal(&d, limits, at, false)
				return d
			}
			guardtest.WantReason(t, ask(now), core.ReasonOK)
			guardtest.WantReason(t, ask(now), core.ReasonOK)
			before := ask(now)
			guardtest.WantReason(t, before, core.ReasonLimited)
			after := ask(whenSet(t, now, int64(by/time.Second)))
			guardtest.WantReason(t, after, core.ReasonLimited)
			if after.RetryAfter != before.RetryAfter {
				t.Errorf("%s, %v: RetryAfter was %v and is %v", k.name, by, before.RetryAfter, after.RetryAfter)
			}
			later := whenSet(t, now.Add(before.RetryAfter), int64(by/time.Second))
			guardtest.WantReason(t, ask(later.Add(-time.Microsecond)), core.ReasonLimited)
			guardtest.WantReason(t, ask(later.Add(time.Microsecond)), core.ReasonOK)
		}
	}
}
