package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
)

// asWorker lets the test binary be the worker, so that it can be killed.
const asWorker = "ORDERS_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) == "" {
		redistest.Main(m)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test has ended
	}()
	main()
	os.Exit(0)
}

// item is the item on sale in the tests.
const item = "tv-55"

// guard is a guard of sales as the program and the tests use it.
type guard interface {
	saletest.Sales
	sales
}

func newGuard(b redistest.Backend, buckets int) guard {
	return newSales(saletest.NewEngine(b, b.Client), buckets).(guard)
}

// worker is a process that writes orders.
type worker struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bytes.Buffer
}

func startWorker(t *testing.T, b redistest.Backend, buckets int, db, name string) *worker {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-db", db, "-items", item, "-prefix", b.Prefix, "-name", name,
		"-claim-after", "200ms", "-buckets", fmt.Sprint(buckets))
	nodes := slices.Clone(b.Options().Addrs)
	if len(nodes) > 1 {
		cmd.Args = append(cmd.Args, "-cluster")
		nodes[0] += "?addr=" + strings.Join(nodes[1:], "&addr=")
	}
	cmd.Env = append(os.Environ(), asWorker+"=1", "REDIS_URL=redis://"+nodes[0])
	w := &worker{t, cmd, new(bytes.Buffer)}
	cmd.Stdout, cmd.Stderr = w.out, w.out
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kill)
	return w
}

// kill is kill -9. It does nothing to a worker that has ended.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// stop ends the worker as a supervisor does.
func (w *worker) stop() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil || !strings.Contains(w.out.String(), "in the end orders:") {
		w.t.Errorf("the worker ended with %v and printed\n%s", err, w.out)
	}
}

// group returns the progress of the group in all outboxes, by XINFO; ok: it reads all of them.
func group(t *testing.T, b redistest.Backend, g guard) (pending, lag int64, ok bool) {
	t.Helper()
	keys, err := g.OutboxKeys(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		groups, err := b.Client.XInfoGroups(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(groups) != 1 {
			return 0, 0, false
		}
		pending, lag = pending+groups[0].Pending, lag+groups[0].Lag
	}
	return pending, lag, true
}

// wantOrders waits until all events are handled, and wants the database to agree with the sale: each
// reservation with its last state, and as sold those that buyers have confirmed.
func wantOrders(t *testing.T, b redistest.Backend, g guard, s *store, confirmed map[string]string) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool {
		pending, lag, ok := group(t, b, g)
		return ok && pending == 0 && lag == 0
	}, "all events are handled")
	if orders := orders(t, s, "sold"); !maps.Equal(orders, confirmed) {
		t.Errorf("%d orders to ship, %d reservations are confirmed", len(orders), len(confirmed))
	}
	status := saletest.WantConsistent(t, g, item)
	if counts, err := s.counts(t.Context()); err != nil || int64(counts.sold) != status.Sold ||
		counts.aside != 0 {
		t.Errorf("%v, %v: the sale has sold %d", counts, err, status.Sold)
	}
	ledger := saletest.Read(t, g, item)
	for _, state := range []seckill.EventKind{seckill.EventHeld, seckill.EventSold, seckill.EventCancelled,
		seckill.EventExpired} {
		if orders, want := orders(t, s, string(state)), ledger.In(state); !maps.Equal(orders, want) {
			t.Errorf("%d orders are %s, %d reservations", len(orders), state, len(want))
		}
	}
}

// orders returns the orders in a state: buyers by reservation.
func orders(t *testing.T, s *store, state string) map[string]string {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(),
		"SELECT reservation, buyer FROM orders WHERE item = ? AND state = ?", item, state)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]string{}
	for rows.Next() {
		var id, buyer string
		if err := rows.Scan(&id, &buyer); err != nil {
			t.Fatal(err)
		}
		found[id] = buyer
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func newStore(t *testing.T) (s *store, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "orders ü?.db")
	s, err := openStore(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s, file
}

// TestKilledAtAnyMoment: the worker is killed again and again while buyers buy, pay late, cancel and leave,
// and while the database is locked from time to time.
//
// Promise (Seckill): A worker of the outbox that is killed at any moment writes each sale once.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	t.Run("one bucket", func(t *testing.T) { killedAtAnyMoment(t, redistest.Single(t), 1, 15) })
	t.Run("buckets on a cluster", func(t *testing.T) { killedAtAnyMoment(t, redistest.Cluster(t), 5, 8) })
}

func killedAtAnyMoment(t *testing.T, b redistest.Backend, buckets, rounds int) {
	t.Parallel()
	buyers := 60
	if redistest.Soak() {
		rounds, buyers = 200, 100
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)

	g := newGuard(b, buckets)
	most := 10 * rounds
	saletest.Open(t, g, item, seckill.Sale{Stock: int64(most * buyers), Hold: 700 * time.Millisecond})
	s, file := newStore(t)
	confirmed := map[string]string{}
	var mu sync.Mutex
	var shops sync.WaitGroup
	killed, atWork := 0, 0
	// A busy machine may kill each of the first ones before it has begun.
	for ; killed < rounds || atWork == 0 && killed < most; killed++ {
		round := killed
		w := startWorker(t, b, buckets, file, "worker")
		shops.Go(func() {
			paid := shop(t.Context(), g, item, round*buyers, buyers)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(confirmed, paid)
		})
		before := countsNow(t, s)
		switch rng.IntN(3) {
		case 0: // while it starts, or soon after
			wait(t.Context(), rand.N(300*time.Millisecond))
		case 1: // while it cannot write
			lock(t, s, rand.N(600*time.Millisecond))
		case 2: // while it writes
			for range 2_000 { // it may have written everything before
				if now, err := s.counts(t.Context()); err != nil || now != before {
					break
				}
				wait(t.Context(), 5*time.Millisecond)
			}
			wait(t.Context(), rand.N(30*time.Millisecond))
		}
		w.kill()
		if pending, _, ok := group(t, b, g); ok && pending > 0 {
			atWork++
		}
	}
	shops.Wait()
	saletest.EndHolds(t, g, item)
	w := startWorker(t, b, buckets, file, "worker")
	wantOrders(t, b, g, s, confirmed)
	w.stop()
	if atWork == 0 {
		t.Error("no worker was killed with pending messages")
	}
	t.Logf("killed %d times, %d times with pending messages; %d orders to ship", killed, atWork, len(confirmed))
}

// countsNow returns the counts of the database, also while a worker that starts recovers the log of a killed one.
func countsNow(t *testing.T, s *store) (c counts) {
	t.Helper()
	whenUnlocked(t, func() (err error) {
		c, err = s.counts(t.Context())
		return err
	})
	return c
}

// whenUnlocked tries again while the database is locked for longer than its busy_timeout, as on a slow machine.
func whenUnlocked(t *testing.T, try func() error) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool {
		err := try()
		if locked := (*sqlite.Error)(nil); err != nil &&
			(!errors.As(err, &locked) || locked.Code()&0xff != sqlite3.SQLITE_BUSY) {
			t.Fatal(err)
		}
		return err == nil
	}, "the database is unlocked")
}

// lock keeps the database locked for the given time, also for other processes.
func lock(t *testing.T, s *store, d time.Duration) {
	t.Helper()
	var tx *sql.Tx
	whenUnlocked(t, func() (err error) {
		tx, err = s.db.BeginTx(t.Context(), nil)
		return err
	})
	wait(t.Context(), d)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// TestTwoWorkersAndOneDies: they share the work, and the other one handles the dead worker's pending
// messages.
func TestTwoWorkersAndOneDies(t *testing.T) {
	t.Parallel()
	buyers := 300
	if redistest.Soak() {
		buyers = 5_000
	}
	b := redistest.Single(t)
	g := newGuard(b, 1)
	saletest.Open(t, g, item, seckill.Sale{Stock: int64(buyers), Hold: 2 * time.Second})
	s, file := newStore(t)
	startWorker(t, b, 1, file, "survivor")
	dies := startWorker(t, b, 1, file, "dies")
	confirmed := shop(t.Context(), g, item, 0, buyers/2)

	tx, err := s.db.BeginTx(t.Context(), nil) // locks the database, so a worker's messages stay pending
	if err != nil {
		t.Fatal(err)
	}
	for i := buyers / 2; ; i++ {
		maps.Copy(confirmed, shop(t.Context(), g, item, i, 1))
		consumers, err := b.Client.XInfoConsumers(t.Context(), g.Key(item, "outbox"), "orders").Result()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(consumers,
			func(c redis.XInfoConsumer) bool { return c.Name == "dies" && c.Pending > 0 }) {
			break
		}
		if i == 10*buyers {
			t.Fatal("the worker gets no messages")
		}
	}
	dies.kill()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	maps.Copy(confirmed, shop(t.Context(), g, item, 20*buyers, buyers/2))
	saletest.EndHolds(t, g, item)
	wantOrders(t, b, g, s, confirmed)
}

// each makes a sale on each backend, and a consumer with its own database.
func each(t *testing.T, buckets int, f func(t *testing.T, b redistest.Backend, g guard, c *consumer)) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel() // most of the time is spent waiting for messages
		s, _ := newStore(t)
		g := newGuard(b, buckets)
		f(t, b, g, &consumer{b.Client, g, s, "orders", "worker", time.Hour, slog.New(slog.DiscardHandler)})
	})
}

// start lets a consumer run until the test ends or calls stop.
func start(t *testing.T, c *consumer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx, []string{item}) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// buy reserves a unit and confirms it.
func buy(t *testing.T, g guard, buyer string) {
	t.Helper()
	order := core.Attempt{Actor: buyer, Resource: item, ID: "order of " + buyer}
	if _, err := g.Check(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	if d, err := g.Confirm(t.Context(), order); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
}

// wantSold waits until these buyers, and no others, have an order.
func wantSold(t *testing.T, s *store, buyers ...string) {
	t.Helper()
	want := map[string]string{}
	for _, buyer := range buyers {
		want["order of "+buyer] = buyer
	}
	redistest.Eventually(t, time.Minute, func() bool { return maps.Equal(orders(t, s, "sold"), want) },
		fmt.Sprint(len(buyers), " orders"))
}

func wantNothingPending(t *testing.T, b redistest.Backend, g guard) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool {
		pending, err := b.Client.XPending(t.Context(), g.Key(item, "outbox"), "orders").Result()
		return err == nil && pending.Count == 0
	}, "nothing is pending")
}

func TestTheGroupIsMadeBeforeTheSaleOrAfterIt(t *testing.T) {
	t.Parallel()
	each(t, 1, func(t *testing.T, b redistest.Backend, g guard, c *consumer) {
		stop := start(t, c)
		wait(t.Context(), 20*time.Millisecond)
		if n := b.Client.Exists(t.Context(), g.Key(item, "outbox")).Val(); n != 0 {
			t.Error("the consumer has made an outbox, which would never expire")
		}
		saletest.Open(t, g, item, seckill.Sale{Stock: 10})
		buy(t, g, "ann")
		wantSold(t, c.store, "ann")
		stop()

		late := *c
		late.group, late.store = "analytics", func() *store { s, _ := newStore(t); return s }()
		buy(t, g, "bob")
		start(t, &late)
		wantSold(t, late.store, "ann", "bob")
		wantSold(t, c.store, "ann")
	})
}

// TestASaleThatIsLostAndOpenedAgain: the groups are lost with the outboxes, and the same reservation IDs are
// new orders.
func TestASaleThatIsLostAndOpenedAgain(t *testing.T) {
	t.Parallel()
	for _, buckets := range []int{1, 3} {
		t.Run(fmt.Sprint(buckets, " buckets"), func(t *testing.T) {
			each(t, buckets, func(t *testing.T, b redistest.Backend, g guard, c *consumer) {
				start(t, c)
				for sale := 1; sale <= 2; sale++ {
					saletest.Open(t, g, item, seckill.Sale{Stock: 10})
					buyers := []string{"ann", "bob", "cid", "dan"}
					for _, buyer := range buyers {
						buy(t, g, buyer)
					}
					redistest.Eventually(t, time.Minute, func() bool {
						counts, err := c.store.counts(t.Context())
						return err == nil && counts.sold == sale*len(buyers)
					}, "orders of this sale, beside those of the last one")
					keys, err := g.OutboxKeys(t.Context(), item)
					if err != nil || len(keys) != buckets {
						t.Fatal(keys, err)
					}
					for _, key := range append(keys, g.Key(item, "outbox")) { // and the root
						for _, field := range []string{":sale", ":buyers", ":holds", ":reservations", ":outbox"} {
							b.Client.Del(t.Context(), strings.Replace(key, ":outbox", field, 1))
						}
					}
				}
				wantSold(t, c.store, "ann", "bob", "cid", "dan")
				if counts, err := c.store.counts(t.Context()); err != nil ||
					counts.aside+counts.held+counts.cancelled+counts.expired > 0 {
					t.Errorf("%v, %v", counts, err)
				}
			})
		})
	}
}

// TestOneIDInTwoBuckets: two buyers may choose the same ID, and both have bought.
func TestOneIDInTwoBuckets(t *testing.T) {
	t.Parallel()
	each(t, 4, func(t *testing.T, _ redistest.Backend, g guard, c *consumer) {
		saletest.Open(t, g, item, seckill.Sale{Stock: 100})
		bought := 0
		for i := range 20 {
			d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint("buyer ", i), Resource: item, ID: "mine"})
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				bought++
				if err := g.Settle(t.Context(), d, core.Commit); err != nil {
					t.Fatal(err)
				}
			}
		}
		if bought < 2 {
			t.Fatalf("%d have bought", bought)
		}
		start(t, c)
		redistest.Eventually(t, time.Minute, func() bool {
			counts, err := c.store.counts(t.Context())
			return err == nil && counts.sold == bought
		}, fmt.Sprint(bought, " orders"))
	})
}

// TestDeadBetweenTheDatabaseAndRedis: messages that are committed but not acknowledged come again, under the
// dead worker's own name and under another.
func TestDeadBetweenTheDatabaseAndRedis(t *testing.T) {
	t.Parallel()
	for _, dead := range []string{"worker", "another"} {
		t.Run(dead, func(t *testing.T) {
			each(t, 1, func(t *testing.T, b redistest.Backend, g guard, c *consumer) {
				saletest.Open(t, g, item, seckill.Sale{Stock: 10})
				buy(t, g, "ann")
				d := *c
				d.name, c.claimAfter = dead, time.Hour
				if dead != c.name {
					c.claimAfter = 0
				}
				if err := d.join(t.Context(), g.Key(item, "outbox")); err != nil {
					t.Fatal(err)
				}
				status, err := g.Status(t.Context(), item)
				if err != nil {
					t.Fatal(err)
				}
				messages, err := d.next(t.Context(), g.Key(item, "outbox"))
				if err != nil || len(messages) != 3 {
					t.Fatalf("%v, %v", messages, err)
				}
				if err := d.store.write(t.Context(), outbox{item: item}, status.Epoch, messages, d.log); err != nil {
					t.Fatal(err)
				}
				wantSold(t, c.store, "ann")
				start(t, c)
				wantNothingPending(t, b, g)
				wantSold(t, c.store, "ann")
			})
		})
	}
}

// TestMessagesThatAreNoEventsGoAside: they are set aside and delay no order.
func TestMessagesThatAreNoEventsGoAside(t *testing.T) {
	t.Parallel()
	each(t, 1, func(t *testing.T, b redistest.Backend, g guard, c *consumer) {
		var said lockedBuffer
		c.log = slog.New(slog.NewTextHandler(&said, nil))
		saletest.Open(t, g, item, seckill.Sale{Stock: 10})
		for _, values := range [][]string{
			{"hello", "world"},
			{"event", "sold", "id", "x", "quantity", "many"},
			{"event", "sold", "quantity", "1"},
			{"event", "sold", "id", "x", "quantity", "0"},
			{"event", "melted", "id", "x", "quantity", "1"},
			{"event", "opened", "quantity", "10", "epoch", "7"}, // of another sale
			{"event", "moved", "id", "0-1-1", "quantity", "-1"}, // is one
			{"event", "moved", "id", "1-0-1", "quantity", "1"},
		} {
			if err := b.Client.XAdd(t.Context(),
				&redis.XAddArgs{Stream: g.Key(item, "outbox"), Values: values}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		buy(t, g, "ann")
		start(t, c)
		wantSold(t, c.store, "ann")
		wantNothingPending(t, b, g)
		counts, err := c.store.counts(t.Context())
		if err != nil || counts.aside != 6 || counts.held+counts.cancelled+counts.expired != 0 {
			t.Errorf("%v, %v", counts, err)
		}
		if n := strings.Count(said.String(), "message set aside"); n != 6 {
			t.Errorf("%d log lines:\n%s", n, &said)
		}
	})
}

// TestADatabaseThatIsFull: events stay pending, also for a consumer that is started again.
func TestADatabaseThatIsFull(t *testing.T) {
	t.Parallel()
	each(t, 1, func(t *testing.T, b redistest.Backend, g guard, c *consumer) {
		saletest.Open(t, g, item, seckill.Sale{Stock: 1000})
		pages := func(most int) {
			if _, err := c.store.db.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", most)); err != nil {
				t.Fatal(err)
			}
		}
		pages(1) // as few as there are
		var said lockedBuffer
		c.log = slog.New(slog.NewTextHandler(&said, nil))
		var buyers []string
		for i := range 100 {
			buyers = append(buyers, fmt.Sprint(i, strings.Repeat(" long", 9)))
			buy(t, g, buyers[i])
		}
		stop := start(t, c)
		redistest.Eventually(t, time.Minute, func() bool { return strings.Contains(said.String(), "full") },
			"the database is full")
		stop()
		wantSold(t, c.store)
		if pending := b.Client.XPending(t.Context(), g.Key(item, "outbox"), "orders").Val(); pending.Count == 0 {
			t.Error("nothing is pending")
		}
		start(t, c)
		pages(1 << 20)
		wantSold(t, c.store, buyers...)
		wantNothingPending(t, b, g)
	})
}

// TestEventsInAnyOrder: consumers work side by side, so the events of a reservation reach the database in any
// order, and again.
func TestEventsInAnyOrder(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	n := 0
	var messages []redis.XMessage
	want := map[string]map[string]string{"held": {}, "sold": {}, "cancelled": {}, "expired": {}}
	for _, life := range [][]string{
		{"held"},
		{"held", "sold"},
		{"held", "cancelled"},
		{"held", "expired", "sold"},
		{"held", "cancelled", "held", "expired"},
		{"held", "expired", "held", "cancelled", "held"},
		{"held", "cancelled", "held", "expired", "sold"},
	} {
		for _, order := range permutations(len(life)) {
			n++
			id := fmt.Sprint(n)
			for _, i := range slices.Concat(order, order) {
				messages = append(messages, redis.XMessage{
					ID: fmt.Sprintf("9-%d", 9+i), // "9-10" is after "9-9"
					Values: map[string]any{
						"event": life[i], "id": id, "buyer": fmt.Sprint("buyer", i/2), "quantity": fmt.Sprint(i/2 + 1),
					},
				})
			}
			last := len(life) - 1
			want[life[last]][id] = fmt.Sprint("buyer", last/2)
		}
	}
	if err := s.write(t.Context(), outbox{item: item}, 1, messages, slog.Default()); err != nil {
		t.Fatal(err)
	}
	for state, want := range want {
		if got := orders(t, s, state); !maps.Equal(got, want) {
			t.Errorf("%s: %d orders, want %d", state, len(got), len(want))
		}
	}
}

// TestSoldIsSoldAlsoWithASmallerPosition: after a failover new positions may be smaller than the lost ones.
func TestSoldIsSoldAlsoWithASmallerPosition(t *testing.T) {
	s, _ := newStore(t)
	for _, m := range []redis.XMessage{
		{ID: "100-1", Values: map[string]any{"event": "held", "id": "a", "buyer": "ann", "quantity": "1"}},
		{ID: "90-1", Values: map[string]any{"event": "sold", "id": "a", "buyer": "ann", "quantity": "1"}},
		{ID: "100-2", Values: map[string]any{"event": "expired", "id": "a", "buyer": "ann", "quantity": "1"}},
	} {
		if err := s.write(t.Context(), outbox{item: item}, 1, []redis.XMessage{m}, slog.Default()); err != nil {
			t.Fatal(err)
		}
	}
	if got := orders(t, s, "sold"); got["a"] != "ann" {
		t.Error(got)
	}
}

// permutations returns all orders of n things.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

// TestByHand does what `go run .` and `go run . -buckets 4` do.
func TestByHand(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	var both sync.WaitGroup
	defer both.Wait() // when both are stopped
	var stops []func()
	for _, args := range [][]string{nil, {"-buckets", "4"}} {
		s, err := parse(append(args, "-db", filepath.Join(t.TempDir(), "orders.db")))
		if err != nil || s.units != 100 {
			t.Fatal(s, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		out := new(lockedBuffer)
		both.Go(func() {
			if err := run(ctx, out, s); err != nil || !strings.Contains(out.String(), "in the end orders:") {
				t.Errorf("%q: %v\n%s", args, err, out)
			}
		})
		defer stop()
		sold := regexp.MustCompile(`orders: [1-9][0-9]* to ship, 0 wait for the payment`)
		stops = append(stops, func() {
			defer stop()
			redistest.Eventually(t, time.Minute, func() bool { return sold.MatchString(out.String()) },
				"orders, and no more holds")
		})
	}
	for _, stop := range stops {
		stop()
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		s    settings
		want string
	}{
		{settings{redisURL: "http://:secret@127.0.0.1"}, "REDIS_URL"},
		{settings{redisURL: "http://:secret@127.0.0.1", cluster: true}, "REDIS_URL"},
		{settings{db: filepath.Join(t.TempDir(), "no", "such", "folder")}, "open the database"},
	} {
		if err := run(ctx, io.Discard, c.s); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
}

// lockedBuffer is a buffer for concurrent reads and writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }
