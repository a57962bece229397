package echomw_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Framework{Build: build, PerIP: perIP,
		Mount: func(rules ...echomw.Rule) { echomw.Echo(rules...) }, Redis: redistest.Client})
}

func perIP(gate *core.Engine, at limit.Limit, trusted ...keyfuncs.IPOption) http.Handler {
	e := echo.New()
	e.Use(echomw.PerIP(gate, at, trusted...))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "ok") })
	return e
}

// build leaves echo as echo.New makes it, which believes every X-Forwarded-For.
func build(app adaptertest.App) http.Handler {
	e := echo.New()
	e.Logger.SetOutput(io.Discard) // panics are expected
	if app.Recover == adaptertest.RecoverOutside {
		e.Use(recoverer)
	}
	e.Use(signIn)
	for _, rules := range app.Use {
		e.Use(echomw.Echo(rules...))
	}
	for _, route := range app.Routes {
		var around []echo.MiddlewareFunc
		if len(route.Rules) > 0 {
			around = append(around, echomw.Echo(route.Rules...))
		}
		if app.Recover == adaptertest.RecoverInside {
			around = append(around, recoverer)
		}
		if route.Between != nil {
			around = append(around, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error { route.Between(); return next(c) }
			})
		}
		e.Add(route.Method, adaptertest.Colons(route.Path), func(c echo.Context) error {
			x := &exchange{c: c}
			route.Handler(x)
			return x.err
		}, around...)
	}
	return e
}

// recoverer does what middleware.Recover of echo does, whose package wants one more module.
func recoverer(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		defer func() {
			if value := recover(); value != nil {
				c.Error(fmt.Errorf("%v", value))
			}
		}()
		return next(c)
	}
}

// signIn is the application's own authentication.
func signIn(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if user := c.Request().Header.Get(adaptertest.UserHeader); user != "" {
			c.Set(adaptertest.UserKey, user)
		}
		return next(c)
	}
}

// exchange is what the suite's handlers get.
type exchange struct {
	c   echo.Context
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

func (x *exchange) Decision(guard string) (core.Decision, bool) { return echomw.Decision(x.c, guard) }
func (x *exchange) Take(guard string) (core.Decision, bool)     { return echomw.Take(x.c, guard) }

func (x *exchange) Spend(guard string, n int64) error { return echomw.Spend(x.c, guard, n) }

func (x *exchange) Page(p pipeline.Page) { x.err = echomw.Page(p)(x.c) }
