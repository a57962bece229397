package pipeline_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// cors stands for the CORS middleware of an application.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://shop.example")
		w.Header().Set("Access-Control-Expose-Headers", "X-Own, ratelimit")
		next.ServeHTTP(w, r)
	})
}

// TestPreflightsPass: they were counted, and a refused one looked like a broken network to the page. What is
// no preflight of a browser counts all the same.
//
// Promise: A CORS preflight passes limits uncounted, unless `CountPreflights` is set. It never runs a handler
// without its rule's claim. Pages of other origins may read the fields.
func TestPreflightsPass(t *testing.T) {
	rule := pipeline.Rule{Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerHour(1)),
		Who: keyfuncs.Const("ann")}
	counting := rule
	counting.CountPreflights = true
	denying := rule
	denying.Deny = keyfuncs.NewList(keyfuncs.Const("ann"), "ann")
	send := func(rule pipeline.Rule, method, body string, headers ...string) int {
		r := httptest.NewRequest(method, "/", strings.NewReader(body))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		nethttpmw.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		return w.Code
	}
	preflight := []string{"Origin", "https://shop.example", "Access-Control-Request-Method", "POST"}
	for range 5 {
		if code := send(rule, http.MethodOptions, "", preflight...); code != 200 {
			t.Errorf("a preflight: %d", code)
		}
	}
	if code := send(denying, http.MethodOptions, "", preflight...); code != http.StatusForbidden {
		t.Errorf("a preflight of who is denied: %d", code)
	}
	if code := send(rule, http.MethodPost, ""); code != 200 {
		t.Errorf("the first request: %d", code) // takes the only unit
	}
	for name, code := range map[string]int{
		"a rule that counts them": send(counting, http.MethodOptions, "", preflight...),
		"another method":          send(rule, http.MethodPost, "", preflight...),
		"with a body":             send(rule, http.MethodOptions, "x", preflight...),
		"with a cookie":           send(rule, http.MethodOptions, "", append(preflight, "Cookie", "session=1")...),
		"with credentials":        send(rule, http.MethodOptions, "", append(preflight, "Authorization", "Basic x")...),
		"without an origin":       send(rule, http.MethodOptions, "", preflight[2:]...),
		"without a method":        send(rule, http.MethodOptions, "", preflight[:2]...),
	} {
		if code != http.StatusTooManyRequests {
			t.Errorf("%s: %d", name, code)
		}
	}
}

// TestPagesOfOtherOriginsReadTheFields: RateLimit, RateLimit-Policy and Retry-After were not exposed.
func TestPagesOfOtherOriginsReadTheFields(t *testing.T) {
	rule := pipeline.Rule{Guard: limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerHour(1)),
		Who: keyfuncs.Const("ann")}
	third := rule
	third.Guard = limit.NewSlidingWindow(core.NewMemory(), "site", limit.PerHour(1))
	failed := rule
	failed.Failed = func(int) bool { return false } // so the response is watched
	failed.Guard = limit.NewSlidingWindow(core.NewMemory(), "other", limit.PerHour(1))
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, c := range map[string]struct {
		app  http.Handler
		want []string // of the first response and of the second one, which is refused
	}{
		"around the rules": {cors(nethttpmw.HTTP(rule)(handler)), []string{"X-Own, ratelimit;RateLimit-Policy",
			"X-Own, ratelimit;RateLimit-Policy, Retry-After"}},
		"inside of rules that settle": {nethttpmw.HTTP(failed)(cors(handler)),
			[]string{"X-Own, ratelimit;RateLimit-Policy", ""}},
		"none": {nethttpmw.HTTP(third)(handler), []string{"", ""}},
	} {
		for i, want := range c.want {
			w := httptest.NewRecorder()
			c.app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if got := strings.Join(w.Header().Values("Access-Control-Expose-Headers"), ";"); got != want {
				t.Errorf("%s, %d: exposed are %q, want %q", name, i, got, want)
			}
		}
	}
}
