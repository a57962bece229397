package core

import (
	"fmt"
	"time"
)

// Limit is one rate limit: at most Max units in any Window.
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

const (
	maxLimit  = 10_000
	maxWindow = 366 * 24 * time.Hour
)

// check finds limits that make no sense, which are the developer's mistakes.
func (l Limit) check() error {
	switch {
	case l.Max < 1:
		return fmt.Errorf("core: a limit of %d lets nobody in: give it 1 or more, or leave the guard out", l.Max)
	case l.Max > maxLimit:
		return fmt.Errorf("core: a limit of %d units needs a log of %d: an exact window keeps at most %d, "+
			"so make the window shorter or count larger units", l.Max, l.Max, maxLimit)
	case l.Window < time.Millisecond || l.Window%time.Millisecond != 0:
		return fmt.Errorf("core: a window of %v: windows are whole milliseconds, 1 ms or more", l.Window)
	case l.Window > maxWindow:
		return fmt.Errorf("core: a window of %v: at most %v", l.Window, maxWindow)
	}
	return nil
}
