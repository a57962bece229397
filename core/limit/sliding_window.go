package limit

import (
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
)

var slidingWindow = &algorithm{
	kind: "window", log: true, newCounter: newSlidingLog, accepts: slidingWindowAccepts,
}

const (
	// mostOneByOne is the largest Max of a limit that counts one by one.
	mostOneByOne = 10_000
	// mostByParts is the largest Max of a limit that counts by parts.
	mostByParts = 1_000_000_000
)

func slidingWindowAccepts(l Limit) error {
	switch parts := min(1000, l.Window.Milliseconds()); {
	case l.Max > mostByParts:
		return fmt.Errorf("a limit of %d units: a sliding window counts at most %d by parts, "+
			"so count in larger units", l.Max, mostByParts)
	case l.Max <= mostOneByOne || l.Resolution != 0:
		return nil
	case parts < 2: // none of them may be shorter than 1 ms
		return fmt.Errorf("a limit of %d units: a sliding window of 1 ms counts at most %d, so use a longer window",
			l.Max, mostOneByOne)
	default:
		return fmt.Errorf("a limit of %d units: a sliding window counts at most %d one by one, so count by parts "+
			"of the window: use WithResolution(%d), or in text %v", l.Max, mostOneByOne, parts,
			l.WithResolution(parts))
	}
}

// SlidingWindow is the exact rate limit, and the default choice. It admits at most Max units in any window of
// the given length, and it refuses nobody below Max. It keeps a log of the admitted units, 6 bytes each, with
// moments of the server's clock. Max is therefore at most 10,000, or 1,000,000,000 with a resolution: see
// [Limit.WithResolution].
//
// Moments are rounded up to 100 microseconds. When the server's clock is set back, units of its future count
// as taken now: nobody has more than before, and nobody waits longer than one window from the first attempt
// on. A clock that is set forward is believed.
//
// A refused attempt takes nothing. Attempts with different Resources are counted apart. To limit per IP
// address, use the address as the Actor.
//
// It is safe for concurrent use.
type SlidingWindow struct{ limiter }

// NewSlidingWindow returns a [SlidingWindow] that is named name on e. With several limits, such as
// PerSecond(10) and PerDay(1000), an attempt must fit all of them, or it takes nothing from any. A refusal
// names the limit with the longest wait.
//
// It panics when the name is invalid or already in use, or when a limit is invalid.
//
// A deployment may change the limits. Units that were counted before still count, also while both releases
// run: all limits of an actor and resource are views of one log, and both releases count in it. See [Func]
// for the units that a longer Window cannot count. An engine without Redis counts anew when its process
// begins.
//
// Limits with a Resolution have a log by parts, beside the log of other limits. It has the parts of the
// finest limit and the window of the longest, at most 10,000 parts.
func NewSlidingWindow(e *core.Engine, name string, limit Limit, more ...Limit) *SlidingWindow {
	g := &SlidingWindow{newLimiter(e, slidingWindow, name, nil, append([]Limit{limit}, more...)...)}
	g.ready(g)
	return g
}

// NewSlidingWindowBy is [NewSlidingWindow] with a function that returns the limits of each attempt: per tier,
// per tenant, or from a configuration that changes. It panics when the name is invalid or already in use, or
// when the function is nil.
func NewSlidingWindowBy(e *core.Engine, name string, limits Func) *SlidingWindow {
	g := &SlidingWindow{newLimiter(e, slidingWindow, name, limits)}
	g.ready(g)
	return g
}
