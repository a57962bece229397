package echov5mw_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/gatehouse-go/gatehouse/internal/testkit/conformance"
)

// TestAnswersBehindEchosMiddlewareStand: echo's ContextTimeout around a handler that was slower oversold.
func TestAnswersBehindEchosMiddlewareStand(t *testing.T) {
	conformance.KeepWhatIsAnswered(t,
		conformance.Around{Name: "middleware.ContextTimeout", Ends: true,
			Build: func(limit time.Duration, app conformance.App) http.Handler {
				e := build(app).(*echo.Echo)
				e.Pre(middleware.ContextTimeout(limit))
				return e
			}},
		conformance.Around{Name: "middleware.Recover", Recovers: true,
			Build: func(_ time.Duration, app conformance.App) http.Handler {
				app.Recover = conformance.RecoverOutside
				return build(app)
			}},
		conformance.Around{Name: "http.TimeoutHandler", Ends: true, Answers: true,
			Build: func(limit time.Duration, app conformance.App) http.Handler {
				return http.TimeoutHandler(build(app), limit, "too late")
			}})
}
