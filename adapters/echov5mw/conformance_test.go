package echov5mw_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/adapters/echov5mw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Promise: `PerIP` counts addresses, by headers of named proxies only, in each framework.
func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Framework{Build: build, PerIP: perIP,
		Mount: func(rules ...echov5mw.Rule) { echov5mw.Echo(rules...) }, Redis: redistest.Client})
}

func perIP(gate *core.Engine, at limit.Limit, trusted ...keyfuncs.IPOption) http.Handler {
	e := echo.New()
	e.Use(echov5mw.PerIP(gate, at, trusted...))
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "ok") })
	return e
}

// build leaves echo as echo.New makes it.
func build(app adaptertest.App) http.Handler {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler) // panics are expected
	if app.Recover == adaptertest.RecoverOutside {
		e.Use(middleware.Recover())
	}
	e.Use(signIn)
	for _, rules := range app.Use {
		e.Use(echov5mw.Echo(rules...))
	}
	for _, route := range app.Routes {
		var around []echo.MiddlewareFunc
		if len(route.Rules) > 0 {
			around = append(around, echov5mw.Echo(route.Rules...))
		}
		if app.Recover == adaptertest.RecoverInside {
			around = append(around, middleware.Recover())
		}
		if route.Between != nil {
			around = append(around, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error { route.Between(); return next(c) }
			})
		}
		e.Add(route.Method, adaptertest.Colons(route.Path), func(c *echo.Context) error {
			x := &exchange{c: c}
			route.Handler(x)
			return x.err
		}, around...)
	}
	return e
}

// signIn is the application's own authentication.
func signIn(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if user := c.Request().Header.Get(adaptertest.UserHeader); user != "" {
			c.Set(adaptertest.UserKey, user)
		}
		return next(c)
	}
}

// exchange is what the suite's handlers get.
type exchange struct {
	c   *echo.Context
	err error // what the handler returns
}

func (x *exchange) Request() *http.Request      { return x.c.Request() }
func (x *exchange) Writer() http.ResponseWriter { return x.c.Response() }

func (x *exchange) Reply(status int, body string) {
	if body == "" {
		x.err = x.c.NoContent(status)
	} else {
		x.err = x.c.String(status, body)
	}
}

func (x *exchange) Decision(guard string) (core.Decision, bool) { return echov5mw.Decision(x.c, guard) }
func (x *exchange) Take(guard string) (core.Decision, bool)     { return echov5mw.Take(x.c, guard) }

func (x *exchange) Spend(guard string, n int64) error { return echov5mw.Spend(x.c, guard, n) }

func (x *exchange) Page(p pipeline.Page) { x.err = echov5mw.Page(p)(x.c) }
