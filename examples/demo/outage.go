package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// watch is an observer of an engine: it knows the breaker, and tells traces who decided.
type watch struct {
	mu      sync.Mutex
	breaker breakerState // as it was closed the last time
}

// breakerState is what the page shows of the breaker.
type breakerState struct {
	State  string `json:"state"`   // closed or open
	OpenMS int64  `json:"open_ms"` // how long it is, or the last time was, open
	Opened int64  `json:"opened"`  // how often it has opened
}

// Observe implements core.Observer.
func (w *watch) Observe(ctx context.Context, e core.Event) {
	if t, ok := ctx.Value(traceKey{}).(*trace); ok && e.Decided() {
		t.mu.Lock()
		t.source = e.Source()
		t.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Breaker == nil:
	case e.Breaker.Open:
		w.breaker.Opened++
	default:
		w.breaker.OpenMS = e.Took.Milliseconds()
	}
}

// breaker is how the breaker stands. While it is open the engine knows for how long.
func (in *instance) breaker() breakerState {
	in.watch.mu.Lock()
	now := in.watch.breaker
	now.State = "closed"
	in.watch.mu.Unlock()
	for _, b := range in.gate.OpenBreakers() { // one at most: there is one server
		now.State, now.OpenMS = "open", b.For.Milliseconds()
	}
	return now
}

// playOutage is the whole story: traffic, and Redis goes away for the middle third of it.
func playOutage(ctx context.Context, in *instance, t *tape) error {
	if !in.store.switchable() {
		return errNotOurs
	}
	third := in.sizes.Traffic / 3
	away := time.AfterFunc(third, func() { _ = in.store.takeAway() })
	back := time.AfterFunc(2*third, func() { _ = in.store.giveBack() })
	defer func() {
		away.Stop()
		back.Stop()
		_ = in.store.giveBack()
	}()
	return sendTraffic(ctx, in, t)
}

// sendTraffic sends ten requests a second to a limit of five a second, and orders to a sale, while Redis
// comes and goes. Events: "counts" with each request, and "done".
func sendTraffic(ctx context.Context, in *instance, t *tape) error {
	item, opened := fresh("traffic"), false
	defer func() {
		if !in.store.isAway() {
			_ = in.orders.Discard(context.WithoutCancel(ctx), item) // else it expires by itself
		}
	}()
	done := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	limited := ratelimit.HTTP(ratelimit.Rule{Guard: in.traffic, Who: keyfuncs.Const(item)})(done)
	order := ratelimit.HTTP(ratelimit.Rule{
		Guard: in.orders,
		Who:   keyfuncs.Header("X-User"),
		What:  keyfuncs.Const(item),
	})(done)

	limit := map[string]int{} // by who decided and the status: "redis 200", "local 429"
	sale := map[int]int{}     // by status: 503 while it is closed for want of a Redis
	alone := 0                // answered without Redis
	counts := object{}
	begin := time.Now()
	for n := 0; time.Since(begin) < in.sizes.Traffic; n++ {
		if !opened && !in.store.isAway() {
			_, err := in.orders.Open(ctx, item, seckill.Sale{Stock: 1_000_000, Hold: time.Minute})
			opened = err == nil // else again and again, while the breaker is open
		}
		traced, trace := withTrace(ctx)
		sent := time.Now()
		status := serve(limited, httptest.NewRequestWithContext(traced, http.MethodGet, "/", nil))
		took := time.Since(sent)
		source := core.Source(trace.decidedBy())
		if source == core.SourceLocal {
			alone++
		}
		if source == core.SourceRemembered {
			source = "memory" // a refusal by Redis, or by the local limit
		}
		limit[string(source)+" "+strconv.Itoa(status)]++
		if n%2 == 0 {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			r.Header.Set("X-User", fresh("buyer"))
			status := serve(order, r)
			sale[status]++
			if status == http.StatusServiceUnavailable {
				alone++
			}
		}
		counts = object{"limit": limit, "sale": sale, "alone": alone,
			"ms": time.Since(begin).Milliseconds(), "last_ms": milliseconds(took),
			"up": !in.store.isAway(), "breaker": in.breaker()}
		t.send("counts", counts)
		if err := pause(ctx, in.sizes.Traffic/150); err != nil {
			return err
		}
	}
	t.send("done", counts)
	return nil
}

func serve(h http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
