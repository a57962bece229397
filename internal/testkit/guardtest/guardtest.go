// Package guardtest has what the tests of several guard packages share: engines, clocks, observers, clients
// and checks of decisions.
package guardtest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// NewEngine makes an engine on the backend, with a deadline that suits a busy machine.
func NewEngine(b redistest.Backend, options ...core.Option) *core.Engine {
	options = append([]core.Option{core.WithDeadline(time.Minute), core.WithObserver(Ignore{})}, options...)
	if b.Client == nil {
		return core.NewMemory(options...)
	}
	return core.New(b.Client, append(SharedCalls(core.WithPrefix(b.Prefix)), options...)...)
}

// SharedCalls returns the options, and core.WithoutSharedCalls with GATEHOUSE_SHARED_CALLS=off.
func SharedCalls(options ...core.Option) []core.Option {
	if os.Getenv("GATEHOUSE_SHARED_CALLS") == "off" {
		options = append(options, core.WithoutSharedCalls())
	}
	return options
}

// Ignore is an observer for tests that break things on purpose.
type Ignore struct{}

// Observe implements core.Observer: it does nothing.
func (Ignore) Observe(context.Context, core.Event) {}

// Clock is a clock that tests move by hand. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that shows the present time.
func NewClock() *Clock { return &Clock{now: time.Now().Truncate(time.Millisecond)} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// WithClock makes the scripts read a test's clock instead of the server's.
func WithClock(c *Clock) core.Option { return core.WithClock(c.Now) }

// Check checks an attempt and fails the test on an error.
func Check(t testing.TB, g core.Guard, a core.Attempt) core.Decision {
	t.Helper()
	d, err := g.Check(t.Context(), a)
	if err != nil {
		t.Fatalf("Check(%+v): %v", a, err)
	}
	return d
}

// WantReason wants a decision with the reason, allowed exactly when the reason allows.
func WantReason(t testing.TB, d core.Decision, want core.Reason) {
	t.Helper()
	if d.Reason != want || d.Allowed != (want == core.ReasonOK || want == core.ReasonAgain ||
		want == core.ReasonChanged) {
		t.Fatalf("decision %+v: want reason %q", d, want)
	}
}

// Hostile is text that users may send: each is another actor, poll, choice, item or operation ID.
var Hostile = []string{
	"plain", "{", "}", "{}", "{a}", "}{", "a:b", "a", "b", "a|b", "|", "||", " ", "a b", "a=1", "=", "%", "%20",
	"%7B",
	"\x00", "a\x00b", "\xff\xfe", "\xc3\x28", "#", "#plain", "\r\n", "é", "日本", "0", "00", "-1",
	"9007199254740993",
	"9007199254740992", "1234567890123456789", "b7c5a6f0-9f43-4b3c-8a53-6c8d0b2f1f11",
	strings.Repeat("x", 96), strings.Repeat("x", 97), strings.Repeat("x", 10_000), strings.Repeat("x", 10_001),
	strings.Repeat("{", 10_000), strings.Repeat("\xff", 10_000),
}

// IsInvalid reports whether the error is core.ErrInvalid.
func IsInvalid(err error) bool { return errors.Is(err, core.ErrInvalid) }

// Soak reports whether the long versions of the tests run: see redistest.Soak.
func Soak() bool { return redistest.Soak() }

// Ending is core.Commit for an attempt that went well, and core.Rollback for one that failed.
func Ending(ok bool) core.Ending {
	if ok {
		return core.Commit
	}
	return core.Rollback
}

// Settle settles an attempt with the ending, and fails the test on an error.
func Settle(t testing.TB, g core.Guard, d core.Decision, end core.Ending) {
	t.Helper()
	if err := g.Settle(t.Context(), d, end); err != nil {
		t.Fatalf("Settle(%+v, %+v): %v", d, end, err)
	}
}

// WantPanic wants f to panic with a message that contains the text.
func WantPanic(t testing.TB, text string, f func()) {
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

// NoClient is a client that must not be called.
type NoClient struct{}

// Process panics.
func (NoClient) Process(context.Context, redis.Cmder) error { panic("no call expected") }

// Recorder is an observer that keeps all events.
type Recorder struct {
	Mu     sync.Mutex
	Events []core.Event
}

// Observe implements core.Observer: it keeps the event.
func (h *Recorder) Observe(_ context.Context, e core.Event) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	h.Events = append(h.Events, e)
}

// Counting is a client that counts the commands sent through it.
type Counting struct {
	script.Client
	Sent atomic.Int64
}

// Process counts a command and passes it on.
func (c *Counting) Process(ctx context.Context, cmd redis.Cmder) error {
	c.Sent.Add(1)
	return c.Client.Process(ctx, cmd)
}

// WantSource wants a decision from the source.
func WantSource(t testing.TB, d core.Decision, want core.Source) {
	t.Helper()
	if d.Source != want {
		t.Fatalf("decision %+v: want source %q", d, want)
	}
}

// Zone loads a time zone.
func Zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// RefusingServer makes a client for a server that answers every script with the same bytes.
func RefusingServer(t testing.TB, answer string) *redis.Client {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
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
				defer func() { _ = conn.Close() }() // the client sees an end either way
				buffer := make([]byte, 4096)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					request := strings.ToLower(string(buffer[:n]))
					if strings.Contains(request, "eval") {
						_, err = io.WriteString(conn, answer)
					} else { // HELLO and the like, which this server does not know
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

// NewEngineOver is NewEngine with a client that a test has put in front of the backend's.
func NewEngineOver(b redistest.Backend, rdb script.Client, options ...core.Option) *core.Engine {
	options = append(SharedCalls(core.WithDeadline(time.Minute), core.WithObserver(Ignore{}),
		core.WithPrefix(b.Prefix)), options...)
	return core.New(rdb, options...)
}

// NewClockAt makes a clock that shows the given time.
func NewClockAt(now time.Time) *Clock { return &Clock{now: now} }

// Set sets the clock.
func (c *Clock) Set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}
