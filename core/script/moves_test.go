package script_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// claims are a poll and a sale whose keys are in one slot, on a cluster of the test's own.
type claims struct {
	cluster  *redistest.ClusterServers
	slot     int
	from, to *redistest.Server
	rdb      *redis.ClusterClient
	ballots  *votes.Guard
	sale     *seckill.Guard
	acked    *seckill.Guard
	articles *quota.Guard
}

func newClaims(t testing.TB, options ...core.Option) *claims {
	t.Helper()
	c := &claims{cluster: calmCluster(t), slot: redistest.Slot("{p}")}
	c.from, c.to = c.cluster.MasterOfSlot(c.slot), c.cluster.MasterOfSlot((c.slot+5461)%16384)
	if c.from == c.to {
		t.Fatal("both slots have one master")
	}
	c.rdb = patientClient(t, c.cluster)
	e := core.New(c.rdb, append([]core.Option{core.WithObserver(guardtest.Ignore{})}, options...)...)
	c.ballots = votes.New(e, "v", votes.Options{})
	c.articles = quota.New(e, "q", quota.Options{Items: 3, Period: period.Every(time.Hour)})
	c.sale = seckill.New(e, "s", seckill.Options{})
	c.acked = seckill.New(e, "a", seckill.Options{Durability: seckill.Acked})
	for _, g := range []*seckill.Guard{c.sale, c.acked} {
		redistest.Eventually(t, time.Minute, func() bool {
			_, err := g.Open(t.Context(), "p", seckill.Sale{Stock: 100_000, PerBuyer: 100_000})
			return err == nil
		}, "the sale is open")
	}
	guardtest.Check(t, c.ballots, core.Attempt{Actor: "first", Resource: "p"})
	return c
}

// fill makes n more keys in the slot.
func (c *claims) fill(t *testing.T, n int) {
	t.Helper()
	pipe := c.rdb.Pipeline()
	for i := range n {
		pipe.Set(t.Context(), fmt.Sprintf("filler:{p}:%d", i), "x", time.Hour)
		if i%1000 == 999 || i == n-1 {
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// refusals is a hook of a client that counts the commands that were refused because a slot moves.
type refusals struct{ count atomic.Int64 }

func (h *refusals) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *refusals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if redis.HasErrorPrefix(err, "TRYAGAIN") {
			h.count.Add(1)
		}
		return err
	}
}

func (h *refusals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestClaimsOutlastAMovingSlot: a slot that moves for longer than the deadline delays votes, quotas and
// sales, Acked ones too, and refuses none.
func TestClaimsOutlastAMovingSlot(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	timed.Test(t, movingDeadline/2, func(t *timed.T) { outlast(t, movingDeadline) })
}

const movingDeadline = 2 * time.Second // a busy machine takes its time for a call

func outlast(t testing.TB, deadline time.Duration) {
	c := newClaims(t, core.WithDeadline(deadline))
	seen := &refusals{}
	c.rdb.AddHook(seen)
	m := c.cluster.BeginMigration(t, c.slot, c.from, c.to)
	m.MoveKeys(2)
	begun := time.Now()
	var all sync.WaitGroup
	for _, g := range []core.Guard{c.ballots, c.sale, c.acked, c.articles} {
		all.Go(func() {
			a := core.Attempt{Actor: "ann", Resource: "p"}
			if g == c.articles {
				a = core.Attempt{Actor: "p", Item: "a1"} // a quota's slot is that of the actor
			}
			d, err := g.Check(t.Context(), a)
			if err != nil || !d.Allowed {
				t.Errorf("%s, after %v: %+v, %v", g.Name(), time.Since(begun), d, err)
			}
		})
	}
	redistest.Eventually(t, time.Minute, func() bool {
		return seen.count.Load() > 0 && time.Since(begun) > deadline+deadline/2
	}, "the slot has moved for longer than the deadline")
	m.Finish()
	all.Wait()
	wantTally(t, c.ballots, "p", map[string]int64{"": 2})
	wantStatus(t, c.sale, "p", 99_999, 1, 0)
	wantStatus(t, c.acked, "p", 99_999, 1, 0)
}

// moving is a client of a cluster that never finishes to move a slot.
type moving struct{}

type tryAgainError struct{}

func (tryAgainError) Error() string { return "TRYAGAIN Multiple keys request during rehashing of slot" }
func (tryAgainError) RedisError()   {}

func (moving) Process(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(tryAgainError{})
	return cmd.Err()
}

// TestClaimsOfASlotThatDoesNotArriveEnd: a claim waits for ten deadlines. Its error is the server's, and the
// breaker stays closed, because the server answers.
//
// Promise (Outages): Votes and sales wait for a moving slot for ten deadlines at most.
func TestClaimsOfASlotThatDoesNotArriveEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = 100 * time.Millisecond
		e := core.New(moving{}, core.WithDeadline(deadline), core.WithObserver(guardtest.Ignore{}))
		claim := script.New("claim", "return 1", script.Idempotent)
		for range 8 { // more than open a breaker
			begun := time.Now()
			_, err := e.Run(t.Context(), claim, []string{e.Key("k", "p")})
			took := time.Since(begun)
			if err == nil || took < 9*deadline || took > 10*deadline || !strings.Contains(err.Error(), "TRYAGAIN") {
				t.Errorf("%v after %v, want TRYAGAIN after ten deadlines of %v", err, took, deadline)
			}
		}
	})
}

// TestClaimsWhileASlotMoves: voters and buyers go on while their slot moves key by key and, where the server
// can do so, at one moment. No call fails, nothing is lost, and nothing counts twice. It prints the figures.
func TestClaimsWhileASlotMoves(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	keys := 500
	if redistest.Soak() {
		keys = 50_000
	}
	c := newClaims(t, core.WithDeadline(time.Minute))
	c.fill(t, keys)
	w := c.work(t)
	w.await(t, 20)
	w.moves(t, "key by key", keys, func() bool {
		c.cluster.MigrateSlot(t, c.slot, c.from, c.to)
		return true
	})
	w.moves(t, "at one moment", keys, func() bool {
		return c.cluster.MigrateSlotAtomically(t, c.slot, c.to, c.from)
	})
	w.await(t, 20)
	close(w.stop)
	w.all.Wait()
	wantTally(t, c.ballots, "p", map[string]int64{"": w.voted.Load() + 1})
	wantStatus(t, c.sale, "p", 100_000-w.bought.Load(), w.bought.Load(), 0)
}

// claimWork is workers that vote and buy, each time as somebody else.
type claimWork struct {
	stop                   chan struct{}
	all                    sync.WaitGroup
	voted, bought, refused atomic.Int64
	slowest                atomic.Int64 // in nanoseconds
	failed                 func(format string, args ...any)
}

func (c *claims) work(t *testing.T) *claimWork {
	w := &claimWork{stop: make(chan struct{}), failed: t.Errorf}
	for n := range 4 {
		w.all.Go(func() { w.repeat(t.Context(), c.ballots, fmt.Sprint("v", n), &w.voted) })
		w.all.Go(func() { w.repeat(t.Context(), c.sale, fmt.Sprint("b", n), &w.bought) })
	}
	return w
}

func (w *claimWork) repeat(ctx context.Context, g core.Guard, name string, count *atomic.Int64) {
	for n := 0; ; n++ {
		select {
		case <-w.stop:
			return
		default:
		}
		begun := time.Now()
		d, err := g.Check(ctx, core.Attempt{Actor: fmt.Sprint(name, "-", n), Resource: "p"})
		took := int64(time.Since(begun))
		for old := w.slowest.Load(); took > old && !w.slowest.CompareAndSwap(old, took); old = w.slowest.Load() {
		}
		if err != nil || !d.Allowed {
			w.refused.Add(1)
			w.failed("%s: %+v, %v", g.Name(), d, err)
			continue
		}
		count.Add(1)
	}
}

// await waits for n more votes and reservations.
func (w *claimWork) await(t *testing.T, n int64) {
	t.Helper()
	voted, bought := w.voted.Load(), w.bought.Load()
	redistest.Eventually(t, time.Minute, func() bool {
		return w.voted.Load() >= voted+n && w.bought.Load() >= bought+n
	}, "votes and sales go on")
}

// moves moves the slot and prints what the workers saw.
func (w *claimWork) moves(t *testing.T, how string, keys int, move func() bool) {
	t.Helper()
	w.slowest.Store(0)
	calls, refused, begun := w.voted.Load()+w.bought.Load(), w.refused.Load(), time.Now()
	if !move() {
		return
	}
	took := time.Since(begun)
	w.await(t, 5)
	t.Logf("a slot of %d keys moved %s in %v: %d calls, %d refused, the slowest took %v", keys, how,
		took.Round(time.Millisecond), w.voted.Load()+w.bought.Load()-calls, w.refused.Load()-refused,
		time.Duration(w.slowest.Load()).Round(time.Millisecond))
}
