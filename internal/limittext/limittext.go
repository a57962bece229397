// Package limittext reads and writes the parts of a limit's text, such as "100/min", so that the text has one
// form in Go, in files, in flags and where operators decide. What a limit may be is for its guard to check.
package limittext

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core/kit"
)

// Split returns the parts of a limit: units, a window, and what follows it. They are separated by slashes.
// The first separator may also be the word per, between spaces.
func Split(text string) []string {
	if words := strings.Fields(text); len(words) > 2 && words[1] == "per" {
		text = words[0] + "/" + strings.Join(words[2:], " ")
	}
	parts := strings.Split(text, "/")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// Whole reads a whole number of 0 or more.
func Whole(text string) (int64, error) {
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

// Window reads a window: a unit of time, a whole number of such units, or a duration of [time.ParseDuration].
func Window(text string) (time.Duration, error) {
	at := strings.LastIndexFunc(text, func(c rune) bool { return '0' <= c && c <= '9' }) + 1
	count, name := strings.TrimSpace(text[:at]), strings.TrimSpace(text[at:])
	if unit := unitOf(name); unit > 0 {
		if count == "" {
			return unit, nil
		}
		if n, err := Whole(count); err == nil {
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

// OfWindow returns the text of a window, as a whole number of the largest unit that divides it, hours at
// most.
func OfWindow(window time.Duration) string {
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
