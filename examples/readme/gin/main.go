package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gin-gonic/gin"
)

func app(gate *core.Engine) http.Handler {
	r := gin.New()
	r.Use(gin.Recovery(), ratelimit.PerIP(gate, limit.PerMinute(100)))
	login := gin.BasicAuth(gin.Accounts{"ann": "demo", "bob": "demo2"}) // put your login here
	user := keyfuncs.User(gin.AuthUserKey)                              // who has logged in

	poll := votes.New(gate, "poll", votes.Options{Poll: votes.Poll{Choices: []string{"red", "blue"}}})
	vote := ratelimit.Rule{Guard: poll, Who: user, What: keyfuncs.Const("final"), Which: keyfuncs.Form("choice")}
	r.POST("/polls/final/votes", login, ratelimit.Gin(vote), func(c *gin.Context) { c.String(201, "voted\n") })

	sale := seckill.New(gate, "sale", seckill.Options{})
	buy := ratelimit.Rule{Guard: sale, Who: user, What: keyfuncs.Param("sku"), ID: keyfuncs.IdempotencyKey()}
	r.POST("/sales/:sku/orders", login, ratelimit.Gin(buy), func(c *gin.Context) { c.String(201, "ordered\n") })
	if _, err := sale.Open(context.Background(), "tv-55", seckill.Sale{Stock: 100}); err != nil {
		log.Fatal(err) // an open sale stays as it is, so a restart does not reset its stock
	}
	return r
}

func main() {
	gate := core.New(embedded.Unless(os.Getenv("REDIS_URL"))) // empty: a Redis inside this process
	server := http.Server{Addr: "127.0.0.1:8080", Handler: app(gate), ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on http://", server.Addr)
	log.Fatal(server.ListenAndServe())
}
