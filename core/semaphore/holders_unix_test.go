//go:build unix

package semaphore_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// The tests of this file have processes of their own whose callers hold permits of one pool, while processes
// are killed and stopped, replies are lost, slots move, and masters are replaced.
//
// What counts is a holder that may work: from the moment at which its Check has returned, until it begins to
// give its permits back, the context of its Hold ends, or its lease is over, whichever comes first. The lease
// is over, at the latest, a lease after its process began the last call that took or renewed it. A process
// that stands still at that moment, or is slow, hears of it later; only this overlap is allowed, and the test
// logs how long it was. All processes have one clock, that of the machine.

// runningEnv tells the test binary that it is such a process: the prefix of the keys, the name of the
// process, a seed, how long its callers pause after a refusal, and the addresses of the servers.
const runningEnv = "GATEHOUSE_SEMAPHORE_RUNNING"

const (
	permits     = 6
	lease       = time.Second
	callersEach = 6
	processes   = 3
)

var options = semaphore.Options{Max: permits, Lease: lease}

// running is the process.
type running struct {
	name    string
	pause   time.Duration
	ops     atomic.Int64
	holders atomic.Int64
	mu      sync.Mutex // of what is said
}

// renewing is a guard of the process, and when its engine began the calls that have renewed leases.
type renewing struct {
	*semaphore.Guard
	mu    sync.Mutex
	begun []time.Time
}

// Observe notes calls that have renewed leases.
func (r *renewing) Observe(_ context.Context, e core.Event) {
	if e.Op == "renew" && e.Err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.begun = append(r.begun, time.Now().Add(-e.Took))
	}
}

// until returns the moment at which the lease of a holder is over at the latest, by the calls that its guard
// has made for it. A call that began a lease after the one before proves nothing: it may have found the lease
// over, and who holds need not have heard of it yet. Nor does the last call of a holder that was lost.
func (r *renewing) until(asked, begun time.Time, lost bool) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := slices.DeleteFunc(slices.Clone(r.begun), begun.After)
	if lost && len(after) > 0 {
		after = after[:len(after)-1]
	}
	for _, renewed := range after {
		if renewed.Sub(asked) < lease {
			asked = renewed
		}
	}
	return asked.Add(lease - time.Millisecond) // scripts count in whole milliseconds
}

// say writes a line before the process goes on, so that nothing that was said is lost when it is killed.
func (r *running) say(words ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := fmt.Fprintln(os.Stdout, words...); err != nil {
		panic(err) // the test is gone
	}
}

// silent is a log of the client library.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// hold takes permits, works for a while, and gives them back.
func (r *running) hold(ctx context.Context, g *renewing, cost int64, work time.Duration) {
	var place core.Place
	if err := place.Take(); err != nil {
		return
	}
	asked := time.Now()
	d, err := g.Check(ctx, core.Attempt{Actor: r.name, Resource: "p", Cost: cost})
	switch {
	case err != nil: // not counted: it may not have been sent
		place.Free()
		<-time.After(5 * time.Millisecond)
		return
	case !d.Allowed:
		place.Free()
		r.ops.Add(1)
		if r.pause > 0 {
			<-time.After(r.pause)
		}
		return
	}
	r.ops.Add(1)
	held, stop := g.Hold(context.Background(), d)
	defer stop()
	begun, id := time.Now(), r.holders.Add(1)
	r.say("+", id, cost, begun.UnixMicro(), g.until(asked, begun, false).UnixMicro())
	select {
	case <-held.Done():
	case <-time.After(work):
	}
	ended, lost := time.Now(), held.Err() != nil
	r.say("-", id, ended.UnixMicro(), g.until(asked, begun, lost).UnixMicro(), lost, r.ops.Load())
	place.Settle(context.Background(), g, d, core.Commit)
}

// TestProcessWhoseCallersHold is the process. It ends when its input does.
func TestProcessWhoseCallersHold(t *testing.T) {
	words := strings.Fields(os.Getenv(runningEnv))
	if len(words) < 5 {
		return // runs in a process of its own
	}
	redis.SetLogger(silent{}) // servers are killed on purpose
	r, faults := &running{name: words[1]}, redistest.NewFaults(t)
	seed, err := strconv.ParseUint(words[2], 10, 64)
	if err == nil {
		r.pause, err = time.ParseDuration(words[3])
	}
	if err != nil {
		t.Fatal(err)
	}
	opt := redistest.OptionsOf("")
	opt.Addrs, opt.IsClusterMode = words[4:], len(words) > 5
	opt.Dialer, opt.ContextTimeoutEnabled, opt.PoolSize = faults.Dial, true, 2*callersEach
	rdb := redis.NewUniversalClient(opt)
	guard := func(wait time.Duration) *renewing {
		r, o := &renewing{}, options
		o.Wait = wait
		r.Guard = semaphore.New(core.New(rdb, core.WithPrefix(words[0]), core.WithDeadline(lease),
			core.WithObserver(r), core.WithLogger(slog.New(slog.DiscardHandler))), "s", o)
		return r
	}
	patient, impatient := guard(lease/3), guard(0)
	faults.SwallowEvery("evalsha", 0.01, rand.New(rand.NewPCG(seed, 0)))

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test has enough, or is gone
		cancel()
	}()
	var callers sync.WaitGroup
	for i := range callersEach {
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)+1))
			for ctx.Err() == nil {
				switch {
				case i == 0: // outlives its lease
					r.hold(ctx, patient, 1, lease*5/2)
				case i%2 == 0:
					r.hold(ctx, patient, 1+rng.Int64N(2), time.Duration(rng.IntN(2000))*time.Microsecond)
				default:
					r.hold(ctx, impatient, 1+rng.Int64N(2), time.Duration(rng.IntN(2000))*time.Microsecond)
				}
			}
		})
	}
	callers.Wait()
	faults.Heal()
	drained, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := core.Drain(drained); err != nil {
		t.Error(err)
	}
	r.say("=", r.ops.Load())
}

// holding is one holder of a process, in microseconds.
type holding struct {
	cost, begun, until int64
	ended              bool
}

// runner is a process as the test sees it.
type runner struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	heard chan struct{} // closed when it has said everything
	book  *book

	// of book.mu
	ops     int64
	holders map[int64]*holding
	killed  time.Time
}

// book is what all processes have said.
type book struct {
	t      *testing.T
	prefix string
	addrs  []string
	seed   uint64

	mu      sync.Mutex
	runners []*runner
	served  int
	lost    int
	late    time.Duration // the longest overlap
	stopped time.Duration // the longest time for which the test has stopped a process
	spared  [][2]int64    // when more permits than there are may be held, twice as many at most
}

// start starts a process.
func (b *book) start() *runner {
	b.t.Helper()
	b.mu.Lock()
	n := len(b.runners)
	r := &runner{name: fmt.Sprint("process", n), heard: make(chan struct{}), book: b,
		holders: map[int64]*holding{}}
	b.runners = append(b.runners, r)
	b.mu.Unlock()
	exe, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	r.cmd = exec.CommandContext(b.t.Context(), exe, "-test.run=^TestProcessWhoseCallersHold$", "-test.timeout=0")
	pause := 5 * time.Millisecond
	if redistest.Soak() {
		pause = 200 * time.Microsecond // without one, servers get no processor
	}
	r.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %v %s", runningEnv, b.prefix, r.name,
		b.seed+uint64(n), pause, strings.Join(b.addrs, " ")))
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may have ended
		_ = r.cmd.Wait()         // how it ended is known
	})
	go func() {
		defer close(r.heard)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.hear(lines.Text())
		}
	}()
	return r
}

// hear notes a line of a process. It may be one that a killed process did not finish.
func (r *runner) hear(line string) {
	kind, rest, _ := strings.Cut(line, " ")
	var id, ended, until, ops int64
	var lost bool
	h := &holding{}
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	switch kind {
	case "+":
		if n, _ := fmt.Sscan(rest, &id, &h.cost, &h.begun, &h.until); n == 4 {
			r.holders[id] = h
		}
	case "-":
		if n, _ := fmt.Sscan(rest, &id, &ended, &until, &lost, &ops); n < 5 || r.holders[id] == nil {
			return
		}
		r.book.served++
		if lost {
			r.book.lost++
			r.book.late = max(r.book.late, time.Duration(ended-until)*time.Microsecond)
		}
		r.ops, r.holders[id].until, r.holders[id].ended = ops, min(ended, until), true
	case "=":
		if n, _ := fmt.Sscan(rest, &ops); n == 1 {
			r.ops = ops
		}
	}
}

// ops returns how many attempts the processes have made.
func (b *book) ops() (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runners {
		n += r.ops
	}
	return n
}

// kill kills a process: its holders worked until now.
func (r *runner) kill() {
	r.signal(syscall.SIGKILL)
	<-r.heard
	_ = r.cmd.Wait() // how it died is known
	r.book.mu.Lock()
	defer r.book.mu.Unlock()
	r.killed = time.Now()
	for _, h := range r.holders {
		if !h.ended {
			h.until = min(h.until, r.killed.UnixMicro())
		}
	}
}

func (r *runner) signal(s os.Signal) {
	r.book.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.book.t.Error(err)
	}
}

// finish lets the processes give everything back, and end.
func (b *book) finish() {
	b.t.Helper()
	for _, r := range b.runners {
		_ = r.in.Close() // it may be dead
	}
	for _, r := range b.runners {
		select {
		case <-r.heard:
		case <-time.After(time.Minute):
			b.t.Errorf("%s does not end", r.name)
		}
	}
}

// most returns the most permits that were held at a moment, and in the time that is spared.
func (b *book) most() (most, spared int64) {
	type change struct{ at, cost int64 }
	var changes []change
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runners {
		for _, h := range r.holders {
			if h.until > h.begun {
				changes = append(changes, change{h.begun, h.cost}, change{h.until, -h.cost})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.cost, b.cost)) // ends before begins
	})
	held := int64(0)
	for _, c := range changes {
		held += c.cost
		if slices.ContainsFunc(b.spared, func(s [2]int64) bool { return s[0] <= c.at && c.at <= s[1] }) {
			spared = max(spared, held)
		} else {
			most = max(most, held)
		}
	}
	return most, spared
}

// watch looks at the server's record until the context ends: no more permits are held than there are, and a
// process that was killed holds none a lease and a second later.
func (b *book) watch(ctx context.Context, g *semaphore.Guard) (looks int) {
	for ; ctx.Err() == nil; looks++ {
		asked := time.Now()
		s, err := g.Peek(ctx, core.Attempt{Resource: "p"})
		if err != nil {
			continue
		}
		if s.Held > permits {
			b.t.Errorf("the server has %d permits held: %+v", s.Held, s.Holders)
		}
		b.mu.Lock()
		for _, r := range b.runners {
			dead := !r.killed.IsZero() && asked.Sub(r.killed) > lease+time.Second
			if dead && slices.ContainsFunc(s.Holders, func(h semaphore.Holder) bool { return h.Actor == r.name }) {
				b.t.Errorf("%s was killed %v ago, and holds permits", r.name, asked.Sub(r.killed))
			}
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return looks
}

// holdersOfProcesses lets processes hold permits while act breaks things, until they have made so many
// attempts and act returns false, and checks what they have said.
func holdersOfProcesses(
	t *testing.T, g *semaphore.Guard, prefix string, addrs []string, attempts int64,
	act func(b *book, round int) (again bool),
) {
	b := &book{t: t, prefix: prefix, addrs: addrs, seed: rand.Uint64()}
	t.Logf("seed %d", b.seed)
	for range processes {
		b.start()
	}
	redistest.Eventually(t, time.Minute, func() bool { return b.ops() > 50 }, "the processes make attempts")
	ctx, stop := context.WithCancel(t.Context())
	looks := make(chan int)
	go func() { looks <- b.watch(ctx, g) }()
	for round := 0; (act(b, round) || b.ops() < attempts) && !t.Failed(); round++ {
	}
	stop()
	looked := <-looks
	b.finish()
	most, spared := b.most()
	t.Logf("%d attempts, %d of them served, %d looks; most permits held %d of %d, in the lease after a failover %d; %d leases "+
		"lost, noticed %v late at most, a process was stopped for %v", b.ops(), b.served, looked, most, permits, spared,
		b.lost, b.late, b.stopped)
	if most > permits || spared > 2*permits || most < permits/2 {
		t.Errorf("%d permits were held at a moment, and %d while a failover may have lost some: want %d at most, "+
			"and twice as many", most, spared, permits)
	}
	redistest.Eventually(t, time.Minute, func() bool {
		s, err := g.Peek(t.Context(), core.Attempt{Resource: "p"})
		return err == nil && s.Held == 0 && s.Waiting == 0
	}, "permits are held, or attempts wait, of processes that have ended")
}

// goOn lets time pass, in which the processes go on.
func goOn(t *testing.T, d time.Duration) {
	t.Helper()
	until := time.Now().Add(d)
	redistest.Eventually(t, d+30*time.Second, func() bool { return time.Now().After(until) }, "the time passes")
}

// TestHoldersOfProcessesThatAreKilledAndStopped: no more permits are held than there are, while one reply in
// a hundred is lost.
//
// Promise: At most N hold a lasting lease, under kills, stops and moving slots. A failover that loses grants
// allows twice as many, for one lease.
func TestHoldersOfProcessesThatAreKilledAndStopped(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	attempts, calm := int64(500), lease
	if redistest.Soak() {
		attempts, calm = 600_000, 10*lease
	}
	b := redistest.Single(t)
	g := semaphore.New(guardtest.NewEngine(b), "s", options)
	holdersOfProcesses(t, g, b.Prefix, b.Options().Addrs, attempts, func(b *book, round int) bool {
		goOn(t, calm) // for up to three seconds nobody overtakes those of the round before who waited
		victim, sleeper := b.runners[len(b.runners)-1], b.runners[round%2]
		begun := time.Now()
		sleeper.signal(syscall.SIGSTOP)
		goOn(t, lease/5)
		victim.kill()
		goOn(t, lease+lease/2)
		sleeper.signal(syscall.SIGCONT)
		b.stopped = max(b.stopped, time.Since(begun))
		b.start()
		goOn(t, lease/2)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.lost == 0 && round == 30 { // a busy machine stops some before they have a permit
			t.Error("no process that was stopped has lost a lease: that shows nothing")
		}
		return b.lost == 0
	})
}

// TestHoldersWhileSlotsMoveAndMastersAreReplaced: no more permits are held than there are, while the pool's
// slot moves, and a master hands over to its replica. When a master is killed, the grants that it has not
// replicated are lost: until a lease later their holders work beside those to whom the replica gives the same
// permits, so twice as many permits may be held.
func TestHoldersWhileSlotsMoveAndMastersAreReplaced(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	attempts := int64(500)
	if redistest.Soak() {
		attempts = 400_000
	}
	c := redistest.StartCluster(t)
	rdb := c.Client(t)
	g := semaphore.New(guardtest.NewEngine(redistest.Backend{Client: rdb, Prefix: "holders"}), "s", options)
	slot := redistest.Slot(g.Key("p", "permits"))
	var nodes []*redis.Client
	for _, node := range c.Nodes {
		rdb := node.Client(t)
		nodes = append(nodes, rdb)
		// A node that gets no processor for two seconds is taken for dead: nobody may replace it by himself.
		if err := rdb.ConfigSet(t.Context(), "cluster-replica-no-failover", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	healthy := func() {
		redistest.Eventually(t, time.Minute, func() bool {
			return !slices.ContainsFunc(nodes, func(node *redis.Client) bool {
				info, err := node.ClusterInfo(t.Context()).Result()
				return err != nil || !strings.Contains(info, "cluster_state:ok")
			})
		}, "the cluster is healthy")
	}
	holdersOfProcesses(t, g, "holders", c.Options().Addrs, attempts, func(b *book, _ int) bool {
		healthy()
		from := c.MasterOfSlot(slot)
		for _, other := range []int{0, 16383 / 2, 16383} {
			if to := c.MasterOfSlot(other); to != from {
				c.MigrateSlot(t, slot, from, to)
				break
			}
		}
		goOn(t, lease/5)
		c.Failover(slot)
		goOn(t, lease/5)
		old := c.MasterOfSlot(slot)
		replica := c.ReplicaOfSlot(slot)
		killed := time.Now()
		old.Kill()
		b.mu.Lock()
		b.spared = append(b.spared, [2]int64{killed.UnixMicro(), time.Now().Add(lease).UnixMicro()})
		b.mu.Unlock()
		c.Replace(slot, old, replica)
		goOn(t, lease+lease/5)
		c.Rejoin(old)
		goOn(t, lease/5)
		return false
	})
}
