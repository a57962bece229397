package ginmw_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
)

// TestAnswersBehindGinsMiddlewareStand: whoever got a yes has it, and nobody else has.
func TestAnswersBehindGinsMiddlewareStand(t *testing.T) {
	adaptertest.RunBehind(t,
		adaptertest.Around{Name: "gin.Recovery", Recovers: true,
			Build: func(_ time.Duration, app adaptertest.App) http.Handler {
				app.Recover = adaptertest.RecoverOutside
				return build(app)
			}},
		adaptertest.Around{Name: "http.TimeoutHandler", Ends: true, Answers: true,
			Build: func(limit time.Duration, app adaptertest.App) http.Handler {
				return http.TimeoutHandler(build(app), limit, "too late")
			}})
}
