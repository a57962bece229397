package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// sizes are how large and how long the scenarios are.
type sizes struct {
	Limit  int64         // units of the limits under attack
	Window time.Duration // of the limits under attack

	Buyers, Stock int           // of the sale
	Payment       time.Duration // between a reservation and its confirmation
	Hold          time.Duration // of the reservations of a worker that dies

	Visitors, Capacity int           // of the waiting room
	Lobby, Doors       time.Duration // before it opens, and while it is open
	Poll, Pass         time.Duration

	Span, Hour, Quiet time.Duration // of the budgets: windows, an hour, the run after the last button

	Tries, Accounts, Addresses, Honest, PerAddress int // of the poll

	Explained       int64 // units of the limit that is explained
	ExplainedWindow time.Duration

	Lease   time.Duration // of permits, locks and tasks
	Traffic time.Duration // of requests while Redis comes and goes
}

// full are the sizes of the page.
var full = sizes{
	Limit: 100, Window: 2 * time.Second,
	Buyers: 2000, Stock: 100, Payment: 400 * time.Millisecond, Hold: 3 * time.Second,
	Visitors: 10_000, Capacity: 400, Lobby: 3 * time.Second, Doors: 17 * time.Second,
	Poll: 2 * time.Second, Pass: 8 * time.Second,
	Span: 5 * time.Second, Hour: 8 * time.Second, Quiet: 20 * time.Second,
	Tries: 1000, Accounts: 600, Addresses: 50, Honest: 240, PerAddress: 4,
	Explained: 5, ExplainedWindow: 10 * time.Second,
	Lease: 2 * time.Second, Traffic: 15 * time.Second,
}

const longestRun = time.Minute // of a scenario

// demo serves the page, the guarded app and the scenarios.
type demo struct {
	*http.ServeMux
	ctx   context.Context // ends with the program
	store *store
	sizes sizes

	mu  sync.Mutex
	now *instance
}

// instance is what a reset replaces: the engine, whose breaker and memory go with it, its guards, and the
// runs of scenarios.
type instance struct {
	*app
	gate  *core.Engine
	store *store
	watch *watch

	explained *limit.SlidingWindow // the limit that the page explains
	traffic   *limit.SlidingWindow // of the requests while Redis comes and goes
	orders    *seckill.Guard       // as are these

	since    time.Time
	ctx      context.Context // ends with a reset
	cancel   context.CancelFunc
	runs     sync.WaitGroup
	lastRace atomic.Pointer[race] // whose orders can be sent again

	mu    sync.Mutex
	tapes map[string]*tape // of the last run of each scenario
}

// scenarios are what the page can start. Each measures what it shows, and ends with an event "done".
var scenarios = map[string]scenario{
	"attack":    attackLimits,
	"sale":      raceForTickets,
	"sale-same": sendTheSameOrders,
	"room":      fillTheRoom,
	"budgets":   floodTheTree,
	"poll":      stuffThePoll,
	"traffic":   sendTraffic,
	"outage":    playOutage,
	"limit":     askLimit,
	"holds":     told(killTheCashier),
	"semaphore": told(killAPermitHolder),
	"lock":      told(killALockHolder),
	"delay":     told(killATaskWorker),
	"spend":     told(spendTokens),
}

// newDemo makes the demo over a Redis. It reports whether it opened a new sale: an existing one goes on.
func newDemo(ctx context.Context, s *store, z sizes) (d *demo, opened bool, err error) {
	d = &demo{ServeMux: http.NewServeMux(), ctx: ctx, store: s, sizes: z}
	d.now = d.newInstance()
	ready, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if opened, err = d.now.open(ready); err != nil {
		return nil, false, fmt.Errorf("open the sale: %w", err)
	}
	s.client.AddHook(tracer{})
	d.HandleFunc("POST /scenarios/{scenario}", d.run)
	d.HandleFunc("GET /scenarios/{scenario}", d.run)
	d.HandleFunc("POST /scenarios/{scenario}/{button}", d.press)
	d.HandleFunc("POST /redis", d.power)
	d.HandleFunc("POST /reset", d.reset)
	d.HandleFunc("GET /state", d.state)
	d.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { d.instance().ServeHTTP(w, r) })
	return d, opened, nil
}

func (d *demo) newInstance() *instance {
	ctx, cancel := context.WithCancelCause(d.ctx)
	in := &instance{store: d.store, watch: &watch{}, since: time.Now(), ctx: ctx,
		tapes: map[string]*tape{}, cancel: func() { cancel(errReset) }}
	in.gate = core.New(d.store.client, core.WithPrefix(d.store.prefix), core.WithDeadline(deadline),
		core.WithObserver(core.Observers(core.LogErrors(), in.watch)))
	in.app = newApp(in.gate, limit.PerMinute(100))
	in.sizes, in.switchable = d.sizes, d.store.switchable()
	in.explained = limit.NewSlidingWindow(in.gate, "page", limit.Per(d.sizes.Explained, d.sizes.ExplainedWindow))
	in.traffic = limit.NewSlidingWindow(in.gate, "traffic", limit.PerSecond(5))
	in.orders = seckill.New(in.gate, "orders", seckill.Options{})
	return in
}

func (d *demo) instance() *instance {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// ServeHTTP refuses requests that pages of other sites make a browser send, and limits bodies.
func (d *demo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, "This request comes from a page of another site.", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10) // forms are small
	d.ServeMux.ServeHTTP(w, r)
}

// start starts a run, or returns the one that goes on. A run goes on when its client leaves: others may watch
// it. It returns an error when the instance was replaced.
func (in *instance) start(name string) (*tape, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	play, ok := scenarios[name]
	switch {
	case !ok:
		return nil, errNoScenario
	case in.ctx.Err() != nil:
		return nil, errReset
	}
	if t := in.tapes[name]; t != nil {
		if _, ended, _ := t.since(0); !ended {
			return t, nil
		}
	}
	t := newTape(name)
	in.tapes[name] = t
	in.runs.Go(func() {
		ctx, cancel := context.WithTimeoutCause(in.ctx, longestRun, errLong)
		defer cancel()
		t.end(ctx, play(ctx, in, t))
	})
	return t, nil
}

// last returns the last run of a scenario.
func (in *instance) last(name string) (*tape, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if t := in.tapes[name]; t != nil {
		return t, nil
	}
	return nil, errNotRun
}

// fresh returns a name that nothing had before, also not at an earlier start on the same Redis.
func fresh(name string) string { return name + "-" + rand.Text()[:10] }

// state answers with how things stand. What needs Redis is missing while it does not answer.
func (d *demo) state(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, d.instance().state(r.Context()))
}

// changed answers with the state after a change, unless that failed.
func (d *demo) changed(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	d.state(w, r)
}

func (in *instance) state(ctx context.Context) object {
	runs := map[string]string{} // the last one of each scenario
	in.mu.Lock()
	for name, t := range in.tapes {
		runs[name] = t.run
	}
	in.mu.Unlock()
	state := object{"since": in.since, "up": !in.store.isAway(), "breaker": in.breaker(), "runs": runs}
	if now, err := in.standing(ctx); err == nil {
		state["now"] = now
	}
	return state
}

// power is the switch: the form value redis is "off" or "on".
func (d *demo) power(w http.ResponseWriter, r *http.Request) {
	turn := map[string]func() error{"off": d.store.takeAway, "on": d.store.giveBack}[r.FormValue("redis")]
	if turn == nil {
		http.Error(w, "Say redis=off or redis=on.", http.StatusBadRequest)
		return
	}
	d.changed(w, r, turn())
}

// reset ends all runs, gives Redis back, deletes all keys, and starts with a new engine.
func (d *demo) reset(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	err := d.restart(r.Context())
	d.mu.Unlock()
	d.changed(w, r, err)
}

func (d *demo) restart(ctx context.Context) error {
	old := d.now
	old.mu.Lock()
	old.cancel() // under the lock of start: no run starts after this
	old.mu.Unlock()
	old.runs.Wait()
	d.now = d.newInstance()
	if err := d.store.giveBack(); err != nil {
		return err
	}
	// Reservations and permits of the ended runs are given back now, not into the new keys.
	drain, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = old.gate.Drain(drain)
	if err := d.store.clear(ctx, "*"); err != nil {
		return err
	}
	_, err := d.now.open(ctx)
	return err
}
