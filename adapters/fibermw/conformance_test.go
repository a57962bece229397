package fibermw_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/gatehouse-go/gatehouse/adapters/adaptertest"
	"github.com/gatehouse-go/gatehouse/adapters/fibermw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestConformance(t *testing.T) {
	adaptertest.Run(t, adaptertest.Framework{Build: build, PerIP: perIP,
		Mount: func(rules ...fibermw.Rule) { fibermw.Fiber(rules...) }, Redis: redistest.Client, Without: without})
}

const (
	unseen  = "fasthttp does not see that a client hangs up while the handler runs"
	kept    = "fasthttp sends nothing before the handlers have returned"
	overdue = "an answer that waits for the handlers to return is 503 once the context is over"
)

// without are the rows that do not hold in fiber: docs/guides/fiber.md says them to users.
var without = map[string]string{
	"half-closed connections are counted":    unseen,
	"FIN":                                    unseen,
	"close_notify":                           unseen,
	"RST":                                    unseen,
	"client gone, nothing written":           unseen,
	"client gone, 200 written":               unseen,
	"client gone, 500 written":               unseen,
	"client gone, then panic":                unseen,
	"client gone after the answer had begun": unseen,
	"server closed":                          unseen,
	"streamed":                               kept,
	"panic after the beginning":              kept,
	"panic after a status":                   kept,
	"failed, then panic":                     kept,
	"200, then a panic":                      kept,
	"after the answer has begun there is nothing to take": kept,
	"until it panics":                            kept,
	"flushed":                                    kept,
	"a slow body does not outlast the hold":      kept,
	"a panic after a yes changes nothing":        kept,
	"enforced":                                   overdue,
	"a timeout of the context":                   overdue,
	"a timeout of the context does not oversell": overdue,
	"nothing, BaseContext cancelled":             overdue,
	"hijacked":                                   "fasthttp hijacks after the handlers have returned",
	"with deadlines by http.ResponseController":  "fiber has no http.ResponseController",
	"a client that writes slowly is served":      "fasthttp reads the body before the handler runs",
}

func perIP(gate *core.Engine, at limit.Limit, trusted ...keyfuncs.IPOption) http.Handler {
	app := fiber.New()
	app.Use(fibermw.PerIP(gate, at, trusted...))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("ok") })
	return fibermw.Handler(app)
}

// build leaves fiber as fiber.New makes it.
func build(app adaptertest.App) http.Handler { return fibermw.Handler(with(app)) }

// with builds an application behind these middlewares.
func with(app adaptertest.App, around ...any) *fiber.App {
	f := fiber.New()
	for _, middleware := range around {
		f.Use(middleware)
	}
	if app.Recover == adaptertest.RecoverOutside {
		f.Use(recover.New())
	}
	f.Use(signIn)
	for _, rules := range app.Use {
		f.Use(fibermw.Fiber(rules...))
	}
	for _, route := range app.Routes {
		var handlers []any
		if len(route.Rules) > 0 {
			handlers = append(handlers, fibermw.Fiber(route.Rules...))
		}
		if app.Recover == adaptertest.RecoverInside {
			handlers = append(handlers, recover.New())
		}
		if route.Between != nil {
			handlers = append(handlers, func(c fiber.Ctx) error { route.Between(); return c.Next() })
		}
		handlers = append(handlers, func(c fiber.Ctx) error {
			x := &exchange{c: c}
			route.Handler(x)
			x.end()
			return x.err
		})
		f.Add([]string{route.Method}, adaptertest.Colons(route.Path), handlers[0], handlers[1:]...)
	}
	return f
}

// signIn is the application's own authentication.
func signIn(c fiber.Ctx) error {
	if user := c.Get(adaptertest.UserHeader); user != "" {
		c.Locals(adaptertest.UserKey, user)
	}
	return c.Next()
}

// exchange is what the suite's handlers get.
type exchange struct {
	c   fiber.Ctx
	w   *writer
	r   *http.Request
	err error // what the handler returns
}

func (x *exchange) Request() *http.Request {
	if x.r == nil {
		r, err := adaptor.ConvertRequest(x.c, true)
		if err != nil {
			panic(err)
		}
		x.r = r.WithContext(x.c.Context())
	}
	return x.r
}

func (x *exchange) Writer() http.ResponseWriter {
	if x.w == nil {
		x.w = &writer{c: x.c, header: http.Header{}}
		for name, value := range x.c.Response().Header.All() {
			x.w.header.Add(string(name), string(value))
		}
	}
	return x.w
}

func (x *exchange) Reply(status int, body string) {
	x.end()
	if body == "" {
		x.c.Status(status)
	} else {
		x.err = x.c.Status(status).SendString(body)
	}
}

// end takes what the handler has written over to fiber.
func (x *exchange) end() {
	if x.w != nil {
		x.w.end()
	}
}

func (x *exchange) Decision(guard string) (core.Decision, bool) { return fibermw.Decision(x.c, guard) }
func (x *exchange) Take(guard string) (core.Decision, bool)     { return fibermw.Take(x.c, guard) }
func (x *exchange) Spend(guard string, n int64) error           { return fibermw.Spend(x.c, guard, n) }

func (x *exchange) Page(p pipeline.Page) { x.err = fibermw.Page(p)(x.c) }

// writer is fiber's response as an http.ResponseWriter, which fiber has not.
type writer struct {
	c      fiber.Ctx
	header http.Header
	begun  bool
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(code int) {
	if w.begun || code < http.StatusOK {
		return
	}
	w.end()
	w.begun = true
	w.c.Status(code)
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.c.Response().AppendBody(bytes.Clone(b))
	return len(b), nil
}

func (w *writer) end() {
	if w.begun {
		return
	}
	header := &w.c.Response().Header
	var gone []string
	for name := range header.All() {
		gone = append(gone, string(name))
	}
	for _, name := range gone {
		header.Del(name)
	}
	for name, values := range w.header {
		for _, value := range values {
			header.Add(name, value)
		}
	}
}
