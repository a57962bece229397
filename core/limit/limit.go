package limit

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Limit is one rate limit: at most Max units per Window. The guard decides how large Max may be and how
// strictly it keeps the limit: see [SlidingWindow], [FixedWindow] and [TokenBucket].
type Limit struct {
	// Max is the number of units, 1 or more.
	Max int64
	// Window is the length of time in which the units count, a whole number of milliseconds from 1 ms to 366
	// days.
	Window time.Duration
	// Resolution is the number of parts of the window by which a SlidingWindow counts, 2 to 10,000, none of
	// them shorter than 1 ms: see WithResolution. Zero means that units count one by one. The other guards
	// accept only zero.
	Resolution int64

	part int64 // of the log that it shares with other limits, in microseconds; 0: its own
}

// WithResolution returns the limit with a resolution, for a [SlidingWindow] with a large Max.
// PerDay(100_000).WithResolution(1440), for example, counts by minutes. The log takes about 6 bytes per
// part, whatever Max is. A unit counts as taken at the end of its part. So there are never more than Max
// units in any window, and a refusal may last longer than necessary by one part at most.
func (l Limit) WithResolution(parts int64) Limit {
	l.Resolution = parts
	return l
}

// PerSecond returns a limit of n units per second.
func PerSecond(n int64) Limit { return Per(n, time.Second) }

// PerMinute returns a limit of n units per minute.
func PerMinute(n int64) Limit { return Per(n, time.Minute) }

// PerHour returns a limit of n units per hour.
func PerHour(n int64) Limit { return Per(n, time.Hour) }

// PerDay returns a limit of n units per 24 hours.
func PerDay(n int64) Limit { return Per(n, 24*time.Hour) }

// Per returns a limit of n units per window.
func Per(n int64, window time.Duration) Limit { return Limit{Max: n, Window: window} }

const maxResolution = 10_000

// grain returns the microseconds to which a sliding window rounds up the moments of its units.
func (l Limit) grain() int64 {
	switch {
	case l.part > 0:
		return l.part
	case l.Resolution > 0:
		return ceilDiv(l.Window.Microseconds(), l.Resolution)
	}
	return 100
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// Func returns the limits of an attempt, such as those of the actor's tier or tenant. The guard calls it
// once per attempt, before it asks Redis, and from many goroutines at once. It calls it twice if the rule
// is one of several and the actor was refused a moment ago. Wait calls it when the attempt comes, and each
// time that it asks. The call spends part of the check's deadline, which ctx carries, so keep the limits in
// memory. The guard does not modify the returned slice.
//
// When the function returns no limits and no error, as for an unlimited tier, the attempt is not limited: it
// is allowed, nothing is counted, and the decision has no figures. Its Limit is 0 and its Source is empty.
//
// When the function fails, or when it returns invalid limits, the check returns an error, and the outage
// policy of the rule decides. The error wraps [core.ErrInvalid] only if the function's error does.
//
// A Max and a Resolution may change from one attempt to the next, and the units that were used before still
// count. In a SlidingWindow that holds for a Window too: all limits are views of one log, whatever attempt
// its units came from. So a tier that gains a limit has no free window. The log keeps units for the longest
// Window that an attempt, admitted or refused, has asked for within its length. A longer Window does not
// count units that have left the log. A log remembers 8 windows besides those of the last attempt, and the
// largest Max of each. A limit without a Resolution counts units by parts if they were counted so before it
// came: never more than Max. In a FixedWindow or a TokenBucket a new Window begins with nothing used.
//
// Limits that must count separately need another Resource, or a guard of their own.
type Func func(ctx context.Context, a core.Attempt) ([]Limit, error)

// limitSet is a number of valid limits, in the forms that calls need. An empty set limits nothing.
type limitSet struct {
	limits   []Limit
	least    Limit         // the limit with the smallest Max
	windows  []string      // the windows, as they are part of the keys where each has one
	args     []any         // Max and window of each limit, as the scripts take them
	log      logArgs       // of a sliding window
	policies []core.Policy // the limits, as decisions report them
}

// newLimitSet checks limits for an algorithm.
func newLimitSet(limits []Limit, alg *algorithm) (*limitSet, error) {
	limits = slices.Clone(limits) // a Func may modify its slice in place while refusals and refunds refer to it
	s := &limitSet{limits: limits, args: make([]any, 0, 2*len(limits)+1)}
	if alg.log {
		if err := shareParts(limits); err != nil {
			return nil, err
		}
	}
	for i, l := range limits {
		if err := l.check(); err != nil {
			return nil, err
		}
		if err := alg.accepts(l); err != nil {
			return nil, err
		}
		earlier := limits[:len(s.windows)]
		if slices.ContainsFunc(earlier, func(other Limit) bool { return other.Window == l.Window }) {
			return nil, fmt.Errorf("two limits with the window %v: keep the smaller one", l.Window)
		}
		if i == 0 || l.Max < s.least.Max {
			s.least = l
		}
		window := strconv.FormatInt(l.Window.Milliseconds(), 10)
		s.args = append(s.args, l.Max, window)
		s.windows = append(s.windows, window)
	}
	if alg.log {
		s.log = newLogArgs(limits)
	}
	for _, l := range limits {
		s.policies = append(s.policies, core.Policy{Max: l.Max, Window: l.Window})
	}
	return s, nil
}

// Policies returns the limits for Decision.Policies.
func (s *limitSet) Policies() []core.Policy { return s.policies }

// check returns an error for a limit that no guard accepts.
func (l Limit) check() error {
	switch {
	case l.Max < 1:
		return fmt.Errorf("a limit of %d lets nobody in: use 1 or more, or leave the guard out", l.Max)
	case l.Window < time.Millisecond || l.Window%time.Millisecond != 0:
		return fmt.Errorf("a window of %v: use whole milliseconds, 1 ms or more", l.Window)
	case l.Window > kit.MaxTTL:
		return fmt.Errorf("a window of %v is too long: use at most %v", l.Window, kit.MaxTTL)
	case l.Resolution != 0 && (l.Resolution < 2 || l.Resolution > maxResolution):
		return fmt.Errorf("a resolution of %d: use 2 to %d parts of the window, or leave it out",
			l.Resolution, maxResolution)
	case l.Resolution != 0 && l.Window/time.Duration(l.Resolution) < time.Millisecond:
		return fmt.Errorf("a resolution of %d in a window of %v: the parts are shorter than 1 ms, so use fewer",
			l.Resolution, l.Window)
	}
	return nil
}
