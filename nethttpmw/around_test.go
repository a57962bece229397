package nethttpmw_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
)

// TestAnswersBehindChisMiddlewareStand: chi's Timeout around a handler that was slower oversold.
//
// Promise (Endings): Behind timeouts and recoverers of chi, echo, gin and net/http, a client has a claim
// exactly if it got a yes.
func TestAnswersBehindChisMiddlewareStand(t *testing.T) {
	adaptertest.RunBehind(t,
		adaptertest.Around{Name: "middleware.Timeout", Ends: true,
			Build: func(limit time.Duration, app adaptertest.App) http.Handler {
				return middleware.Timeout(limit)(buildChi(app))
			}},
		adaptertest.Around{Name: "middleware.Recoverer", Recovers: true,
			Build: func(_ time.Duration, app adaptertest.App) http.Handler {
				app.Recover = adaptertest.RecoverOutside
				return buildChi(app)
			}},
		adaptertest.Around{Name: "http.TimeoutHandler", Ends: true, Answers: true,
			Build: func(limit time.Duration, app adaptertest.App) http.Handler {
				return http.TimeoutHandler(buildMux(app), limit, "too late")
			}})
}
