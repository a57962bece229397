package pipeline_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// TestUnitsThatAreGivenBackCountAsLeft: after a failed request whose unit was given back, RateLimit said r=0.
//
// Promise: RateLimit counts units that a failed request gives back as left.
func TestUnitsThatAreGivenBackCountAsLeft(t *testing.T) {
	gate := core.NewMemory()
	logins := pipeline.Rule{
		Guard: limit.NewSlidingWindow(gate, "logins", limit.PerHour(2)), Who: keyfuncs.Const("ann"),
		Failed:  func(status int) bool { return status != http.StatusUnauthorized },
		Headers: answers.Headers{Legacy: true},
	}
	site := pipeline.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerHour(9)), Who: logins.Who}
	status, inner := 200, nethttpmw.HTTP(logins)
	for name, app := range map[string]func(http.Handler) http.Handler{
		"one middleware": nethttpmw.HTTP(site, logins),
		"two":            func(h http.Handler) http.Handler { return nethttpmw.HTTP(site)(inner(h)) },
	} {
		if err := logins.Guard.(*limit.SlidingWindow).Reset(t.Context(), core.Attempt{Actor: "ann"}); err != nil {
			t.Fatal(err)
		}
		handler := app(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		for i, want := range []struct {
			status    int
			left      int64
			remaining string
		}{
			{200, 2, "2"}, // given back: all are left
			{401, 1, "1"},
			{200, 1, "1"}, // given back: what the failed login took is not
			{401, 0, "0"},
		} {
			status = want.status
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			found := false
			for _, it := range items(t, w.Header().Values("RateLimit")) {
				if it.name == "logins" {
					found = it.numbers["r"] == want.left
					if _, waits := it.numbers["t"]; waits == (want.left == 2) {
						t.Errorf("%s, %d: %q", name, i, w.Header().Values("RateLimit"))
					}
				}
			}
			if got := w.Header().Get("X-RateLimit-Remaining"); !found || got != want.remaining {
				t.Errorf("%s, %d: %q, X-RateLimit-Remaining %q, want r=%d", name, i, w.Header().Values("RateLimit"), got,
					want.left)
			}
		}
	}
}
