package ginmw_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/conformance"
)

// TestAnswersBehindGinsMiddlewareStand: whoever got a yes has it, and nobody else has.
func TestAnswersBehindGinsMiddlewareStand(t *testing.T) {
	conformance.KeepWhatIsAnswered(t,
		conformance.Around{Name: "gin.Recovery", Recovers: true,
			Build: func(_ time.Duration, app conformance.App) http.Handler {
				app.Recover = conformance.RecoverOutside
				return build(app)
			}},
		conformance.Around{Name: "http.TimeoutHandler", Ends: true, Answers: true,
			Build: func(limit time.Duration, app conformance.App) http.Handler {
				return http.TimeoutHandler(build(app), limit, "too late")
			}})
}
