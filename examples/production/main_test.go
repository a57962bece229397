package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestMain runs the app itself where a test has started the binary for that.
func TestMain(m *testing.M) {
	if os.Getenv("SHOP_RUNS") != "" {
		main()
		os.Exit(0)
	}
	redistest.Main(m)
}

const sessionKey = "a key for tests only: 0123456789abcdef"

// process is the app in a process of its own.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	clients, admin string // the addresses
}

// start starts the app before a Redis, with further settings.
func start(t *testing.T, redisAddr string, settings ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "session_key")
	if err := os.WriteFile(key, []byte(sessionKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), exe)}
	p.cmd.Env = append(append(os.Environ(), "SHOP_RUNS=1", "ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0",
		"REDIS_ADDRS="+redisAddr, "SESSION_KEY_FILE="+key), settings...)
	log, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	})
	lines := bufio.NewScanner(log)
	for p.clients == "" || p.admin == "" {
		if !lines.Scan() {
			t.Fatal("the app has ended before it was listening")
		}
		listening := regexp.MustCompile(`for=(\w+) addr=(\S+)`).FindStringSubmatch(lines.Text())
		switch {
		case listening == nil:
		case listening[1] == "clients":
			p.clients = listening[2]
		default:
			p.admin = listening[2]
		}
	}
	go func() {
		for lines.Scan() { // so that the app never waits for us
		}
	}()
	return p
}

// ask sends a request and returns the status, or 0, and the body.
func ask(r *http.Request, err error) (int, string) {
	if err != nil {
		return 0, err.Error()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}

func (p *process) get(addr, path string) (int, string) {
	return ask(http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+addr+path, nil))
}

// order orders a ticket as a buyer who is logged in.
func (p *process) order(ctx context.Context, buyer string) (int, string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.clients+"/sales/ticket/orders", nil)
	if err == nil {
		r.Header.Set("Idempotency-Key", `"order of `+buyer+`"`)
		r.AddCookie(&http.Cookie{Name: "session", Value: buyer + "." + sign([]byte(sessionKey), buyer)})
	}
	return ask(r, err)
}

// readiness returns the status of /readyz, and what it says of Redis.
func (p *process) readiness() (status int, redis string) {
	status, body := p.get(p.admin, "/readyz")
	var state struct{ Redis string }
	if err := json.Unmarshal([]byte(body), &state); err != nil {
		return status, body
	}
	redis, _, _ = strings.Cut(state.Redis, ":")
	return status, redis
}

func (p *process) awaitReady() {
	p.t.Helper()
	redistest.Eventually(p.t, time.Minute, func() bool {
		status, _ := p.readiness()
		return status == 200
	}, "ready")
}

// ends waits until the app has ended, and wants it to say that all went well.
func (p *process) ends() {
	p.t.Helper()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the app has ended with %v", err)
	}
}

// TestReadinessSaysWhatIsNeeded: before the first contact with Redis the app lives and is not ready. When
// Redis goes away later it stays ready, since what needs no Redis goes on; it says so, and orders again when
// Redis is back.
func TestReadinessSaysWhatIsNeeded(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t, "--appendonly", "yes")
	server.Stop()
	p := start(t, server.Addr(), "PAYMENT_TIME=1ms")
	if status, redis := p.readiness(); status != 503 || redis != "down" {
		t.Errorf("without Redis, /readyz answers %d, Redis %s", status, redis)
	}
	if status, _ := p.get(p.admin, "/healthz"); status != 200 {
		t.Errorf("without Redis, /healthz answers %d", status)
	}
	server.Start()
	redistest.Eventually(t, time.Minute, func() bool {
		status, redis := p.readiness()
		return status == 200 && redis == "up"
	}, "ready with Redis")
	buyers := 0
	ordered := func() bool { // each time somebody else, since a late Redis may have sold to the one before
		buyers++
		status, _ := p.order(t.Context(), fmt.Sprint("buyer", buyers))
		return status == 201
	}
	redistest.Eventually(t, time.Minute, ordered, "an order")

	server.Kill()
	redistest.Eventually(t, time.Minute, func() bool {
		status, redis := p.readiness()
		return status == 200 && redis == "down"
	}, "ready without Redis, and saying that it is down")
	for path, addr := range map[string]string{"/healthz": p.admin, "/": p.clients} {
		if status, body := p.get(addr, path); status != 200 {
			t.Errorf("without Redis, %s answers %d: %s", path, status, body)
		}
	}
	if status, body := p.order(t.Context(), "bob"); status != 503 || !strings.Contains(body, `"unavailable"`) {
		t.Errorf("without Redis, an order gets %d: %s", status, body)
	}

	server.Start()
	redistest.Eventually(t, time.Minute, ordered, "an order when Redis is back")
	redistest.Eventually(t, time.Minute, func() bool {
		status, redis := p.readiness()
		return status == 200 && redis == "up"
	}, "ready with Redis again")
	_, metrics := p.get(p.admin, "/metrics")
	if !strings.Contains(metrics, `gatehouse_decisions_total{guard="sale",reason="ok",source="redis"}`) {
		t.Error("/metrics does not have the decisions of the sale")
	}
	if status, _ := p.get(p.clients, "/metrics"); status != 404 {
		t.Errorf("clients get %d for /metrics", status)
	}
}

// under starts orders, and returns when all of them hold a ticket. A buyer who gets 503 before that asks again.
// The function that it returns waits for the answers and returns how many were 201.
func (p *process) under(sale *seckill.Guard, contexts ...context.Context) (answered func() int) {
	p.t.Helper()
	var all sync.WaitGroup
	var created atomic.Int64
	held := make(chan struct{})
	for i, ctx := range contexts {
		all.Go(func() {
			for {
				status, _ := p.order(ctx, fmt.Sprint("buyer", i))
				if status == 201 {
					created.Add(1)
				}
				if status != 503 {
					return
				}
				select {
				case <-held:
					return
				case <-time.After(200 * time.Millisecond): // the limit of an address is 100 in a minute
				}
			}
		})
	}
	redistest.Eventually(p.t, time.Minute, func() bool {
		s, _ := sale.Status(p.t.Context(), "ticket")
		return s.Held == int64(len(contexts))
	}, "all orders are under way")
	close(held)
	return func() int { all.Wait(); return int(created.Load()) }
}

// watch returns the sale as another process sees it.
func watch(t *testing.T, server *redistest.Server) *seckill.Guard {
	gate := core.New(server.Client(t), core.WithPrefix("shop"), core.WithDeadline(time.Minute))
	return seckill.New(gate, "sale", seckill.Options{})
}

func times(ctx context.Context, n int) (all []context.Context) {
	for range n {
		all = append(all, ctx)
	}
	return all
}

// TestAStopUnderLoadLosesNothing: a process that is told to stop while orders are under way answers all of
// them, gives back what those hold whose buyer has gone, takes no new ones, and ends well.
func TestAStopUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	p, sale := start(t, server.Addr(), "PAYMENT_TIME=5s", "REDIS_DEADLINE=10s"), watch(t, server)
	p.awaitReady()
	leaves, leave := context.WithCancel(t.Context())
	defer leave()
	answered := p.under(sale, append(times(t.Context(), 10), leaves, leaves)...)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	leave()
	redistest.Eventually(t, time.Minute, func() bool {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", p.clients)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, "no new requests")
	if n := answered(); n != 10 {
		t.Errorf("%d of 10 buyers were told that they have bought", n)
	}
	p.ends()
	if s, err := sale.Status(t.Context(), "ticket"); err != nil || s.Sold != 10 || s.Held != 0 || s.Left != 990 {
		t.Errorf("after the stop the sale is %+v, %v", s, err)
	}
}

// TestAStopWithoutRedisWaitsForIt: orders cannot be confirmed when Redis hangs. The process answers 503, and
// does not end before it has given back what they held.
func TestAStopWithoutRedisWaitsForIt(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	p, sale := start(t, server.Addr(), "PAYMENT_TIME=3s"), watch(t, server)
	p.awaitReady()
	answered := p.under(sale, times(t.Context(), 5)...)
	server.Pause()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	sold := answered()
	server.Resume()
	p.ends()
	s, err := sale.Status(t.Context(), "ticket")
	if err != nil || s.Sold != int64(sold) || s.Held != 0 || s.Left+s.Sold != 1000 {
		t.Errorf("%d buyers were told that they have bought, and the sale is %+v, %v", sold, s, err)
	}
}

// TestSettingsAreChecked: a mistake in the environment ends the app with an error that names the variable.
func TestSettingsAreChecked(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(sessionKey), 0o600); err != nil {
		t.Fatal(err)
	}
	for variable, value := range map[string]string{
		"SESSION_KEY_FILE": short, "REDIS_PASSWORD_FILE": "/nowhere", "PAYMENT_TIME": "soon",
		"SHUTDOWN_TIMEOUT": "15", "REDIS_DEADLINE": "soon",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("SESSION_KEY_FILE", key)
			t.Setenv(variable, value)
			if _, err := readSettings(); err == nil || !strings.Contains(err.Error(), variable) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestASessionCannotBeMadeUp: only a cookie that the app has signed is a login.
func TestASessionCannotBeMadeUp(t *testing.T) {
	a := &app{settings: settings{sessionKey: []byte(sessionKey)}}
	passed := false
	handler := a.login(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
	for cookie, want := range map[string]bool{
		"ann." + sign([]byte(sessionKey), "ann"): true, "bob." + sign([]byte(sessionKey), "ann"): false,
		"ann.": false, "ann": false, "." + sign([]byte(sessionKey), ""): false, "": false,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: cookie})
		}
		passed = false
		handler.ServeHTTP(discard{}, r)
		if passed != want {
			t.Errorf("the cookie %q passes: %t", cookie, passed)
		}
	}
}

// discard is a response that nobody reads.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
