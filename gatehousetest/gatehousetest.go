// Package gatehousetest is for tests of applications: an engine on a Redis inside the process, one clock for
// both, which the test moves, and the sentences that tests of limits want.
//
//	func TestLimit(t *testing.T) {
//		gate := gatehousetest.New(t)
//		app := newApp(gate.Engine)
//		get := func() *http.Request { return httptest.NewRequest("GET", "/", nil) }
//		gate.Allows(app, 100, get)
//		gate.Refuses(app, http.StatusTooManyRequests, time.Minute, get)
//		gate.Advance(time.Minute)
//		gate.Allows(app, 100, get)
//	}
//
// The Redis is a miniredis: its Lua is not that of Redis, so run tests that matter on a real server too. What
// waits in the process (a permit or lock with Wait, deferred requests, leases that go back) does so in real
// time.
package gatehousetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
)

// Gate is an engine and the Redis that it runs on, which end with the test.
type Gate struct {
	// Engine makes the guards of the application under test.
	Engine *core.Engine
	// Redis is the Redis inside the process. Close and Restart are an outage; its clock is moved by
	// [Gate.Advance].
	Redis *miniredis.Miniredis

	t   testing.TB
	mu  sync.Mutex
	now time.Time
}

// New starts a Redis inside the process, and makes an engine on it. Its deadline is 30 seconds, since
// machines that test are busy; the options come after that. The clock stands still, at a full second, until
// [Gate.Advance].
func New(t testing.TB, options ...core.Option) *Gate {
	t.Helper()
	g := &Gate{Redis: miniredis.RunT(t), t: t, now: time.Now().Truncate(time.Second)}
	g.Redis.ClockTTL(true) // keys expire by the clock
	g.Redis.SetTime(g.now)
	client := redis.NewClient(&redis.Options{
		Addr: g.Redis.Addr(), ContextTimeoutEnabled: true, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = client.Close() })
	g.Engine = core.New(client, append([]core.Option{core.WithDeadline(30 * time.Second), core.WithClock(g.Now)},
		options...)...)
	return g
}

// Now returns the time of the clock.
func (g *Gate) Now() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

// Advance moves the clock of the engine and of the Redis: windows go on, keys expire, and refusals that the
// process remembers are forgotten in time.
func (g *Gate) Advance(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = g.now.Add(d)
	g.Redis.SetTime(g.now)
}

// Allows sends n requests to the application, one after the other, and fails the test at the first whose
// status is 400 or more. A request is made anew for each, since its body is read.
func (g *Gate) Allows(app http.Handler, n int, request func() *http.Request) {
	g.t.Helper()
	for i := range n {
		if status, _, body := g.send(app, request()); status >= http.StatusBadRequest {
			g.t.Fatalf("request %d of %d gets %d, and is to be allowed:\n%s", i+1, n, status, body)
		}
	}
}

// Refuses sends a request to the application, and fails the test unless it gets this status and, as
// Retry-After, this time in whole seconds. 0: no Retry-After.
func (g *Gate) Refuses(app http.Handler, status int, retryAfter time.Duration, request func() *http.Request) {
	g.t.Helper()
	got, header, body := g.send(app, request())
	want := ""
	if retryAfter > 0 {
		want = strconv.FormatInt(int64((retryAfter+time.Second-1)/time.Second), 10)
	}
	if after := header.Get("Retry-After"); got != status || after != want {
		g.t.Fatalf("the request gets %d with Retry-After %q, want %d with %q:\n%s", got, after, status, want, body)
	}
}

func (g *Gate) send(app http.Handler, r *http.Request) (status int, header http.Header, body []byte) {
	g.t.Helper()
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)
	response := w.Result()
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return response.StatusCode, response.Header, body
}
