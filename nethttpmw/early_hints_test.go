package nethttpmw_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// TestAnEarlyHintLeavesTheFieldsOfTheFinalAnswer: behind a limit, a httputil.ReverseProxy whose upstream sends
// 103 emptied the header, and the answer had no RateLimit.
func TestAnEarlyHintLeavesTheFieldsOfTheFinalAnswer(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		_, _ = io.WriteString(w, "ok")
	}))
	defer upstream.Close()
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		counted []int
		origin  string
	}{"plain": {}, "settled": {counted: []int{http.StatusOK}}, "of another origin": {origin: "https://shop.example"}} {
		gate := core.NewMemory(core.WithObserver(guardtest.Ignore{}))
		inner := nethttpmw.HTTP(nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, "inner", limit.PerHour(9)),
			Who: keyfuncs.Const("all"), Counted: c.counted})
		outer := nethttpmw.HTTP(nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, "outer", limit.PerHour(9)),
			Who: keyfuncs.Const("all"), Headers: nethttpmw.Headers{Legacy: true}})
		front := httptest.NewServer(outer(inner(httputil.NewSingleHostReverseProxy(at))))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		front.Close()
		if h := answer.Header; answer.StatusCode != http.StatusOK || len(h["Ratelimit"]) != 2 ||
			len(h["Ratelimit-Policy"]) != 2 || h.Get("X-RateLimit-Remaining") != "8" || h.Get("Link") == "" {
			t.Errorf("%s: %d %v", name, answer.StatusCode, h)
		}
	}
}
