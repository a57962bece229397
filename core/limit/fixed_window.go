package limit

import (
	"github.com/gatehouse-go/gatehouse/core"
)

var fixedWindow = newAlgorithm("fixed", "fixed_window", newFixedCount,
	upTo(core.MaxAmount, "a fixed window counts"))

// FixedWindow is a rate limit that admits at most Max units in a window, which begins with its first unit. It
// keeps one small key per actor and resource, whatever Max is. The window ends by the server's clock, and
// RetryAfter is the exact time until then.
//
// The worst case is nearly twice the limit. An actor who takes one unit at the beginning of a window, the
// rest at its end and the whole next window at once has 2*Max-1 units in a time shorter than the window.
// Where that matters, use [SlidingWindow].
//
// A refused attempt takes nothing. Attempts with different Resources are counted apart. When the server's
// clock is set back, a window of its future begins now and keeps its units. Nobody has more than before,
// and nobody waits longer than one window from the first attempt on. A clock that is set forward is
// believed.
//
// It is safe for concurrent use.
type FixedWindow struct{ limiter }

// NewFixedWindow returns a [FixedWindow] that is named name on e. With several limits, an attempt must fit
// all of them, or it takes nothing from any. A refusal names the limit whose window ends last. Max is at
// most 2^53-1.
//
// It panics when the name is invalid or already in use, or when a limit is invalid.
//
// When a deployment changes the Max of a limit, the count continues. A Window that is changed or added begins
// with nothing used.
func NewFixedWindow(e *core.Engine, name string, limit Limit, more ...Limit) *FixedWindow {
	g := &FixedWindow{newLimiter(e, fixedWindow, name, nil, append([]Limit{limit}, more...)...)}
	g.ready(g)
	return g
}

// NewFixedWindowBy is [NewFixedWindow] with a function that returns the limits of each attempt. It panics
// when the name is invalid or already in use, or when the function is nil.
func NewFixedWindowBy(e *core.Engine, name string, limits Func) *FixedWindow {
	g := &FixedWindow{newLimiter(e, fixedWindow, name, limits)}
	g.ready(g)
	return g
}
