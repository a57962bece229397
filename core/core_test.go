package core

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

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
func withClock(c *testClock) Option { return func(e *Engine) { e.clock = c.Now } }

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
