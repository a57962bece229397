// Package proxies runs real proxies in tests, configured as docs/guides/gateway.md says.
package proxies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/gateway"
)

// Program is a proxy that can be run.
type Program struct {
	From gateway.From
	Name string

	// prepare writes the configuration into a folder, and returns the arguments of the program.
	prepare func(t *testing.T, dir string, edit func(string) string) (args []string)
}

// All are the programs.
var All = []Program{
	{gateway.Nginx, "nginx", nginx},
	{gateway.Caddy, "caddy", func(t *testing.T, dir string, edit func(string) string) []string {
		conf := "{\n\tadmin off\n\tauto_https off\n}\n" + block(t, "caddyfile")
		return []string{"run", "--adapter", "caddyfile", "--config", write(t, dir, "Caddyfile", edit(conf))}
	}},
	{gateway.HAProxy, "haproxy", func(t *testing.T, dir string, edit func(string) string) []string {
		write(t, dir, "gatehouse.lua", edit(block(t, "lua")))
		return []string{"-f", write(t, dir, "haproxy.cfg", edit(block(t, "haproxy")))}
	}},
}

func nginx(t *testing.T, dir string, edit func(string) string) []string {
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // as which the sockets are made
	}
	conf := user + "pid " + filepath.Join(dir, "pid") + ";\nerror_log stderr warn;\nevents {}\nhttp {\n" +
		"access_log off;\nclient_max_body_size 0;\n" + temp + block(t, "nginx") + "}\n"
	path := write(t, dir, "nginx.conf", edit(conf))
	return []string{"-p", dir, "-e", "stderr", "-g", "daemon off;", "-c", path}
}

// Each runs f with each program, at the same time.
func Each(t *testing.T, f func(t *testing.T, p Program)) {
	t.Helper()
	for _, p := range All {
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

	socket  string
	gateway *http.Server
}

// Guide returns docs/guides/gateway.md.
func Guide(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		page, err := os.ReadFile(filepath.Join(dir, "docs", "guides", "gateway.md"))
		if err == nil {
			return string(page)
		}
		if dir == filepath.Dir(dir) {
			t.Fatal(err)
		}
		dir = filepath.Dir(dir)
	}
}

// block returns the first block of a language in the guide.
func block(t *testing.T, language string) string {
	t.Helper()
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(Guide(t))
	if found == nil {
		t.Fatalf("the guide has no block of %s", language)
	}
	return found[1]
}

func write(t *testing.T, dir, name, contents string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Start runs a proxy with a handler of the gateway and an application behind it. The application answers with
// the number of bytes of the body, and its field X-Path is the target that it was asked for. Edits are pairs
// of texts: the first one stands in the configuration of the guide, and the second one takes its place.
func Start(t *testing.T, program Program, h http.Handler, edits ...string) *Proxy {
	t.Helper()
	redistest.Need(t, program.Name)
	dir, err := os.MkdirTemp("", "gateway") // short: it has sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &Proxy{socket: filepath.Join(dir, "gatehouse.sock")}
	p.Serve(t, h)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Reached.Add(1)
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
		p.URL = fmt.Sprintf("http://127.0.0.1:%d", port)
		edited := make([]bool, len(edits))
		args := program.prepare(t, dir, func(conf string) string {
			for i := 0; i < len(edits); i += 2 {
				edited[i] = edited[i] || strings.Contains(conf, edits[i])
				conf = strings.ReplaceAll(conf, edits[i], edits[i+1])
			}
			return replace.Replace(conf)
		})
		for i := 0; i < len(edits); i += 2 {
			if !edited[i] {
				t.Fatalf("the configuration has no %q", edits[i])
			}
		}
		if p.run(t, program.Name, args) {
			return p
		}
	}
	t.Fatal("the proxy does not start")
	return nil
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// Serve has the gateway listen.
func (p *Proxy) Serve(t *testing.T, h http.Handler) {
	t.Helper()
	_ = os.Remove(p.socket)
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", p.socket)
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

// Away ends the gateway. [Proxy.Serve] brings one back.
func (p *Proxy) Away() { _ = p.gateway.Close() }

// run runs the proxy's program until the test ends, and reports whether it answers.
func (p *Proxy) run(t *testing.T, name string, args []string) bool {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), redistest.Path(name), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(p.socket))
	if err := redistest.Spawn(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s: %s", name, out.String())
		}
	})
	answers := false
	redistest.Eventually(t, time.Minute, func() bool {
		select {
		case <-ended:
			t.Logf("%s ended: %s", name, out.String())
			return true
		default:
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.URL, "http://"))
		if answers = err == nil; answers {
			_ = conn.Close()
		}
		return answers
	}, "the proxy does not answer")
	return answers
}
