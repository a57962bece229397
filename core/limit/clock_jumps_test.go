package limit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// jumps runs f for every algorithm, a sliding window by parts and several windows, with a function that moves
// the clock: the argument of the scripts on every backend and in the memory, and the clock of a server, by
// which keys expire as well.
func jumps(
	t *testing.T, f func(t *testing.T, g rateLimit, window, part time.Duration, move func(time.Duration)),
) {
	t.Helper()
	run := func(t *testing.T, e *core.Engine, move func(time.Duration)) {
		t.Helper()
		for _, k := range append(kinds[:len(kinds):len(kinds)], byParts) {
			for _, window := range []time.Duration{time.Minute, 30 * 24 * time.Hour} {
				part := time.Duration(0)
				if k.by == nil {
					part = window / 100
				}
				t.Run(fmt.Sprintf("%s of %v", k.name, window), func(t *testing.T) {
					name := strings.ReplaceAll(fmt.Sprintf("%s-%d", k.name, window), " ", "-")
					f(t, k.make(e, name, Per(5, window)), window, part+100*time.Millisecond, move)
				})
			}
		}
	}
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		run(t, guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)), clock.Advance)
	})
	t.Run("a server's clock", func(t *testing.T) {
		b := redistest.Mini(t)
		clock := newServerClock(b)
		run(t, guardtest.NewEngine(b, core.WithRefusalMemory(0)), func(d time.Duration) { clock.Advance(t, d) })
	})
}

var steps = []time.Duration{time.Millisecond, 10 * time.Minute, 60 * time.Hour, 400 * 24 * time.Hour}

// drain takes units until it is refused, and returns how many it took and the refusal.
func drain(t *testing.T, g rateLimit, a core.Attempt) (n int, refused core.Decision) {
	t.Helper()
	for ; n < 100; n++ {
		if refused = guardtest.Check(t, g, a); !refused.Allowed {
			break
		}
	}
	return n, refused
}

// TestClockThatIsSetBack: what was left is left, and who is full waits for one window at most.
//
// Promise: When the server's clock jumps back, units in the future count as taken now. A full actor then
// waits a window at most. A jump forward is believed.
func TestClockThatIsSetBack(t *testing.T) {
	jumps(t, func(t *testing.T, g rateLimit, window, part time.Duration, move func(time.Duration)) {
		for _, step := range steps {
			for _, taken := range []int64{0, 2, 5} {
				a := core.Attempt{Actor: fmt.Sprint(step, taken), Cost: max(taken, 1)}
				if taken > 0 {
					guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
				}
				move(-step)
				a.Cost = 1
				if d := peek(t, g, a); d.Remaining != 5-taken {
					t.Fatalf("-%v: %+v: want %d remaining", step, d, 5-taken)
				}
				n, refused := drain(t, g, a)
				if int64(n) != 5-taken || refused.RetryAfter > window+part {
					t.Fatalf("-%v: %d more than %d units, then %+v", step, n, taken, refused)
				}
				move(refused.RetryAfter)
				guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
				move(step) // so that the tests do not end before 1970
			}
		}
	})
}

// TestClockThatIsWrongForAWhile: set forward and back again, or back and forward. What the server believes to
// be a window may have another N; and when the clock is right again nobody has more, or waits for longer than
// a window.
func TestClockThatIsWrongForAWhile(t *testing.T) {
	jumps(t, func(t *testing.T, g rateLimit, window, part time.Duration, move func(time.Duration)) {
		for _, step := range steps {
			for _, jump := range []time.Duration{step, -step} {
				a := core.Attempt{Actor: fmt.Sprint(jump)}
				if n, _ := drain(t, g, a); n != 5 {
					t.Fatalf("%v: %d units at first", jump, n)
				}
				move(jump)
				n, refused := drain(t, g, a)
				if jump < window/5 && n > 0 || n > 5 || refused.RetryAfter > window+part {
					t.Fatalf("%v: %d more, then %+v", jump, n, refused)
				}
				move(-jump)
				n, refused = drain(t, g, a)
				if jump > -window/5 && n > 0 || n > 5 || refused.RetryAfter > window+part {
					t.Fatalf("%v and back: %d more, then %+v", jump, n, refused)
				}
				move(window + part)
				if d := peek(t, g, a); d.Remaining != 5 {
					t.Fatalf("%v and back, a window later: %+v: want all units", jump, d)
				}
			}
		}
	})
}

// TestTokenBucketThatIsFullWhenItsClockIsSetBack: a refund under a clock that was set back has left a bucket
// that is full before its last unit would be taken.
func TestTokenBucketThatIsFullWhenItsClockIsSetBack(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
		g := NewTokenBucket(e, "bucket", PerMinute(7))
		a := core.Attempt{Actor: "ann", Cost: 3}
		first := guardtest.Check(t, g, a)
		clock.Advance(20 * time.Second)
		a.Cost = 1
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		clock.Advance(-15 * time.Second)
		if err := g.Refund(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if d := peek(t, g, a); d.Remaining != 7 {
			t.Fatalf("%+v: want a full bucket", d)
		}
	})
}
