package histories

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// world is what the histories of one cell of the table happen in: servers, processes and their clock.
type world struct {
	clock   *guardtest.Clock
	engines []*core.Engine // one per process
	clients []redis.UniversalClient
	pool    int          // the size of each process's pool
	breaks  bool         // replies can be lost
	callers int          // of each history; 0: 8 to 32
	jumps   bool         // the clock is set, forward and back
	late    bool         // claims arrive after their undos
	broken  sync.RWMutex // held for writing while no call can succeed
	faults  *redistest.Faults
	server  *redistest.Server // nil where the servers are shared
	outages *redistest.Outages
	cluster *redistest.ClusterServers
	present atomic.Value // the name of the history that happens
	bases   sync.Map     // by the names of histories: the test's clock when they began
	admin   redis.UniversalClient
	rng     *rand.Rand // of the nemesis

	still     bool // its clock does not move
	resend    bool // all clients send calls again that fail
	loses     bool // a failover may lose checks
	replicas  bool // what histories begin with is to be replicated
	sentinels *redistest.SentinelServers
	target    int             // the third of a cluster's slots at which the nemesis aims
	until     atomic.Int64    // the call, counted down to zero, at which
	moment    chan struct{}   // is closed: the nemesis acts
	ready     *sync.WaitGroup // all histories of a round have begun
	app       *application    // one that is killed

	// wrong makes the guards of a process wrong, by another prefix or another client, so that tests see
	// whether the checker notices.
	wrong func(process int, prefix string, rdb redis.UniversalClient) string
}

// healthy waits until calls can succeed.
func (w *world) healthy() {
	w.broken.RLock()
	defer w.broken.RUnlock()
}

// step comes before each call. It waits until calls can succeed, and tells the nemesis when its call has
// come.
func (w *world) step() {
	w.healthy()
	if w.until.Add(-1) == 0 {
		close(w.moment)
	}
}

// begin begins a history.
func (w *world) begin(h *history, begin func(h *history) error) error {
	err := begin(h)
	if err == nil && w.replicas {
		err = w.replicated(context.Background(), "histories{"+h.name+"}")
	}
	if w.ready != nil { // or the nemesis could act before
		w.ready.Done()
		w.ready.Wait()
	}
	return err
}

// processes is how many processes share a guard. Half of their clients send a command again when its reply
// was lost, the others return an error.
const processes = 4

// deadline is that of the engines. It is long, so that a busy machine looks like no outage, unless the
// nemesis keeps servers from answering.
const deadline = 10 * time.Second

func (w *world) start(t *testing.T, prefix string, options *redis.UniversalOptions, deadline time.Duration) {
	t.Helper()
	w.pool = max(w.pool, 2) // few connections, so that the order of answers is nearly that of the server
	w.clock, w.faults = guardtest.NewClock(), redistest.NewFaults(t)
	for i := range processes {
		opt := *options
		opt.ContextTimeoutEnabled, opt.DialerRetries, opt.PoolSize = true, 1, w.pool
		if w.server == nil {
			opt.Dialer = w.faults.Dial
		}
		opt.MinRetryBackoff, opt.MaxRetryBackoff = time.Millisecond, 4*time.Millisecond
		if i%2 == 1 {
			opt.MaxRetries = -1
		}
		rdb := redis.NewUniversalClient(&opt)
		t.Cleanup(func() { _ = rdb.Close() })
		w.clients = append(w.clients, rdb)
		prefix := prefix
		if w.wrong != nil {
			prefix = w.wrong(i, prefix, rdb)
		}
		w.engines = append(w.engines, core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(deadline),
			core.WithObserver(guardtest.Ignore{}), core.WithLogger(slog.New(slog.DiscardHandler)),
			core.WithRefusalMemory(0), guardtest.WithClock(w.clock),
			core.WithBreaker(1<<30, 0)))
	}
	if w.admin == nil {
		w.admin = redis.NewUniversalClient(options)
		t.Cleanup(func() { _ = w.admin.Close() })
	}
}

// recovered waits until all processes use Redis again.
func (w *world) recovered(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, func() bool {
		for _, e := range w.engines {
			if _, err := script.Query(t.Context(), e.Runner, redis.NewIntCmd(t.Context(), "exists", "x")); err != nil {
				return false
			}
		}
		return true
	}, "all processes use Redis again")
}

// quiet is a log for what goes wrong on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// nemesis breaks things while histories happen. Its break runs on the test's goroutine again and again; it
// has mended what it broke when it returns.
type nemesis struct {
	name  string
	share int // of the calls of a cell that this one makes, because it takes long: one in so many
	acts  int // how often it acts in each cell at least
	// all: it acts once for one history of each guard.
	all   bool
	loses bool // what the primary has not replicated may be lost
	start func(t *testing.T) *world
	// in begins a world in a cluster, which others use too, after it.
	in  func(t *testing.T, c *redistest.ClusterServers) *world
	act func(ctx context.Context, t *testing.T, w *world)
}

// world begins the world of a nemesis.
func (n nemesis) world(t *testing.T, cluster func() *redistest.ClusterServers) *world {
	t.Helper()
	if n.in != nil {
		return n.in(t, cluster())
	}
	return n.start(t)
}

// shared is a world on the servers that all tests share.
func shared(b func(t testing.TB) redistest.Backend) func(t *testing.T) *world {
	return func(t *testing.T) *world {
		backend, w := b(t), &world{}
		w.start(t, backend.Prefix, backend.Options(), deadline)
		return w
	}
}

// own is a world on a server of its own.
func own(deadline time.Duration, config ...string) func(t *testing.T) *world {
	return func(t *testing.T) *world {
		w := &world{server: redistest.StartServer(t, append(config, "--enable-debug-command", "yes")...)}
		w.start(t, "histories", w.server.Options(), deadline)
		return w
	}
}

// pooled is own with larger pools: go-redis dials again at once while fewer dials have failed than a pool has
// connections.
func pooled(size int, config ...string) func(t *testing.T) *world {
	return func(t *testing.T) *world {
		w := &world{server: redistest.StartServer(t, config...), pool: size}
		w.start(t, "histories", w.server.Options(), deadline)
		return w
	}
}

// pass lets time pass for the histories.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (w *world) do(t *testing.T, args ...any) {
	t.Helper()
	if err := w.admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// between is a random time.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

const ms = time.Millisecond

// moveSlot moves a slot that the present history uses to another master, in steps.
func moveSlot(ctx context.Context, t *testing.T, w *world) {
	pass(ctx, w.between(5*ms, 40*ms))
	name, _ := w.present.Load().(string)
	for _, node := range w.cluster.Nodes {
		keys, err := node.Client(t).Keys(t.Context(), "moved*"+name+"*").Result()
		if err != nil || len(keys) == 0 {
			continue
		}
		slot := redistest.Slot(keys[0])
		from := w.cluster.MasterOfSlot(slot)
		for to := range 3 {
			if master := w.cluster.MasterOfSlot(to * 16383 / 2); master != from {
				m := w.cluster.BeginMigration(t, slot, from, master)
				m.MoveKeys(1)
				pass(ctx, w.between(ms, 10*ms))
				m.Finish()
				return
			}
		}
	}
}

var nemeses = []nemesis{
	{name: "none", share: 1, start: own(deadline)},
	{name: "lost replies", share: 1, start: shared(redistest.Single),
		act: func(ctx context.Context, _ *testing.T, w *world) {
			w.faults.SwallowEvery("evalsha", 0.05, rand.New(rand.NewPCG(w.rng.Uint64(), 0)))
			<-ctx.Done()
			w.faults.Heal()
		}},
	{name: "cut connections", share: 1, acts: 3, start: shared(redistest.Single),
		act: func(ctx context.Context, _ *testing.T, w *world) {
			pass(ctx, w.between(5*ms, 30*ms))
			w.faults.CutAll()
		}},
	{name: "SCRIPT FLUSH", share: 1, acts: 5, start: own(deadline),
		act: func(ctx context.Context, t *testing.T, w *world) {
			pass(ctx, w.between(ms, 5*ms))
			w.do(t, "script", "flush")
		}},
	{name: "SIGSTOP", share: 2, acts: 3, start: own(30 * ms),
		act: func(ctx context.Context, _ *testing.T, w *world) {
			pass(ctx, w.between(5*ms, 20*ms))
			w.server.Pause()
			pass(ctx, w.between(ms, 60*ms))
			w.server.Resume()
		}},
	{name: "killed application", share: 4, acts: 2, start: killed, act: killApplication},
	{name: "kill -9, restart", share: 20, acts: 2, all: true,
		start: pooled(16, "--appendonly", "yes", "--appendfsync", "always"),
		act: func(_ context.Context, t *testing.T, w *world) {
			w.broken.Lock()
			defer w.broken.Unlock()
			w.server.Kill()
			w.server.Start()
			w.recovered(t)
		}},
	{name: "OOM", share: 2, acts: 3, start: own(deadline),
		act: func(ctx context.Context, t *testing.T, w *world) {
			pass(ctx, w.between(2*ms, 20*ms))
			w.do(t, "config", "set", "maxmemory", "1")
			pass(ctx, w.between(ms, 5*ms))
			w.do(t, "config", "set", "maxmemory", "0")
		}},
	{name: "LOADING", share: 100, acts: 1, all: true, start: func(t *testing.T) *world {
		o := redistest.StartOutages(t)
		w := &world{server: o.Server, outages: o, pool: 16}
		w.start(t, "histories", o.Server.Options(), deadline)
		return w
	}, act: func(ctx context.Context, t *testing.T, w *world) {
		w.broken.Lock() // or all calls would be over by then
		end := w.outages.Begin("loading")
		w.broken.Unlock()
		pass(ctx, w.between(ms, 6*ms))
		w.broken.Lock()
		defer w.broken.Unlock()
		end()
		w.recovered(t)
	}},
	{name: "cluster failover", share: 20, acts: 3, all: true, in: failingOver("handed-over"), act: handOver},
	{name: "cluster, kill -9", share: 20, acts: 2, all: true, loses: true, in: failingOver("killed"),
		act: killMaster},
	{name: "moving slots", share: 8, acts: 2, in: func(t *testing.T, c *redistest.ClusterServers) *world {
		w := &world{cluster: c, pool: 4}
		w.start(t, "moved", c.Options(), deadline)
		return w
	}, act: moveSlot},
	{name: "Sentinel, kill -9", share: 50, acts: 1, all: true, loses: true, start: sentinels, act: killPrimary},
	{name: "READONLY", share: 4, acts: 3, start: own(deadline),
		act: func(ctx context.Context, t *testing.T, w *world) {
			calm := 20 * ms
			if redistest.Soak() { // or the breakers, which it opens for half a second, let hardly a call pass
				calm = 300 * ms
			}
			pass(ctx, w.between(2*ms, calm))
			w.do(t, "replicaof", "127.0.0.1", "1") // a primary that nobody finds: the data stays
			pass(ctx, w.between(ms, 5*ms))
			w.do(t, "replicaof", "no", "one")
		}},
	{name: "late commands", share: 1, start: late(8)},
	{name: "clock that jumps", share: 1, start: jumping},
}
