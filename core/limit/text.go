package limit

import (
	"errors"
	"fmt"
	"github.com/gatehouse-go/gatehouse/core"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseLimit reads a limit as configuration files have it: units, a window, and a resolution where there is one, with slashes
// in between, as in "100/min", "5 / 10 min", "100_000/day/1440".
//
// The window is a unit of time (s, sec, second; m, min, minute; h, hour; d, day; w, week; all but the letters in the plural too), a
// whole number of such units, or what time.ParseDuration takes. Whole numbers may have '_' between their digits. A day is 24
// hours, a week is 7 days.
//
// An error quotes the text and says what is expected. What is returned makes sense for one guard at least; what a guard demands
// beyond that, such as how large Max may be, is checked when the guard is made.
func Parse(text string) (Limit, error) {
	l, err := parseLimit(text)
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return Limit{}, fmt.Errorf("core: limit %.100q: %w", text, err)
	}
	return l, nil
}

// ParseLimits reads the limits of one guard, with commas in between, as in "10/s, 100/min, 1000/day": see ParseLimit. There is one
// at least.
func ParseAll(text string) ([]Limit, error) {
	var limits []Limit
	for one := range strings.SplitSeq(text, ",") {
		l, err := Parse(one)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// String returns the limit as ParseLimit reads it: "100/1m", and "100000/24h/1440" with a resolution.
func (l Limit) String() string {
	text := strconv.FormatInt(l.Max, 10) + "/" + windowText(l.Window)
	if l.Resolution != 0 {
		text += "/" + strconv.FormatInt(l.Resolution, 10)
	}
	return text
}

// MarshalText implements encoding.TextMarshaler: it is String, and an error for limits that ParseLimit would not read.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("core: limit %v: %w", l, err)
	}
	return []byte(l.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler: it is ParseLimit. So limits can stand in JSON, YAML, environment variables
// and flags. On an error the limit stays as it was.
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}

func parseLimit(text string) (l Limit, err error) {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return l, errors.New(`want units/window, such as "100/min", or units/window/resolution`)
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if l.Max, err = parseWhole(parts[0]); err != nil {
		return l, fmt.Errorf("units: %w", err)
	}
	if l.Window, err = parseWindow(parts[1]); err != nil {
		return l, err
	}
	if len(parts) == 3 {
		if l.Resolution, err = parseWhole(parts[2]); err != nil {
			return l, fmt.Errorf("resolution: %w", err)
		}
		if l.Resolution == 0 {
			return l, errors.New("a resolution of 0: leave it out, to count one by one")
		}
	}
	return l, nil
}

// parseWhole reads a whole number of 0 or more.
func parseWhole(text string) (int64, error) {
	digit := func(i int) bool { return i >= 0 && i < len(text) && '0' <= text[i] && text[i] <= '9' }
	for i := range len(text) {
		if !digit(i) && (text[i] != '_' || !digit(i-1) || !digit(i+1)) {
			return 0, fmt.Errorf("%q is no whole number: want one such as 1000 or 1_000", text)
		}
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%q is too large: want at most %d", text, int64(math.MaxInt64))
	}
	if err != nil {
		return 0, errors.New("nothing: want a whole number, such as 1000 or 1_000")
	}
	return n, nil
}

func parseWindow(text string) (time.Duration, error) {
	at := strings.LastIndexFunc(text, func(c rune) bool { return '0' <= c && c <= '9' }) + 1
	count, name := strings.TrimSpace(text[:at]), strings.TrimSpace(text[at:])
	if unit := unitOf(name); unit > 0 {
		if count == "" {
			return unit, nil
		}
		if n, err := parseWhole(count); err == nil {
			if n > int64(core.MaxTTL/unit) {
				return 0, fmt.Errorf("a window of %s: at most %v", text, core.MaxTTL)
			}
			return time.Duration(n) * unit, nil
		}
	}
	window, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("a window of %q: want s, min, h, day or week, with a whole number before it or without, "+
			`or a duration such as "1h30m"`, text)
	}
	return window, nil
}

// unitOf returns a unit of time by its name, or 0.
func unitOf(name string) time.Duration {
	if len(name) > 2 { // ms is no plural
		name = strings.TrimSuffix(name, "s")
	}
	switch name {
	case "s", "sec", "second":
		return time.Second
	case "m", "min", "minute":
		return time.Minute
	case "h", "hour":
		return time.Hour
	case "d", "day":
		return 24 * time.Hour
	case "w", "week":
		return 7 * 24 * time.Hour
	}
	return 0
}

// windowText returns a window in whole numbers of the largest unit, hours at most, that gives such.
func windowText(window time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if window >= u.length && window%u.length == 0 {
			return strconv.FormatInt(int64(window/u.length), 10) + u.name
		}
	}
	return window.String()
}
