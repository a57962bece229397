package gateway_test

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/fcgi"
	"net/http/httptest"
	"net/url"
	"os"
	pathpkg "path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/proxies"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/spoofing"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// The tests of this file run real proxies, configured as docs/guides/gateway.md says.

// start runs a proxy with a gateway for a file, and an application behind it.
func start(
	t *testing.T, program proxies.Program, gate *core.Engine, rules string, edits ...string,
) *real {
	t.Helper()
	live, _ := watch(t, gate, rules)
	h := gateway.Handler(live, gateway.Options{From: program.From, Users: map[string]string{"uid": "X-User"}})
	return &real{proxies.Start(t, program, h, edits...), h, live}
}

// real is a running proxy.
type real struct {
	*proxies.Proxy
	handler http.Handler // of the gateway
	live    *config.Live
}

// raw sends a request line and fields as they are, and returns the answer.
func (p *real) raw(t *testing.T, method, target string, fields ...string) *http.Response {
	t.Helper()
	lines := ""
	for i := 0; i < len(fields); i += 2 {
		lines += fields[i] + ": " + fields[i+1] + "\r\n"
	}
	return p.lines(t, method, target, lines)
}

// lines is raw with fields as lines.
func (p *real) lines(t *testing.T, method, target, lines string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n%s\r\n", method, target,
		lines)
	return read(conn, method)
}

// read reads an answer with its body.
func read(conn net.Conn, method string) *http.Response {
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return &http.Response{Status: err.Error(), Header: http.Header{}, Body: http.NoBody}
	}
	body, _ := io.ReadAll(resp.Body) // a proxy may reset the connection after its answer
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

// limits returns the RateLimit field of an answer, or that which the application got: Traefik gives clients none.
func limits(resp *http.Response) string {
	return cmp.Or(resp.Header.Get("Ratelimit"), resp.Header.Get("X-Seen-Ratelimit"))
}

// counted reports whether an answer says that the limit of logins was asked.
func counted(resp *http.Response) bool { return strings.Contains(limits(resp), `"logins"`) }

// TestForgedFieldsThroughRealProxies: whatever a client sends, its third login is refused. It sends the fields of
// the gateway, and all that the tests of key functions know.
//
// Promise (Gateway): A client's own X-Original-*, X-Forwarded-*, Forwarded, X-Real-IP and Gatehouse-* never count.
func TestForgedFieldsThroughRealProxies(t *testing.T) {
	redistest.LeftToCI(t)
	var forgeries [][]string
	for name, value := range map[string]string{
		"X-Original-Method": "GET", "X-Original-URI": "/", "X-Original-Uri": "/", "X_Original_URI": "/",
		"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/", "X-Forwarded-URI": "/", "X-Forwarded-Prefix": "/x",
		"X-Forwarded-Host": "other.example", "X-Forwarded-Proto": "ftp", "X-Forwarded-Port": "1", "X-Rewrite-Url": "/",
		"X-Forwarded-For": "198.51.100.1", "X_Forwarded_For": "198.51.100.1", "Forwarded": "for=198.51.100.1",
		"X-Real-IP": "198.51.100.1", "True-Client-IP": "198.51.100.1", "CF-Connecting-IP": "198.51.100.1",
		"Gatehouse-Status": "204", "Gatehouse-Refusal": "eyJzIjoyMDAsImgiOnt9LCJiIjoiIn0", "X-HTTP-Method": "GET",
		"Connection": "X-Original-Method, X-Original-URI, X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-For",
		"Ratelimit":  `"logins";r=9`,
	} {
		forgeries = append(forgeries, []string{name, value}, []string{name, value, name, value},
			[]string{strings.ToLower(name), value, "Content-Length", "0"})
	}
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)), rules)
		for range 2 {
			if resp := p.raw(t, "POST", "/login"); resp.StatusCode != http.StatusOK || !counted(resp) {
				t.Fatalf("%s %v", resp.Status, resp.Header)
			}
		}
		for _, fields := range forgeries {
			resp := p.raw(t, "POST", "/login", fields...)
			if resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("%q: %s %v", fields, resp.Status, resp.Header)
			}
		}
		if n := p.Reached.Load(); n != 2 {
			t.Errorf("%d requests reached the application: want 2", n)
		}
		seen := map[string]bool{}
		for _, of := range spoofing.Cases() {
			lines := strings.Join(of.Lines, "\r\n")
			if lines == "" || seen[lines] {
				continue
			}
			seen[lines] = true
			resp := p.lines(t, "POST", "/login", lines+"\r\n")
			if resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("%s, %.200q: %s %v", of.Name, lines, resp.Status, resp.Header)
			}
		}
		if n := p.Reached.Load(); n != 2 || len(seen) < 50 {
			t.Errorf("%d requests reached the application: want 2; %d forgeries", n, len(seen))
		}
		for _, target := range []string{"/check", "/refusal", "/gatehouse-check", "/healthz"} { // paths of a client
			resp := p.raw(t, "POST", target, "Gatehouse-Refusal", "eyJzIjoyMDAsImgiOnt9LCJiIjoiIn0")
			if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %s", target, resp.Status)
			}
		}
	})
}

// TestDecisionsThroughRealProxies: requests that were drawn, through a proxy, and to an application of our own
// with the middleware.
func TestDecisionsThroughRealProxies(t *testing.T) {
	seed, many := rand.Uint64(), 300
	if redistest.Soak() {
		many = 10_000
	}
	t.Logf("seed %d", seed)
	const file = `
keys:
  client: ip
guards:
  site: {sliding_window: {limits: "40/week"}}
  strict: {token_bucket: {limits: "3/week"}}
  votes: {votes: {poll: {per_voter: 2, choices: [a, b]}}}
  strikes: {bans: {refusals: 5, first: 24h, longest: 96h}}
lists:
  staff: {key: {header: X-Api-Key}, entries: [key-1]}
  rogues: {key: {header: X-Api-Key}, entries: [key-2]}
rules:
  site:
    - {guard: site, who: {header: X-Api-Key}, allow: staff, deny: rogues, no_key: skip}
  strict:
    - {guard: strict, who: client, what: {join: [route, {query: q}]}, headers: {legacy: true}}
    - {guard: site, who: {header: X-Api-Key}, bans: strikes}
  vote:
    - {guard: votes, who: {user: uid}, what: {param: poll}, which: {query: choice}, failed: none}
routes:
  /: site
  GET /items/{item}: [site]
  POST /strict/{any...}: strict
  POST /polls/{poll}/votes: [site, vote]
...
`
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		forgets := core.WithRefusalMemory(0) // by which of two refusals a client is told depends on the time
		p := start(t, c, guardtest.NewEngine(redistest.Single(t), forgets), file)
		live, _ := watch(t, guardtest.NewEngine(redistest.Single(t), forgets), file)
		own := http.NewServeMux()
		ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0 <nil>") })
		for _, route := range live.Set().Config().Routes() {
			var h http.Handler = ok
			for i := len(route.Lists) - 1; i >= 0; i-- {
				h = nethttpmw.Follow(live.Source(route.Lists[i]))(h)
			}
			own.Handle(route.Pattern, h)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		any := func(of ...string) string { return of[rng.IntN(len(of))] }
		refused := 0
		for i := range many {
			method := any("GET", "POST", "POST", "POST", "HEAD", "DELETE")
			target := any("/", "/items/a", "/items/%C3%A9", "/strict/a/b", "/strict/a%20b?q=1", "/strict/?q=2&q=3",
				"/polls/7/votes?choice=a", "/polls/8/votes?choice=b", "/polls/8/votes?choice=c", "/polls/9/votes",
				"/items/"+any("x", "y")+"?n="+fmt.Sprint(rng.IntN(9)))
			var fields []string
			for name, value := range map[string]string{
				"X-Api-Key":       any("", "key-1", "key-2", "key-3", "key-4", "key-5"),
				"X-User":          any("", "ann", "bob", "Ännchen", strings.Repeat("u", 300)),
				"Accept":          any("", "*/*", "text/html", "application/json", "text/plain;q=0.5"),
				"Accept-Language": any("", "de", "zh-CN,zh;q=0.9"), "User-Agent": any("", "curl", "Mozilla/5.0"),
			} {
				if value != "" {
					fields = append(fields, name, value)
				}
			}
			got := p.raw(t, method, target, fields...)
			r := httptest.NewRequest(method, target, nil)
			r.Host, r.RemoteAddr = "shop.example", "127.0.0.1:40000"
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
			if user := r.Header.Get("X-User"); user != "" {
				r = r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user))
			}
			w := httptest.NewRecorder()
			own.ServeHTTP(w, r)
			want := w.Result()
			if want.StatusCode >= 400 {
				refused++
			}
			if method == http.MethodHead {
				want.Body = http.NoBody
			}
			if c.From == gateway.Traefik {
				moveSeen(got)
			}
			if a, b := told(got), told(want); a != b {
				t.Fatalf("%d: %s %s %q\n%s\nwant\n%s", i, method, target, fields, a, b)
			}
		}
		t.Logf("%d of %d were refused", refused, many)
		if refused < many/10 || refused > many*9/10 {
			t.Error("that says little")
		}
	})
}

// moveSeen shows what the application got as if the client had got it.
func moveSeen(resp *http.Response) {
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
		if seen := resp.Header["X-Seen-"+name]; seen != nil {
			resp.Header[name] = seen
		}
	}
}

// told is what clients are told: status, fields of the limit, and body. Seconds may differ by one.
func told(resp *http.Response) string {
	body, _ := io.ReadAll(resp.Body)
	text := fmt.Sprintln(resp.StatusCode, string(body))
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "Retry-After", "Content-Type",
		"Cache-Control", "Vary", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Www-Authenticate"} {
		allowed := resp.StatusCode < 400 // then proxies pass on what the guide says
		if allowed && name != "Ratelimit" && name != "Ratelimit-Policy" {
			continue
		}
		text += name + ": " + strings.Join(resp.Header[name], ", ") + "\n"
	}
	moments := `(;t=|After: |Reset: |data-wait=")\d+|()\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?`
	return regexp.MustCompile(moments).ReplaceAllString(text, "${1}n")
}

// readings returns how applications may read a path: some end it at a NUL, some segments at a semicolon, some
// take an escaped slash or a backslash for a slash, and some fold case.
func readings(target string) []string {
	var all []string
	for _, end := range []string{"", "#", "\x00", "%00"} {
		path, _, _ := strings.Cut(target, "?")
		if end != "" {
			path, _, _ = strings.Cut(path, end)
		}
		for _, parameters := range []bool{false, true} {
			if parameters {
				path = regexp.MustCompile(`(;|%3[bB])[^/]*`).ReplaceAllString(path, "")
			}
			decoded := regexp.MustCompile(`%[0-9a-fA-F]{2}`).ReplaceAllStringFunc(path, func(s string) string {
				plain, _ := url.PathUnescape(s)
				return plain
			})
			for _, p := range []string{path, decoded} {
				all = append(all, pathpkg.Clean("/"+strings.ReplaceAll(p, "\\", "/")))
			}
		}
	}
	return all
}

// TestPathsThroughRealProxies: no way to write a path leads around its rule.
func TestPathsThroughRealProxies(t *testing.T) {
	redistest.LeftToCI(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	pieces := []string{"/", "/", "/", "login", "/x/../", "%2F", "%2f", "%5C", "\\", ".",
		"..", "%2e", "%2E", ";", ";a=1", "%3B", "?", "??", "%00", "%0a", "%20", "#", "%", "%zz", "%252f", "\xc3\xa9", "%C3%A9",
		"a", "//", "/./", "/../", "http://shop.example", "LOGIN", "+", "*", ":80", "@"}
	many := 300
	if redistest.Soak() {
		many = 20_000
	}
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)),
			strings.NewReplacer("2/h", "9999/s", "1000/h", "9999/s").Replace(rules))
		rng := rand.New(rand.NewPCG(seed, 1))
		ways := map[bool]int{}
		for range many {
			target := "/login"
			for range rng.IntN(5) {
				at := rng.IntN(len(target) + 1)
				switch rest := target[at:]; {
				case rng.IntN(3) == 0 && rest != "" && rest[0] != '%': // escaped
					target = target[:at] + fmt.Sprintf([]string{"%%%02x", "%%%02X"}[rng.IntN(2)], rest[0]) + rest[1:]
				default:
					target = target[:at] + pieces[rng.IntN(len(pieces))] + rest
				}
			}
			resp := p.raw(t, "POST", target)
			got := resp.Header.Get("X-Path") // by the application, if it was reached
			is := got != "" && slices.Contains(readings(got), "/login")
			ways[is]++
			if is && !counted(resp) {
				t.Errorf("%q leads around the rule, as %q: %s %v", target, got, resp.Status, resp.Header)
			}
		}
		t.Logf("%d of %d led to the route", ways[true], many)
		if ways[true] == 0 {
			t.Error("none led to the route")
		}
	})
}

// TestBlocksOfCaddy: directives that Caddy would run first are behind the question.
func TestBlocksOfCaddy(t *testing.T) {
	const app = "\t\treverse_proxy 127.0.0.1:8080\n"
	p := start(t, proxies.All[1], guardtest.NewEngine(redistest.Single(t)), rules, app,
		"handle /login {\n"+app+"}\nredir /admin/* /elsewhere\nhandle {\nrespond \"all else\"\n}\n")
	for target, want := range map[string][]int{"/login": {200, 200, 429}, "/admin/x": {302, 302, 429}} {
		for i, want := range want {
			if resp := p.raw(t, "POST", target); resp.StatusCode != want || !counted(resp) {
				t.Errorf("%s, %d: %s %v", target, i, resp.Status, resp.Header)
			}
		}
	}
}

// TestPHPBehindNginx: a front controller is asked about once, and reached in no other way. It takes what stands
// behind the name of its script for the path, as PHP's frameworks do.
func TestPHPBehindNginx(t *testing.T) {
	dir, err := os.MkdirTemp("", "php")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "php.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			env := fcgi.ProcessEnv(r)
			w.Header().Set("X-Path", r.URL.RequestURI())
			w.Header().Set("X-Script", env["SCRIPT_FILENAME"])
		})
		_ = fcgi.Serve(l, h) // until the test ends
	}()
	for _, name := range []string{"style.css", "index.php", "other.php"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := regexp.MustCompile(`(?s)    location / \{.*?\n    \}\n`).FindString(proxies.Blocks(t, "nginx")[0])
	php := strings.NewReplacer("/srv/app/public", dir, "/run/php/php-fpm.sock", socket,
		"include fastcgi_params", "include /etc/nginx/fastcgi_params").Replace(proxies.Blocks(t, "nginx")[1])
	p := start(t, proxies.All[0], guardtest.NewEngine(redistest.Single(t)),
		strings.Replace(rules, "2/h", "1000/h", 1), own, php)
	if resp := p.raw(t, "GET", "/style.css"); resp.StatusCode != http.StatusOK || limits(resp) != "" {
		t.Errorf("a file: %s %v", resp.Status, resp.Header)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng, left := rand.New(rand.NewPCG(seed, 1)), 1000
	pieces := []string{"/", "/index.php", "/INDEX.PHP", "/login", "//", "/./", "/../", "/other.php", "%2e",
		"/x.php", "?a", "%2F", "/style.css", "/index%2ephp", "/index.php%00", ";", ".", "login"}
	for i := range 500 {
		target := ""
		for range rng.IntN(5) {
			target += pieces[rng.IntN(len(pieces))]
		}
		if known := []string{"/login", "/index.phplogin", "/./index.php./login"}; i < len(known) {
			target = known[i]
		}
		resp := p.raw(t, "POST", "/"+strings.TrimPrefix(target, "/"))
		path, script := resp.Header.Get("X-Path"), resp.Header.Get("X-Script")
		if script == "" {
			continue // not reached
		}
		path = pathpkg.Clean("/" + strings.TrimPrefix(readings(path)[0], "/index.php"))
		if script != filepath.Join(dir, "index.php") || path == "/login" && !counted(resp) {
			t.Errorf("%q: %s, %s, %v", target, script, path, resp.Header)
		}
		if left--; met(resp, "site") != fmt.Sprint(left) {
			t.Fatalf("%q: %v: want %d left", target, resp.Header, left)
		}
	}
	if left > 990 {
		t.Error("the front controller is hardly reached")
	}
}

// TestBodiesAndMethodsThroughRealProxies: the proxy keeps bodies for the application.
func TestBodiesAndMethodsThroughRealProxies(t *testing.T) {
	size := int64(4 << 20)
	if redistest.Soak() {
		size = 100 << 20
	}
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)), strings.ReplaceAll(rules, "2/h", "9999/h"))
		client := &http.Client{Timeout: time.Minute}
		t.Cleanup(client.CloseIdleConnections)
		for i, chunked := range []bool{false, true, false} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/login",
				io.LimitReader(zeros{}, size))
			if err != nil {
				t.Fatal(err)
			}
			if !chunked {
				r.ContentLength = size
			}
			if i == 2 {
				r.Header.Set("Expect", "100-continue")
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK || string(got) != fmt.Sprintf("%d <nil>", size) || !counted(resp) {
				t.Errorf("body %d of %d bytes: %s, %s, %v", i, size, resp.Status, got, resp.Header)
			}
		}
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE", "PATCH", "PUT", "PROPFIND"} {
			before := p.Reached.Load()
			resp := p.raw(t, method, "/x", "Content-Length", "0")
			if !strings.Contains(limits(resp), `"site"`) || p.Reached.Load() != before+1 {
				t.Errorf("%s: %s %v", method, resp.Status, resp.Header)
			}
		}
	})
}

// zeros is a body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestACacheKeepsNoDecision: an nginx that caches all that may be cached, without the lines of the guide against
// it, and one that caches all. It keeps answers of the application, but neither questions nor refusals.
//
// Promise (Gateway): No proxy caches a decision.
func TestACacheKeepsNoDecision(t *testing.T) {
	const caches = "access_log off;\nproxy_cache_path %s keys_zone=all:1m;\nproxy_cache all;\n" +
		"proxy_cache_valid any 1h;\n"
	for name, edits := range map[string][]string{
		"all that may be": {"access_log off;", fmt.Sprintf(caches, t.TempDir()), "proxy_cache off;", ""},
		"all": {"access_log off;", fmt.Sprintf(caches, t.TempDir()) +
			"proxy_ignore_headers Cache-Control Set-Cookie Vary;\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, proxies.All[0], guardtest.NewEngine(redistest.Single(t)), rules, edits...)
			for i, want := range []int{200, 200, 429, 429} {
				resp := p.raw(t, "GET", "/admin/x")
				if resp.StatusCode != want || !counted(resp) {
					t.Errorf("%d: %s %v", i, resp.Status, resp.Header)
				}
			}
			if n := p.Reached.Load(); n != 1 {
				t.Errorf("the application was reached %d times: nginx does not cache, so this shows nothing", n)
			}
			for range 2 {
				if resp := p.raw(t, "GET", "/polls"); resp.StatusCode != http.StatusOK || counted(resp) {
					t.Errorf("another path: %s %v", resp.Status, resp.Header)
				}
			}
		})
	}
}

// TestOneConnectionOfManyClients: a proxy reuses its connections, which mixes nobody up.
func TestOneConnectionOfManyClients(t *testing.T) {
	redistest.LeftToCI(t)
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)), rules)
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				user := fmt.Sprintf("user-%d", i%20)
				resp := p.raw(t, "POST", "/polls/7/votes?choice=a", "X-User", user)
				body, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict {
					t.Errorf("%s %s", resp.Status, body)
				}
			})
		}
		all.Wait()
		if n := p.Reached.Load(); n != 20 {
			t.Errorf("%d votes: want 20", n)
		}
	})
}

// TestHTTP2InFront: many requests of one connection at the same time, bodies that are refused, forged fields.
func TestHTTP2InFront(t *testing.T) {
	redistest.LeftToCI(t)
	edits := map[string][]string{
		"nginx":   {"listen 80;", "listen 80 http2;"},
		"caddy":   {"admin off", "admin off\n\tservers {\n\t\tprotocols h1 h2c\n\t}"},
		"haproxy": {"bind :80", "bind :80 proto h2"},
	}
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)), rules, edits[c.Name]...)
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		client := &http.Client{Transport: transport, Timeout: time.Minute}
		t.Cleanup(client.CloseIdleConnections)
		send := func(target string, size int64, fields ...string) *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+target,
				io.LimitReader(zeros{}, size))
			if err != nil {
				t.Error(err)
				return nil
			}
			for i := 0; i < len(fields); i += 2 {
				r.Header.Add(fields[i], fields[i+1])
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return &http.Response{Header: http.Header{}}
			}
			body, _ := io.ReadAll(resp.Body) // the rest of a body that is refused may be cut off
			_ = resp.Body.Close()
			if want := fmt.Sprintf("%d <nil>", size); resp.ProtoMajor != 2 ||
				resp.StatusCode == http.StatusOK && string(body) != want {
				t.Errorf("%s: %s %s, %.200s", target, resp.Proto, resp.Status, body)
			}
			return resp
		}
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				resp := send("/polls/7/votes?choice=a", int64(i)*1000, "X-User", fmt.Sprintf("user-%d", i%20))
				if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict {
					t.Error(resp.Status)
				}
			})
		}
		all.Wait()
		if n := p.Reached.Load(); n != 20 {
			t.Errorf("%d votes: want 20", n)
		}
		for i, want := range []int{200, 200, 429, 429} {
			resp := send("/login", 1<<20, "X-Original-Uri", "/", "X-Forwarded-Uri", "/",
				"X-Forwarded-For", "198.51.100.1", "X-Original-Method", "GET", "X-Forwarded-Method", "GET", "Gatehouse-Status", "204")
			if resp.StatusCode != want || !counted(resp) || want == 429 && resp.Header.Get("Retry-After") == "" {
				t.Errorf("%d: %s %v", i, resp.Status, resp.Header)
			}
		}
	})
}

// TestUpgradesThroughRealProxies: a WebSocket is opened, or refused, as any other request.
func TestUpgradesThroughRealProxies(t *testing.T) {
	edits := map[string][]string{"nginx": {"proxy_pass http://127.0.0.1:8080;", "proxy_pass http://127.0.0.1:8080;\n" +
		`proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";`}}
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)), rules, edits[c.Name]...)
		for i, want := range []int{101, 101, 429} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprint(conn, "GET /admin/live HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\n"+
				"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "+proxies.WebSocketKey+"\r\n\r\n")
			from := bufio.NewReader(conn)
			resp, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != want || want == 429 && resp.Header.Get("Retry-After") == "" {
				t.Errorf("%d: %s %v", i, resp.Status, resp.Header)
			}
			if resp.StatusCode == http.StatusSwitchingProtocols {
				heard := make([]byte, 5)
				fmt.Fprint(conn, "hello")
				if _, err := io.ReadFull(from, heard); err != nil || string(heard) != "hello" {
					t.Errorf("%d: %q, %v", i, heard, err)
				}
			}
			_ = conn.Close()
		}
		if n := p.Reached.Load(); n != 2 {
			t.Errorf("%d requests reached the application: want 2", n)
		}
	})
}

// TestAWaitingRoomThroughRealProxies: its page, its cookie, and the way in.
func TestAWaitingRoomThroughRealProxies(t *testing.T) {
	secrets := filepath.Join(t.TempDir(), "secrets")
	err := os.WriteFile(secrets, []byte("a new secret of some bytes\na secret of sixteen bytes\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	file := `
guards:
  site: {fixed_window: {limits: "1000/h"}}
  room: {waitingroom: {capacity: 1, poll: 1s, secrets_file: ` + secrets + `}}
rules:
  shop:
    - {guard: site, who: ip}
    - {guard: room, who: visitor}
routes:
  /: shop
...
`
	proxies.Each(t, func(t *testing.T, c proxies.Program) {
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)), file)
		visitor := func() func() (inside bool) {
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			browser := &http.Client{Jar: jar, Timeout: time.Minute}
			t.Cleanup(browser.CloseIdleConnections)
			return func() bool {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL+"/", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Accept", "text/html")
				r.Header.Set("Sec-Fetch-Mode", "navigate")
				resp, err := browser.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				inside := string(body) == "0 <nil>"
				status := cmp.Or(map[string]int{"caddy": 503, "traefik": 503, "envoy": 429}[c.Name], http.StatusOK)
				if cached := resp.Header.Get("Cache-Control"); !inside && (cached != "no-store" ||
					!strings.Contains(string(body), "in line") || resp.StatusCode != status) {
					t.Errorf("%s, Cache-Control: %s, %.200s", resp.Status, cached, body)
				}
				return inside
			}
		}
		ann, bob := visitor(), visitor()
		redistest.Eventually(t, time.Minute, ann, "the first visitor does not enter")
		for range 3 {
			if !ann() {
				t.Error("the first visitor is not inside any longer")
			}
			if bob() {
				t.Error("the second visitor is inside, too")
			}
		}
		room := p.live.Set().Guard("room").(*waitingroom.Guard)
		if err := room.SetCapacity(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, time.Minute, bob, "the second visitor does not enter")
	})
}
