package pipeline_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestRetryAfterOfAnInnerRefusalIsWhenAskingCanHelp: an inner refusal inherited the whole window of an outer
// limit that the request had used up. It said 8 seconds where 4 were enough.
//
// Promise: Retry-After, in seconds rounded up, is when asking can help. Where running requests may give back
// (`Failed`), it is a second at most.
func TestRetryAfterOfAnInnerRefusalIsWhenAskingCanHelp(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0))
		rule := func(g core.Guard) func(http.Handler) http.Handler {
			return nethttpmw.HTTP(pipeline.Rule{Guard: g, Who: keyfuncs.Const("ann")})
		}
		app := rule(limit.NewSlidingWindow(e, "outer", limit.Per(2, 8*time.Second)))(
			rule(limit.NewTokenBucket(e, "inner", limit.Per(1, 5*time.Second)))(
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		for i, want := range []struct {
			status             int
			limits, retryAfter string
		}{
			{200, `"outer";r=1;t=8|"inner";r=0;t=5`, ""},
			{429, `"outer";r=0;t=4|"inner";r=0;t=1`, "4"},
			{200, `"outer";r=0;t=4|"inner";r=0;t=5`, ""},
		} {
			w := httptest.NewRecorder()
			app.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			fields := w.Header()["Ratelimit"]
			got := ""
			for n, field := range fields {
				if n > 0 {
					got += "|"
				}
				got += field
			}
			if w.Code != want.status || got != want.limits || w.Header().Get("Retry-After") != want.retryAfter {
				t.Errorf("request %d: %d, %s, Retry-After %q, want %+v", i+1, w.Code, got, w.Header().Get("Retry-After"),
					want)
			}
			clock.Advance(4 * time.Second)
		}
	})
}
