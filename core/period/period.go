package period

import (
	"fmt"
	"github.com/gatehouse-go/gatehouse/core"
	"time"
)

// Period says which period an instant is in: from begins on, up to but not including ends. Both are whole milliseconds. Periods
// follow one another without gap or overlap, so each instant is in exactly one.
//
// Daily, Weekly, Monthly and Every make periods. A function of one's own, such as one for terms or seasons, is called at each
// attempt, from many goroutines at once, and has to give the same answer in every process.
type Period func(t time.Time) (begins, ends time.Time)

// Daily is the days of a time zone's calendar. A day that the clocks go forward or back in has 23 or 25 hours; where they skip
// midnight, the day begins with its first moment. It panics when loc is nil.
func Daily(loc *time.Location) Period {
	return calendar(loc, 0, 1, func(local time.Time) int { return local.Day() })
}

// Weekly is the weeks of a time zone's calendar, which begin on the given day of the week. It panics when loc is nil or there
// is no such day.
func Weekly(loc *time.Location, first time.Weekday) Period {
	if first < time.Sunday || first > time.Saturday {
		panic(fmt.Sprintf("core: Weekly with day %d: weeks begin on a day from time.Sunday to time.Saturday", first))
	}
	return calendar(loc, 0, 7, func(local time.Time) int { return local.Day() - int(local.Weekday()-first+7)%7 })
}

// Monthly is the months of a time zone's calendar. It panics when loc is nil.
func Monthly(loc *time.Location) Period {
	return calendar(loc, 1, 0, func(time.Time) int { return 1 })
}

// Every is periods of one length, counted from 1970-01-01 00:00 UTC on whatever the calendar says. A length is a whole number of
// milliseconds, 1 s to 366 days; it panics on others.
func Every(d time.Duration) Period {
	if d < time.Second || d > core.MaxTTL || d%time.Millisecond != 0 {
		panic(fmt.Sprintf("core: Every(%v): give it whole milliseconds, 1s to %v", d, core.MaxTTL))
	}
	length := d.Milliseconds()
	return func(t time.Time) (begins, ends time.Time) {
		now := t.UnixMilli()
		first := now - (now%length+length)%length // the remainder of a time before 1970 is negative
		return time.UnixMilli(first), time.UnixMilli(first + length)
	}
}

// calendar is periods of so many months and days. first returns the day of its month, which may be 0 or less, on which the
// period of a local time begins.
func calendar(loc *time.Location, months, days int, first func(local time.Time) int) Period {
	if loc == nil {
		panic("core: a calendar needs a time zone: pass time.UTC, or what time.LoadLocation returns")
	}
	return func(t time.Time) (begins, ends time.Time) {
		local := t.In(loc)
		year, month, day := local.Year(), int(local.Month()), first(local)
		begins, ends = dayBegins(year, month, day, loc), dayBegins(year, month+months, day+days, loc)
		for !t.Before(ends) { // the clock went back over midnight: the date is yesterday's again, the period is not
			month, day = month+months, day+days
			begins, ends = ends, dayBegins(year, month+months, day+days, loc)
		}
		return begins, ends
	}
}

// dayBegins returns the first moment at which a time zone's calendar shows the date or, where it leaves the date out, a later
// one. time.Date does not say which moment it returns for a midnight that does not exist, or that comes twice.
func dayBegins(year, month, day int, loc *time.Location) time.Time {
	midnight := time.Date(year, time.Month(month), day, 0, 0, 0, 0, loc)
	changed, changes := midnight.ZoneBounds() // the zone's last change of the clocks, and its next
	wall := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	_, offset := midnight.Zone()
	shown := midnight.Add(time.Duration(offset) * time.Second) // what the clock shows then, as if in UTC
	switch {
	case shown.Before(wall):
		return changes
	case shown.After(wall):
		return changed
	case changed.IsZero():
		return midnight
	}
	_, before := changed.Add(-time.Second).Zone()
	if earlier := wall.Add(-time.Duration(before) * time.Second); earlier.Before(changed) {
		return earlier.In(loc)
	}
	return midnight
}

// span is one period as the scripts take it, in milliseconds since 1970: from begins on, up to but not including ends.
type Span struct{ Begins, Ends int64 }

func (s Span) Has(milli int64) bool { return s.Begins <= milli && milli < s.Ends }

// keep is how long the items are kept after the period: for a clock that is set back, such as by a failover to a server whose
// clock is behind.
func (s Span) Keep() int64 { return min(s.Ends-s.Begins, time.Hour.Milliseconds()) }

// at returns the period of a moment. A function of the application's own may be wrong about it.
func (p Period) At(milli int64) (Span, error) {
	begins, ends := p(time.UnixMilli(milli))
	s := Span{begins.UnixMilli(), ends.UnixMilli()}
	if !s.Has(milli) {
		return s, fmt.Errorf("the Period says of %v that its period is from %v to %v: return one that it is in",
			time.UnixMilli(milli).UTC(), begins, ends)
	}
	return s, nil
}
