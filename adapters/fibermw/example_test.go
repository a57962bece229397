package fibermw_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gofiber/fiber/v3"
	"github.com/redis/go-redis/v9"

	ratelimit "github.com/gatehouse-go/gatehouse/adapters/fibermw"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// A limit by address on the whole application, and a vote that counts once on its route. A vote whose handler
// fails is taken back.
func ExampleFiber() {
	server, err := miniredis.Run() // an application has a Redis of its own
	if err != nil {
		panic(err)
	}
	defer server.Close()
	gate := core.New(redis.NewClient(&redis.Options{Addr: server.Addr()}), core.WithDeadline(time.Minute))

	vote := ratelimit.Rule{
		Guard: votes.New(gate, "poll", votes.Options{}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice"),
	}

	app := fiber.New()
	app.Use(ratelimit.PerIP(gate, limit.PerMinute(3)))
	app.Use(func(c fiber.Ctx) error { // your authentication goes here
		c.Locals("uid", c.Query("user"))
		return c.Next()
	})
	app.Post("/polls/:poll/votes", ratelimit.Fiber(vote), func(c fiber.Ctx) error {
		d, _ := ratelimit.Decision(c, "poll")
		return c.Status(http.StatusCreated).SendString(d.Attempt.Actor + " for " + d.Attempt.Item)
	})

	for _, query := range []string{"user=ann&choice=red", "user=ann&choice=blue", "user=bob&choice=blue",
		"user=eve&choice=red"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/polls/final/votes?"+query, nil)
		ratelimit.Handler(app).ServeHTTP(w, r)
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
