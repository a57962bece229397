package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// nodeModules is what `npm install` in the folder express leaves.
const nodeModules = "express/node_modules"

// statusNoAnswer stands for a server in another process that has not answered in time.
const statusNoAnswer = 598

// noAnswerAfter is how long a server in another process may take to answer.
const noAnswerAfter = 2 * time.Second

// expressRateLimit is the contender that runs on Node, if it can be run here.
func expressRateLimit(t testing.TB) []contender {
	t.Helper()
	if _, err := os.Stat(nodeModules); err != nil {
		return nil
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil
	}
	return []contender{{name: "express-rate-limit with rate-limit-redis", redis: true, apart: true,
		handler: func(rdb *redis.Client, n int, window time.Duration, _ func() time.Time) http.Handler {
			return serveByNode(t, node, rdb.Options().Addr, n, window)
		}}}
}

// serveByNode starts a server of the folder express, and returns a handler that passes requests on to it.
func serveByNode(t testing.TB, node, redisAddr string, n int, window time.Duration) http.Handler {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), node, "server.mjs", "redis://"+redisAddr, strconv.Itoa(n),
		strconv.FormatInt(window.Milliseconds(), 10))
	cmd.Dir = "express"
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("node did not start: %v", err)
	}
	return &relay{url: "http://" + net.JoinHostPort("127.0.0.1", strings.TrimSpace(port)) + "/"}
}

// relay passes requests on to a server in another process. Each client has connections of its own, from a
// loopback address of its own, so that the server sees it as a peer.
type relay struct {
	url     string
	mu      sync.Mutex
	clients map[string]*http.Client
}

// of returns the client for the address 203.0.113.k, whose connections come from 127.0.113.k.
func (p *relay) of(addr string) *http.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		p.clients = map[string]*http.Client{}
	}
	if p.clients[addr] == nil {
		from := net.ParseIP(strings.Replace(addr, "203.0.", "127.0.", 1))
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
		p.clients[addr] = &http.Client{
			Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 100},
			Timeout:   noAnswerAfter,
		}
	}
	return p.clients[addr]
}

func (p *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		panic(err)
	}
	there, err := http.NewRequestWithContext(r.Context(), r.Method, p.url, http.NoBody)
	if err != nil {
		panic(err)
	}
	there.Header = r.Header.Clone()
	res, err := p.of(host).Do(there)
	if err != nil {
		w.WriteHeader(statusNoAnswer)
		return
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body) // for the next request on the connection
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
}

// scriptsRun returns how many scripts the server has run: the round trips of a client in another process that
// sends nothing else.
func scriptsRun(ctx context.Context, rdb *redis.Client) (n int64, err error) {
	stats, err := rdb.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("count scripts: %w", err)
	}
	for _, section := range stats {
		for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
			figures, _, _ := strings.Cut(strings.TrimPrefix(section[name], "calls="), ",")
			if figures != "" {
				calls, err := strconv.ParseInt(figures, 10, 64)
				if err != nil {
					return 0, fmt.Errorf("count scripts: %w", err)
				}
				n += calls
			}
		}
	}
	return n, nil
}
