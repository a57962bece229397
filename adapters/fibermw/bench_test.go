package fibermw_test

import (
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/gatehouse-go/gatehouse/adapters/fibermw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// BenchmarkRequest runs one request of a browser with nothing in front of the handler, behind a limit of the
// process, and behind one that sees how the request ends.
func BenchmarkRequest(b *testing.B) {
	gate := core.NewMemory()
	plain := fibermw.Rule{Guard: limit.NewFixedWindow(gate, "plain", limit.PerHour(1<<40)), Who: keyfuncs.IP()}
	settling := fibermw.Rule{Guard: limit.NewFixedWindow(gate, "settling", limit.PerHour(1<<40)),
		Who: keyfuncs.IP(), Failed: func(status int) bool { return status >= 500 }}
	for name, around := range map[string]fiber.Handler{
		"nothing": func(c fiber.Ctx) error { return c.Next() },
		"a limit": fibermw.Fiber(plain),
		"PerIP":   fibermw.PerIP(gate, limit.PerHour(1e9).WithResolution(100)),
		"settled": fibermw.Fiber(settling),
	} {
		app := fiber.New()
		app.Get("/polls/:poll", around, func(c fiber.Ctx) error { return c.SendString("hello") })
		serve := app.Handler()
		ctx := new(fasthttp.RequestCtx)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ctx.Response.Reset()
				ctx.Request.Reset()
				ctx.Request.SetRequestURI("/polls/final?choice=red")
				ctx.Request.SetHost("www.example.com")
				for _, field := range [][2]string{{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"}, {"Accept", "*/*"},
					{"Accept-Language", "en"}, {"Accept-Encoding", "gzip, br"}, {"Cookie", "session=1234567890"},
					{"Referer", "https://www.example.com/"}, {"X-User", "ann"}} {
					ctx.Request.Header.Set(field[0], field[1])
				}
				serve(ctx)
				if ctx.Response.StatusCode() != fasthttp.StatusOK {
					b.Fatal(ctx.Response.String())
				}
			}
		})
	}
}
