package script_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestErrorsNameTheAddressAndTheCause: whatever was wrong, errors and logs said "context deadline exceeded",
// because go-redis dials again until a check's time is over.
//
// Promise (Outages): Errors and the log name the server's address and, once a probe has failed, the cause. A
// start without Redis says what to do.
func TestErrorsNameTheAddressAndTheCause(t *testing.T) {
	plain := redistest.StartServer(t).Addr()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	const down = "127.0.0.1:1" // tcpmux; nothing listens there, and nothing is given that port
	for _, c := range []struct {
		name, cause string
		options     *redis.Options
	}{
		{"Redis is down", "refused the connection: start it there, or correct the address", &redis.Options{Addr: down}},
		// Redis takes the handshake for commands, and answers unless it has no end of a line.
		{"TLS to a plain port", "TLS handshake",
			&redis.Options{Addr: plain, TLSConfig: &tls.Config{InsecureSkipVerify: true}}},
		{"TLS to a plain port that says nothing", "begins with a TLS handshake, has answered within 500ms",
			&redis.Options{Addr: silent.Addr().String(), TLSConfig: &tls.Config{InsecureSkipVerify: true}}},
		// With an address, because go-redis looks names up.
		{"a name that nobody knows", "no such host", &redis.Options{Addr: "192.0.2.2:6379",
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "redis.example", IsNotFound: true}
			}}},
		{"an address that nobody answers at", "no new connection has answered within 500ms",
			&redis.Options{Addr: "192.0.2.1:6379", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.options.ContextTimeoutEnabled = true
			rdb := redis.NewClient(c.options)
			closing(t, rdb)
			var log guardtest.Output
			e := core.New(rdb, core.WithObserver(guardtest.Ignore{}),
				core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			g := limit.NewSlidingWindow(e, "w", limit.PerHour(5))
			var err error
			redistest.Eventually(t, time.Minute, func() bool {
				_, err = g.Check(t.Context(), core.Attempt{Actor: "ann"})
				if err == nil || !strings.Contains(err.Error(), c.options.Addr) {
					t.Fatalf("%v, want an error that names %s", err, c.options.Addr)
				}
				return strings.Contains(err.Error(), c.cause)
			}, "errors name the cause")
			if kind := (core.Event{Err: err}).ErrorKind(); kind != "breaker_open" {
				t.Errorf("%v, of kind %q", err, kind)
			}
			redistest.Eventually(t, time.Minute, func() bool {
				text := log.String()
				return strings.Contains(text, c.options.Addr) && strings.Contains(text, c.cause)
			}, "the log names the cause")
			const line = "Redis cannot be used"
			lines := slices.DeleteFunc(strings.Split(log.String(), "\n"), func(text string) bool {
				return !strings.Contains(text, line)
			})
			if n := len(lines); n != 1 && (n != 2 || strings.Contains(lines[0], c.cause)) {
				t.Errorf("%d lines, want one for the outage, and one more for a cause that was not known at first:\n%s",
					n, log.String())
			}
		})
	}
}

// TestAStartWithoutRedisSaysWhatToDo: a program that opens a sale or loads its scripts at its start ended with
// "context deadline exceeded", after all the time that it had.
func TestAStartWithoutRedisSaysWhatToDo(t *testing.T) {
	const down = "127.0.0.1:1" // tcpmux; nothing listens there, and nothing is given that port
	rdb := redis.NewClient(&redis.Options{Addr: down, ContextTimeoutEnabled: true,
		DialerRetryTimeout: time.Millisecond})
	closing(t, rdb)
	e := core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute))
	sale := seckill.New(e, "sale", seckill.Options{})
	_, open := sale.Open(t.Context(), "tv", seckill.Sale{Stock: 1})
	for what, err := range map[string]error{"Open": open, "Preload": e.Preload(t.Context())} {
		const want = "redis at " + down + " refused the connection: start it there, or correct the address"
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
}
