package echov5mw_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
)

// TestAnswersBehindEchosMiddlewareStand: echo's ContextTimeout around a handler that was slower oversold.
func TestAnswersBehindEchosMiddlewareStand(t *testing.T) {
	adaptertest.RunBehind(t,
		adaptertest.Around{Name: "middleware.ContextTimeout", Ends: true,
			Build: func(limit time.Duration, app adaptertest.App) http.Handler {
				e := build(app).(*echo.Echo)
				e.Pre(middleware.ContextTimeout(limit))
				return e
			}},
		adaptertest.Around{Name: "middleware.Recover", Recovers: true,
			Build: func(_ time.Duration, app adaptertest.App) http.Handler {
				app.Recover = adaptertest.RecoverOutside
				return build(app)
			}},
		adaptertest.Around{Name: "http.TimeoutHandler", Ends: true, Answers: true,
			Build: func(limit time.Duration, app adaptertest.App) http.Handler {
				return http.TimeoutHandler(build(app), limit, "too late")
			}})
}
