package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// rules is the file of the tests. Each route has a limit of its own, so that answers say which one was met.
const rules = `
guards:
  site: {sliding_window: {limits: "1000/h"}}
  logins: {sliding_window: {limits: "2/h"}}
  votes: {votes: {poll: {per_voter: 1}}}
rules:
  site:
    - {guard: site, who: ip}
  login:
    - {guard: logins, who: ip, what: route}
  vote:
    - {guard: votes, who: {user: uid}, what: {param: poll}, which: {query: choice}, failed: none}
routes:
  /: site
  POST /login: [site, login]
  POST /polls/{poll}/votes: [site, vote]
  /admin/: login
...
`

// watch follows a file with these contents on an engine.
func watch(
	t *testing.T, gate *core.Engine, contents string, more ...config.Option,
) (live *config.Live, write func(contents string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write = func(contents string) {
		if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(contents)
	live, err := config.Watch(t.Context(), gate, path, append(more, config.ForGateway("uid"),
		config.WithInterval(10*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	return live, write
}

// proxy asks a handler as a proxy does.
type proxy struct {
	from    gateway.From
	handler http.Handler
}

// asks is what a proxy sends about a request.
func (p *proxy) asks(method, target string, fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, gateway.CheckPath, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:40000", "shop.example"
	switch p.from {
	case gateway.Nginx, gateway.HAProxy:
		r.Header.Set("X-Original-Method", method)
		r.Header.Set("X-Original-URI", target)
	case gateway.Envoy:
		r.Method, r.RequestURI = method, gateway.CheckPath+target
		r.URL.Path, _, _ = strings.Cut(gateway.CheckPath+target, "?")
	default:
		r.Header.Set("X-Forwarded-Method", method)
		r.Header.Set("X-Forwarded-Uri", target)
		r.Header.Set("X-Forwarded-Host", "shop.example")
	}
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return r
}

// ask returns what the client gets: nginx fetches it.
func (p *proxy) ask(method, target string, fields ...string) *http.Response {
	return p.do(p.asks(method, target, fields...))
}

// do returns what the client gets of a question.
func (p *proxy) do(r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	if enclosed := w.Header().Get("Gatehouse-Refusal"); enclosed != "" && w.Code == http.StatusForbidden {
		again := httptest.NewRequest(http.MethodGet, gateway.RefusalPath, nil)
		again.RemoteAddr = r.RemoteAddr
		again.Header.Set("Gatehouse-Refusal", enclosed)
		w = httptest.NewRecorder()
		p.handler.ServeHTTP(w, again)
	}
	return w.Result()
}

var all = []gateway.From{gateway.Nginx, gateway.Traefik, gateway.Caddy, gateway.HAProxy, gateway.Envoy}

// frozen is an engine on a clock that stands still, so that two of them say the same seconds.
func frozen(t *testing.T) *core.Engine {
	return guardtest.NewEngine(redistest.Single(t), guardtest.WithClock(guardtest.NewClock()))
}

func eachProxy(t *testing.T, f func(t *testing.T, p *proxy, write func(string))) {
	t.Helper()
	for _, from := range all {
		t.Run(from.String(), func(t *testing.T) {
			live, write := watch(t, frozen(t), rules)
			o := gateway.Options{From: from, Users: map[string]string{"uid": "X-User"}}
			f(t, &proxy{from, gateway.Handler(live, o)}, write)
		})
	}
}

// met returns how many units of a guard the answers say are left: "-" if it was not asked.
func met(resp *http.Response, guard string) string {
	for item := range strings.SplitSeq(strings.Join(resp.Header["Ratelimit"], ", "), ", ") {
		if rest, ok := strings.CutPrefix(item, `"`+guard+`";r=`); ok {
			left, _, _ := strings.Cut(rest, ";")
			return left
		}
	}
	return "-"
}

func isAllowed(resp *http.Response) bool {
	return resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusOK
}

// joined has the lists of a limit in one field each.
func joined(h http.Header) http.Header {
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
		if h[name] != nil {
			h.Set(name, strings.Join(h[name], ", "))
		}
	}
	return h
}

// TestARefusalIsThatOfTheMiddleware: status, fields and body.
//
// Promise (Gateway): A proxy's question has the decision, status, fields and body that nethttpmw gives for the
// same request.
func TestARefusalIsThatOfTheMiddleware(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *proxy, _ func(string)) {
		live, _ := watch(t, frozen(t), rules)
		mux := http.NewServeMux()
		ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		for _, route := range live.Set().Config().Routes() {
			var h http.Handler = ok
			for i := len(route.Lists) - 1; i >= 0; i-- {
				h = nethttpmw.Follow(live.Source(route.Lists[i]))(h)
			}
			mux.Handle(route.Pattern, h)
		}
		for i, c := range []struct{ method, target, accept string }{
			{"GET", "/", ""}, {"POST", "/login?next=%2F", ""}, {"POST", "/login", ""}, {"POST", "/login", ""},
			{"POST", "/login", "text/html"}, {"POST", "/login", "application/json"}, {"GET", "/login", ""},
			{"POST", "/polls/7/votes?choice=a", ""}, {"HEAD", "/admin/x", ""}, {"OPTIONS", "/login", ""},
		} {
			fields := []string{"Accept", c.accept, "Accept-Language", "de"}
			r := httptest.NewRequest(c.method, c.target, nil)
			r.RemoteAddr, r.Host = "203.0.113.7:40000", "shop.example"
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			want, got := w.Result(), p.ask(c.method, c.target, fields...)
			wantBody, _ := io.ReadAll(want.Body)
			gotBody, _ := io.ReadAll(got.Body)
			got.Header.Del("Gatehouse-Status")
			if isAllowed(want) && isAllowed(got) {
				got.StatusCode = want.StatusCode
				got.Header.Del("Cache-Control") // of the question
			}
			if got.StatusCode != want.StatusCode || string(gotBody) != string(wantBody) ||
				fmt.Sprint(got.Header) != fmt.Sprint(joined(want.Header)) {
				t.Errorf("%d: %s %s: %d %v %s\nwant %d %v %s", i, c.method, c.target, got.StatusCode, got.Header, gotBody,
					want.StatusCode, want.Header, wantBody)
			}
		}
	})
}

// TestOnePathForAllWaysToWriteIt: each way leads to the route's rules, or is refused.
//
// Promise (Gateway): The path that is judged is the path that the proxy routes, or the request is refused.
func TestOnePathForAllWaysToWriteIt(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *proxy, _ func(string)) {
		for target, refused := range map[string]bool{
			"/login": false, "/%6cogin": false, "/%6Cogin": false, "//login": false, "/./login": false,
			"/a/../login": false, "/%2e/login": false, "/a/%2E%2e/login": false, "/login/": false, "/login//": false,
			"/login/.": false, "/login?": false, "/login?a?b": false, "/login?/../x": false, "/../login": false,
			"/login#x": true, "/%2Flogin": true, "/%2flogin": true, "/x%5C..%5Clogin": true, "/x\\..\\login": true,
			"/login;x=1": true, "/login%00": true, "/log%0ain": true, "/login%": true, "/login%zz": true,
			"/login x": true, "login": true, "http://shop.example/login": true, "": true, "/a;/../login": true,
			"/login//%2e/../": true, "/login//..": true, "/x/%2e/../login": true, "/x//../login": true,
		} {
			resp := p.ask("POST", target)
			switch {
			case refused && isAllowed(resp):
				t.Errorf("%q is allowed", target)
			case !refused && met(resp, "logins") == "-" && resp.StatusCode != http.StatusTooManyRequests:
				t.Errorf("%q leads around the rule: %d %v", target, resp.StatusCode, resp.Header)
			}
		}
		if resp := p.ask("POST", "/logins"); met(resp, "logins") != "-" || met(resp, "site") == "-" {
			t.Errorf("/logins is another path: %d %v", resp.StatusCode, resp.Header)
		}
		for _, target := range []string{"/admin", "/admin/", "/admin/x/y"} {
			if resp := p.ask("GET", target); met(resp, "logins") == "-" {
				t.Errorf("%q leads around the rule: %d %v", target, resp.StatusCode, resp.Header)
			}
		}
	})
}

// TestThePeerIsThatOfTheProxy: ip is the address that the proxy has added, whatever a client has sent before. A
// CDN in front of the proxy is trusted as in a program.
//
// Promise (Gateway): Key functions see a client's request as they would in the proxy's place.
func TestThePeerIsThatOfTheProxy(t *testing.T) {
	const file = `
guards:
  site: {fixed_window: {limits: "9/week"}}
rules:
  direct: [{guard: site, who: ip}]
  cdn: [{guard: site, who: {ip: {trust_proxies: [198.51.100.0/24]}}, no_key: skip}]
  socket: [{guard: site, who: {ip: {trust_unix_socket: true}}, what: route}]
routes: {/: direct, /cdn: cdn, /socket: socket}
...
`
	for _, from := range all {
		live, _ := watch(t, guardtest.NewEngine(redistest.Single(t)), file)
		p := &proxy{from, gateway.Handler(live, gateway.Options{From: from})}
		for _, c := range []struct {
			target, forwarded, left string
			status                  int
		}{
			{"/", "203.0.113.7", "8", 0}, {"/", "203.0.113.7", "7", 0}, {"/", "203.0.113.8", "8", 0},
			{"/", "198.51.100.1, 203.0.113.7", "6", 0}, {"/", "x, ,203.0.113.7", "5", 0}, {"/", "2001:db8::1", "8", 0},
			{"/", "2001:db8::2", "7", 0}, {"/", "::ffff:203.0.113.7", "4", 0}, // one network, one address
			{"/cdn", "203.0.113.7, 198.51.100.9", "3", 0}, {"/cdn", "10.0.0.1, 203.0.113.9, 198.51.100.9", "8", 0},
			{"/cdn", "198.51.100.9", "-", 400}, {"/cdn", "x, 198.51.100.9", "-", 400},
			{"/socket", "203.0.113.7", "8", 0},
			{"/", "", "8", 0}, {"/", "unknown", "7", 0}, {"/", "203.0.113.7,", "6", 0}, // the proxy's own
		} {
			fields := []string{"X-Forwarded-For", c.forwarded}
			resp := p.ask("GET", c.target, fields...)
			if met(resp, "site") != c.left || !isAllowed(resp) && resp.StatusCode != c.status {
				t.Errorf("%v: %s of %q: %d %v, want %s left", from, c.target, c.forwarded, resp.StatusCode, resp.Header,
					c.left)
			}
		}
	}
}

// TestUsersAreThoseOfTheProxy: the key function user finds what the proxy sends.
func TestUsersAreThoseOfTheProxy(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *proxy, _ func(string)) {
		const vote = "/polls/7/votes?choice=a"
		if resp := p.ask("POST", vote); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("without a user: %d", resp.StatusCode)
		}
		if resp := p.ask("POST", vote, "X-User", "ann"); !isAllowed(resp) {
			t.Errorf("the first vote: %d", resp.StatusCode)
		}
		if resp := p.ask("POST", vote, "X-User", "ann"); resp.StatusCode != http.StatusConflict {
			t.Errorf("the second vote: %d", resp.StatusCode)
		}
	})
}

// TestOnlyTheProxyMayAsk: addresses that are named, and Unix sockets.
//
// Promise (Gateway): Only named peers may ask. A Unix socket is named by being one.
func TestOnlyTheProxyMayAsk(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *proxy, _ func(string)) {
		live, _ := watch(t, guardtest.NewEngine(redistest.Single(t)), rules)
		named := gateway.Handler(live, gateway.Options{From: p.from,
			Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
		for peer, want := range map[string][2]bool{ // by default, and where 10.0.0.0/8 is named
			"127.0.0.1:9": {true, false}, "[::1]:9": {true, false}, "[::ffff:127.0.0.1]:9": {true, false},
			"10.1.2.3:9": {false, true}, "203.0.113.7:9": {false, false}, "": {false, false}, "@": {false, false},
		} {
			for i, h := range []http.Handler{p.handler, named} {
				r, w := p.asks("GET", "/"), httptest.NewRecorder()
				r.RemoteAddr = peer
				h.ServeHTTP(w, r)
				if allowed := isAllowed(w.Result()); allowed != want[i] {
					t.Errorf("%q, handler %d: %d", peer, i, w.Code)
				}
			}
		}
		r, w := p.asks("GET", "/"), httptest.NewRecorder()
		r.RemoteAddr = "@"
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Net: "unix"}))
		named.ServeHTTP(w, r)
		if !isAllowed(w.Result()) {
			t.Errorf("a Unix socket: %d", w.Code)
		}
	})
}

// TestAProxyThatSendsTooLittleIsToldSo, and nobody passes.
func TestAProxyThatSendsTooLittleIsToldSo(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *proxy, _ func(string)) {
		for _, spoil := range []func(r *http.Request){
			func(r *http.Request) { r.Header.Del("X-Original-Method"); r.Header.Del("X-Forwarded-Method") },
			func(r *http.Request) { r.Header.Del("X-Original-URI"); r.Header.Del("X-Forwarded-Uri") },
			func(r *http.Request) {
				r.Header.Add("X-Original-URI", "/other")
				r.Header.Add("X-Forwarded-Uri", "/other")
			},
			func(r *http.Request) {
				r.Header.Set("X-Original-Method", "A B")
				r.Header.Set("X-Forwarded-Method", "A B")
			},
			func(r *http.Request) { r.URL.Path, r.RequestURI = "/elsewhere", "/elsewhere" },
		} {
			r, w := p.asks("GET", "/"), httptest.NewRecorder()
			spoil(r)
			p.handler.ServeHTTP(w, r)
			if elsewhere := r.URL.Path == "/elsewhere"; p.from == gateway.Envoy && !elsewhere {
				continue // it sends the client's request itself
			}
			if w.Code != http.StatusInternalServerError {
				t.Errorf("%v: %d", r.Header, w.Code)
			}
		}
	})
}

// TestTheClientsOwnFieldsAreNotThoseOfTheGateway: rules do not see them, and nothing is disclosed to clients.
func TestTheClientsOwnFieldsAreNotThoseOfTheGateway(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *proxy, _ func(string)) {
		resp := p.ask("POST", "/login", "Gatehouse-Status", "200", "Gatehouse-Refusal", "e30")
		if !isAllowed(resp) || met(resp, "logins") != "1" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		for _, enclosed := range []string{"", "e30", "!", strings.Repeat("A", 1<<16), "eyJzIjo5OX0"} {
			r, w := httptest.NewRequest(http.MethodGet, gateway.RefusalPath, nil), httptest.NewRecorder()
			r.RemoteAddr = "127.0.0.1:9"
			r.Header.Set("Gatehouse-Refusal", enclosed)
			p.handler.ServeHTTP(w, r)
			if w.Code < 400 {
				t.Errorf("%q: %d", enclosed, w.Code)
			}
		}
	})
}

// TestRoutesFollowTheFile.
func TestRoutesFollowTheFile(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *proxy, write func(string)) {
		write(strings.Replace(rules, "POST /login:", "POST /signin:", 1))
		redistest.Eventually(t, time.Minute, func() bool {
			return met(p.ask("POST", "/signin"), "logins") != "-" && met(p.ask("POST", "/login"), "logins") == "-"
		}, "the routes stay as they were")
		write(strings.Replace(rules, "/: site", "/: nothing", 1))
		if resp := p.ask("GET", "/"); !isAllowed(resp) {
			t.Errorf("a bad file: %d", resp.StatusCode)
		}
	})
}

// TestNoRouteIsNoRule.
func TestNoRouteIsNoRule(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *proxy, write func(string)) {
		write(strings.Replace(rules, "  /: site\n", "", 1))
		redistest.Eventually(t, time.Minute, func() bool {
			return met(p.ask("GET", "/any"), "site") == "-"
		}, "the routes stay as they were")
		for _, method := range []string{"GET", "DELETE"} {
			if resp := p.ask(method, "/login"); !isAllowed(resp) || len(resp.Header["Ratelimit"]) > 0 {
				t.Errorf("%s: %d %v", method, resp.StatusCode, resp.Header)
			}
		}
		if resp := p.ask("OPTIONS", "*"); p.from != gateway.Envoy && !isAllowed(resp) {
			t.Errorf("OPTIONS *: %d", resp.StatusCode)
		}
	})
}

// TestMistakesInOptions are found at set-up.
func TestMistakesInOptions(t *testing.T) {
	live, _ := watch(t, guardtest.NewEngine(redistest.Single(t)), rules)
	guardtest.WantPanic(t, "name the proxy", func() { gateway.Handler(live, gateway.Options{}) })
	guardtest.WantPanic(t, "name the field", func() {
		gateway.Handler(live, gateway.Options{From: gateway.Caddy, Users: map[string]string{"uid": ""}})
	})
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := config.Watch(t.Context(), guardtest.NewEngine(redistest.Single(t)), path)
	if err != nil {
		t.Fatal(err)
	}
	guardtest.WantPanic(t, "config.ForGateway()", func() {
		gateway.Handler(other, gateway.Options{From: gateway.Caddy})
	})
	for _, from := range all {
		if again, err := gateway.ParseFrom(from.String()); err != nil || again != from {
			t.Errorf("%v: %v, %v", from, again, err)
		}
	}
	if _, err := gateway.ParseFrom("apache"); err == nil || !strings.Contains(err.Error(), "nginx, traefik") {
		t.Errorf("%v", err)
	}
}
