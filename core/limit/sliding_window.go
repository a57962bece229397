package limit

import (
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

var slidingWindow = func() *algorithm {
	alg := newAlgorithm("window", "sliding_windows", lua.SlidingWindows, lua.SlidingWindowRefund, newSlidingLog, slidingWindowTakes)
	alg.one = newAlgorithm("window", "sliding_window", lua.SlidingWindow, lua.SlidingWindowRefund, newSlidingLog, slidingWindowTakes)
	return alg
}()

func slidingWindowTakes(l Limit) error {
	const oneByOne, byParts = 10_000, 1_000_000_000
	if l.Max > oneByOne && l.Resolution == 0 {
		return fmt.Errorf("a limit of %d units: one by one a sliding window counts at most %d, so count by parts of the window: "+
			"WithResolution(1000), in text %v", l.Max, oneByOne, l.WithResolution(1000))
	}
	if l.Max > byParts {
		return fmt.Errorf("a limit of %d units: by parts a sliding window counts at most %d, so count larger units", l.Max, byParts)
	}
	return nil
}

// SlidingWindow is the exact rate limit: never more than Max units in any window of the given length, and nobody who is
// under Max is refused. It keeps a log of the units admitted, 6 bytes each, in the server's clock, so Max is at most
// 10,000, or 1,000,000,000 with a resolution (see Limit.WithResolution). It is the one to take where nothing speaks for another.
//
// Moments are rounded up to 100 microseconds, in windows of more than 7 hours to the window's 2^28th part, which is less than
// half a millisecond for a day. A clock that is set back lets nobody in too early, unless it is by more than two and a half
// days, and more than eight windows.
//
// A refused attempt takes nothing. Per-IP limiting is this guard with the address as the Actor. Attempts with different
// Resources have separate budgets.
type SlidingWindow struct{ limiter }

// SlidingWindow makes a rate limit. With several limits, such as PerSecond(10) and PerDay(1000), an attempt must fit all of
// them, and a refusal names the one that is full for the longest time. It panics when the name is taken or not a name, or
// the limits make no sense.
//
// Each window has a log of its own, so a limit whose Max is changed from one deployment to the next goes on counting.
func NewSlidingWindow(e *core.Engine, name string, limit Limit, more ...Limit) *SlidingWindow {
	return &SlidingWindow{newLimiter(e, slidingWindow, name, nil, append([]Limit{limit}, more...)...)}
}

// SlidingWindowBy is SlidingWindow with limits that a function gives for each attempt: by tier, by tenant, from a
// configuration that changes. It panics when the name is taken or not a name, or there is no function.
func NewSlidingWindowBy(e *core.Engine, name string, limits Func) *SlidingWindow {
	return &SlidingWindow{newLimiter(e, slidingWindow, name, limits)}
}
