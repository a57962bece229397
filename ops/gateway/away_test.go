package gateway_test

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/proxies"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// The tests of this file are about a gateway, or its Redis, that does not answer.

// TestAGatewayThatIsAway: each proxy refuses, and goes on when it is back.
//
// Promise (Gateway): While the gateway does not answer, the proxy does what its configuration says. Those of
// the guide refuse.
func TestAGatewayThatIsAway(t *testing.T) {
	redistest.LeftToCI(t)
	want := map[string]int{"nginx": 500, "caddy": 502, "haproxy": 503, "traefik": 500, "envoy": 403}
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		gate := guardtest.NewEngine(redistest.Single(t))
		c.AsShown = true // it is about them
		p := start(t, c, gate, rules)
		p.Away()
		if resp := p.raw(t, "GET", "/"); resp.StatusCode != want[c.Name] || p.Reached.Load() != 0 {
			t.Errorf("%s: want %d", resp.Status, want[c.Name])
		}
		if c.From != gateway.Traefik { // which waits for 30 s
			released := make(chan struct{})
			p.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-released })) // it hangs
			if resp := p.raw(t, "GET", "/"); resp.StatusCode < 500 && c.From != gateway.Envoy ||
				resp.StatusCode < 400 || p.Reached.Load() != 0 {
				t.Errorf("%s: want an error", resp.Status)
			}
			close(released)
			p.Away()
		}
		p.Serve(t, p.handler)
		redistest.Eventually(t, time.Minute, func() bool {
			return p.raw(t, "GET", "/").StatusCode == http.StatusOK
		}, "it does not go on")
	})
}

// openEdits are the lines of the guide with which requests pass while the gateway does not answer, by the proxy.
func openEdits(t *testing.T) map[string][]string {
	t.Helper()
	blocks := func(language string, many int) []string {
		texts := proxies.Blocks(t, language)
		if len(texts) != many {
			t.Fatalf("the guide has %d blocks of %s", len(texts), language)
		}
		return texts
	}
	const check, refusal = "    location = /gatehouse-check {\n", "    location @gatehouse-refusal {\n"
	const asks, site = "\t\t\tmethod GET\n", ":80 {\n"
	nginx, caddy := blocks("nginx", 4), blocks("caddyfile", 3)
	return map[string][]string{
		"nginx":   {check, check + nginx[2], refusal, nginx[3] + refusal},
		"caddy":   {asks, asks + caddy[1], site, caddy[2] + site},
		"haproxy": {"-- if not status", "if not status"},
		"envoy":   {"failure_mode_allow: false", "failure_mode_allow: true"},
	}
}

// TestTheOpenConfigurationOfTheGuide: with these lines requests pass while the gateway does not answer.
//
// Promise (Gateway): Where the proxy lets requests pass while the gateway does not answer, no refusal is taken for
// that: neither one by a limit nor one by a rule that is closed while Redis is away.
func TestTheOpenConfigurationOfTheGuide(t *testing.T) {
	edits := openEdits(t)
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		if edits[c.Name] == nil {
			return // Traefik has no way
		}
		b, f := redistest.Single(t), redistest.NewFaults(t)
		gate := guardtest.NewEngineOver(b, b.NewClientWith(t, f, func(o *redis.UniversalOptions) {
			o.MaxRetries, o.DialerRetries = -1, 1 // so that it does not answer at once
		}), core.WithDeadline(time.Minute))
		p := start(t, c, gate, rules, edits[c.Name]...)
		for i, want := range []int{200, 200, 429} {
			if resp := p.raw(t, "POST", "/login"); resp.StatusCode != want {
				t.Errorf("%d: %s", i, resp.Status)
			}
		}
		f.Refuse(true)
		f.CutAll()
		if resp := p.raw(t, "POST", "/polls/7/votes?choice=a", "X-User", "ann"); resp.StatusCode < 400 {
			t.Errorf("a vote without Redis: %s", resp.Status)
		}
		f.Heal()
		p.Away()
		if resp := p.raw(t, "POST", "/login"); resp.StatusCode != http.StatusOK || p.Reached.Load() != 3 {
			t.Errorf("%s, reached %d times", resp.Status, p.Reached.Load())
		}
		p.Serve(t, p.handler)
		redistest.Eventually(t, time.Minute, func() bool {
			return p.raw(t, "POST", "/login").StatusCode == http.StatusTooManyRequests
		}, "it does not ask again")
	})
}

// TestNobodyMakesTheQuestionFail: where requests pass while the gateway does not answer, a client may gain by a
// request that the gateway cannot read and the application can. The proxy counts what it sends to the application,
// which reads anything.
//
// Promise (Gateway): No request has the question about it fail, so that it passes.
func TestNobodyMakesTheQuestionFail(t *testing.T) {
	redistest.LeftToCI(t)
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		edits := openEdits(t)[c.Name]
		if edits == nil || c.From == gateway.Envoy {
			return // the stand-in reads requests as the gateway does
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		var reached atomic.Int64
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return // the test is over
				}
				reached.Add(1)
				go func() {
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}()
			}
		}()
		file := strings.Replace(rules, "/: site", "/: login", 1)
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)), file, append(edits, "127.0.0.1:8080",
			l.Addr().String())...)
		for range 3 {
			p.raw(t, "POST", "/login")
		}
		before := reached.Load()
		if before == 0 {
			t.Fatal("nothing reaches the application")
		}
		for _, lines := range failing() {
			resp := p.lines(t, "POST", "/login"+lines[0], lines[1])
			if n := reached.Load(); n != before {
				t.Errorf("%.99q, %d bytes, %.99q, %d bytes: %s, reached", lines[0], len(lines[0]), lines[1],
					len(lines[1]), resp.Status)
				before = n
			}
		}
	})
}

// failing returns the ends of paths, and lines of fields, by which a client may try to have the question about it
// fail.
func failing() (all [][2]string) {
	for _, line := range []string{"X-A: \x00\r\n", "X-A: a\x00b\r\n", "X-A\x00: a\r\n", "X-A: \x7f\x01\r\n",
		"X A: a\r\n", ": a\r\n", "X-A: \xff\xfe\r\n", "Content-Length: 0\r\nContent-Length: 0\r\n", "Content-Length: +0\r\n",
		"Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: identity\r\n", "TE: trailers\r\n", "Expect: x\r\n",
		"Host: a b\r\n", "Host: other.example\r\n", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n" +
			"HTTP2-Settings: AAMAAABkAAQAAP__\r\n", "Connection: close, X-Original-Uri\r\n", " folded: a\r\n",
		"X-A: a\r\n folded\r\n", "Proxy-Connection: keep-alive\r\n", "Range: bytes=0-0\r\n", "If-None-Match: *\r\n",
		"If-Match: \"x\"\r\n", "If-Modified-Since: Sat, 28 Nov 2076 00:00:00 GMT\r\n"} {
		all = append(all, [2]string{"", line})
	}
	for size := 512; size <= 2<<20; size = size * 5 / 4 {
		text := strings.Repeat("a", size)
		all = append(all, [2]string{"", "X-A: " + text + "\r\n"}, [2]string{"?" + text, "Accept: text/html\r\n"},
			[2]string{"", strings.Repeat("X-A: "+strings.Repeat("a", 50)+"\r\n", size/57)},
			[2]string{"", "Cookie: " + text + "\r\n"}, [2]string{strings.Repeat("/.", size/2), ""})
	}
	for size := 14_000; size <= 17_000; size += 100 { // about the size of HAProxy's buffers
		text := strings.Repeat("a", size)
		all = append(all, [2]string{"", "X-A: " + text + "\r\n"}, [2]string{"?" + text, ""})
	}
	return all
}

// TestRedisIsAwayBehindAGateway: the policy of the rule, and no error of the proxy.
func TestRedisIsAwayBehindAGateway(t *testing.T) {
	b := redistest.Single(t)
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		f := redistest.NewFaults(t)
		p := start(t, c, guardtest.NewEngineOver(b, b.NewClientWith(t, f)), rules)
		f.Refuse(true)
		f.CutAll()
		passed := 0
		for i := range 4 { // each process counts by itself; a proxy that is not answered in time may ask again
			resp := p.raw(t, "POST", "/login")
			if resp.StatusCode == http.StatusOK {
				passed++
			} else if resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%d: %s", i, resp.Status)
			}
		}
		if passed < 1 || passed > 2 {
			t.Errorf("%d logins passed: want 2", passed)
		}
		status := cmp.Or(map[string]int{"envoy": http.StatusTooManyRequests}[c.Name], http.StatusServiceUnavailable)
		if resp := p.raw(t, "POST", "/polls/7/votes?choice=a", "X-User", "ann"); resp.StatusCode != status ||
			resp.Header.Get("Retry-After") == "" {
			t.Errorf("a vote: %s %v", resp.Status, resp.Header)
		}
		f.Heal()
	})
}
