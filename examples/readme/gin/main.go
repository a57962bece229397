package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
)

func app(gate *core.Engine) http.Handler {
	user := keyfuncs.User(gin.AuthUserKey) // who has logged in, which no client can make up
	site := ginmw.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)), Who: keyfuncs.IP()}
	poll := votes.New(gate, "poll", votes.Options{Poll: votes.Poll{Choices: []string{"red", "blue"}}})
	vote := ginmw.Rule{Guard: poll, Who: user, What: keyfuncs.Const("final"), Which: keyfuncs.Form("choice")}
	sale := seckill.New(gate, "sale", seckill.Options{})
	buy := ginmw.Rule{Guard: sale, Who: user, What: keyfuncs.Param("sku"), ID: keyfuncs.IdempotencyKey()}
	if _, err := sale.Open(context.Background(), "tv-55", seckill.Sale{Stock: 100}); err != nil {
		log.Fatal(err) // an open sale stays as it is, so a restart does not reset its stock
	}
	login := gin.BasicAuth(gin.Accounts{"ann": "demo", "bob": "demo2"}) // put your login here
	r := gin.New()
	r.Use(gin.Recovery(), ginmw.Gin(site))
	r.GET("/", func(c *gin.Context) { c.String(200, "hello\n") })
	r.POST("/polls/final/votes", login, ginmw.Gin(vote), func(c *gin.Context) { c.String(201, "voted\n") })
	r.POST("/sales/:sku/orders", login, ginmw.Gin(buy), func(c *gin.Context) { c.String(201, "ordered\n") })
	return r
}

func main() {
	gate := core.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true}))
	server := http.Server{Addr: "127.0.0.1:8080", Handler: app(gate), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
