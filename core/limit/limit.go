package limit

import (
	"context"
	"errors"
	"fmt"
	"github.com/gatehouse-go/gatehouse/core"
	"slices"
	"strconv"
	"time"
)

// Limit is one rate limit: at most Max units in any Window. Max is 1 or more; a Window is a whole number of milliseconds, 1 ms
// to 366 days. How large Max may be, and how strictly the limit is kept, is the guard's: see SlidingWindow, FixedWindow and
// TokenBucket.
type Limit struct {
	Max    int64
	Window time.Duration
	// Resolution makes a SlidingWindow count its units by so many parts of the window, 2 to 10,000, in place of one by one:
	// see WithResolution. Zero: one by one. Other guards have none.
	Resolution int64
}

// WithResolution returns the limit, counted by so many parts of its window: that is for a SlidingWindow with a large Max, such as
// PerDay(100_000).WithResolution(1440), which counts by minutes. It takes about 12 bytes a part, whatever Max is. A unit
// counts as one that was taken at the end of its part. So there are never more than Max units in any window, and a refusal
// may last longer than it had to, by one part of the window at most.
func (l Limit) WithResolution(parts int64) Limit {
	l.Resolution = parts
	return l
}

// PerSecond is n units a second.
func PerSecond(n int64) Limit { return Per(n, time.Second) }

// PerMinute is n units a minute.
func PerMinute(n int64) Limit { return Per(n, time.Minute) }

// PerHour is n units an hour.
func PerHour(n int64) Limit { return Per(n, time.Hour) }

// PerDay is n units in 24 hours.
func PerDay(n int64) Limit { return Per(n, 24*time.Hour) }

// Per is n units in any window of a length of one's own.
func Per(n int64, window time.Duration) Limit { return Limit{Max: n, Window: window} }

const maxResolution = 10_000

// grain is what a sliding window rounds the moments up to at which units were taken, in microseconds. Without a resolution
// it is 100 µs, and more in windows of hours, such that a window has at most 2^28 grains. So four windows and more fit the
// 32 bits that the log has for a moment.
func (l Limit) grain() int64 {
	window := l.Window.Microseconds()
	if l.Resolution > 0 {
		return ceilDiv(window, l.Resolution)
	}
	return max(100, ceilDiv(window, 1<<28))
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// LimitsFunc says which limits hold for an attempt, such as those of the actor's tier or tenant. It is called once for each
// attempt, before Redis is asked, from many goroutines at once. Its time is part of the check's deadline, which its
// context has, so the limits should be in memory. The slice that it returns stays its own and is not changed.
//
// An error of it, or limits that make no sense (none at all included), become the error of the check, and the rule's outage
// policy decides. Such an error is no ErrInvalidAttempt unless the function says so by wrapping it.
//
// What an attempt has used is kept by the limit's Window. So a Max may change from one attempt to the next, and what
// was used before still counts. A Window that was not among the limits before begins with nothing used, and
// one that is left out for a while has not counted meanwhile.
type Func func(ctx context.Context, a core.Attempt) ([]Limit, error)

// limitSet is one or several limits that have been checked, in the forms that calls need.
type limitSet struct {
	limits   []Limit
	least    Limit         // the one with the smallest Max
	windows  []string      // as the keys are named by
	words    []any         // the limits as the scripts take them
	policies []core.Policy // the limits as decisions tell them, where there are several
	parts    []any         // the parts in which the scripts count, in microseconds, 0 for one by one; none: all one by one
}

// newLimitSet checks limits for an algorithm.
func newLimitSet(limits []Limit, alg *algorithm) (*limitSet, error) {
	if len(limits) == 0 {
		return nil, errors.New("no limits: give at least one; whoever has none should not come to this guard")
	}
	s := &limitSet{limits: limits, least: limits[0]}
	for _, l := range limits {
		if err := l.check(); err != nil {
			return nil, err
		}
		if err := alg.takes(l); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(limits[:len(s.windows)], func(other Limit) bool { return other.Window == l.Window }) {
			return nil, fmt.Errorf("two limits with the window %v: keep the smaller one", l.Window)
		}
		if l.Max < s.least.Max {
			s.least = l
		}
		window := strconv.FormatInt(l.Window.Milliseconds(), 10)
		s.words = append(s.words, l.Max, window)
		part := int64(0)
		if l.Resolution > 0 {
			window += "/" + strconv.FormatInt(l.Resolution, 10)
			part = l.grain()
		}
		s.windows = append(s.windows, window)
		s.parts = append(s.parts, part)
	}
	if !slices.ContainsFunc(limits, func(l Limit) bool { return l.Resolution > 0 }) {
		s.parts = nil
	}
	for _, l := range limits {
		s.policies = append(s.policies, core.Policy{Max: l.Max, Window: l.Window})
	}
	return s, nil
}

// Policies is for Decision.Policies.
func (s *limitSet) Policies() []core.Policy { return s.policies }

// check finds limits that make no sense for any guard.
func (l Limit) check() error {
	switch {
	case l.Max < 1:
		return fmt.Errorf("a limit of %d lets nobody in: give it 1 or more, or leave the guard out", l.Max)
	case l.Window < time.Millisecond || l.Window%time.Millisecond != 0:
		return fmt.Errorf("a window of %v: windows are whole milliseconds, 1 ms or more", l.Window)
	case l.Window > core.MaxTTL:
		return fmt.Errorf("a window of %v: at most %v", l.Window, core.MaxTTL)
	case l.Resolution != 0 && (l.Resolution < 2 || l.Resolution > maxResolution):
		return fmt.Errorf("a resolution of %d: count by 2 to %d parts of the window, or leave it out", l.Resolution, maxResolution)
	case l.Resolution != 0 && l.Window/time.Duration(l.Resolution) < time.Millisecond:
		return fmt.Errorf("a resolution of %d in a window of %v: the parts are shorter than 1 ms", l.Resolution, l.Window)
	}
	return nil
}
