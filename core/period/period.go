// Package period divides time into periods: days, weeks and months of a calendar, and periods of a fixed
// length. A guard that counts per period, such as a quota, takes one.
package period

import (
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

// A Period returns the period that an instant is in: from begins on, up to but not including ends. Both are
// whole milliseconds. Periods follow one another without gap or overlap, so each instant is in exactly one.
//
// [Daily], [Weekly], [Monthly], [MonthlyOn] and [Every] make periods. A function of your own, for example for
// terms or seasons, must be safe for concurrent use, because every attempt calls it, and must give the same
// answer in every process.
type Period func(t time.Time) (begins, ends time.Time)

// Daily makes periods of the days of a time zone's calendar. A day on which the clocks change has 23 or 25
// hours. Where they skip midnight, the day begins with its first moment. It panics when loc is nil.
func Daily(loc *time.Location) Period {
	return calendar(loc, 1, func(local time.Time) int { return local.Day() })
}

// Weekly makes periods of the weeks of a time zone's calendar, which begin on the given day of the week. It
// panics when loc is nil or first is no weekday.
func Weekly(loc *time.Location, first time.Weekday) Period {
	if first < time.Sunday || first > time.Saturday {
		panic(fmt.Sprintf("period: Weekly with day %d: weeks begin on a day from time.Sunday to time.Saturday",
			first))
	}
	return calendar(loc, 7, func(local time.Time) int { return local.Day() - int(local.Weekday()-first+7)%7 })
}

// Monthly makes periods of the months of a time zone's calendar. It panics when loc is nil.
func Monthly(loc *time.Location) Period { return MonthlyOn(1, loc) }

// MonthlyOn makes periods of months that begin on a day of a time zone's calendar, such as that on which a
// customer signed up. In a month without that day they begin on its last one. It panics when loc is nil or
// the day is none of 1 to 31.
func MonthlyOn(day int, loc *time.Location) Period {
	if day < 1 || day > 31 {
		panic(fmt.Sprintf("period: MonthlyOn with day %d: months begin on a day from 1 to 31", day))
	}
	needZone(loc)
	return func(t time.Time) (begins, ends time.Time) {
		year, month, _ := t.In(loc).Date()
		begin := func(month time.Month) time.Time {
			last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
			return dayBegins(year, int(month), min(day, last), loc)
		}
		begins, ends = begin(month), begin(month+1)
		if t.Before(begins) {
			begins, ends = begin(month-1), begins
		}
		for !t.Before(ends) { // the clock went back over midnight, as in calendar
			month++
			begins, ends = ends, begin(month+1)
		}
		return begins, ends
	}
}

// Every makes periods of one length, counted from 1970-01-01 00:00 UTC and independent of any calendar. It
// panics unless the length is a whole number of milliseconds from 1 s to 366 days.
func Every(d time.Duration) Period {
	if d < time.Second || d > kit.MaxTTL || d%time.Millisecond != 0 {
		panic(fmt.Sprintf("period: Every(%v): give it whole milliseconds, 1s to %v", d, kit.MaxTTL))
	}
	length := d.Milliseconds()
	return func(t time.Time) (begins, ends time.Time) {
		now := t.UnixMilli()
		first := now - (now%length+length)%length // the remainder of a time before 1970 is negative
		return time.UnixMilli(first), time.UnixMilli(first + length)
	}
}

func needZone(loc *time.Location) {
	if loc == nil {
		panic("period: a calendar needs a time zone: pass time.UTC, or what time.LoadLocation returns")
	}
}

// calendar makes periods of the given number of days. first returns the day of its month, which may be 0 or
// less, on which the period of a local time begins.
func calendar(loc *time.Location, days int, first func(local time.Time) int) Period {
	needZone(loc)
	return func(t time.Time) (begins, ends time.Time) {
		local := t.In(loc)
		year, month, day := local.Year(), int(local.Month()), first(local)
		begins, ends = dayBegins(year, month, day, loc), dayBegins(year, month, day+days, loc)
		// the clock went back over midnight: the date is yesterday's again, but the period is today's
		for !t.Before(ends) {
			day += days
			begins, ends = ends, dayBegins(year, month, day+days, loc)
		}
		return begins, ends
	}
}

// dayBegins returns the first moment at which a time zone's calendar shows the date or, where it skips the
// date, a later one. time.Date does not say which moment it returns for a midnight that does not exist, or
// that comes twice.
func dayBegins(year, month, day int, loc *time.Location) time.Time {
	midnight := time.Date(year, time.Month(month), day, 0, 0, 0, 0, loc)
	changed, changes := midnight.ZoneBounds() // the zone's last clock change, and its next
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

// A Span is one period as the scripts take it, in milliseconds since 1970: from Begins on, up to but not
// including Ends.
type Span struct{ Begins, Ends int64 }

// Has reports whether the moment is in the period.
func (s Span) Has(milli int64) bool { return s.Begins <= milli && milli < s.Ends }

// KeptAfter returns for how many milliseconds items are kept after the period. It covers a clock that is set
// back, for example by a failover to a server whose clock is behind.
func (s Span) KeptAfter() int64 { return min(s.Ends-s.Begins, time.Hour.Milliseconds()) }

// At returns the period of a moment. It returns an error when the application's own function returns a
// period without the moment.
func (p Period) At(milli int64) (Span, error) {
	begins, ends := p(time.UnixMilli(milli))
	s := Span{begins.UnixMilli(), ends.UnixMilli()}
	if !s.Has(milli) {
		return s, fmt.Errorf("the Period says that %v is in the period from %v to %v: return a period that "+
			"contains it",
			time.UnixMilli(milli).UTC(), begins, ends)
	}
	return s, nil
}
