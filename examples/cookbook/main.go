// Command cookbook serves the recipes of the cookbook: posts, autocomplete, markets and lists, on a
// Redis inside the process or on that of REDIS_URL. README.md in this folder has them, and requests to try.
//
//	go run ./examples/cookbook
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/autocomplete"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/deque"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/market"
	"github.com/gatehouse-go/gatehouse/examples/cookbook/status"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// keep is how long the data of a recipe is kept after its latest change.
const keep = 30 * 24 * time.Hour

// newApp mounts the recipes. A limit in front of them bounds what a client can store.
func newApp(ctx context.Context, gate *core.Engine) (http.Handler, error) {
	// It believes any name that a request gives: put your authentication here.
	who := keyfuncs.Header("X-User")

	markets := market.New(gate, 10_000, keep)
	// An application calls Deposit when its payment provider has told it of a payment. The same ID pays once.
	for _, user := range []string{"ann", "bob"} {
		if _, err := markets.Deposit(ctx, "fair", user, "welcome", 1000); err != nil {
			return nil, fmt.Errorf("pay in for %s: %w", user, err)
		}
	}
	board := status.Handler(status.New(gate, 1000, keep), who)
	mux := http.NewServeMux()
	mux.Handle("PUT /me", board)
	mux.Handle("POST /posts", board)
	mux.Handle("GET /users/", board)
	mux.Handle("/rooms/", autocomplete.Handler(autocomplete.New(gate, 10_000, keep), who))
	mux.Handle("/markets/", market.Handler(markets, who))
	mux.Handle("/lists/", deque.Handler(deque.New(gate, deque.Options{})))

	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)),
		Who:   keyfuncs.IP(),
	}
	return ratelimit.HTTP(perIP)(mux), nil
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
		WriteTimeout:      time.Minute, // a pop waits for up to 30 s
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
