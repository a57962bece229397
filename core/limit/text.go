package limit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Parse reads a limit from the text of a configuration: units, a window and an optional resolution, separated
// by slashes, as in "100/min", "5 / 10 min" and "100_000/day/1440".
//
// The window is a unit of time, a whole number of such units, or a duration of [time.ParseDuration]. The
// units of time are s, sec, second; m, min, minute; h, hour; d, day; w, week. Names of more than one letter
// also have a plural. A day is 24 hours, and a week is 7 days. Whole numbers may have '_' between their
// digits.
//
// An error quotes up to 100 characters of the text and up to 40 of the part that is wrong, and says what is
// expected. Parse rejects limits that no guard accepts. The constructor of a guard checks what it demands
// beyond that, such as its largest Max.
func Parse(text string) (Limit, error) {
	l, err := parseLimit(text)
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return Limit{}, fmt.Errorf("limit: %.100q: %w", text, err)
	}
	return l, nil
}

// ParseAll reads the limits of one guard, separated by commas, as in "10/s, 100/min, 1000/day": see [Parse].
// It returns at least one limit, or the error of the first text that is not a limit.
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

// String returns the limit in the form that [Parse] reads: "100/1m", or "100000/24h/1440" with a resolution.
func (l Limit) String() string {
	text := strconv.FormatInt(l.Max, 10) + "/" + windowText(l.Window)
	if l.Resolution != 0 {
		text += "/" + strconv.FormatInt(l.Resolution, 10)
	}
	return text
}

// MarshalText implements [encoding.TextMarshaler]. It returns the text of [Limit.String], or an error for a
// limit that [Parse] rejects.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("limit: %v: %w", l, err)
	}
	return []byte(l.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] with [Parse], so that limits can be read from JSON,
// YAML, environment variables and flags. On an error it leaves the limit unchanged.
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
			return l, errors.New("a resolution of 0: leave it out to count one by one")
		}
	}
	return l, nil
}

// parseWhole reads a whole number of 0 or more.
func parseWhole(text string) (int64, error) {
	digit := func(i int) bool { return i >= 0 && i < len(text) && '0' <= text[i] && text[i] <= '9' }
	for i := range len(text) {
		if !digit(i) && (text[i] != '_' || !digit(i-1) || !digit(i+1)) {
			return 0, fmt.Errorf("%.40q is not a whole number: want one such as 1000 or 1_000", text)
		}
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%.40q is too large: want at most %d", text, int64(math.MaxInt64))
	}
	if err != nil {
		return 0, errors.New("missing: want a whole number such as 1000 or 1_000")
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
			if n > int64(kit.MaxTTL/unit) {
				return 0, fmt.Errorf("a window of %.40s is too long: use at most %v", text, kit.MaxTTL)
			}
			return time.Duration(n) * unit, nil
		}
	}
	window, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("a window of %.40q: want s, min, h, day or week, optionally after a whole number, "+
			`or a duration such as "1h30m"`, text)
	}
	return window, nil
}

// unitOf returns the unit of time that has this name, or 0.
func unitOf(name string) time.Duration {
	if len(name) > 2 { // "ms" is not a plural of "m"
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

// windowText returns a window as a whole number of the largest unit that divides it, hours at most.
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
