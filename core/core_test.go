package core

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// newEngine makes an engine on the backend with time enough for a busy machine.
func newEngine(b redistest.Backend, options ...Option) *Engine {
	options = append([]Option{WithDeadline(10 * time.Second), WithObserver(ignore{})}, options...)
	if b.Client == nil {
		return NewMemory(options...)
	}
	return New(b.Client, append([]Option{WithPrefix(b.Prefix)}, options...)...)
}

// ignore is an observer for tests that break things on purpose.
type ignore struct{}

func (ignore) Observe(context.Context, Event) {}

// testClock is a clock that tests move by hand.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newTestClock() *testClock { return &testClock{now: time.Now().Truncate(time.Millisecond)} }

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// withClock makes the scripts read a test's clock in place of the server's.
func withClock(c *testClock) Option { return WithClock(c.Now) }

func check(t *testing.T, g Guard, a Attempt) Decision {
	t.Helper()
	d, err := g.Check(t.Context(), a)
	if err != nil {
		t.Fatalf("Check(%+v): %v", a, err)
	}
	return d
}

func wantReason(t *testing.T, d Decision, want Reason) {
	t.Helper()
	if d.Reason != want || d.Allowed != (want == ReasonOK || want == ReasonAgain || want == ReasonChanged) {
		t.Fatalf("decision %+v: want reason %q", d, want)
	}
}

// hostile is text that users may send: each is another actor, poll, choice, item or operation ID.
var hostile = []string{
	"plain", "{", "}", "{}", "{a}", "}{", "a:b", "a", "b", "a|b", "|", "||", " ", "a b", "a=1", "=", "%", "%20", "%7B",
	"\x00", "a\x00b", "\xff\xfe", "\xc3\x28", "#", "#plain", "\r\n", "é", "日本", "0", "00", "-1", "9007199254740993",
	"9007199254740992", "1234567890123456789", "b7c5a6f0-9f43-4b3c-8a53-6c8d0b2f1f11",
	strings.Repeat("x", 96), strings.Repeat("x", 97), strings.Repeat("x", 10_000), strings.Repeat("x", 10_001),
	strings.Repeat("{", 10_000), strings.Repeat("\xff", 10_000),
}

func isInvalid(err error) bool { return errors.Is(err, ErrInvalidAttempt) }

// soak reports whether the long versions of the tests are asked for: make soak.
func soak() bool { return redistest.Soak() }

func settle(t testing.TB, g Guard, d Decision, ok bool) {
	t.Helper()
	if err := g.Settle(t.Context(), d, ok); err != nil {
		t.Fatalf("Settle(%+v, %v): %v", d, ok, err)
	}
}

func wantPanic(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		v := recover()
		s, _ := v.(string)
		if err, ok := v.(error); ok {
			s = err.Error()
		}
		if v == nil || !strings.Contains(s, text) {
			t.Errorf("panic %v, want one with %q", v, text)
		}
	}()
	f()
}

// nothing is a client that is never asked.
type nothing struct{}

func (nothing) Process(context.Context, redis.Cmder) error { panic("no call expected") }

// heard is an observer that remembers.
type heard struct {
	mu     sync.Mutex
	events []Event
}

func (h *heard) Observe(_ context.Context, e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// counting is a client that counts what is sent through it.
type counting struct {
	Client
	sent atomic.Int64
}

func (c *counting) Process(ctx context.Context, cmd redis.Cmder) error {
	c.sent.Add(1)
	return c.Client.Process(ctx, cmd)
}

func wantSource(t *testing.T, d Decision, want Source) {
	t.Helper()
	if d.Source != want {
		t.Fatalf("decision %+v: want source %q", d, want)
	}
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// refusingServer answers every command of a script with the same bytes.
func refusingServer(t *testing.T, answer string) *redis.Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				buffer := make([]byte, 4096)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					request := strings.ToLower(string(buffer[:n]))
					if strings.Contains(request, "eval") {
						_, err = io.WriteString(conn, answer)
					} else { // HELLO and the like: not known here
						_, err = io.WriteString(conn, strings.Repeat("-ERR unknown command\r\n", strings.Count(request, "*")))
					}
					if err != nil {
						return
					}
				}
			})
		}
	})
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), DisableIdentity: true, MaxRetries: -1})
	t.Cleanup(func() {
		_ = rdb.Close()
		_ = listener.Close()
		all.Wait()
	})
	return rdb
}

// newEngineOver is newEngine over a client that a test has put before the backend's.
func newEngineOver(b redistest.Backend, rdb Client, options ...Option) *Engine {
	options = append([]Option{WithDeadline(10 * time.Second), WithObserver(ignore{}), WithPrefix(b.Prefix)}, options...)
	return New(rdb, options...)
}

// newTestClockAt makes a clock that shows a time.
func newTestClockAt(now time.Time) *testClock { return &testClock{now: now} }

// Set sets the clock.
func (c *testClock) Set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}
