// Command config is a small server whose rules come from a file. It runs on a Redis inside the process, or on
// that of REDIS_URL.
//
//	go run ./examples/config examples/config/rules.yaml
//	curl -i http://127.0.0.1:8080/
//	curl -i http://127.0.0.1:8080/downloads/book
//
// Change the file meanwhile: two seconds later, requests pass the new rules. With a mistake in it, the former
// rules stay, the log shows the mistake and its place, and /rules says so.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/embedded"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// newApp mounts the rules of a file, and follows the file until ctx ends.
func newApp(ctx context.Context, gate *core.Engine, path string, opts ...config.Option) (
	http.Handler, error,
) {
	live, err := config.Watch(ctx, gate, path, opts...)
	if err != nil {
		return nil, err // each mistake on a line of its own
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "hello")
	})
	downloads := ratelimit.Follow(live.Source("downloads"))
	mux.Handle("GET /downloads/{name}", downloads(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "this is", r.PathValue("name"))
	})))

	around := http.NewServeMux()
	around.Handle("/", ratelimit.Follow(live.Source("site"))(mux))
	around.HandleFunc("GET /rules", func(w http.ResponseWriter, _ *http.Request) { // for you, not for clients
		state := live.State()
		status := struct {
			config.State
			Mistakes string `json:"mistakes,omitempty"`
		}{State: state}
		if state.Err != nil {
			status.Mistakes = state.Err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status)
	})
	return around, nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() (err error) {
	if len(os.Args) != 2 {
		return errors.New("usage: config FILE, such as examples/config/rules.yaml")
	}
	rdb := embedded.Unless(os.Getenv("REDIS_URL")) // empty: a Redis inside this process
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app, err := newApp(ctx, core.New(rdb), os.Args[1])
	if err != nil {
		return errors.Join(err, rdb.Close())
	}
	server := &http.Server{
		Addr: cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080"), Handler: app, ReadHeaderTimeout: 5 * time.Second,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Print("listening on http://", server.Addr)
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(last), core.Drain(last), rdb.Close())
}
