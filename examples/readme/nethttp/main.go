package main

import (
	"context"
	"crypto/subtle"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

func app(gate *core.Engine) http.Handler {
	user, sku := keyfuncs.User("uid"), keyfuncs.Param("sku")
	sale := seckill.New(gate, "sale", seckill.Options{})
	buy := ratelimit.Rule{Guard: sale, Who: user, What: sku, ID: keyfuncs.IdempotencyKey()}
	if _, err := sale.Open(context.Background(), "tv-55", seckill.Sale{Stock: 100}); err != nil {
		log.Fatal(err)
	}
	ordered := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ordered\n")) }
	mux := http.NewServeMux()
	mux.Handle("POST /sales/{sku}/orders", login(ratelimit.HTTP(buy)(http.HandlerFunc(ordered))))
	return ratelimit.PerIP(gate, limit.PerMinute(100))(mux)
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
	gate := core.New(embedded.Unless(os.Getenv("REDIS_URL"))) // empty: a Redis inside this process
	server := http.Server{Addr: "127.0.0.1:8080", Handler: app(gate), ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on http://", server.Addr)
	log.Fatal(server.ListenAndServe())
}
