package fibermw_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/adapters/fibermw"
)

// TestAnswersBehindFibersMiddlewareStand: fiber's timeout answers while the handler runs on. What that took
// goes back, because the client has heard no yes.
func TestAnswersBehindFibersMiddlewareStand(t *testing.T) {
	adaptertest.RunBehind(t,
		adaptertest.Around{Name: "timeout.New", Ends: true, Answers: true, Without: without,
			Build: func(limit time.Duration, app adaptertest.App) http.Handler {
				return fibermw.Handler(with(app, timeout.New(fiber.Ctx.Next, timeout.Config{Timeout: limit,
					OnTimeout: func(c fiber.Ctx) error { return c.SendStatus(http.StatusServiceUnavailable) }})))
			}},
		adaptertest.Around{Name: "recover.New", Recovers: true, Without: without,
			Build: func(_ time.Duration, app adaptertest.App) http.Handler {
				app.Recover = adaptertest.RecoverOutside
				return build(app)
			}},
		adaptertest.Around{Name: "http.TimeoutHandler", Ends: true, Answers: true, Without: without,
			Build: func(limit time.Duration, app adaptertest.App) http.Handler {
				return http.TimeoutHandler(build(app), limit, "too late")
			}})
}
