package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// consumer is a user's module, made of what the documentation shows.
type consumer struct {
	name  string
	gets  []string // what the user asks go get for
	files []string // patterns of the files that make the module, from the root of the checkout
	// program says that the files are a server, which is started and asked until it refuses; otherwise they
	// are examples, which are run as tests.
	program bool
	args    []string   // of the program
	most    expected   // of the program
	owners  []released // modules that come from the release
}

// consumers are the quick starts, which the README names, its blocks of code, and the examples of each
// nested module.
func consumers(release []released) []consumer {
	root := release[0]
	all := []consumer{
		{name: "README", gets: []string{root.Path}, files: []string{"docs/example*_test.go"}, owners: release[:1]},
	}
	for _, start := range []struct {
		dir, adapter string // the adapter, or the package that has the rules
		most         expected
	}{
		{"examples/readme/gin", "ginmw", expected{22, 44, 8_900_000}},
		{"examples/readme/echo", "echomw", expected{16, 32, 5_900_000}},
		{"examples/readme/nethttp", "nethttpmw", expected{8, 16, 5_900_000}},
		{"examples/config", "ops/config", expected{9, 18, 9_600_000}},
	} {
		c := consumer{
			name:    start.dir,
			gets:    []string{root.Path, root.Path + "/" + start.adapter, root.Path + "/core/embedded"},
			files:   []string{start.dir + "/main.go"},
			program: true,
			most:    start.most,
			owners:  release[:1],
		}
		if start.adapter == "ops/config" {
			c.files, c.args = append(c.files, start.dir+"/rules.yaml"), []string{"rules.yaml"}
		}
		all = append(all, c)
	}
	for _, m := range release[1:] {
		all = append(all, consumer{
			name:   m.dir,
			gets:   []string{m.Path},
			files:  []string{m.dir + "/example*_test.go"},
			owners: []released{root, m},
		})
	}
	return all
}

// unwanted are modules that nobody gets who does not ask for the nested module that needs them.
var unwanted = []string{
	"github.com/prometheus/", "go.opentelemetry.io/", "github.com/labstack/echo/v5", "modernc.org/",
}

func (c consumer) check(ctx context.Context, e *env, redisURL string) error {
	dir := filepath.Join(e.work, "users", c.name)
	if err := c.create(dir, e); err != nil {
		return err
	}
	goes := func(args ...string) (string, error) { return output(ctx, dir, e.vars, e.command, args...) }
	for _, get := range c.gets {
		if _, err := goes("get", get); err != nil {
			return err
		}
	}
	if c.program {
		if _, err := goes("build", "-o", "server", "."); err != nil {
			return err
		}
		b, err := c.bill(ctx, dir, e)
		if err == nil {
			err = b.check(e, c.most)
		}
		if err != nil {
			return err
		}
		fmt.Printf("    %d modules, %d lines of go.sum, %.1f MB beyond the client of Redis\n",
			len(b.modules), b.sums, float64(b.size-e.bare)/1e6)
		if err := c.askUntilRefused(ctx, dir, redisURL); err != nil {
			return err
		}
	} else {
		out, err := goes("test", "-vet=off", "-count=1", "-run=^Example", "-v", ".")
		if err != nil {
			return err
		}
		if !strings.Contains(out, "--- PASS: Example") {
			return fmt.Errorf("no example has run:\n%s", out)
		}
	}
	graph, err := goes("mod", "graph") // list -m all would ask for the dates of modules that no build needs
	if err != nil {
		return err
	}
	return c.owned(graph)
}

// bill returns what the server is made of. Its go.sum is that of somebody who begins without one, as far as a
// build needs it.
func (c consumer) bill(ctx context.Context, dir string, e *env) (bill, error) {
	sums := filepath.Join(dir, "go.sum")
	all, err := os.ReadFile(sums)
	if err != nil {
		return bill{}, err
	}
	if err := os.Remove(sums); err != nil {
		return bill{}, err
	}
	vars := append(slices.Clone(e.vars), "GOSUMDB=off")
	if _, err := output(ctx, dir, vars, e.command, "build", "-o", "server", "."); err != nil {
		return bill{}, err
	}
	b, err := billOf(dir, "server")
	return b, errors.Join(err, os.WriteFile(sums, all, 0o644))
}

// create writes the module: a copy of the files, and a go.sum with the checksums of the checkout.
func (c consumer) create(dir string, e *env) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	contents := map[string][]byte{"go.mod": []byte("module example.com/user\n\ngo 1.25.0\n"), "go.sum": e.sums}
	for _, pattern := range c.files {
		found, err := filepath.Glob(filepath.Join(e.root, filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			return errors.Join(errors.New("no files "+pattern), err)
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			// Programs that the README shows listen where it says.
			contents[filepath.Base(file)] = bytes.ReplaceAll(text, []byte(`"127.0.0.1:8080"`), []byte(`os.Getenv("ADDR")`))
		}
	}
	for name, text := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// owned looks at the module graph: our modules have the release's version, and the root alone brings none
// of what the nested modules are there to keep apart.
func (c consumer) owned(graph string) error {
	for _, m := range c.owners {
		if !strings.Contains(graph, "example.com/user "+m.String()+"\n") {
			return fmt.Errorf("%s is not in the build:\n%s", m.Version, graph)
		}
	}
	if len(c.owners) > 1 {
		return nil
	}
	for edge := range strings.Lines(graph) {
		for _, prefix := range unwanted {
			if strings.Contains(edge, " "+prefix) {
				return fmt.Errorf("the root module brings %s along: %s", prefix, strings.TrimSpace(edge))
			}
		}
	}
	return nil
}

// askUntilRefused starts the server on a loopback port and sends requests until it answers 429.
func (c consumer) askUntilRefused(ctx context.Context, dir, redisURL string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	vars := []string{"ADDR=" + address, "REDIS_URL=" + redisURL}
	server, err := start(ctx, dir, "./server", vars, c.args...)
	if err != nil {
		return err
	}
	defer func() { _ = server.stop() }() // says nothing new: what matters is returned below
	if err := server.accepts(ctx, "tcp", address); err != nil {
		return err
	}
	for allowed := 0; ; allowed++ {
		status, header, err := get(ctx, "http://"+address+"/")
		switch {
		case err != nil:
			return err
		case status < 500 && status != http.StatusTooManyRequests && allowed < 10_000:
		case status == http.StatusTooManyRequests && allowed > 0 && header.Get("Retry-After") != "":
			return server.stop()
		default:
			return fmt.Errorf("status %d, Retry-After %q after %d allowed requests",
				status, header.Get("Retry-After"), allowed)
		}
	}
}

func get(ctx context.Context, url string) (int, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header, errors.Join(err, response.Body.Close())
}

// freeAddress is a loopback address that nobody listens on at the moment.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// process is a program that runs until it is stopped.
type process struct {
	cmd    *exec.Cmd
	said   *bytes.Buffer // read it when the process has exited
	exited chan struct{} // closed when it has
	err    error         // how it exited
}

func start(ctx context.Context, dir, program string, vars []string, args ...string) (*process, error) {
	p := &process{said: &bytes.Buffer{}, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, program, args...)
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), vars...)
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// accepts waits until the process accepts connections.
func (p *process) accepts(ctx context.Context, network, address string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen: %w", p.cmd.Path, err)
		case <-p.exited:
			return fmt.Errorf("%s exited: %w\n%s", p.cmd.Path, p.err, p.said)
		}
	}
}

// stop asks the process to end, and returns an error when it does not do so in good order. A program without
// a handler for the signal, as a quick start is, ends by it. stop may be called again.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has exited
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
		return errors.New(p.cmd.Path + " did not end within 10 s")
	}
	status, known := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	ended := known && status.Signaled() && status.Signal() == syscall.SIGTERM
	if p.err != nil && !ended {
		return fmt.Errorf("%s exited: %w\n%s", p.cmd.Path, p.err, p.said)
	}
	return nil
}

// redisServer is a Redis of our own, on a socket in the temporary folder.
type redisServer struct {
	*process
	socket string
}

func startRedis(ctx context.Context, dir string) (*redisServer, error) {
	socket := filepath.Join(dir, "redis.sock")
	p, err := start(ctx, dir, "redis-server", nil,
		"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := p.accepts(ctx, "unix", socket); err != nil {
		_ = p.stop()
		return nil, err
	}
	return &redisServer{p, socket}, nil
}

// url names the n-th of the databases of the server, each of which is empty at first.
func (s *redisServer) url(n int) string { return fmt.Sprintf("unix://%s?db=%d", s.socket, n) }
