package docs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/gatehousetest"
	ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// newAPI is an application with limits alone: the page "Rate limiting in five minutes" shows its parts.
func newAPI(gate *core.Engine) *gin.Engine {
	r := gin.New()
	r.Use(gin.Recovery(), ratelimit.PerIP(gate, limit.PerMinute(100)))

	logins := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "login", limit.PerMinute(5), limit.PerHour(20)),
		Who:   keyfuncs.IP(),
	}
	r.POST("/login", ratelimit.Gin(logins), logIn)

	perUser := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "api", limit.PerSecond(10), limit.PerHour(1000)),
		Who:   keyfuncs.User("uid"), // what the login in front has stored: c.Set("uid", user)
	}
	r.GET("/items", authenticate, ratelimit.Gin(perUser), listItems)

	perRoute := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "reports", limit.PerMinute(2)),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("report"), // a budget for each
	}
	r.GET("/reports/:report", authenticate, ratelimit.Gin(perRoute), listItems)
	return r
}

var logIn = func(*gin.Context) {}

func Example_behindNginx() {
	gate := core.New(client(), core.WithDeadline(30*time.Second)) // a test machine may be busy
	r := gin.New()
	r.Use(ratelimit.PerIP(gate, limit.PerMinute(1), keyfuncs.TrustProxies("127.0.0.1", "10.0.0.0/8")))
	r.GET("/", func(*gin.Context) {})

	for _, client := range []string{"203.0.113.7", "203.0.113.7", "203.0.113.8"} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.RemoteAddr = "127.0.0.1:1234" // nginx
		request.Header.Set("X-Forwarded-For", client)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, request)
		fmt.Println(client, w.Code)
	}
	// Output:
	// 203.0.113.7 200
	// 203.0.113.7 429
	// 203.0.113.8 200
}

func TestLoginsAreLimited(t *testing.T) {
	gate := gatehousetest.New(t)
	app := newAPI(gate.Engine)
	login := func() *http.Request { return httptest.NewRequest(http.MethodPost, "/login", nil) }

	gate.Allows(app, 5, login)
	gate.Refuses(app, http.StatusTooManyRequests, time.Minute, login)
	gate.Advance(time.Minute)
	gate.Allows(app, 5, login)
}
