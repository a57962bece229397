package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
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
	Lease: 2 * time.Second, Traffic: 15 * time.Second,
}

const (
	longestRun = time.Minute // of a scenario
	maxWatches = 32          // streams of the state at a time
)

// demo serves the page, the guarded app and the scenarios.
type demo struct {
	ctx   context.Context // ends with the program
	store *store
	perIP limit.Limit
	sizes sizes
	mux   *http.ServeMux

	watches chan struct{} // has an element per stream of the state

	mu  sync.Mutex
	now *instance
}

// instance is what a reset replaces: the engine, whose breaker and memory go with it, its guards, and the
// runs of scenarios.
type instance struct {
	*app
	gate  *core.Engine
	store *store
	sizes sizes
	watch *watch
	labs  labs

	ctx    context.Context // ends with a reset
	cancel context.CancelFunc
	runs   sync.WaitGroup

	lastRace atomic.Pointer[race]  // whose orders can be sent again
	crowded  atomic.Pointer[crowd] // before the waiting room, while it runs
	tree     atomic.Pointer[tree]  // of budgets, while it runs

	mu     sync.Mutex
	tapes  map[string]*tape // of the last run of each scenario
	number int64            // of the last run
}

// scenario runs a scenario of an instance, and sends what it measures.
type scenario func(ctx context.Context, in *instance, send func(event string, data any)) error

// scenarios are what the page can start. Each measures what it shows, and ends with an event "done".
var scenarios = map[string]scenario{
	"attack":    attackLimits,
	"sale":      raceForTickets,
	"sale-same": sendTheSameOrders,
	"room":      fillTheRoom,
	"budgets":   floodTheTree,
	"holds":     killTheCashier,
	"poll":      stuffThePoll,
	"semaphore": killAPermitHolder,
	"lock":      killALockHolder,
	"delay":     killATaskWorker,
	"spend":     spendTokens,
	"traffic":   sendTraffic,
	"outage":    playOutage,
}

// pageError is an error whose text is for the page.
type pageError string

func (e pageError) Error() string { return string(e) }

const (
	errReset  = pageError("The demo was reset while this ran.")
	errNoRace = pageError("There are no orders to send again: run the sale first.")
	errLong   = pageError("This took longer than a minute, and was ended.")
	errEnds   = pageError("The demo ends.")
	errRedis  = pageError("Redis did not answer, so there is no result. Give it back and try again.")
)

// newDemo makes the demo over a Redis. It reports whether it opened a new sale: an existing one goes on.
func newDemo(ctx context.Context, s *store, perIP limit.Limit, z sizes) (d *demo, opened bool, err error) {
	d = &demo{ctx: ctx, store: s, perIP: perIP, sizes: z, mux: http.NewServeMux(),
		watches: make(chan struct{}, maxWatches)}
	d.now = d.newInstance()
	ready, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if opened, err = d.now.open(ready); err != nil {
		return nil, false, fmt.Errorf("open the sale: %w", err)
	}
	s.client.AddHook(tracer{})
	d.mux.HandleFunc("POST /scenarios/{scenario}", d.run)
	d.mux.HandleFunc("GET /scenarios/{scenario}", d.watchRun)
	d.mux.HandleFunc("POST /room/leave", d.leaveRoom)
	d.mux.HandleFunc("POST /budgets/{what}", d.changeTree)
	d.mux.HandleFunc("POST /limit", d.limit)
	d.mux.HandleFunc("POST /redis", d.power)
	d.mux.HandleFunc("POST /reset", d.reset)
	d.mux.HandleFunc("GET /state", d.state)
	d.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { d.instance().ServeHTTP(w, r) })
	return d, opened, nil
}

func (d *demo) newInstance() *instance {
	ctx, cancel := context.WithCancelCause(d.ctx)
	in := &instance{store: d.store, sizes: d.sizes, watch: &watch{}, ctx: ctx,
		tapes: map[string]*tape{}, cancel: func() { cancel(errReset) }}
	in.gate = core.New(d.store.client, core.WithPrefix(d.store.prefix), core.WithDeadline(deadline),
		core.WithObserver(core.Observers(core.LogErrors(), in.watch)))
	in.app = newApp(in.gate, d.perIP)
	in.info = pageInfo{Sizes: d.sizes, Switch: d.store.switchable()}
	in.labs = newLabs(in.gate, d.sizes)
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
	d.mux.ServeHTTP(w, r)
}

// run starts a scenario, unless it runs already, and answers with the events of its run: from the first one
// on, so that all tabs see the same.
func (d *demo) run(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("scenario")
	play, ok := scenarios[name]
	if !ok {
		http.Error(w, "There is no such scenario.", http.StatusNotFound)
		return
	}
	t, ok := d.instance().start(name, play)
	if !ok {
		http.Error(w, "The demo is being reset: try again.", http.StatusConflict)
		return
	}
	t.follow(r.Context(), w)
}

// watchRun answers with the events of the last run of a scenario.
func (d *demo) watchRun(w http.ResponseWriter, r *http.Request) {
	t := d.instance().last(r.PathValue("scenario"))
	if t == nil {
		http.Error(w, "This has not run yet.", http.StatusNotFound)
		return
	}
	t.follow(r.Context(), w)
}

// tell returns what the page says about an error. The cause is for the log.
func tell(ctx context.Context, name string, err error) string {
	var say pageError
	if errors.As(context.Cause(ctx), &say) || errors.As(err, &say) {
		return say.Error()
	}
	if ctx.Err() != nil {
		return errEnds.Error()
	}
	slog.Warn("demo: a scenario failed", "scenario", name, "error", err)
	return errRedis.Error()
}

// start starts a run, or returns the one that goes on. It returns false when the instance was replaced. A run
// goes on when its client leaves: others may watch it.
func (in *instance) start(name string, play scenario) (*tape, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ctx.Err() != nil {
		return nil, false
	}
	if t := in.tapes[name]; t != nil && !t.over() {
		return t, true
	}
	in.number = max(in.number+1, time.Now().UnixMicro())
	t := newTape(in.number)
	in.tapes[name] = t
	in.runs.Go(func() {
		defer t.end()
		ctx, cancel := context.WithTimeoutCause(in.ctx, longestRun, errLong)
		defer cancel()
		if err := play(ctx, in, t.send); err != nil {
			t.send("failed", map[string]string{"error": tell(ctx, name, err)})
		}
	})
	return t, true
}

// last returns the last run of a scenario, or nil.
func (in *instance) last(name string) *tape {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.tapes[name]
}

// lastRuns has the number of the last run of each scenario.
func (in *instance) lastRuns() map[string]int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := make(map[string]int64, len(in.tapes))
	for name, t := range in.tapes {
		all[name] = t.run
	}
	return all
}

// fresh returns a name that no earlier run had, also none of an earlier start on the same Redis.
func (in *instance) fresh(name string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.number = max(in.number+1, time.Now().UnixMicro())
	return name + "-" + strconv.FormatInt(in.number, 36)
}

// reset ends all runs, gives Redis back, deletes all keys, and starts with a new engine.
func (d *demo) reset(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.now
	old.mu.Lock()
	old.cancel() // under the lock of start: no run starts after this
	old.mu.Unlock()
	old.runs.Wait()
	err := d.store.giveBack()
	if err == nil {
		// Reservations and permits of the ended runs are given back now, not into the new keys.
		drain, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		_ = old.gate.Drain(drain)
		cancel()
		err = d.store.clear(r.Context())
	}
	d.now = d.newInstance()
	if err == nil {
		_, err = d.now.open(r.Context())
	}
	if err != nil {
		slog.Warn("demo: reset", "error", err)
		unavailable(w)
		return
	}
	reply(w, http.StatusOK, d.now.snapshot(r.Context(), d.store))
}
