package period

import (
	"testing"
	"time"
	_ "time/tzdata" // the histories of the zones are the same on every machine

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// zones lists time zones with unusual changes: at midnight, across midnight, by half an hour, in winter,
// around Ramadan, and with a skipped day.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/Dublin", "America/New_York", "America/Sao_Paulo", "America/Havana",
	"America/St_Johns",
	"America/Asuncion", "America/Santiago", "America/Scoresbysund", "America/Toronto", "Asia/Beirut",
	"Asia/Gaza", "Asia/Amman",
	"Asia/Tehran", "Asia/Pyongyang", "Asia/Kathmandu", "Africa/Cairo", "Africa/Casablanca", "Atlantic/Azores",
	"Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Chatham", "Antarctica/Troll",
}

func TestPeriodsTileTime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		loc := guardtest.Zone(t, rapid.SampledFrom(zones).Draw(rt, "zone"))
		period := rapid.SampledFrom([]Period{
			Daily(loc), Weekly(loc, time.Weekday(rapid.IntRange(0, 6).Draw(rt, "first day"))), Monthly(loc),
			MonthlyOn(rapid.IntRange(1, 31).Draw(rt, "day"), loc),
			Every(time.Duration(rapid.Int64Range(1_000, kit.MaxTTL.Milliseconds()).Draw(rt,
				"length")) * time.Millisecond),
		}).Draw(rt, "period")
		at := time.Unix(rapid.Int64Range(-5_000_000_000, 7_258_118_400).Draw(rt, "seconds"), // 1811 to 2200
			rapid.Int64Range(0, 999_999_999).Draw(rt, "ns"))
		if rapid.Bool().Draw(rt, "near a change of the clocks") {
			if _, changes := at.In(loc).ZoneBounds(); !changes.IsZero() {
				at = changes.Add(time.Duration(rapid.Int64Range(-int64(2*time.Hour), int64(2*time.Hour)).Draw(rt, "off")))
			}
		}
		begins, ends := period(at)
		if begins.After(at) || !ends.After(at) || begins.Nanosecond()%1e6 != 0 || ends.Nanosecond()%1e6 != 0 {
			rt.Fatalf("the period of %v is from %v to %v", at.In(loc), begins, ends)
		}
		want := func(at, wantBegins, wantEnds time.Time) {
			gotBegins, gotEnds := period(at)
			if !wantBegins.IsZero() && !gotBegins.Equal(wantBegins) || !wantEnds.IsZero() && !gotEnds.Equal(wantEnds) {
				rt.Fatalf("the period of %v is from %v to %v, want %v to %v", at.In(loc), gotBegins, gotEnds, wantBegins,
					wantEnds)
			}
		}
		inside := begins.Add(time.Duration(rapid.Int64Range(0, int64(ends.Sub(begins))-1).Draw(rt, "inside")))
		for _, at := range []time.Time{begins, inside, ends.Add(-1)} {
			want(at, begins, ends)
		}
		want(ends, ends, time.Time{})
		want(begins.Add(-1), time.Time{}, begins)
	})
}

// TestDaysBeginWithTheirFirstMoment walks through all days of all zones: a day begins when the calendar shows
// its date for the first time, and lasts until a later date is shown.
func TestDaysBeginWithTheirFirstMoment(t *testing.T) {
	date := func(t time.Time) int { return t.Year()*10_000 + int(t.Month())*100 + t.Day() }
	for _, name := range zones {
		loc := guardtest.Zone(t, name)
		day := Daily(loc)
		last := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
		for begins, ends := day(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)); begins.Before(last); begins,
			ends = day(ends) {
			today := date(begins.In(loc))
			if before := date(begins.Add(-1).In(loc)); before >= today {
				t.Fatalf("%s: the day of %v begins when it was shown already", name, begins.In(loc))
			}
			step := ends.Sub(begins) - time.Millisecond // the first and the last moment
			if last, next := begins.In(loc).ZoneBounds(); begins.Sub(last) < 24*time.Hour || !next.IsZero() &&
				next.Before(ends) {
				step = 30 * time.Minute // the clocks change about here
			}
			for at := begins; at.Before(ends); at = at.Add(step) {
				if shown := date(at.In(loc)); shown > today {
					t.Fatalf("%s: %v is in the day of %v", name, at.In(loc), begins.In(loc))
				}
			}
			changed, _ := begins.In(loc).ZoneBounds()
			if hour, minute, second := begins.In(loc).Clock(); hour+minute+second > 0 && !begins.Equal(changed) {
				t.Fatalf("%s: a day begins at %v", name, begins.In(loc))
			}
		}
	}
}

func TestPeriodsByTheCalendar(t *testing.T) {
	weekly := func(zone *time.Location) Period { return Weekly(zone, time.Monday) }
	every := func(d time.Duration) func(*time.Location) Period {
		return func(*time.Location) Period { return Every(d) }
	}
	on := func(day int) func(*time.Location) Period {
		return func(zone *time.Location) Period { return MonthlyOn(day, zone) }
	}
	for _, c := range []struct {
		zone         string
		period       func(*time.Location) Period
		at           string
		begins, ends string
		hours        float64
	}{
		{"UTC", Daily, "2028-02-29T12:00:00Z", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z", 24},
		{"Europe/Berlin", Daily, "2024-03-31T12:00:00Z", "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z", 23},
		{"Europe/Berlin", Daily, "2024-10-27T12:00:00Z", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z", 25},
		{"Australia/Lord_Howe", Daily, "2024-04-06T18:00:00Z", "2024-04-06T13:00:00Z", "2024-04-07T13:30:00Z",
			24.5},

		// No midnight: 00:00 is 01:00.
		{"America/Sao_Paulo", Daily, "2017-10-15T12:00:00Z", "2017-10-15T03:00:00Z", "2017-10-16T02:00:00Z", 23},
		{"America/Sao_Paulo", Daily, "2017-10-15T02:30:00Z", "2017-10-14T03:00:00Z", "2017-10-15T03:00:00Z", 24},
		{"Asia/Beirut", Daily, "2022-03-27T12:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z", 23},
		// 00:00 is 23:00 once more.
		{"America/Sao_Paulo", Daily, "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z", 25},
		{"Asia/Beirut", Daily, "2022-10-29T21:30:00Z", "2022-10-28T21:00:00Z", "2022-10-29T22:00:00Z", 25},
		// Two midnights: 01:00 is 00:00.
		{"America/Havana", Daily, "2022-11-06T12:00:00Z", "2022-11-06T04:00:00Z", "2022-11-07T05:00:00Z", 25},
		// 00:01 is 23:01 of the day before: that day is over.
		{"America/St_Johns", Daily, "2006-10-29T02:30:30Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z", 25},
		{"America/St_Johns", Daily, "2006-10-29T03:00:00Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z", 25},
		// No 30 December.
		{"Pacific/Apia", Daily, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", 24},
		{"Pacific/Apia", Daily, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", 24},

		{"Europe/Berlin", weekly, "2024-03-31T21:59:59Z", "2024-03-24T23:00:00Z", "2024-03-31T22:00:00Z", 167},
		{"UTC", weekly, "2025-01-01T00:00:00Z", "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z", 168},
		{"Europe/Berlin", Monthly, "2024-10-31T22:59:59Z", "2024-09-30T22:00:00Z", "2024-10-31T23:00:00Z", 745},
		{"UTC", Monthly, "2024-12-31T23:59:59Z", "2024-12-01T00:00:00Z", "2025-01-01T00:00:00Z", 744},
		// The last day of a month that has no 29th, 30th or 31st.
		{"UTC", on(31), "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z", 744},
		{"UTC", on(31), "2028-02-28T23:59:59Z", "2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z", 696},
		{"UTC", on(30), "2027-03-01T00:00:00Z", "2027-02-28T00:00:00Z", "2027-03-30T00:00:00Z", 720},
		{"UTC", on(29), "2027-01-02T00:00:00Z", "2026-12-29T00:00:00Z", "2027-01-29T00:00:00Z", 744},
		{"Europe/Berlin", on(31), "2024-03-31T12:00:00Z", "2024-03-30T23:00:00Z", "2024-04-29T22:00:00Z", 719},
		{"Pacific/Apia", on(30), "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z", 720},
		{"UTC", every(36 * time.Hour), "1970-01-02T12:00:00Z", "1970-01-02T12:00:00Z", "1970-01-04T00:00:00Z", 36},
		{"UTC", every(36 * time.Hour), "1969-12-31T23:59:59Z", "1969-12-30T12:00:00Z", "1970-01-01T00:00:00Z", 36},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		begins, ends := c.period(guardtest.Zone(t, c.zone))(at)
		gotBegins, gotEnds := begins.UTC().Format(time.RFC3339), ends.UTC().Format(time.RFC3339)
		if gotBegins != c.begins || gotEnds != c.ends || ends.Sub(begins).Hours() != c.hours {
			t.Errorf("%s, %s: %s to %s (%v), want %s to %s", c.zone, c.at, gotBegins, gotEnds, ends.Sub(begins),
				c.begins, c.ends)
		}
	}
}
