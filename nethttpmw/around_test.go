package nethttpmw_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/gatehouse-go/gatehouse/internal/testkit/conformance"
)

// TestAnswersBehindChisMiddlewareStand: chi's Timeout around a handler that was slower oversold.
//
// Promise (Endings): Behind timeouts and recoverers of chi, echo, gin and net/http, a client has a claim
// exactly if it got a yes.
func TestAnswersBehindChisMiddlewareStand(t *testing.T) {
	conformance.KeepWhatIsAnswered(t,
		conformance.Around{Name: "middleware.Timeout", Ends: true,
			Build: func(limit time.Duration, app conformance.App) http.Handler {
				return middleware.Timeout(limit)(buildChi(app))
			}},
		conformance.Around{Name: "middleware.Recoverer", Recovers: true,
			Build: func(_ time.Duration, app conformance.App) http.Handler {
				app.Recover = conformance.RecoverOutside
				return buildChi(app)
			}},
		conformance.Around{Name: "http.TimeoutHandler", Ends: true, Answers: true,
			Build: func(limit time.Duration, app conformance.App) http.Handler {
				return http.TimeoutHandler(buildMux(app), limit, "too late")
			}})
}
