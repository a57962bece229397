package schedule

import (
	"fmt"
	"time"
)

// checkTimes finds times at which nothing can open and close. Scripts count milliseconds from 1970 on, and know 0 as no time.
func Check(opens, closes time.Time) error {
	for what, at := range map[string]time.Time{"opens": opens, "closes": closes} {
		if !at.IsZero() && !Countable(at) {
			return fmt.Errorf("%s at %v: give it a time from 1970 to 2200, or the zero Time for none", what, at)
		}
	}
	if !opens.IsZero() && !closes.IsZero() && !opens.Before(closes) {
		return fmt.Errorf("closes %v and opens %v is never open", closes, opens)
	}
	return nil
}

// countable reports whether scripts can count with a time.
func Countable(t time.Time) bool { return t.Unix() >= 1 && t.Year() <= 2200 }

// unixMilli is a time as scripts take it: 0 where there is none.
func Milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
