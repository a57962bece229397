// Command demo lets you try Gatehouse: a limit of 100 requests per minute, a poll in which each user votes
// once, and a flash sale (seckill) of 100 tickets, one per buyer. It prints what to try, and serves a page
// to click.
//
//	go run ./examples/demo
//
// It needs nothing else: a Redis runs inside the process. REDIS_URL=redis://127.0.0.1:6379 selects another
// one, and ADDR=127.0.0.1:0 listens on a free port.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
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
	defer rdb.Close()

	// 200 shoppers and the Redis share one laptop: the default deadline of 100 ms would be too short for
	// that.
	gate := core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(5*time.Second))
	app := newApp(gate, limit.PerMinute(100))

	ready, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ready).Err(); err != nil {
		return fmt.Errorf("the Redis at %s does not answer (%w): start it, correct REDIS_URL, "+
			"or leave REDIS_URL out, and the demo brings its own", rdb.Options().Addr, err)
	}
	opened, err := app.open(ready)
	if err != nil {
		return fmt.Errorf("open the sale: %w", err)
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
	return server.Shutdown(last)
}

// connect makes a client for the Redis at redisURL, or for one inside this process when redisURL is empty.
// It sends nothing. The Redis inside has a port of 127.0.0.1: a net.Pipe, which buffers nothing, blocks when
// a pipeline is longer than what the server reads before it replies.
func connect(redisURL string) (*redis.Client, error) {
	if redisURL == "" {
		m := miniredis.NewMiniRedis()
		if err := m.Start(); err != nil { // on a port of 127.0.0.1
			return nil, fmt.Errorf("start a Redis inside the process: %w", err)
		}
		m.ClockTTL(true) // keys expire with time, as in Redis
		return redis.NewClient(&redis.Options{
			Addr:                  m.Addr(),
			ContextTimeoutEnabled: true,
		}), nil
	}
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		if bad := (*url.Error)(nil); errors.As(err, &bad) {
			err = bad.Err // without the URL, which may contain a password
		}
		return nil, fmt.Errorf("REDIS_URL is not the URL of a Redis (%w): "+
			"write it as redis://user:password@127.0.0.1:6379/0, or leave it out", err)
	}
	options.ContextTimeoutEnabled = true // lets guards keep their deadline without a goroutine per call
	return redis.NewClient(options), nil
}

// baseURL is the demo's URL for a browser on this machine.
func baseURL(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", tcp.Port)
	}
	return "http://" + addr.String()
}
