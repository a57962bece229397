package bench

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestAnswersBehindEchosMiddlewareStand: echo's ContextTimeout around a handler that was slower oversold. The
// test is here, since echo's package middleware needs a module that the root module does without.
func TestAnswersBehindEchosMiddlewareStand(t *testing.T) {
	adaptertest.RunBehind(t,
		adaptertest.Around{Name: "middleware.ContextTimeout", Ends: true,
			Build: behindEchos(middleware.ContextTimeout)},
		adaptertest.Around{Name: "middleware.Timeout", Ends: true, Answers: true,
			Build: behindEchos(func(limit time.Duration) echo.MiddlewareFunc {
				//nolint:staticcheck // deprecated, and in use: what holds with it is what this shows
				return middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: limit})
			})},
		adaptertest.Around{Name: "middleware.Recover", Recovers: true,
			Build: behindEchos(func(time.Duration) echo.MiddlewareFunc { return middleware.Recover() })})
}

// behindEchos builds applications with a middleware of echo around the rules.
func behindEchos(
	around func(limit time.Duration) echo.MiddlewareFunc,
) func(time.Duration, adaptertest.App) http.Handler {
	return func(limit time.Duration, app adaptertest.App) http.Handler {
		e := echo.New()
		e.Logger.SetOutput(io.Discard) // panics are expected
		e.Use(around(limit), func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				c.Set(adaptertest.UserKey, c.Request().Header.Get(adaptertest.UserHeader))
				return next(c)
			}
		})
		for _, route := range app.Routes {
			e.Add(route.Method, adaptertest.Colons(route.Path), func(c echo.Context) error {
				x := &echoContext{c: c}
				route.Handler(x)
				return x.err
			}, echomw.Echo(route.Rules...))
		}
		return e
	}
}

// echoContext is what the suite's handlers get.
type echoContext struct {
	c   echo.Context
	err error // what the handler returns
}

func (x *echoContext) Request() *http.Request      { return x.c.Request() }
func (x *echoContext) Writer() http.ResponseWriter { return x.c.Response() }
func (x *echoContext) Reply(status int, body string) {
	x.err = x.c.String(status, body)
}
func (x *echoContext) Decision(guard string) (core.Decision, bool) {
	return echomw.Decision(x.c, guard)
}
func (x *echoContext) Take(guard string) (core.Decision, bool) { return echomw.Take(x.c, guard) }
func (x *echoContext) Spend(guard string, n int64) error       { return echomw.Spend(x.c, guard, n) }
func (x *echoContext) Page(p pipeline.Page)                    { x.err = echomw.Page(p)(x.c) }
