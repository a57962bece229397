// Command nethttp guards three net/http endpoints: it limits requests by address, counts each vote once, and
// runs a flash sale (seckill) that cannot oversell. It runs on a Redis inside the process, or on that of
// REDIS_URL.
//
//	go run ./examples/nethttp
//	curl -i http://127.0.0.1:8080/
//	curl -i -X POST -H 'X-User: alice' 'http://127.0.0.1:8080/polls/final/votes?choice=red'
//	curl -i -X POST -H 'X-User: alice' -H 'Idempotency-Key: "order-1"' http://127.0.0.1:8080/sales/ticket/orders
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/embedded"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// newApp makes the guards, once per engine, and the routes that they guard.
func newApp(ctx context.Context, gate *core.Engine) (http.Handler, error) {
	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)),
		Who:   keyfuncs.IP(), // the peer; behind your own proxy: keyfuncs.IP(keyfuncs.TrustProxies("10.0.0.0/8"))
	}
	vote := ratelimit.Rule{
		Guard: votes.New(gate, "poll", votes.Options{Find: findPoll}),
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("poll"),
		Which: keyfuncs.Query("choice"),
	}
	sale := seckill.New(gate, "sale", seckill.Options{})
	buy := ratelimit.Rule{
		Guard: sale,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("sku"),
		// A buyer who sends an order again gets the first answer again. Two buyers may choose the same key.
		// Without the header each request is a separate order.
		ID: keyfuncs.IdempotencyKey(),
	}
	// Open leaves an existing sale as it is, so a restart cannot reset its stock.
	if _, err := sale.Open(ctx, "ticket", seckill.Sale{Stock: 100}); err != nil {
		return nil, fmt.Errorf("open the sale: %w", err)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /{$}", ratelimit.HTTP(perIP)(http.HandlerFunc(hello)))
	mux.Handle("POST /polls/{poll}/votes", fakeAuth(ratelimit.HTTP(vote)(http.HandlerFunc(castVote))))
	mux.Handle("POST /sales/{sku}/orders", fakeAuth(ratelimit.HTTP(buy)(http.HandlerFunc(placeOrder))))
	return mux, nil
}

// findPoll looks a poll up. An application keeps its polls in memory and refreshes them from its database.
func findPoll(_ context.Context, poll string) (votes.Poll, error) {
	if poll != "final" {
		return votes.Poll{}, votes.ErrNoPoll
	}
	return votes.Poll{Choices: []string{"red", "blue"}}, nil
}

// fakeAuth believes any name that a request gives: put your authentication here. The rules need the user's ID
// under "uid".
func fakeAuth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		user = cmp.Or(user, r.Header.Get("X-User"))
		if user == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="quick start"`)
			http.Error(w, "Log in first.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	})
}

func hello(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]string{"message": "hello"})
}

// castVote runs once per voter. When it fails (a status of 400 and up, or a panic), the rule takes the vote
// back.
func castVote(w http.ResponseWriter, r *http.Request) {
	d, _ := ratelimit.Decision(r.Context(), "poll")
	reply(w, http.StatusCreated, map[string]string{"poll": d.Attempt.Resource, "choice": d.Attempt.Item})
}

// placeOrder runs with a unit held for the buyer. A successful answer sells the unit; a failure returns it.
// An order sent again with the same Idempotency-Key does not get here: the rule answers that it is done.
func placeOrder(w http.ResponseWriter, r *http.Request) {
	d, _ := ratelimit.Decision(r.Context(), "sale")
	reply(w, http.StatusCreated, map[string]string{"sku": d.Attempt.Resource, "reservation": d.Attempt.ID})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only when the client is gone
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	rdb := embedded.Unless(os.Getenv("REDIS_URL")) // empty: a Redis inside this process
	defer rdb.Close()

	app, err := newApp(ctx, core.New(rdb))
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr:              cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"),
		Handler:           app,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
	}
	failed := make(chan error, 1)
	log.Printf("serving on http://%s (ADDR sets another address)", server.Addr)
	go func() { failed <- server.ListenAndServe() }()

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the program at once
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}
