package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// prefix is the prefix of the demo's keys.
const prefix = "gatehouse-demo"

func main() {
	logging.Disable() // of go-redis: failures come back as errors, and are reported once
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Stdout, os.Getenv("ADDR"), os.Getenv("REDIS_URL")); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run serves the demo until ctx ends.
func run(ctx context.Context, out io.Writer, addr, redisURL string) error {
	rdb, err := connect(redisURL)
	if err != nil {
		return err
	}
	defer rdb.close()

	ready, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.client.Ping(ready).Err(); err != nil {
		return fmt.Errorf("the Redis at %s does not answer (%w): start it, correct REDIS_URL, "+
			"or leave REDIS_URL out, and the demo brings its own", rdb.client.Options().Addr, err)
	}
	app, opened, err := newDemo(ctx, rdb, full)
	if err != nil {
		return err
	}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(addr, "127.0.0.1:8080"))
	if err != nil {
		return fmt.Errorf("%w: choose another address; ADDR=127.0.0.1:0 takes a free port", err)
	}
	server := &http.Server{
		Handler:           app,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	_, _ = fmt.Fprint(out, welcome(baseURL(listener.Addr()), redisURL != "", !opened))

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return server.Shutdown(last) // streams end with ctx
}

// baseURL is the demo's URL for a browser on this machine.
func baseURL(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", tcp.Port)
	}
	return "http://" + addr.String()
}
