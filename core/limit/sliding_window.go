package limit

import (
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/lua"
)

var slidingWindow = func() *algorithm {
	alg := newAlgorithm("window", "sliding_window", lua.SlidingWindow, lua.SlidingWindows,
		lua.SlidingWindowRefund, lua.SlidingWindowCharge, newSlidingLog, slidingWindowAccepts)
	alg.byParts = newScripts("sliding_window_parts", lua.SlidingWindowParts)
	alg.joined = core.NewScript("sliding_window_joined", lua.SlidingWindowJoined, core.AtMostOnce).Shared()
	alg.lease = core.NewScript("sliding_window_lease", lua.SlidingWindowLease, core.AtMostOnce).Shared()
	return alg
}()

// joinedReplies returns the replies that sliding_window would give to n attempts, from the reply of
// sliding_window_joined: the moment and when the next unit leaves, and for each attempt what is left, or the
// reply to one that is refused.
func joinedReplies(reply any, n int) []any {
	values, ok := reply.([]any)
	if !ok || len(values) != n+2 {
		return nil
	}
	stamp, resets, each := values[0], values[1], values[2:]
	replies := make([]any, n)
	for i, answer := range each {
		if left, ok := answer.(int64); ok && left >= 0 {
			replies[i] = []any{int64(1), left, stamp, int64(1), resets}
		} else { // refused
			replies[i] = answer
		}
	}
	return replies
}

const (
	// mostOneByOne is the largest Max of a limit that counts one by one.
	mostOneByOne = 10_000
	// mostByParts is the largest Max of a limit that counts by parts.
	mostByParts = 1_000_000_000
)

func slidingWindowAccepts(l Limit) error {
	if l.Max > mostOneByOne && l.Resolution == 0 {
		return fmt.Errorf("a limit of %d units: a sliding window counts at most %d one by one, so count by parts "+
			"of the window: use WithResolution(1000), or in text %v", l.Max, mostOneByOne, l.WithResolution(1000))
	}
	if l.Max > mostByParts {
		return fmt.Errorf("a limit of %d units: a sliding window counts at most %d by parts, "+
			"so count in larger units", l.Max, mostByParts)
	}
	return nil
}

// SlidingWindow is the exact rate limit, and the default choice. It admits at most Max units in any window of
// the given length, and it refuses nobody below Max. It keeps a log of the admitted units, 6 bytes each, with
// moments of the server's clock. Max is therefore at most 10,000, or 1,000,000,000 with a resolution: see
// [Limit.WithResolution].
//
// Moments are rounded up to 100 microseconds. In windows of more than 7 hours they are rounded up to 1/2^28
// of the window, which is less than half a millisecond for a day. When the server's clock is set back,
// units of its future count as taken now: nobody has more than before, and nobody waits longer than one
// window from the first attempt on. A clock that is set forward is believed.
//
// A refused attempt takes nothing. Attempts with different Resources have separate budgets. To limit per IP
// address, use the address as the Actor.
//
// It is safe for concurrent use.
type SlidingWindow struct{ limiter }

// NewSlidingWindow returns a [SlidingWindow] that is named name on e. With several limits, such as
// PerSecond(10) and PerDay(1000), an attempt must fit all of them, or it takes nothing from any; a refusal
// names the limit with the longest wait.
//
// It panics when the name is invalid or already in use, or when a limit is invalid.
//
// A deployment may change the limits, and what was counted before still counts. Each Window has a log of its
// own, with which a changed Max or Resolution goes on. A Window that is changed or added takes over what the
// other and the former ones have counted: see [Func]. For this, a process announces its windows in Redis, by
// a call of its own before the first decision and every ten minutes, and hears of those by which other
// processes of the guard count, or counted a moment ago. While both releases run, the new one takes over what
// the former one admits; the former one hears of the new windows within ten minutes, and takes over as well.
//
// If that call fails, the check goes on without it, and the next one calls again; in between, a changed
// Window begins with nothing used. An engine without Redis counts anew when its process begins.
func NewSlidingWindow(e *core.Engine, name string, limit Limit, more ...Limit) *SlidingWindow {
	g := &SlidingWindow{newLimiter(e, slidingWindow, name, nil, append([]Limit{limit}, more...)...)}
	g.phases = g
	return g
}

// NewSlidingWindowBy is [NewSlidingWindow] with a function that returns the limits of each attempt: per tier,
// per tenant, or from a configuration that changes. It panics when the name is invalid or already in use, or
// when the function is nil.
func NewSlidingWindowBy(e *core.Engine, name string, limits Func) *SlidingWindow {
	g := &SlidingWindow{newLimiter(e, slidingWindow, name, limits)}
	g.phases = g
	return g
}
