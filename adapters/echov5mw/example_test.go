package echov5mw_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/labstack/echo/v5"
	"github.com/redis/go-redis/v9"

	ratelimit "github.com/gatehouse-go/gatehouse/adapters/echov5mw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// A limit by address on the whole application, and a vote that counts once on its route. A vote whose handler
// fails is taken back.
func ExampleEcho() {
	server, err := miniredis.Run() // an application has a Redis of its own
	if err != nil {
		panic(err)
	}
	defer server.Close()
	gate := core.New(redis.NewClient(&redis.Options{Addr: server.Addr()}), core.WithDeadline(time.Minute))

	perIP := ratelimit.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(3)), Who: keyfuncs.IP()}
	vote := ratelimit.Rule{
		Guard: votes.New(gate, "poll", votes.Options{}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice"),
	}

	e := echo.New()
	e.Use(ratelimit.Echo(perIP))
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { // your authentication goes here
		return func(c *echo.Context) error {
			c.Set("uid", c.QueryParam("user"))
			return next(c)
		}
	})
	e.POST("/polls/:poll/votes", func(c *echo.Context) error {
		d, _ := ratelimit.Decision(c, "poll")
		return c.String(http.StatusCreated, d.Attempt.Actor+" for "+d.Attempt.Item)
	}, ratelimit.Echo(vote))

	for _, query := range []string{"user=ann&choice=red", "user=ann&choice=blue", "user=bob&choice=blue",
		"user=eve&choice=red"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/polls/final/votes?"+query, nil))
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
