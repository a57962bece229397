package limit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gatehouse-go/gatehouse/internal/limittext"
)

// Parse reads a limit from the text of a configuration: units, a window and an optional resolution, separated
// by slashes, as in "100/min", "5 / 10 min" and "100_000/day/1440". In place of the first slash there may be
// the word per, as in "100 per minute". Files, flags and what operators write have the same form.
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
	text := strconv.FormatInt(l.Max, 10) + "/" + limittext.OfWindow(l.Window)
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
	parts := limittext.Split(text)
	if len(parts) < 2 || len(parts) > 3 {
		return l, errors.New(`want units/window, such as "100/min" or "100 per minute", or ` +
			"units/window/resolution")
	}
	if l.Max, err = limittext.Whole(parts[0]); err != nil {
		return l, fmt.Errorf("units: %w", err)
	}
	if l.Window, err = limittext.Window(parts[1]); err != nil {
		return l, err
	}
	if len(parts) == 3 {
		if l.Resolution, err = limittext.Whole(parts[2]); err != nil {
			return l, fmt.Errorf("resolution: %w", err)
		}
		if l.Resolution == 0 {
			return l, errors.New("a resolution of 0: leave it out to count one by one")
		}
	}
	return l, nil
}
