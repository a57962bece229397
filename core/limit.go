package core

import (
	"context"
	"errors"
	"fmt"
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

const maxWindow = 366 * 24 * time.Hour

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
type LimitsFunc func(ctx context.Context, a Attempt) ([]Limit, error)

// limitSet is one or several limits that have been checked, in the forms that calls need.
type limitSet struct {
	limits  []Limit
	least   Limit    // the one with the smallest Max
	windows []string // in milliseconds, as the keys are named by
	words   []any    // the limits as the scripts take them
}

// newLimitSet checks limits, of which none may have more units than most; holds says in the error whose bound that is.
func newLimitSet(limits []Limit, most int64, holds string) (*limitSet, error) {
	if len(limits) == 0 {
		return nil, errors.New("no limits: give at least one; whoever has none should not come to this guard")
	}
	s := &limitSet{limits: limits, least: limits[0]}
	for _, l := range limits {
		switch {
		case l.Max < 1:
			return nil, fmt.Errorf("a limit of %d lets nobody in: give it 1 or more, or leave the guard out", l.Max)
		case l.Max > most:
			return nil, fmt.Errorf("a limit of %d units: %s at most %d, so make the window shorter or count larger units", l.Max, holds, most)
		case l.Window < time.Millisecond || l.Window%time.Millisecond != 0:
			return nil, fmt.Errorf("a window of %v: windows are whole milliseconds, 1 ms or more", l.Window)
		case l.Window > maxWindow:
			return nil, fmt.Errorf("a window of %v: at most %v", l.Window, maxWindow)
		}
		window := strconv.FormatInt(l.Window.Milliseconds(), 10)
		if slices.Contains(s.windows, window) {
			return nil, fmt.Errorf("two limits with the window %v: keep the smaller one", l.Window)
		}
		if l.Max < s.least.Max {
			s.least = l
		}
		s.windows = append(s.windows, window)
		s.words = append(s.words, l.Max, window)
	}
	return s, nil
}
