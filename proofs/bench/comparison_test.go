package bench

import (
	"net/http"
	"testing"
	"time"
)

// TestOutcomesAreTold: what the page says of a library without its Redis is what it answered.
func TestOutcomesAreTold(t *testing.T) {
	const n = 5
	shared := contender{redis: true}
	for _, tt := range []struct {
		each   contender
		counts map[int]int
		sorted bool
		want   string
	}{
		{contender{}, map[int]int{200: 5, 429: 5}, true, "needs none: each process counts for itself"},
		{shared, map[int]int{200: 5, 429: 5}, true, "limits in the process"},
		{shared, map[int]int{200: 5, 429: 5}, false, "answers, of 10 requests: map[200:5 429:5]"},
		{shared, map[int]int{200: 10}, true, "allows every request"},
		{shared, map[int]int{statusError: 10}, true, "returns the error: you decide"},
		{shared, map[int]int{0: 10}, true, "panics in every request"},
		{shared, map[int]int{500: 10}, true, "answers 500 to every request"},
		{shared, map[int]int{503: 10}, true, "answers, of 10 requests: map[503:10]"},
		{shared, map[int]int{statusNoAnswer: 10}, true, "lets every request wait, for longer than 2s"},
	} {
		if got := outcome(tt.each, n, tt.counts, tt.sorted); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.counts, got, tt.want)
		}
	}
}

// TestContendersKeepTheirLimit: what is compared limits each client by itself, to what it is asked for, where
// requests come in one window.
func TestContendersKeepTheirLimit(t *testing.T) {
	const n = 5
	rdb := start(t)
	hour := time.Now().Truncate(time.Hour)
	for _, each := range contenders(t) {
		h := each.handler(rdb, n, time.Hour, nil)
		for _, client := range []string{"203.0.113.1", "203.0.113.2"} {
			for i := range 2 * n {
				want := http.StatusOK
				if i >= n {
					want = http.StatusTooManyRequests
				}
				a := ask(t.Context(), h, client)
				if !time.Now().Truncate(time.Hour).Equal(hour) {
					TestContendersKeepTheirLimit(t) // windows of some have ended: all begin anew
					return
				}
				if a.status != want {
					t.Fatalf("%s: request %d of %s gets %d, want %d", each.name, i+1, client, a.status, want)
				}
			}
		}
	}
}
