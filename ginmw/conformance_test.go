package ginmw_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	redistest.Main(m)
}

func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Framework{Build: build, PerIP: perIP, Slash: adaptertest.SlashSplits,
		Mount: func(rules ...ginmw.Rule) { ginmw.Gin(rules...) }, Redis: redistest.Client})
}

func perIP(gate *core.Engine, at limit.Limit, trusted ...keyfuncs.IPOption) http.Handler {
	engine := gin.New()
	engine.Use(ginmw.PerIP(gate, at, trusted...))
	engine.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "ok") })
	return engine
}

// build leaves the engine as gin.New makes it, which trusts every proxy.
func build(app adaptertest.App) http.Handler {
	engine := gin.New()
	if app.Recover == adaptertest.RecoverOutside {
		engine.Use(gin.RecoveryWithWriter(io.Discard))
	}
	engine.Use(signIn)
	for _, rules := range app.Use {
		engine.Use(ginmw.Gin(rules...))
	}
	for _, route := range app.Routes {
		var handlers []gin.HandlerFunc
		if len(route.Rules) > 0 {
			handlers = append(handlers, ginmw.Gin(route.Rules...))
		}
		if app.Recover == adaptertest.RecoverInside {
			handlers = append(handlers, gin.RecoveryWithWriter(io.Discard))
		}
		if route.Between != nil {
			handlers = append(handlers, func(c *gin.Context) { route.Between(); c.Next() })
		}
		handlers = append(handlers, func(c *gin.Context) { route.Handler(exchange{c}) })
		engine.Handle(route.Method, adaptertest.Colons(route.Path), handlers...)
	}
	return engine
}

// signIn is the application's own authentication.
func signIn(c *gin.Context) {
	if user := c.GetHeader(adaptertest.UserHeader); user != "" {
		c.Set(adaptertest.UserKey, user)
	}
}

// exchange is what the suite's handlers get.
type exchange struct{ c *gin.Context }

func (e exchange) Request() *http.Request      { return e.c.Request }
func (e exchange) Writer() http.ResponseWriter { return e.c.Writer }

func (e exchange) Reply(status int, body string) {
	if body == "" {
		e.c.Status(status)
		return
	}
	e.c.String(status, "%s", body)
}

func (e exchange) Decision(guard string) (core.Decision, bool) { return ginmw.Decision(e.c, guard) }
func (e exchange) Take(guard string) (core.Decision, bool)     { return ginmw.Take(e.c, guard) }

func (e exchange) Spend(guard string, n int64) error { return ginmw.Spend(e.c, guard, n) }

func (e exchange) Page(p pipeline.Page) { ginmw.Page(p)(e.c) }
