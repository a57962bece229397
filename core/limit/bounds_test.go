package limit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestLimitsAtTheirBounds: the smallest and the largest limits and windows that each rate limit accepts, in
// years of which moments have few digits and many. A refusal ends when it says, and no earlier.
func TestLimitsAtTheirBounds(t *testing.T) {
	sliding := func(e *core.Engine, name string, of Limit) core.Guard { return NewSlidingWindow(e, name, of) }
	kinds := map[string]struct {
		make func(e *core.Engine, name string, of Limit) core.Guard
		most int64
	}{
		"sliding":  {sliding, mostOneByOne},
		"by parts": {sliding, mostByParts},
		"fixed": {func(e *core.Engine, name string, of Limit) core.Guard { return NewFixedWindow(e, name, of) },
			core.MaxAmount},
		"bucket": {func(e *core.Engine, name string, of Limit) core.Guard { return NewTokenBucket(e, name, of) },
			10_000_000},
	}
	begins := []time.Time{time.UnixMilli(5), time.UnixMicro(1_795_887_600_123_456), time.UnixMicro(1 << 52)}
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		n := 0
		for name, kind := range kinds {
			for _, window := range []time.Duration{time.Millisecond, 2 * time.Millisecond, kit.MaxTTL} {
				for _, of := range []Limit{Per(1, window), Per(2, window), Per(kind.most, window)} {
					if name == "by parts" {
						if of.Resolution = 2; window == time.Millisecond {
							continue // parts are not shorter
						}
					}
					for i := range 2 * len(begins) {
						cost, wrong := []int64{1, of.Max}[i%2], "not tried"
						for begun := time.Now(); wrong != ""; begun = time.Now() {
							n++
							clock := guardtest.NewClockAt(begins[i/2])
							e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
							wrong = atItsBounds(t, kind.make(e, fmt.Sprint("bounds", n), of), clock, of, cost)
							if time.Since(begun) < keyLives {
								break
							}
						}
						if wrong != "" {
							t.Errorf("%s %v, a cost of %d, in %d: %s", name, of, cost, begins[i/2].UTC().Year(), wrong)
						}
					}
				}
			}
		}
	})
}

// keyLives is for how long each key lives by the server's clock, whatever the test's clock says.
const keyLives = 900 * time.Millisecond

// atItsBounds takes all, is refused, and takes again when the refusal has said so. It returns what is wrong.
func atItsBounds(t *testing.T, g core.Guard, clock *guardtest.Clock, of Limit, cost int64) string {
	t.Helper()
	a := core.Attempt{Actor: "ann", Cost: of.Max}
	if d := guardtest.Check(t, g, a); !d.Allowed || d.Remaining != 0 {
		return fmt.Sprintf("all of it: %+v", d)
	}
	a.Cost = cost
	d := guardtest.Check(t, g, a)
	late := 100 * time.Microsecond
	if of.Resolution != 0 {
		late = of.Window / 2 // a part
	}
	if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > of.Window+late {
		return fmt.Sprintf("more: %+v", d)
	}
	const early = 2 * time.Microsecond
	if d.RetryAfter > early {
		clock.Advance(d.RetryAfter - early)
		if guardtest.Check(t, g, a).Allowed {
			return fmt.Sprintf("%v before the end of a refusal of %v it is allowed", early, d.RetryAfter)
		}
	}
	clock.Advance(min(d.RetryAfter, early))
	if again := guardtest.Check(t, g, a); !again.Allowed {
		return fmt.Sprintf("after %v it has to wait for %v", d.RetryAfter, again.RetryAfter)
	}
	return ""
}

// TestARemedyIsALimit: what the error of a limit tells to use in its place works.
func TestARemedyIsALimit(t *testing.T) {
	const ms = time.Millisecond
	for _, window := range []time.Duration{2 * ms, 999 * ms, time.Second, kit.MaxTTL} {
		_, text, ok := strings.Cut(fmt.Sprint(slidingWindowAccepts(Per(mostByParts, window))), "or in text ")
		of, err := Parse(text)
		if err == nil {
			err = of.check()
		}
		if err == nil {
			err = slidingWindowAccepts(of)
		}
		if !ok || err != nil {
			t.Errorf("%v: %q: %v", window, text, err)
		}
	}
	for _, of := range []Limit{Per(mostOneByOne+1, time.Millisecond), Per(mostByParts+1, time.Hour)} {
		if said := fmt.Sprint(slidingWindowAccepts(of)); !strings.Contains(said, "use a longer") &&
			!strings.Contains(said, "count in larger units") {
			t.Errorf("%v: %s", of, said)
		}
	}
}
