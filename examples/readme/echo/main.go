package main

import (
	"crypto/subtle"
	"log"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
)

func app(gate *core.Engine) http.Handler {
	user, final := keyfuncs.User("uid"), keyfuncs.Const("final")
	site := echomw.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)), Who: keyfuncs.IP()}
	poll := votes.New(gate, "poll", votes.Options{Poll: votes.Poll{Choices: []string{"red", "blue"}}})
	vote := echomw.Rule{Guard: poll, Who: user, What: final, Which: keyfuncs.Form("choice")}
	voted := func(c echo.Context) error { return c.String(201, "voted\n") }
	e := echo.New()
	e.Use(echomw.Echo(site))
	e.POST("/polls/final/votes", voted, login, echomw.Echo(vote))
	return e
}

func login(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		user, password, _ := c.Request().BasicAuth()
		want, known := map[string]string{"ann": "demo", "bob": "demo2"}[user] // your accounts
		if !known || subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 {
			c.Response().Header().Set("WWW-Authenticate", `Basic realm="polls"`)
			return c.String(http.StatusUnauthorized, "Log in first.\n")
		}
		c.Set("uid", user)
		return next(c)
	}
}

func main() {
	gate := core.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true}))
	server := http.Server{Addr: "127.0.0.1:8080", Handler: app(gate), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
