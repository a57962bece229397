package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// The code before and after of docs/guides/migrating.md: each admits two requests of an address per minute.
func Example_migrating() {
	app := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	gate := core.NewMemory()

	// ulule/limiter
	fromUlule := stdlib.NewMiddleware(limiter.New(memory.NewStore(),
		limiter.Rate{Period: time.Minute, Limit: 2})).Handler(app)

	// httprate
	fromHTTPRate := httprate.LimitBy(2, time.Minute, func(r *http.Request) (string, error) {
		return httprate.CanonicalizeIP(r.RemoteAddr), nil
	})(app)

	// tollbooth: two of a moment, and one more each half minute
	fromTollbooth := tollbooth.HTTPMiddleware(tollbooth.NewLimiter(2.0/60,
		&tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: time.Hour}).SetBurst(2))(app)

	// echo's own
	fromEcho := echo.New()
	fromEcho.Use(middleware.RateLimiter(middleware.NewRateLimiterMemoryStoreWithConfig(
		middleware.RateLimiterMemoryStoreConfig{Rate: 2.0 / 60, Burst: 2, ExpiresIn: time.Minute})))
	fromEcho.GET("/", func(echo.Context) error { return nil })

	// Gatehouse on echo
	toEcho := echo.New()
	toEcho.Use(echomw.PerIP(core.NewMemory(), limit.PerMinute(2)))
	toEcho.GET("/", func(echo.Context) error { return nil })

	// Gatehouse
	toGatehouse := ratelimit.HTTP(ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(2)),
		Who:   keyfuncs.IP(),
	})(app)

	for _, h := range []http.Handler{fromUlule, fromHTTPRate, fromTollbooth, fromEcho, toEcho, toGatehouse} {
		var codes []int
		for range 3 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			codes = append(codes, w.Code)
		}
		fmt.Println(codes)
	}
	// Output:
	// [200 200 429]
	// [200 200 429]
	// [200 200 429]
	// [200 200 429]
	// [200 200 429]
	// [200 200 429]
}

// A mail may be sent ten times a minute per user: redis_rate.
func allowedBefore(ctx context.Context, rdb *redis.Client, user string) (bool, error) {
	result, err := redis_rate.NewLimiter(rdb).Allow(ctx, "mails:"+user, redis_rate.PerMinute(10))
	if err != nil {
		return false, err
	}
	return result.Allowed > 0, nil
}

// A mail may be sent ten times a minute per user: Gatehouse. Make the limit once, at the start.
func allowedAfter(ctx context.Context, mails *limit.TokenBucket, user string) (bool, error) {
	d, err := mails.Check(ctx, core.Attempt{Actor: user})
	return d.Allowed, err
}

var _, _ = allowedBefore, allowedAfter
