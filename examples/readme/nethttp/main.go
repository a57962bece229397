package main

import (
	"context"
	"crypto/subtle"
	"log"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/redis/go-redis/v9"
)

func app(gate *core.Engine) http.Handler {
	user, sku := keyfuncs.User("uid"), keyfuncs.Param("sku")
	site := nethttpmw.Rule{Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)), Who: keyfuncs.IP()}
	sale := seckill.New(gate, "sale", seckill.Options{})
	buy := nethttpmw.Rule{Guard: sale, Who: user, What: sku, ID: keyfuncs.IdempotencyKey()}
	if _, err := sale.Open(context.Background(), "tv-55", seckill.Sale{Stock: 100}); err != nil {
		log.Fatal(err)
	}
	ordered := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ordered\n")) }
	mux := http.NewServeMux()
	mux.Handle("POST /sales/{sku}/orders", login(nethttpmw.HTTP(buy)(http.HandlerFunc(ordered))))
	return nethttpmw.HTTP(site)(mux)
}

func login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		want, known := map[string]string{"ann": "demo", "bob": "demo2"}[user] // your accounts
		if !known || subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="sales"`)
			http.Error(w, "Log in first.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	})
}

func main() {
	gate := core.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true}))
	server := http.Server{Addr: "127.0.0.1:8080", Handler: app(gate), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
