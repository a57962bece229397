package main

import (
	"crypto/subtle"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	ratelimit "github.com/gatehouse-go/gatehouse/echomw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/labstack/echo/v4"
)

func app(gate *core.Engine) http.Handler {
	user, final := keyfuncs.User("uid"), keyfuncs.Const("final")
	poll := votes.New(gate, "poll", votes.Options{Poll: votes.Poll{Choices: []string{"red", "blue"}}})
	vote := ratelimit.Rule{Guard: poll, Who: user, What: final, Which: keyfuncs.Form("choice")}
	voted := func(c echo.Context) error { return c.String(201, "voted\n") }
	e := echo.New()
	e.Use(ratelimit.PerIP(gate, limit.PerMinute(100)))
	e.POST("/polls/final/votes", voted, login, ratelimit.Echo(vote))
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
	gate := core.New(embedded.Unless(os.Getenv("REDIS_URL"))) // empty: a Redis inside this process
	server := http.Server{Addr: "127.0.0.1:8080", Handler: app(gate), ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on http://", server.Addr)
	log.Fatal(server.ListenAndServe())
}
