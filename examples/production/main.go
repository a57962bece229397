// Command production is a guarded web app with what it needs to run behind a proxy, in several processes: its
// settings come from the environment, it reports whether it is alive and ready, exports metrics, and stops
// without losing a request. README.md describes the files around it.
//
// Two listeners: ADDR serves clients, ADMIN_ADDR serves /healthz, /readyz and /metrics, and clients must not
// reach it.
package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouseprom"
)

// drainTime is how long the process waits for settlements after the last request. With SHUTDOWN_TIMEOUT and
// the pause before the signal it has to be less than what the platform grants before it kills the process.
const drainTime = 5 * time.Second

// settings are what the environment says.
type settings struct {
	addr, adminAddr string
	redis           redis.UniversalOptions
	prefix          string
	proxies         []string      // the networks of our own proxies; none: clients connect directly
	sessionKey      []byte        // signs the session cookie
	payment         time.Duration // how long the payment of an order takes: a stand-in for a real one
	deadline        time.Duration // how long a check may wait for Redis
	shutdown        time.Duration // how long requests may take that are under way at the end
}

func readSettings() (s settings, err error) {
	s.addr = cmp.Or(os.Getenv("ADDR"), "127.0.0.1:8080")
	s.adminAddr = cmp.Or(os.Getenv("ADMIN_ADDR"), "127.0.0.1:9090")
	s.prefix = cmp.Or(os.Getenv("REDIS_PREFIX"), "shop")
	if list := os.Getenv("TRUSTED_PROXIES"); list != "" {
		s.proxies = strings.Split(list, ",")
	}
	password, err := secret("REDIS_PASSWORD_FILE")
	if err != nil {
		return s, err
	}
	key, err := secret("SESSION_KEY_FILE")
	if err != nil {
		return s, err
	}
	if len(key) < 32 {
		return s, errors.New("SESSION_KEY_FILE must name a file with at least 32 characters")
	}
	s.sessionKey = []byte(key)
	if s.payment, err = duration("PAYMENT_TIME", 50*time.Millisecond); err != nil {
		return s, err
	}
	if s.deadline, err = duration("REDIS_DEADLINE", 100*time.Millisecond); err != nil {
		return s, err
	}
	if s.shutdown, err = duration("SHUTDOWN_TIMEOUT", 15*time.Second); err != nil {
		return s, err
	}
	s.redis = redis.UniversalOptions{
		Addrs:      strings.Split(cmp.Or(os.Getenv("REDIS_ADDRS"), "127.0.0.1:6379"), ","),
		MasterName: os.Getenv("REDIS_MASTER"), // the addresses are those of sentinels where it is set
		Password:   password,
		// docs/operations/redis.md gives the reasons.
		ContextTimeoutEnabled: true,
		DialTimeout:           time.Second,
		ConnMaxIdleTime:       4 * time.Minute,
		SentinelPassword:      password,
	}
	return s, nil
}

// secret reads the file that the variable names, so that no secret is in the environment or on a command
// line. An unset variable is an empty secret.
func secret(variable string) (string, error) {
	file := os.Getenv(variable)
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	return strings.TrimSpace(string(text)), nil
}

func duration(variable string, standard time.Duration) (time.Duration, error) {
	text := os.Getenv(variable)
	if text == "" {
		return standard, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", variable, err)
	}
	return d, nil
}

// app is the guarded application.
type app struct {
	settings
	rdb      redis.UniversalClient
	gate     *core.Engine
	sale     *seckill.Guard
	metrics  *prometheus.Registry
	opened   atomic.Bool // the sale is open: Redis has answered at least once
	stopping atomic.Bool
}

func newApp(s settings) *app {
	a := &app{settings: s, rdb: redis.NewUniversalClient(&s.redis), metrics: prometheus.NewRegistry()}
	a.gate = core.New(a.rdb, core.WithPrefix(s.prefix), core.WithDeadline(s.deadline),
		core.WithObserver(core.Observers(core.LogErrors(), gatehouseprom.New(a.metrics))))
	a.sale = seckill.New(a.gate, "sale", seckill.Options{})
	return a
}

// clients returns the handler of ADDR.
func (a *app) clients() http.Handler {
	var options []keyfuncs.IPOption
	if len(a.proxies) > 0 {
		options = append(options, keyfuncs.TrustProxies(a.proxies...))
	}
	perIP := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(a.gate, "site", limit.PerMinute(100)),
		Who:   keyfuncs.IP(options...),
	}
	buy := ratelimit.Rule{
		Guard: a.sale,
		Who:   keyfuncs.User("uid"),
		What:  keyfuncs.Param("sku"),
		ID:    keyfuncs.Require(keyfuncs.IdempotencyKey()),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"message": "hello"})
	})
	mux.Handle("POST /sales/{sku}/orders", a.login(ratelimit.HTTP(buy)(http.HandlerFunc(a.order))))
	return ratelimit.HTTP(perIP)(mux)
}

// login takes the user from the session cookie, "USER.SIGNATURE", that the login page has set. A client
// cannot choose a user, so it cannot choose whose limit it uses up.
func (a *app) login(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie("session")
		if err != nil {
			http.Error(w, "Log in first.", http.StatusUnauthorized)
			return
		}
		user, signature := "", ""
		if dot := strings.LastIndex(cookie.Value, "."); dot >= 0 { // a user's name may have dots
			user, signature = cookie.Value[:dot], cookie.Value[dot+1:]
		}
		if user == "" || !hmac.Equal([]byte(signature), []byte(sign(a.sessionKey, user))) {
			http.Error(w, "Log in again.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(keyfuncs.WithValue(r.Context(), "uid", user)))
	})
}

func sign(key []byte, user string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(user))
	return hex.EncodeToString(mac.Sum(nil))
}

// order runs with a unit held for the buyer. It sells the unit when it succeeds.
func (a *app) order(w http.ResponseWriter, r *http.Request) {
	paid := time.NewTimer(a.payment)
	defer paid.Stop()
	select {
	case <-paid.C:
	case <-r.Context().Done(): // the buyer is gone: the unit goes back
		return
	}
	d, _ := ratelimit.Decision(r.Context(), "sale")
	reply(w, http.StatusCreated, map[string]string{"sku": d.Attempt.Resource, "reservation": d.Attempt.ID})
}

// operations returns the handler of ADMIN_ADDR.
func (a *app) operations() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}))
	// The process lives as long as it answers. A restart brings no Redis back, and would lose what the process
	// still has to settle. So this asks nothing else.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", a.ready)
	return mux
}

// ready says whether the load balancer may send requests. At the start that needs Redis, since the sale has
// to be open. Later it does not: the limits go on inside the process, and orders get 503 with Retry-After.
// All processes share the Redis, so all would leave the load balancer at once, and with them the pages that
// work. The body says what works, for people.
func (a *app) ready(w http.ResponseWriter, r *http.Request) {
	state := map[string]any{"opened": a.opened.Load(), "stopping": a.stopping.Load(), "redis": "up"}
	ctx, cancel := context.WithTimeout(r.Context(), 500*time.Millisecond)
	defer cancel()
	if err := a.rdb.Ping(ctx).Err(); err != nil {
		slog.Warn("readiness: Redis does not answer", "error", err)
		state["redis"] = "down: limits are counted in each process, orders get 503"
	}
	status := http.StatusOK
	if a.stopping.Load() || !a.opened.Load() {
		status = http.StatusServiceUnavailable
	}
	reply(w, status, state)
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only when the client is gone
}

// openSale opens the sale, and tries again until it can. A sale that exists stays as it is.
func (a *app) openSale(ctx context.Context) {
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := a.sale.Open(ctx, "ticket", seckill.Sale{Stock: 1000, Hold: time.Minute})
		if err == nil {
			a.opened.Store(true)
			return
		}
		slog.Warn("the sale cannot be opened yet", "error", err)
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

func main() {
	if err := run(); err != nil {
		slog.Error("the app has ended", "error", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := readSettings()
	if err != nil {
		return err
	}
	a := newApp(s)
	go a.openSale(ctx)

	failed := make(chan error, 2)
	clients, err := serve(ctx, "clients", s.addr, a.clients(), failed)
	if err != nil {
		return err
	}
	operations, err := serve(ctx, "operations", s.adminAddr, a.operations(), failed)
	if err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	return a.end(clients, operations)
}

// serve listens, and serves until the server is shut down.
func serve(
	ctx context.Context, name, addr string, handler http.Handler, failed chan<- error,
) (*http.Server, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       75 * time.Second, // longer than nginx's keepalive_timeout: nginx closes first
	}
	slog.Info("listening", "for", name, "addr", listener.Addr().String())
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve %s: %w", name, err)
		}
	}()
	return server, nil
}

// end stops the process in this order: no new requests, those under way are answered, what they took is
// settled, then the connections to Redis close. Probes and metrics go on until the end.
func (a *app) end(clients, operations *http.Server) error {
	a.stopping.Store(true)
	slog.Info("stopping")
	requests, cancel := context.WithTimeout(context.Background(), a.shutdown)
	defer cancel()
	err := clients.Shutdown(requests)
	if err != nil {
		err = fmt.Errorf("requests under way: %w", err)
	}
	drain, cancel := context.WithTimeout(context.Background(), drainTime) // whatever requests took
	defer cancel()
	err = errors.Join(err, core.Drain(drain), a.rdb.Close(), operations.Close())
	slog.Info("stopped")
	return err
}
