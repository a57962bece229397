// Package schedule checks and converts the times at which a guard opens and closes, and lengths of leases.
package schedule

import (
	"fmt"
	"time"
)

// Check returns an error for times between which a guard is never open, or that scripts cannot count with.
// A zero time stands for none.
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

// Countable reports whether scripts can count with a time: in milliseconds from 1970, where 0 stands for
// none, and up to the year 2200.
func Countable(t time.Time) bool { return t.Unix() >= 1 && t.Year() <= 2200 }

// Sure returns for how long a process may rely on a lease, from when it sent the call that took or renewed
// it. For the server the lease may end a bit before its length is over: a script cuts the moment down to
// whole milliseconds, and the clock of the process may be slower than the server's.
func Sure(lease time.Duration) time.Duration { return lease - lease/1000 - time.Millisecond }

// Milli returns a time as scripts take it: milliseconds since 1970, 0 for the zero Time.
func Milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
