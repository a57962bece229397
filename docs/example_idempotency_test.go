package docs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// A client that missed the answer sends the request again with the same Idempotency-Key and gets that answer.
// The handler runs once.
func Example_idempotency() {
	mr := miniredis.NewMiniRedis()
	if err := mr.Start(); err != nil {
		panic(err)
	}
	defer mr.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mr.Addr()})
	defer rdb.Close()
	gate := core.New(rdb, core.WithDeadline(5*time.Second))

	once := ratelimit.Rule{
		Guard: idempotency.New(gate, "orders", idempotency.Options{}),
		Who:   keyfuncs.User("uid"),
		ID:    keyfuncs.IdempotencyKey(),
	}

	orders := 0
	order := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.Header().Set("Location", "/orders/7")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "order 7")
	})
	h := ratelimit.HTTP(once)(order)
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", "ann")))
		fmt.Printf("%d %s %s, replayed: %q\n", w.Code, w.Header().Get("Location"), w.Body,
			w.Header().Get("Idempotent-Replayed"))
	}
	fmt.Println(orders, "order")
	// Output:
	// 201 /orders/7 order 7, replayed: ""
	// 201 /orders/7 order 7, replayed: "true"
	// 1 order
}

// At the end of a process: wait for the settlements that requests have left, and then close the Redis client.
func Example_shutdown() {
	mr := miniredis.NewMiniRedis()
	if err := mr.Start(); err != nil {
		panic(err)
	}
	defer mr.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mr.Addr()})
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second}

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := errors.Join(server.Shutdown(ctx), core.Drain(ctx), rdb.Close())
	fmt.Println(err)
	// Output: <nil>
}
