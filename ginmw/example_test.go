package ginmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// newEngine makes an engine over a Redis inside the process. An application has its own.
func newEngine() (gate *core.Engine, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	return core.New(rdb, core.WithDeadline(time.Minute)), func() { rdb.Close(); server.Close() }
}

// send sends a request without a body.
func send(app http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	app.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// A limit by address on the engine, and a vote that counts once on its route. A vote whose handler fails is
// taken back.
func ExampleGin() {
	gate, stop := newEngine()
	defer stop()
	perIP := ratelimit.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(3)), Who: keyfuncs.IP()}
	vote := ratelimit.Rule{
		Guard: votes.New(gate, "poll", votes.Options{}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice"),
	}

	r := gin.New()
	r.Use(ratelimit.Gin(perIP))
	r.Use(func(c *gin.Context) { c.Set("uid", c.Query("user")) }) // your authentication goes here
	r.POST("/polls/:poll/votes", ratelimit.Gin(vote), func(c *gin.Context) {
		d, _ := ratelimit.Decision(c, "poll")
		c.String(http.StatusCreated, "%s for %s", d.Attempt.Actor, d.Attempt.Item)
	})

	for _, query := range []string{"user=ann&choice=red", "user=ann&choice=blue", "user=bob&choice=blue",
		"user=eve&choice=red"} {
		w := send(r, http.MethodPost, "/polls/final/votes?"+query)
		if w.Code == http.StatusCreated {
			fmt.Println(w.Code, w.Body)
		} else {
			fmt.Println(w.Code, http.StatusText(w.Code)) // the body says why, as application/problem+json
		}
	}
	// Output:
	// 201 ann for red
	// 409 Conflict
	// 201 bob for blue
	// 429 Too Many Requests
}

// A limit per user, behind the login. A request without a user gets 400, so strangers share no limit.
func ExampleRule() {
	gate, stop := newEngine()
	defer stop()
	perUser := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "api", limit.PerMinute(1)),
		Who:   keyfuncs.User(gin.AuthUserKey),
	}
	r := gin.New()
	r.Use(func(c *gin.Context) { // in place of gin.BasicAuth
		if user := c.Query("user"); user != "" {
			c.Set(gin.AuthUserKey, user)
		}
	})
	r.GET("/api", ratelimit.Gin(perUser), func(c *gin.Context) { c.Status(http.StatusNoContent) })

	for _, path := range []string{"/api?user=ann", "/api?user=ann", "/api?user=bob", "/api"} {
		w := send(r, http.MethodGet, path)
		fmt.Println(path, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// /api?user=ann 204 "api";r=0;t=60
	// /api?user=ann 429 "api";r=0;t=60
	// /api?user=bob 204 "api";r=0;t=60
	// /api 400
}

// The rules of a file. Watch reads the file every two seconds, and the next request passes the new rules;
// Reload reads it at once.
func ExampleFollow() {
	gate, stop := newEngine()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "rules.yaml")
	allow := func(n int) {
		text := fmt.Sprintf("guards:\n  site: {sliding_window: {limits: %d/min}}\n"+
			"rules:\n  everywhere: [{guard: site, who: ip}]\n...\n", n)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			panic(err)
		}
	}

	allow(1)
	live, err := config.Watch(ctx, gate, path)
	if err != nil {
		panic(err)
	}
	r := gin.New()
	r.Use(ratelimit.Follow(live.Source("everywhere")))
	r.GET("/", func(c *gin.Context) { c.Status(http.StatusNoContent) })

	fmt.Println(send(r, http.MethodGet, "/").Code, send(r, http.MethodGet, "/").Code)
	allow(100)
	fmt.Println(live.Reload(), send(r, http.MethodGet, "/").Code)
	// Output:
	// 204 429
	// <nil> 204
}

// The handler sees what was decided.
func ExampleDecision() {
	gate, stop := newEngine()
	defer stop()
	perIP := ratelimit.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(10)), Who: keyfuncs.IP()}
	r := gin.New()
	r.GET("/", ratelimit.Gin(perIP), func(c *gin.Context) {
		d, ok := ratelimit.Decision(c, "site")
		c.String(http.StatusOK, "%s has %d left (%t)", d.Attempt.Actor, d.Remaining, ok)
	})

	fmt.Println(send(r, http.MethodGet, "/").Body)
	// Output: 192.0.2.1 has 9 left (true)
}

// A purchase that is paid later: the handler takes the reservation, and the code that receives the payment
// confirms it by name.
func ExampleTake() {
	gate, stop := newEngine()
	defer stop()
	ctx := context.Background()
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(ctx, "ticket", seckill.Sale{Stock: 10, Hold: 15 * time.Minute}); err != nil {
		panic(err)
	}
	buy := ratelimit.Rule{Guard: sale, Who: keyfuncs.Query("user"), What: keyfuncs.Param("sku")}

	var order core.Attempt // an application keeps its Resource, ID and Actor
	r := gin.New()
	r.POST("/sales/:sku/orders", ratelimit.Gin(buy), func(c *gin.Context) {
		d, ok := ratelimit.Take(c, "sale")
		if !ok {
			c.Status(http.StatusServiceUnavailable)
			return
		}
		order = d.Attempt
		c.Status(http.StatusAccepted)
	})
	fmt.Println(send(r, http.MethodPost, "/sales/ticket/orders?user=ann").Code)
	status, err := sale.Status(ctx, "ticket")
	fmt.Println(status.Left, status.Held, status.Sold, err)

	paid, err := sale.Confirm(ctx, order)
	fmt.Println(paid.Allowed, err)
	status, err = sale.Status(ctx, "ticket")
	fmt.Println(status.Left, status.Held, status.Sold, err)
	// Output:
	// 202
	// 9 1 0 <nil>
	// true <nil>
	// 9 0 1 <nil>
}

// The cost is an estimate, which the handler corrects: the answer has used 30 of 100 units.
func ExampleSpend() {
	gate, stop := newEngine()
	defer stop()
	tokens := limit.NewSlidingWindow(gate, "tokens", limit.PerMinute(1000))
	rule := ratelimit.Rule{
		Guard: tokens,
		Who:   keyfuncs.IP(),
		Cost:  func(*keyfuncs.Request) (int64, error) { return 100, nil },
	}
	r := gin.New()
	r.GET("/", ratelimit.Gin(rule), func(c *gin.Context) {
		c.String(http.StatusOK, "Hello")
		if err := ratelimit.Spend(c, "tokens", 30); err != nil {
			fmt.Println(err)
		}
	})

	send(r, http.MethodGet, "/")
	d, err := tokens.Peek(context.Background(), core.Attempt{Actor: "192.0.2.1"})
	fmt.Println(d.Remaining, err)
	// Output: 970 <nil>
}

// The page of deferred requests, behind the application's login: only the user who sent a request sees what
// became of it. An application also runs the requests, with later.Work.
func ExamplePage() {
	gate, stop := newEngine()
	defer stop()
	later := deferred.New(delay.New(gate, "later", delay.Options{}), deferred.Options{
		Who:     keyfuncs.User("uid"), // nobody else may read the answer
		Limit:   limit.NewSlidingWindow(gate, "stored", limit.PerHour(20)),
		Secrets: [][]byte{make([]byte, 32)}, // an application has random bytes
	})
	reports := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "reports", limit.PerMinute(1)),
		Who:   keyfuncs.User("uid"),
		Defer: later, // 202 in place of 429
	}
	r := gin.New()
	r.Use(func(c *gin.Context) { c.Set("uid", c.Query("user")) }) // your authentication goes here
	r.POST("/reports", ratelimit.Gin(reports), func(c *gin.Context) { c.Status(http.StatusNoContent) })
	r.GET("/deferred/:id", ratelimit.Page(later))

	fmt.Println(send(r, http.MethodPost, "/reports?user=ann").Code)
	w := send(r, http.MethodPost, "/reports?user=ann")
	fmt.Println(w.Code)
	for _, user := range []string{"ann", "bob"} {
		page := send(r, http.MethodGet, w.Header().Get("Location")+"?user="+user)
		fmt.Println(user, page.Code, page.Header().Get(deferred.StateHeader))
	}
	// Output:
	// 204
	// 202
	// ann 202 pending
	// bob 404
}
