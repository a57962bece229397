package bench

import (
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/gofiber/fiber/v3"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"github.com/gatehouse-go/gatehouse/adapters/fibermw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// BenchmarkFiber has 16 callers ask a server of fiber behind a limit: by fibermw, and by a middleware that calls
// redis_rate by hand. Compare several runs:
//
//	go test -run '^$' -bench Fiber -count 6
//
// "one client" has one counter for all requests, "a header" a counter for each of 1,000 users.
func BenchmarkFiber(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.StartServer(b).Addr(), ContextTimeoutEnabled: true,
		PoolSize: 160})
	b.Cleanup(func() { _ = rdb.Close() })
	gate := core.New(rdb, core.WithDeadline(10*time.Second))
	user := fibermw.Rule{Guard: limit.NewFixedWindow(gate, "user", limit.PerHour(1e9)),
		Who: keyfuncs.Header("X-User")}
	all := fibermw.Rule{Guard: limit.NewFixedWindow(gate, "all", limit.PerHour(1e9)), Who: keyfuncs.IP()}
	for _, subject := range []struct {
		name    string
		limited fiber.Handler
	}{
		{"none", func(c fiber.Ctx) error { return c.Next() }},
		{"a header, redis_rate", byHand(rdb, func(c fiber.Ctx) string { return "user:" + c.Get("X-User") })},
		{"a header, fibermw", fibermw.Fiber(user)},
		{"one client, redis_rate", byHand(rdb, func(c fiber.Ctx) string { return "ip:" + c.IP() })},
		{"one client, fibermw", fibermw.Fiber(all)},
		{"one client, PerIP", fibermw.PerIP(gate, limit.PerHour(1e9).WithResolution(60))},
	} {
		b.Run(subject.name, func(b *testing.B) {
			app := fiber.New()
			app.Get("/", subject.limited, func(c fiber.Ctx) error { return c.SendString("hello") })
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go func() { _ = app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
			b.Cleanup(func() { _ = app.Shutdown() })
			callFiber(b, "http://"+listener.Addr().String()+"/")
		})
	}
}

// byHand is what an application writes without Gatehouse.
func byHand(rdb *redis.Client, key func(fiber.Ctx) string) fiber.Handler {
	limiter, most := redis_rate.NewLimiter(rdb), redis_rate.PerHour(1e9)
	return func(c fiber.Ctx) error {
		result, err := limiter.Allow(c.Context(), key(c), most)
		if err != nil {
			return err
		}
		c.Set("RateLimit-Remaining", strconv.Itoa(result.Remaining))
		if result.Allowed == 0 {
			c.Set("Retry-After", strconv.Itoa(int(result.RetryAfter/time.Second)))
			return c.SendStatus(fiber.StatusTooManyRequests)
		}
		return c.Next()
	}
}

// callFiber has 8 callers for each processor send requests like those of a browser.
func callFiber(b *testing.B, url string) {
	client := &fasthttp.Client{MaxConnsPerHost: 1000}
	var number atomic.Int64
	used := cpuTime(b)
	b.ResetTimer()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		var request fasthttp.Request
		var response fasthttp.Response
		for pb.Next() {
			request.Reset()
			request.SetRequestURI(url)
			for _, field := range [][2]string{{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"}, {"Accept", "*/*"},
				{"Accept-Language", "en"}, {"Accept-Encoding", "gzip, br"}, {"Cookie", "session=1234567890"},
				{"X-User", fmt.Sprint("user ", number.Add(1)%1000)}} {
				request.Header.Set(field[0], field[1])
			}
			if err := client.Do(&request, &response); err != nil || response.StatusCode() != fasthttp.StatusOK {
				b.Errorf("%v %s", err, response.String())
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(cpuTime(b)-used)/float64(b.N), "cpu-ns/op")
}

// cpuTime returns how long this process, callers and server of fiber, has had a processor.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
