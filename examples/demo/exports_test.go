package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// TestThePageShowsExportsThatRun: two run at a time, and the third is refused. Who leaves gives the permit
// back.
func TestThePageShowsExportsThatRun(t *testing.T) {
	t.Parallel()
	timed.Test(t, 500*time.Millisecond, func(t *timed.T) { // an export takes three seconds
		a := start(t, redistest.Single(t), limit.PerMinute(100))
		want(t, send(a, "GET", "/"), 200, `<td data-figure="running">0</td>`)
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan int, 2)
		for _, user := range []string{"ann", "bob"} {
			go func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/export?user="+user, nil)
				w := httptest.NewRecorder()
				a.ServeHTTP(w, r)
				ended <- w.Code
			}()
		}
		redistest.Eventually(t, time.Minute, func() bool {
			now, err := a.standing(t.Context())
			return err == nil && now.Running == 2
		}, "two exports run")
		want(t, send(a, "GET", "/"), 200, `<td data-figure="running">2</td>`)
		refused := send(a, "GET", "/export", "X-User", "cid")
		want(t, refused, 429, `"reason":"busy"`)
		if wait := retryAfter(t, refused); wait < time.Second || wait > 10*time.Second {
			t.Errorf("Retry-After is %v, want the rest of a lease", wait)
		}
		leave()
		for range 2 {
			<-ended
		}
		want(t, send(a, "GET", "/"), 200, `<td data-figure="running">0</td>`)
		want(t, send(a, "GET", "/export"), 400, "Say who you are")
	})
}
