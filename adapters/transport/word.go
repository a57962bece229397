package transport

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// errWord is wrapped by the errors of answers whose fields make no sense. The observer is told of them.
var errWord = errors.New("transport: the partner's answer")

// longest is the longest pause that is told from nonsense: MaxPause bounds it further.
const longest = 366 * 24 * time.Hour

// pauseOf returns for how long the partner wants nothing, by the header of its answer: the longest of what
// its fields say. Fields that make no sense are an error, and count as absent.
func pauseOf(resp *http.Response, now time.Time) (pause time.Duration, err error) {
	h := resp.Header
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		if text := h.Get("Retry-After"); text != "" {
			pause, err = retryAfter(text, h.Get("Date"), now)
		}
	}
	more, err2 := rateLimit(h)
	most, err3 := xRateLimit(h, now)
	return max(pause, more, most), errors.Join(err, err2, err3)
}

// retryAfter reads seconds or a date. A date counts from the partner's own clock, if it has sent that.
func retryAfter(text, date string, now time.Time) (time.Duration, error) {
	if until, err := http.ParseTime(text); err == nil {
		if sent, err := http.ParseTime(date); err == nil {
			now = sent
		}
		return max(until.Sub(now), 0), nil
	}
	return seconds("Retry-After", text)
}

// seconds reads a number of seconds, of any length.
func seconds(field, text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseFloat(text, 64)
	if len(text) > 20 || err != nil || n != n || n < 0 {
		return 0, fmt.Errorf("%w: %s is no number of seconds", errWord, field)
	}
	return time.Duration(min(n, longest.Seconds()) * float64(time.Second)), nil
}

// rateLimit reads the RateLimit field of draft-ietf-httpapi-ratelimit-headers-11: a list of policies. Each
// has r, what is left, and t, the seconds until there is more.
func rateLimit(h http.Header) (pause time.Duration, err error) {
	for _, value := range h.Values("Ratelimit") {
		if len(value) > 4096 {
			return 0, fmt.Errorf("%w: RateLimit is too long", errWord)
		}
		for _, item := range strings.Split(value, ",") {
			left, until, found := "", "", false
			for i, param := range strings.Split(item, ";") {
				name, v, _ := strings.Cut(strings.TrimSpace(param), "=")
				switch {
				case i == 0: // the name of the policy
				case name == "r":
					left, found = v, true
				case name == "t":
					until = v
				}
			}
			if !found || strings.TrimLeft(left, "0") != "" || left == "" || until == "" {
				continue // something is left, or nobody says for how long not
			}
			more, failed := seconds("RateLimit", until)
			pause, err = max(pause, more), errors.Join(err, failed)
		}
	}
	return pause, err
}

// xRateLimit reads the pair that most partners have: what is left, and when there is more. That is a number
// of seconds, or a moment in seconds or milliseconds since 1970.
func xRateLimit(h http.Header, now time.Time) (time.Duration, error) {
	left, reset := h.Get("X-Ratelimit-Remaining"), h.Get("X-Ratelimit-Reset") // as Go writes them
	if left == "" || reset == "" {
		return 0, nil
	}
	if n, err := strconv.ParseFloat(left, 64); err != nil || n >= 1 {
		if err != nil {
			err = fmt.Errorf("%w: X-RateLimit-Remaining is no number", errWord)
		}
		return 0, err
	}
	value, err := seconds("X-RateLimit-Reset", reset)
	const sinceEpoch = 1e9 // no number of seconds to wait is so large, and no moment since 2001 smaller
	n, _ := strconv.ParseFloat(strings.TrimSpace(reset), 64)
	switch {
	case err != nil || n < sinceEpoch:
		return value, err
	case n >= 1000*sinceEpoch:
		n /= 1000
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	wait := n - float64(now.UnixMilli())/1000
	return time.Duration(min(max(wait, 0), longest.Seconds()) * float64(time.Second)), nil
}
