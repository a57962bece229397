package limit

import (
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

var fixedWindow = newAlgorithm("fixed", "fixed_window", lua.FixedWindow, lua.FixedWindowRefund, newFixedCount,
	upTo(core.MaxAmount, "a fixed window counts"))

// FixedWindow is the rate limit of many articles, without their mistakes: at most Max units in a window that begins with its
// first unit. It keeps one small key, whatever Max is. The window ends by the server's clock, and RetryAfter is the time
// until then, exactly.
//
// Its worst case is nearly twice the limit: who takes one unit, the others at the window's end, and all of the next window at
// once, has 2*Max-1 in a time shorter than the window. Where that matters take SlidingWindow.
//
// A refused attempt takes nothing. Attempts with different Resources have separate budgets. While a clock that was set back
// catches up, the window goes on: nobody gets another one, and nobody waits longer than a window and what the clock was set
// back by.
type FixedWindow struct{ limiter }

// FixedWindow makes a rate limit. With several limits an attempt must fit all of them, or it takes nothing of any, and a refusal
// names the one whose window ends last. It panics when the name is taken or not a name, or the limits make no sense: a Max
// is at most 2^53-1.
//
// Each Window is counted by itself, so a limit whose Max is changed from one deployment to the next goes on counting.
func NewFixedWindow(e *core.Engine, name string, limit Limit, more ...Limit) *FixedWindow {
	return &FixedWindow{newLimiter(e, fixedWindow, name, nil, append([]Limit{limit}, more...)...)}
}

// FixedWindowBy is FixedWindow with limits that a function gives for each attempt. It panics when the name is taken or not a
// name, or there is no function.
func NewFixedWindowBy(e *core.Engine, name string, limits Func) *FixedWindow {
	return &FixedWindow{newLimiter(e, fixedWindow, name, limits)}
}
