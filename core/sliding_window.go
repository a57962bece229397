package core

import "github.com/gatehouse-go/gatehouse/lua"

var slidingWindow = newAlgorithm("window", "sliding_window", lua.SlidingWindow, lua.SlidingWindowRefund,
	10_000, "an exact window has a log of them,")

// SlidingWindow is the exact rate limit: never more than Max units in any window of the given length, and nobody who is
// under Max is refused. It keeps a log of the units admitted, about 10 bytes each, in the server's clock, so Max is at most
// 10,000. It is the one to take where nothing speaks for another.
//
// A refused attempt takes nothing. Per-IP limiting is this guard with the address as the Actor. Attempts with different
// Resources have separate budgets.
type SlidingWindow struct{ limiter }

// SlidingWindow makes a rate limit. With several limits, such as PerSecond(10) and PerDay(1000), an attempt must fit all of
// them, and a refusal names the one that is full for the longest time. It panics when the name is taken or not a name, or
// the limits make no sense.
//
// Each window has a log of its own, so a limit whose Max is changed from one deployment to the next goes on counting.
func (e *Engine) SlidingWindow(name string, limit Limit, more ...Limit) *SlidingWindow {
	return &SlidingWindow{e.newLimiter(slidingWindow, name, nil, append([]Limit{limit}, more...)...)}
}

// SlidingWindowBy is SlidingWindow with limits that a function gives for each attempt: by tier, by tenant, from a
// configuration that changes. It panics when the name is taken or not a name, or there is no function.
func (e *Engine) SlidingWindowBy(name string, limits LimitsFunc) *SlidingWindow {
	return &SlidingWindow{e.newLimiter(slidingWindow, name, limits)}
}
