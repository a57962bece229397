package gateway_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	pathpkg "path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// The tests of this file run real proxies, configured as docs/guides/gateway.md says.

// real is a running proxy, with a gateway behind it and an application.
type real struct {
	url     string
	reached atomic.Int64 // how many requests the application got
	socket  string
	gateway *http.Server
}

// blocks returns the blocks of a language in the guide.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/guides/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(page, -1) {
		found = append(found, string(m[1]))
	}
	return found
}

// configured is how a proxy is run with the configuration of the guide.
type configured struct {
	from    gateway.From
	program string
	prepare func(t *testing.T, dir string, replace *strings.Replacer) (args []string)
}

func write(t *testing.T, dir, name, contents string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var configurations = []configured{
	{gateway.Nginx, "nginx", func(t *testing.T, dir string, replace *strings.Replacer) []string {
		temp := ""
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			temp += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
		}
		user := ""
		if os.Getuid() == 0 {
			user = "user root;\n" // as which the sockets are made
		}
		conf := user + "pid " + filepath.Join(dir, "pid") + ";\nerror_log stderr warn;\nevents {}\nhttp {\n" +
			"access_log off;\nclient_max_body_size 0;\n" +
			temp + blocks(t, "nginx")[0] + "}\n"
		return []string{"-p", dir, "-e", "stderr", "-g", "daemon off;", "-c",
			write(t, dir, "nginx.conf", replace.Replace(conf))}
	}},
	{gateway.Caddy, "caddy", func(t *testing.T, dir string, replace *strings.Replacer) []string {
		conf := "{\n\tadmin off\n\tauto_https off\n}\n" + blocks(t, "caddyfile")[0]
		return []string{"run", "--adapter", "caddyfile", "--config", write(t, dir, "Caddyfile", replace.Replace(conf))}
	}},
	{gateway.HAProxy, "haproxy", func(t *testing.T, dir string, replace *strings.Replacer) []string {
		write(t, dir, "gatehouse.lua", replace.Replace(blocks(t, "lua")[0]))
		return []string{"-f", write(t, dir, "haproxy.cfg", replace.Replace(blocks(t, "haproxy")[0]))}
	}},
}

// start runs a proxy with a gateway and an application behind it.
func start(
	t *testing.T, c configured, gate *core.Engine, rules string, more ...config.Option,
) *real {
	t.Helper()
	if _, err := exec.LookPath(c.program); err != nil {
		if redistest.All() {
			t.Fatalf("%s is not installed: .ci/install-test-programs %s", c.program, c.program)
		}
		t.Skipf("%s is not installed", c.program)
	}
	dir, err := os.MkdirTemp("", "gateway") // short: it has sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	live, _ := watch(t, gate, strings.ReplaceAll(rules, `trust_proxies: [127.0.0.1, "::1"], `, ""), more...)
	p := &real{socket: filepath.Join(dir, "gatehouse.sock")}
	p.serve(t, gateway.Handler(live, gateway.Options{From: c.from, Users: map[string]string{"uid": "X-User"}}))
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.reached.Add(1)
		n, err := io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Path", r.RequestURI)
		_, _ = fmt.Fprint(w, n, err)
	}))
	t.Cleanup(app.Close)
	for range 5 {
		port := freePort(t)
		replace := strings.NewReplacer("listen 80;", fmt.Sprintf("listen 127.0.0.1:%d;", port),
			":80 {", fmt.Sprintf(":%d {\n\tbind 127.0.0.1", port), "bind :80", fmt.Sprintf("bind 127.0.0.1:%d", port),
			"/run/gatehouse.sock", p.socket, "127.0.0.1:8080", strings.TrimPrefix(app.URL, "http://"),
			"/etc/haproxy/", dir+"/")
		p.url = fmt.Sprintf("http://127.0.0.1:%d", port)
		if p.run(t, c, c.prepare(t, dir, replace)) {
			return p
		}
	}
	t.Fatal("the proxy does not start")
	return nil
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// serve has the gateway listen.
func (p *real) serve(t *testing.T, h http.Handler) {
	t.Helper()
	_ = os.Remove(p.socket)
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	p.gateway = &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() {
		if err := p.gateway.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = p.gateway.Close() })
}

// run runs the proxy's program until the test ends, and reports whether it answers.
func (p *real) run(t *testing.T, c configured, args []string) bool {
	t.Helper()
	cmd := exec.Command(c.program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(p.socket))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s: %s", c.program, out.String())
		}
	})
	answers := false
	redistest.Eventually(t, time.Minute, func() bool {
		select {
		case <-ended:
			t.Logf("%s ended: %s", c.program, out.String())
			return true
		default:
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if answers = err == nil; answers {
			_ = conn.Close()
		}
		return answers
	}, "the proxy does not answer")
	return answers
}

// raw sends a request line and fields as they are, and returns the answer.
func (p *real) raw(t *testing.T, method, target string, fields ...string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n", method, target)
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", fields[i], fields[i+1])
	}
	fmt.Fprint(conn, "\r\n")
	return read(conn, method)
}

func eachReal(t *testing.T, f func(t *testing.T, c configured)) {
	t.Helper()
	for _, c := range configurations {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			f(t, c)
		})
	}
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

// counted reports whether an answer says that the limit of logins was asked.
func counted(resp *http.Response) bool {
	return strings.Contains(resp.Header.Get("Ratelimit"), `"logins"`)
}

// TestForgedFieldsThroughRealProxies: whatever a client sends, its third login is refused.
//
// Promise (Gateway): A client's own X-Original-*, X-Forwarded-*, Forwarded, X-Real-IP and Gatehouse-* never count.
func TestForgedFieldsThroughRealProxies(t *testing.T) {
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
	eachReal(t, func(t *testing.T, c configured) {
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
		if n := p.reached.Load(); n != 2 {
			t.Errorf("%d requests reached the application: want 2", n)
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
  client: {ip: {trust_unix_socket: true}}
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
	eachReal(t, func(t *testing.T, c configured) {
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
			r.Host, r.RemoteAddr = "shop.example", "@"
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
			r.Header.Set("X-Forwarded-For", "127.0.0.1")
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
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	pieces := []string{"/", "/", "/", "login", "/x/../", "%2F", "%2f", "%5C", "\\", ".",
		"..", "%2e", "%2E", ";", ";a=1", "%3B", "?", "??", "%00", "%0a", "%20", "#", "%", "%zz", "%252f", "\xc3\xa9", "%C3%A9",
		"a", "//", "/./", "/../", "http://shop.example", "LOGIN", "+", "*", ":80", "@"}
	many := 300
	if redistest.Soak() {
		many = 20_000
	}
	eachReal(t, func(t *testing.T, c configured) {
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

// TestBodiesAndMethodsThroughRealProxies: the proxy keeps bodies for the application.
func TestBodiesAndMethodsThroughRealProxies(t *testing.T) {
	size := int64(4 << 20)
	if redistest.Soak() {
		size = 100 << 20
	}
	eachReal(t, func(t *testing.T, c configured) {
		p := start(t, c, guardtest.NewEngine(redistest.Single(t)), strings.ReplaceAll(rules, "2/h", "9999/h"))
		client := &http.Client{Timeout: time.Minute}
		t.Cleanup(client.CloseIdleConnections)
		for i, chunked := range []bool{false, true, false} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/login",
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
			before := p.reached.Load()
			resp := p.raw(t, method, "/x", "Content-Length", "0")
			if !strings.Contains(resp.Header.Get("Ratelimit"), `"site"`) || p.reached.Load() != before+1 {
				t.Errorf("%s: %s %v", method, resp.Status, resp.Header)
			}
		}
	})
}

// zeros is a body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestOneConnectionOfManyClients: a proxy reuses its connections, which mixes nobody up.
func TestOneConnectionOfManyClients(t *testing.T) {
	eachReal(t, func(t *testing.T, c configured) {
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
		if n := p.reached.Load(); n != 20 {
			t.Errorf("%d votes: want 20", n)
		}
	})
}

// TestAGatewayThatIsAway: each proxy refuses, and goes on when it is back.
//
// Promise (Gateway): While the gateway does not answer, the proxy does what its configuration says. Those of
// the guide refuse.
func TestAGatewayThatIsAway(t *testing.T) {
	want := map[string]int{"nginx": 500, "caddy": 502, "haproxy": 503}
	eachReal(t, func(t *testing.T, c configured) {
		gate := guardtest.NewEngine(redistest.Single(t))
		p := start(t, c, gate, rules)
		h := p.gateway.Handler
		_ = p.gateway.Close()
		if resp := p.raw(t, "GET", "/"); resp.StatusCode != want[c.program] || p.reached.Load() != 0 {
			t.Errorf("%s: want %d", resp.Status, want[c.program])
		}
		released := make(chan struct{})
		p.serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-released })) // it hangs
		if resp := p.raw(t, "GET", "/"); resp.StatusCode < 500 || p.reached.Load() != 0 {
			t.Errorf("%s: want an error", resp.Status)
		}
		close(released)
		_ = p.gateway.Close()
		p.serve(t, h)
		redistest.Eventually(t, 20*time.Second, func() bool {
			return p.raw(t, "GET", "/").StatusCode == http.StatusOK
		}, "it does not go on")
	})
}

// TestRedisIsAwayBehindAGateway: the policy of the rule, and no error of the proxy.
func TestRedisIsAwayBehindAGateway(t *testing.T) {
	b := redistest.Single(t)
	eachReal(t, func(t *testing.T, c configured) {
		f := redistest.NewFaults(t)
		p := start(t, c, guardtest.NewEngineOver(b, b.NewClientWith(t, f)), rules)
		f.Refuse(true)
		f.CutAll()
		for i, want := range []int{200, 200, 429, 429} { // each process counts by itself
			if resp := p.raw(t, "POST", "/login"); resp.StatusCode != want {
				t.Errorf("%d: %s, want %d", i, resp.Status, want)
			}
		}
		if resp := p.raw(t, "POST", "/polls/7/votes?choice=a", "X-User", "ann"); resp.StatusCode !=
			http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("a vote: %s %v", resp.Status, resp.Header)
		}
		f.Heal()
	})
}

// TestAWaitingRoomThroughRealProxies: its page, its cookie, and the way in.
func TestAWaitingRoomThroughRealProxies(t *testing.T) {
	const file = `
rules:
  shop:
    - {guard: room, who: visitor}
routes:
  /: shop
...
`
	eachReal(t, func(t *testing.T, c configured) {
		gate := guardtest.NewEngine(redistest.Single(t))
		room := waitingroom.New(gate, "room", waitingroom.Options{Capacity: 1, Poll: time.Second,
			Secrets: [][]byte{[]byte("a secret of sixteen bytes")}})
		p := start(t, c, gate, file, config.WithGuards(room))
		visitor := func() func() (inside bool) {
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			browser := &http.Client{Jar: jar, Timeout: time.Minute}
			t.Cleanup(browser.CloseIdleConnections)
			return func() bool {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/", nil)
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
				if cached := resp.Header.Get("Cache-Control"); !inside && (cached != "no-store" ||
					!strings.Contains(string(body), "in line") || resp.StatusCode != http.StatusOK) && c.from != gateway.Caddy {
					t.Errorf("%s, Cache-Control: %s, %.200s", resp.Status, cached, body)
				}
				return inside
			}
		}
		ann, bob := visitor(), visitor()
		redistest.Eventually(t, 30*time.Second, ann, "the first visitor does not enter")
		for range 3 {
			if !ann() {
				t.Error("the first visitor is not inside any longer")
			}
			if bob() {
				t.Error("the second visitor is inside, too")
			}
		}
		if err := room.SetCapacity(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, 30*time.Second, bob, "the second visitor does not enter")
	})
}
