// Command program sends allowed requests through each of a few routes, and writes the code that it has run
// as coverage counters: to a folder per route and user in the folder that is its argument. Build it with
// -cover and -covermode=atomic. REDIS is the address of a Redis.
package main

import (
	"context"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/coverage"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(folder string) error {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS"), ContextTimeoutEnabled: true})
	gate := core.New(client, core.WithDeadline(30*time.Second))
	app, err := routes(gate)
	if err != nil {
		return err
	}
	for _, route := range []string{"limit", "two-limits", "vote", "order", "budget", "room"} {
		send(app, route, "bob") // whose scripts and connections are the first
		for _, user := range []string{"ann", "cid", "dan"} {
			if err := coverage.ClearCounters(); err != nil {
				return err
			}
			send(app, route, user)
			data := filepath.Join(folder, route, user)
			if err := os.MkdirAll(data, 0o700); err != nil {
				return err
			}
			if err := coverage.WriteMetaDir(data); err != nil {
				return err
			}
			if err := coverage.WriteCountersDir(data); err != nil {
				return err
			}
		}
	}
	return client.Close()
}

// routes makes an application with a route for each guard.
func routes(gate *core.Engine) (*gin.Engine, error) {
	gin.SetMode(gin.ReleaseMode)
	app, user := gin.New(), keyfuncs.Header("X-User")
	guarded := func(route string, rules ...ratelimit.Rule) {
		app.GET("/"+route, ratelimit.Gin(rules...), func(c *gin.Context) { c.String(http.StatusOK, "in") })
	}
	window := func(name string) *limit.SlidingWindow {
		return limit.NewSlidingWindow(gate, name, limit.PerMinute(100))
	}
	guarded("limit", ratelimit.Rule{Guard: window("one"), Who: user})
	guarded("two-limits", ratelimit.Rule{Guard: window("own"), Who: user},
		ratelimit.Rule{Guard: window("site"), Who: keyfuncs.Const("all")})
	poll := votes.New(gate, "poll", votes.Options{Poll: votes.Poll{Choices: []string{"red", "blue"}}})
	guarded("vote", ratelimit.Rule{Guard: poll, Who: user, What: keyfuncs.Const("final"),
		Which: keyfuncs.Query("choice")})
	sale := seckill.New(gate, "sale", seckill.Options{})
	if _, err := sale.Open(context.Background(), "ticket", seckill.Sale{Stock: 100}); err != nil {
		return nil, err
	}
	guarded("order", ratelimit.Rule{Guard: sale, Who: user, What: keyfuncs.Const("ticket"),
		ID: keyfuncs.IdempotencyKey()})
	find := func([]string) ([]budget.Limit, error) {
		return []budget.Limit{{Max: 100, Window: time.Minute}}, nil
	}
	levels := budget.New(gate, "api", budget.Options{Levels: []string{"org", "user"}, Find: find})
	guarded("budget", ratelimit.Rule{Guard: levels, Under: []keyfuncs.Func{keyfuncs.Const("acme")}, Who: user})
	room := waitingroom.New(gate, "room", waitingroom.Options{Capacity: 100,
		Secrets: [][]byte{[]byte("a secret for this walk")}})
	guarded("room", ratelimit.Rule{Guard: room, Who: keyfuncs.Visitor()})
	return app, nil
}

// send sends a request that has to be allowed.
func send(app http.Handler, route, user string) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/"+route+"?choice=red", nil)
	r.Header.Set("X-User", user)
	r.Header.Set("Idempotency-Key", `"order of `+user+`"`)
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		log.Fatalf("%s: %d %s", route, w.Code, w.Body)
	}
}
