package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// snapshot is how things stand. What needs Redis is null while it does not answer.
type snapshot struct {
	Redis   redisState       `json:"redis"`
	Breaker breakerState     `json:"breaker"`
	Tally   map[string]int64 `json:"tally"`
	Sale    *seckill.Status  `json:"sale"`
	Exports *exportsAnswer   `json:"exports"`
	Runs    map[string]int64 `json:"runs"` // the number of the last run of each scenario
}

type redisState struct {
	Switch bool `json:"switch"` // whether the page can take it away
	Up     bool `json:"up"`     // false: the switch has taken it away
}

func (in *instance) snapshot(ctx context.Context, s *store) snapshot {
	now := snapshot{Redis: redisState{s.switchable(), !s.isAway()}, Runs: in.lastRuns()}
	if tally, err := in.votes.Tally(ctx, poll); err == nil {
		now.Tally = tally
	}
	if status, err := in.sale.Status(ctx, item); err == nil {
		status.Epoch = 0
		now.Sale = &status
	}
	if e, err := in.exports.Peek(ctx, core.Attempt{}); err == nil {
		now.Exports = &exportsAnswer{e.Max, e.Held}
	}
	now.Breaker = in.breaker()
	return now
}

// state streams snapshots, two per second, until the client leaves.
func (d *demo) state(w http.ResponseWriter, r *http.Request) {
	select {
	case d.watches <- struct{}{}:
		defer func() { <-d.watches }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many pages watch this demo. Close some.", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	out := newStream(w, cancel)
	for ctx.Err() == nil {
		out.send("state", d.instance().snapshot(ctx, d.store))
		_ = pause(ctx, 500*time.Millisecond) // an error ends the loop
	}
}

// power is the switch: the form value redis is "off" or "on".
func (d *demo) power(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.FormValue("redis") {
	case "off":
		err = d.store.takeAway()
	case "on":
		err = d.store.giveBack()
	default:
		http.Error(w, "Say redis=off or redis=on.", http.StatusBadRequest)
		return
	}
	if errors.Is(err, errNotOurs) {
		http.Error(w, "Redis runs outside of the demo (REDIS_URL), so the demo does not stop it.",
			http.StatusConflict)
		return
	}
	if err != nil {
		slog.Warn("demo: the switch", "error", err)
		unavailable(w)
		return
	}
	reply(w, http.StatusOK, d.instance().snapshot(r.Context(), d.store))
}

// trafficCounts is what became of the traffic so far.
type trafficCounts struct {
	MS int64 `json:"ms"`
	// Limit counts the requests under the limit by who decided and how: "redis 200", "local 429".
	Limit map[string]int `json:"limit"`
	// Sale counts the orders by status: 503 while the sale is closed for want of a Redis.
	Sale    map[int]int  `json:"sale"`
	Up      bool         `json:"up"`
	Breaker breakerState `json:"breaker"`
	LastMS  float64      `json:"last_ms"` // how long the last request took
	// Alone is how many were answered without Redis: the rows "local" of the limit, and 503 of the sale.
	Alone int `json:"alone"`
}

// playOutage is the whole story: traffic, and Redis goes away for the middle third of it.
func playOutage(ctx context.Context, in *instance, send func(string, any)) error {
	if !in.store.switchable() {
		return pageError("Redis runs outside of the demo (REDIS_URL), so the demo does not stop it.")
	}
	third := in.sizes.Traffic / 3
	away := time.AfterFunc(third, func() { _ = in.store.takeAway() })
	back := time.AfterFunc(2*third, func() { _ = in.store.giveBack() })
	defer func() {
		away.Stop()
		back.Stop()
		_ = in.store.giveBack()
	}()
	return sendTraffic(ctx, in, send)
}

// sendTraffic sends ten requests a second to a limit of five a second, and orders to a sale, while Redis
// comes and goes. Events: "counts" while it runs, and "done", with trafficCounts.
func sendTraffic(ctx context.Context, in *instance, send func(string, any)) error {
	item := in.fresh("traffic")
	opened := false
	open := func() error {
		if opened || in.store.isAway() {
			return nil
		}
		_, err := in.labs.sale.Open(ctx, item, seckill.Sale{Stock: 1_000_000, Hold: time.Minute})
		opened = err == nil
		return err
	}
	if err := open(); err != nil && !in.store.isAway() { // it was taken away meanwhile
		return err
	}
	defer func() {
		if !in.store.isAway() {
			_ = in.labs.sale.Discard(context.WithoutCancel(ctx), item) // else it expires by itself
		}
	}()
	done := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	limited := ratelimit.HTTP(ratelimit.Rule{
		Guard: in.labs.traffic,
		Who:   keyfuncs.Const(item),
	})(http.HandlerFunc(done))
	order := ratelimit.HTTP(ratelimit.Rule{
		Guard: in.labs.sale,
		Who:   keyfuncs.Header("X-User"),
		What:  keyfuncs.Const(item),
	})(http.HandlerFunc(done))

	c := trafficCounts{Limit: map[string]int{}, Sale: map[int]int{}}
	begin := time.Now()
	for n := 0; time.Since(begin) < in.sizes.Traffic; n++ {
		_ = open() // again and again, while the breaker is open or Redis goes away
		traced, trace := withTrace(ctx)
		sent := time.Now()
		status := serve(limited, httptest.NewRequestWithContext(traced, http.MethodGet, "/", nil))
		c.LastMS = milliseconds(time.Since(sent))
		trace.mu.Lock()
		c.Limit[by(trace.source)+" "+strconv.Itoa(status)]++
		if trace.source == string(core.SourceLocal) {
			c.Alone++
		}
		trace.mu.Unlock()
		if n%2 == 0 {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			r.Header.Set("X-User", in.fresh("buyer"))
			status := serve(order, r)
			c.Sale[status]++
			if status == http.StatusServiceUnavailable {
				c.Alone++
			}
		}
		c.MS, c.Up, c.Breaker = time.Since(begin).Milliseconds(), !in.store.isAway(), in.breaker()
		send("counts", c)
		if err := pause(ctx, in.sizes.Traffic/150); err != nil {
			return err
		}
	}
	send("done", c)
	return nil
}

// by names who decided: a refusal that the process remembers came from Redis, or from its local limit.
func by(source string) string {
	if source == string(core.SourceRemembered) {
		return "memory"
	}
	return source
}

func serve(h http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
