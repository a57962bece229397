package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// contender is a library whose behaviour is compared, behind the middleware for net/http that it has, with
// what it does by default.
type contender struct {
	name  string
	redis bool // it counts in Redis; otherwise inside the process
	// keyed says that the library has no key of its own: the application writes one, here the peer's address.
	keyed bool
	// apart says that it runs in a process of its own.
	apart bool
	// bare says that the library has no middleware either: the handler is ours, and so are its answers.
	bare bool
	// handler limits a page to n requests per window for each client. The clock is that of limiters that take
	// one.
	handler func(rdb *redis.Client, n int, window time.Duration, clock func() time.Time) http.Handler
}

// statusError is what the handler of a bare contender answers where the library returns an error.
const statusError = 599

func contenders(t testing.TB) []contender {
	t.Helper()
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	return append([]contender{
		{name: "Gatehouse", redis: true, handler: func(rdb *redis.Client, n int, window time.Duration,
			clock func() time.Time,
		) http.Handler {
			options := []core.Option{core.WithDeadline(30 * time.Second)}
			if clock != nil {
				options = append(options, core.WithClock(clock))
			}
			guard := limit.NewSlidingWindow(core.New(rdb, options...), "site", limit.Per(int64(n), window))
			return nethttpmw.HTTP(pipeline.Rule{Guard: guard, Who: keyfuncs.IP()})(page)
		}},
		{name: "ulule/limiter", redis: true, handler: func(rdb *redis.Client, n int, window time.Duration,
			_ func() time.Time,
		) http.Handler {
			store := must(ululeredis.NewStore(rdb))
			l := limiter.New(store, limiter.Rate{Limit: int64(n), Period: window})
			return stdlib.NewMiddleware(l).Handler(page)
		}},
		{name: "httprate with httprate-redis", redis: true, keyed: true, handler: func(rdb *redis.Client, n int,
			window time.Duration, _ func() time.Time,
		) http.Handler {
			counter := httprateredis.WithRedisLimitCounter(&httprateredis.Config{Client: rdb, WindowLength: window})
			return httprate.LimitBy(n, window, peer, counter)(page)
		}},
		{name: "httprate", keyed: true, handler: func(_ *redis.Client, n int, window time.Duration,
			_ func() time.Time,
		) http.Handler {
			return httprate.LimitBy(n, window, peer)(page)
		}},
		{name: "redis_rate", redis: true, keyed: true, bare: true, handler: byRedisRate},
		{name: "tollbooth", handler: func(_ *redis.Client, n int, window time.Duration,
			_ func() time.Time,
		) http.Handler {
			l := tollbooth.NewLimiter(float64(n)/window.Seconds(),
				&tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: 10 * window})
			return tollbooth.HTTPMiddleware(l.SetBurst(n))(page)
		}},
	}, expressRateLimit(t)...)
}

// byRedisRate is the middleware that applications write for a library without one.
func byRedisRate(rdb *redis.Client, n int, window time.Duration, _ func() time.Time) http.Handler {
	l, rate := redis_rate.NewLimiter(rdb), redis_rate.Limit{Rate: n, Burst: n, Period: window}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _ := peer(r)
		result, err := l.Allow(r.Context(), client, rate)
		switch {
		case err != nil:
			w.WriteHeader(statusError)
		case result.Allowed == 0:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
}

// peer is the key of contenders that have none of their own.
func peer(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return host, err
}

// answer is what a contender answered.
type answer struct {
	status int // 0: the handler panicked
	header http.Header
}

// ask sends a request of a client to a handler.
func ask(ctx context.Context, h http.Handler, client string, header ...string) (a answer) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.RemoteAddr = net.JoinHostPort(client, "50000")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	defer func() {
		a = answer{w.Code, w.Header()}
		if recover() != nil {
			a.status = 0
		}
	}()
	h.ServeHTTP(w, r)
	return a
}

// compare writes the table of contenders.
func compare(t *testing.T, rdb *redis.Client, c config, out *report) error {
	ctx := t.Context()
	outages, err := withoutRedis(t, c.units)
	if err != nil {
		return err
	}
	// A key that has to expire earlier than after a second makes the client of Redis log a warning.
	most, err := underAttack(t, rdb, max(c.attack, 400*time.Millisecond))
	if err != nil {
		return err
	}
	out.line("\n## Limits for each client, as the libraries are by default\n")
	out.row("library", "most admitted in any window / N", "round trips per check: allowed, refused",
		"bytes per client, N = 100", "without Redis", "header fields",
		"does a forged X-Forwarded-For change the key?")
	out.line("|---|---:|---:|---:|---|---|---|")
	for i, each := range contenders(t) {
		trips, bytes := "0, 0", "–"
		if each.redis {
			if trips, err = roundTrips(ctx, rdb, each); err == nil {
				bytes, err = bytesPerClient(ctx, rdb, each)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", each.name, err)
			}
		}
		fields, forged := facts(ctx, rdb, each)
		out.row(each.name, fmt.Sprintf("%.2f", float64(most[i])/attackUnits), trips, bytes, outages[i], fields,
			forged)
	}
	out.line("%s", notes)
	return nil
}

const notes = `
N requests per window for each address, behind each library's own middleware for net/http with its defaults
(redis_rate has none, so ours). One client attacks at the end of a window. Round trips are counted at the
client: of N allowed checks, and of 10 refused. Bytes are what a client adds when its 100 units of an hour
are used up. "Without Redis": the server is stopped, and the client sends 2 N requests. The forger sends
another X-Forwarded-For with each request. express-rate-limit runs in a process of its own, with node-redis;
its clients are loopback addresses, its round trips the scripts that Redis ran.`

// underAttack returns the most units that each contender admits in any window.
func underAttack(t *testing.T, rdb *redis.Client, window time.Duration) ([]int, error) {
	ctx, all := t.Context(), contenders(t)
	admitted, errs := make([]int, 2*len(all)), make([]error, 2*len(all))
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	handlers := make([]http.Handler, 2*len(all))
	for i := range handlers {
		handlers[i] = all[i/2].handler(rdb, attackUnits, window, nil)
	}
	<-time.After(time.Until(time.Now().Truncate(window).Add(window))) // where windows by the clock begin
	var attacks sync.WaitGroup
	for i, each := range all {
		for primed := range 2 {
			h := handlers[2*i+primed]
			client := fmt.Sprintf("203.0.113.%d", 1+2*i+primed)
			s := subject{name: each.name, allow: func(ctx context.Context, _ string) (bool, error) {
				a := ask(ctx, h, client)
				if a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
					return false, fmt.Errorf("%s: status %d", each.name, a.status)
				}
				return a.status == http.StatusOK, nil
			}}
			attacks.Go(func() {
				admitted[2*i+primed], errs[2*i+primed] = attack(ctx, s, window, primed == 1)
			})
		}
	}
	attacks.Wait()
	most := make([]int, len(all))
	for i := range all {
		most[i] = max(admitted[2*i], admitted[2*i+1])
	}
	return most, errors.Join(errs...)
}

// trips counts the round trips of a client.
type trips struct{ n atomic.Int64 }

func (t *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}

// roundTrips returns how many round trips a check takes that is allowed, and one that is refused.
func roundTrips(ctx context.Context, rdb *redis.Client, each contender) (string, error) {
	const n, refusals = 100, 10
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return "", err
	}
	counted := redis.NewClient(rdb.Options())
	defer counted.Close()
	var made trips
	counted.AddHook(&made)
	h := each.handler(counted, n, time.Hour, nil)
	if a := ask(ctx, h, "203.0.113.1"); a.status != http.StatusOK { // connects, and loads scripts
		return "", fmt.Errorf("status %d", a.status)
	}
	sent := func() (int64, error) { return made.n.Load(), nil }
	if each.apart { // nothing else sends scripts
		sent = func() (int64, error) { return scriptsRun(ctx, rdb) }
	}
	before, err := sent()
	if err != nil {
		return "", err
	}
	for i := range n {
		if a := ask(ctx, h, "203.0.113.2"); a.status != http.StatusOK {
			return "", fmt.Errorf("request %d: status %d", i+1, a.status)
		}
	}
	between, err := sent()
	if err != nil {
		return "", err
	}
	for range refusals {
		if a := ask(ctx, h, "203.0.113.2"); a.status != http.StatusTooManyRequests {
			return "", fmt.Errorf("after the limit: status %d", a.status)
		}
	}
	after, err := sent()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%.3g, %.3g", float64(between-before)/n, float64(after-between)/refusals), nil
}

// bytesPerClient returns the bytes that a client adds to those of another one when its units are used up,
// each at a moment of its own where the limiter takes a clock, since a log of such moments is longest.
func bytesPerClient(ctx context.Context, rdb *redis.Client, each contender) (string, error) {
	const n = 100
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return "", err
	}
	now := time.Now()
	h := each.handler(rdb, n, time.Hour, func() time.Time { return now })
	var sums []int64
	for _, client := range []string{"203.0.113.6", "203.0.113.7"} {
		for i := range n {
			now = now.Add(time.Hour / (n + 1))
			if a := ask(ctx, h, client); a.status != http.StatusOK {
				return "", fmt.Errorf("request %d: status %d", i+1, a.status)
			}
		}
		b, err := count(ctx, rdb, "*")
		if err != nil {
			return "", err
		}
		sums = append(sums, b.all)
	}
	return fmt.Sprint(sums[1] - sums[0]), nil
}

// facts returns the header fields of an allowed and a refused answer, and whether a forged header changes the
// key.
func facts(ctx context.Context, rdb *redis.Client, each contender) (fields, forged string) {
	const n = 3
	about := regexp.MustCompile(`(?i)rate-?limit|retry-after`)
	h := each.handler(rdb, n, time.Hour, nil)
	names, allowed := map[string]bool{}, 0
	for i := range 2 * n {
		a := ask(ctx, h, "203.0.113.9", "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i+1))
		for name := range a.header {
			if about.MatchString(name) {
				names["`"+strings.Replace(name, "Ratelimit", "RateLimit", 1)+"`"] = true
			}
		}
		if a.status == http.StatusOK {
			allowed++
		}
	}
	forged = "no"
	if allowed > n {
		forged = "yes"
	}
	if each.keyed {
		forged = "you write the key"
	}
	if fields = strings.Join(slices.Sorted(maps.Keys(names)), ", "); fields == "" {
		fields = "you write them"
	}
	return fields, forged
}

// withoutRedis says what each contender answers while its Redis is stopped.
func withoutRedis(t *testing.T, n int) ([]string, error) {
	server := redistest.StartServer(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	var handlers []http.Handler
	for _, each := range contenders(t) {
		h := each.handler(rdb, unitsInAnOutage(each, n), time.Hour, nil)
		if a := ask(t.Context(), h, "203.0.113.1"); a.status != http.StatusOK {
			return nil, fmt.Errorf("%s, with Redis: status %d", each.name, a.status)
		}
		handlers = append(handlers, h)
	}
	server.Stop()
	said := make([]string, len(handlers))
	for i, each := range contenders(t) {
		counts, order := map[int]int{}, []int{}
		n := unitsInAnOutage(each, n)
		for range 2 * n {
			a := ask(t.Context(), handlers[i], "203.0.113.2")
			counts[a.status]++
			order = append(order, a.status)
		}
		said[i] = outcome(each, n, counts, slices.IsSorted(order))
	}
	return said, nil
}

// unitsInAnOutage is the limit of a contender without its Redis. One in another process may let each request
// wait until it gives up.
func unitsInAnOutage(each contender, n int) int {
	if each.apart {
		return min(n, 5)
	}
	return n
}

// outcome describes the answers to twice the requests that a limit allows.
func outcome(each contender, n int, counts map[int]int, sorted bool) string {
	switch all := 2 * n; {
	case !each.redis:
		return "needs none: each process counts for itself"
	case sorted && counts[http.StatusOK] == n && counts[http.StatusTooManyRequests] == n:
		return "limits in the process"
	case counts[http.StatusOK] == all:
		return "allows every request"
	case counts[statusError] == all:
		return "returns the error: you decide"
	case counts[statusNoAnswer] == all:
		return fmt.Sprintf("lets every request wait, for longer than %v", noAnswerAfter)
	case counts[http.StatusInternalServerError] == all:
		return "answers 500 to every request"
	case counts[0] == all:
		return "panics in every request"
	default:
		return fmt.Sprintf("answers, of %d requests: %v", all, counts)
	}
}
