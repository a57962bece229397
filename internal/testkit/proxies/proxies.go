// Package proxies runs real proxies in tests, configured as the guides say.
package proxies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// Program is a proxy that can be run.
type Program struct {
	From gateway.From
	Name string

	// AsShown keeps the guide's timeouts of a question. Otherwise a busy machine has a minute to answer it.
	AsShown bool

	// prepare writes the configuration into a folder, and returns the arguments of the program.
	prepare func(t *testing.T, dir string, edit func(string) string) (args []string)
	// standIn makes what asks in the program's place.
	standIn func(t *testing.T, conf string, app *url.URL) *standIn
}

// All are the programs.
var All = []Program{
	{From: gateway.Nginx, Name: "nginx", prepare: nginx},
	{From: gateway.Caddy, Name: "caddy", prepare: caddy},
	{From: gateway.HAProxy, Name: "haproxy", prepare: haproxy},
}

func caddy(t *testing.T, dir string, edit func(string) string) []string {
	conf := "{\n\tadmin off\n\tauto_https off\n}\n" + block(t, "caddyfile")
	return []string{"run", "--adapter", "caddyfile", "--config", write(t, dir, "Caddyfile", edit(conf))}
}

func haproxy(t *testing.T, dir string, edit func(string) string) []string {
	write(t, dir, "gatehouse.lua", edit(block(t, "lua")))
	return []string{"-f", write(t, dir, "haproxy.cfg", edit(block(t, "haproxy")))}
}

func nginx(t *testing.T, dir string, edit func(string) string) []string {
	path := write(t, dir, "nginx.conf", edit(NginxConf(dir, "client_max_body_size 0;\n"+block(t, "nginx"))))
	return []string{"-p", dir, "-e", "stderr", "-g", "daemon off;", "-c", path}
}

// NginxConf is a configuration of nginx, which keeps what it writes in a folder, around what http has.
func NginxConf(dir, http string) string {
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // as which the sockets are made
	}
	return user + "pid " + filepath.Join(dir, "pid") + ";\nerror_log stderr warn;\nevents {}\nhttp {\n" +
		"access_log off;\n" + temp + http + "}\n"
}

// Each runs f with each program and each stand-in, at the same time.
func Each(t *testing.T, f func(t *testing.T, p Program)) {
	t.Helper()
	for _, p := range slices.Concat(All, StandIns) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			f(t, p)
		})
	}
}

// Proxy is a running proxy, with a gateway and an application behind it.
type Proxy struct {
	URL     string
	Reached atomic.Int64 // how many requests the application got

	network, address string // of the gateway
	gateway          *http.Server
}

// Guide returns docs/guides/gateway.md.
func Guide(t *testing.T) string {
	t.Helper()
	return Page(t, "gateway.md")
}

// Page returns a page of docs/guides.
func Page(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		page, err := os.ReadFile(filepath.Join(dir, "docs", "guides", name))
		if err == nil {
			return string(page)
		}
		if dir == filepath.Dir(dir) {
			t.Fatal(err)
		}
		dir = filepath.Dir(dir)
	}
}

// Block returns the first block of a language in a page.
func Block(t *testing.T, page, language string) string {
	t.Helper()
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the guide has no block of %s", language)
	}
	return found[1]
}

// Blocks returns the blocks of a language in the guide.
func Blocks(t *testing.T, language string) []string {
	t.Helper()
	return blocksOf(t, Guide(t), language)
}

func block(t *testing.T, language string) string {
	t.Helper()
	return Blocks(t, language)[0]
}

func blocksOf(t *testing.T, page, language string) (texts []string) {
	t.Helper()
	for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1) {
		texts = append(texts, found[1])
	}
	if texts == nil {
		t.Fatalf("the guide has no block of %s", language)
	}
	return texts
}

func write(t *testing.T, dir, name, contents string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// patient changes the timeouts of questions in the configurations of the guide.
var patient = strings.NewReplacer("proxy_connect_timeout 1s;", "proxy_connect_timeout 1m;",
	"proxy_read_timeout 2s;", "proxy_read_timeout 1m;", "dial_timeout 1s", "dial_timeout 1m",
	"response_header_timeout 2s", "response_header_timeout 1m", "timeout = 1000}", "timeout = 60000}",
	"timeout: 2s}", "timeout: 60s}", "timeout connect 5s", "timeout connect 1m")

// Start runs a proxy with a handler of the gateway and an application behind it. The application answers with
// the number of bytes of the body. Its field X-Path is the target that it was asked for, X-Seen-Ratelimit and
// X-Seen-Ratelimit-Policy are what it got. If the connection is to be upgraded, it sends back what it hears.
// Edits are pairs of texts: the first one stands in the configuration of the guide, and the second one takes
// its place.
func Start(t *testing.T, program Program, h http.Handler, edits ...string) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "gateway") // short: it has sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &Proxy{network: "unix", address: filepath.Join(dir, "gatehouse.sock")}
	if program.From == gateway.Traefik {
		p.network, p.address = "tcp", "127.0.0.1:0"
	}
	if h != nil {
		p.Serve(t, h)
	}
	app := httptest.NewServer(http.HandlerFunc(p.application))
	t.Cleanup(app.Close)
	edited := make([]bool, len(edits))
	edit := func(conf string) string {
		for i := 0; i < len(edits); i += 2 {
			edited[i] = edited[i] || strings.Contains(conf, edits[i])
			conf = strings.ReplaceAll(conf, edits[i], edits[i+1])
		}
		if !program.AsShown {
			conf = patient.Replace(conf)
		}
		return strings.NewReplacer("/run/gatehouse.sock", p.address, "127.0.0.1:8079", p.address,
			":8078", fmt.Sprintf(":%d", redistest.FreePort(t)), "127.0.0.1:8080", strings.TrimPrefix(app.URL, "http://"), "/etc/haproxy/", dir+"/").Replace(conf)
	}
	if program.standIn != nil {
		p.stand(t, program, edit, app.URL)
	} else {
		p.start(t, program, dir, edit)
	}
	for i := 0; i < len(edits); i += 2 {
		if !edited[i] {
			t.Fatalf("the configuration has no %q", edits[i])
		}
	}
	return p
}

// application is what stands behind the proxy.
func (p *Proxy) application(w http.ResponseWriter, r *http.Request) {
	p.Reached.Add(1)
	if protocol := r.Header.Get("Upgrade"); protocol != "" {
		echo(w, protocol)
		return
	}
	n, err := io.Copy(io.Discard, r.Body)
	w.Header().Set("X-Path", r.RequestURI)
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
		w.Header()["X-Seen-"+name] = r.Header[name]
	}
	_, _ = fmt.Fprint(w, n, err)
}

// The key of a WebSocket, and what a server answers to it (RFC 6455, section 1.3).
const (
	WebSocketKey    = "dGhlIHNhbXBsZSBub25jZQ=="
	webSocketAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

// echo upgrades the connection, and sends back what it hears.
func echo(w http.ResponseWriter, protocol string) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"+
		"Sec-WebSocket-Accept: %s\r\n\r\n", protocol, webSocketAccept)
	_, _ = io.Copy(conn, rw) // until the client goes
}

// start runs a program on a port that is free.
func (p *Proxy) start(t *testing.T, program Program, dir string, edit func(string) string) {
	t.Helper()
	redistest.Need(t, program.Name)
	OnPort(t, func(addr string) bool {
		_, port, _ := net.SplitHostPort(addr)
		listen := strings.NewReplacer("listen 80", "listen "+addr, ":80 {",
			fmt.Sprintf(":%s {\n\tbind 127.0.0.1", port), "bind :80", "bind "+addr)
		p.URL = "http://" + addr
		args := program.prepare(t, dir, func(conf string) string { return listen.Replace(edit(conf)) })
		_, answers := Run(t, dir, addr, program.Name, args...)
		return answers
	})
}

// OnPort calls start with an address on loopback that is free, until it reports that it has started.
func OnPort(t *testing.T, start func(addr string) bool) {
	t.Helper()
	for range 5 {
		if start(fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))) {
			return
		}
	}
	t.Fatal("the proxy does not start")
}

// stand runs a stand-in.
func (p *Proxy) stand(t *testing.T, program Program, edit func(string) string, app string) {
	t.Helper()
	at, err := url.Parse(app)
	if err != nil {
		t.Fatal(err)
	}
	title := strings.ToUpper(program.Name[:1]) + program.Name[1:]
	_, section, _ := strings.Cut(Guide(t), "\n## "+title+"\n")
	server := httptest.NewUnstartedServer(program.standIn(t, edit(Block(t, section, "yaml")), at))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	p.URL = server.URL
}

// Serve has the gateway listen.
func (p *Proxy) Serve(t *testing.T, h http.Handler) {
	t.Helper()
	if p.network == "unix" {
		_ = os.Remove(p.address)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), p.network, p.address)
	if err != nil {
		t.Fatal(err)
	}
	p.address = l.Addr().String()
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	p.gateway = server
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
}

// Address is where the proxy asks: the path of a Unix socket, or an address of TCP.
func (p *Proxy) Address() string { return p.address }

// Away ends the gateway. [Proxy.Serve] brings one back.
func (p *Proxy) Away() { _ = p.gateway.Close() }

// Run runs a program until the test ends, and reports whether it answers at an address. If not, it has ended.
// Its home is a folder of the test.
func Run(t *testing.T, home, addr, program string, args ...string) (out *guardtest.Output, answers bool) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), redistest.Path(program), args...)
	out = new(guardtest.Output)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "HOME="+home)
	if err := redistest.Spawn(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s: %s", program, out.String())
		}
	})
	redistest.Eventually(t, time.Minute, func() bool {
		select {
		case <-ended:
			t.Logf("%s ended: %s", program, out.String())
			return true
		default:
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if answers = err == nil; answers {
			_ = conn.Close()
		}
		return answers
	}, "the proxy does not answer")
	return out, answers
}
