package main

import (
	"log"
	"net/http"
	"os"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/core/limit"
	ratelimit "github.com/gatehouse-go/gatehouse/ginmw"
	"github.com/gin-gonic/gin"
)

func main() {
	gate := core.New(embedded.Unless(os.Getenv("REDIS_URL"))) // empty: a Redis inside this process
	r := gin.New()
	r.Use(gin.Recovery(), ratelimit.PerIP(gate, limit.PerMinute(100)))
	r.GET("/", func(c *gin.Context) { c.String(200, "hello\n") })
	server := http.Server{Addr: "127.0.0.1:8080", Handler: r, ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on http://", server.Addr)
	log.Fatal(server.ListenAndServe())
}
