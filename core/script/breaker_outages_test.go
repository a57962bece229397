package script_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// counted is a client that counts the calls.
type counted struct {
	*redis.Client
	calls atomic.Int64
}

func (c *counted) Process(ctx context.Context, cmd redis.Cmder) error {
	c.calls.Add(1)
	return c.Client.Process(ctx, cmd)
}

// TestEveryOutage: a rate limit continues inside the process and a claim fails closed, at the cost of a few
// calls. When Redis is back, the guards are too, with all their state. A Redis that is merely full is called
// throughout.
func TestEveryOutage(t *testing.T) {
	redistest.LeftToCI(t)
	redistest.Single(t) // this server stays for the other tests
	redistest.Cluster(t)
	for obeys, kinds := range map[bool][]string{true: redistest.OutageKinds, false: {"hanging"}} {
		t.Run(fmt.Sprintf("obeys=%t", obeys), func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { // after the test has closed everything
				var left error
				defer func() {
					if left != nil {
						t.Log(left)
					}
				}()
				redistest.Eventually(t, time.Minute, func() bool {
					left = goleak.Find(before)
					return left == nil
				}, "all goroutines have ended")
			})
			quiet(t)
			for _, kind := range kinds {
				t.Run(kind, func(t *testing.T) {
					timed.Test(t, outageDeadline/2, func(t *timed.T) { everyOutage(t, kind, obeys) })
				})
			}
		})
	}
}

// outageDeadline is that of calls before, in and after an outage.
const outageDeadline = 500 * time.Millisecond

func everyOutage(t testing.TB, kind string, obeys bool) {
	const pause = 50 * time.Millisecond
	o := redistest.StartOutages(t)
	rdb := &counted{Client: o.NewClient(obeys)}
	var h guardtest.Recorder
	e := core.New(rdb, core.WithPrefix("p-"+kind), core.WithDeadline(outageDeadline),
		core.WithObserver(&h),
		core.WithBreaker(0, pause))
	limit := limit.NewSlidingWindow(e, "limit", limit.PerHour(2))
	ballots, sale := votes.New(e, "votes", votes.Options{}), seckill.New(e, "sale", seckill.Options{})
	ready := func(what string) {
		t.Helper()
		redistest.Eventually(t, time.Minute, func() bool {
			_, err := limit.Peek(t.Context(), core.Attempt{Actor: "ann"})
			return err == nil
		}, what)
	}
	ready("Redis is asked")
	openSale(t, sale, "tv", seckill.Sale{Stock: 5})
	held := guardtest.Check(t, sale, core.Attempt{Actor: "ann", Resource: "tv"})
	cast := guardtest.Check(t, ballots, core.Attempt{Actor: "ann", Resource: "p"})
	guardtest.WantReason(t, guardtest.Check(t, limit, core.Attempt{Actor: "spent", Cost: 2}), core.ReasonOK)

	end := o.Begin(kind)
	sent := rdb.calls.Load()
	const attempts = 50
	notSent := 0
	for i := range attempts {
		a := core.Attempt{Actor: fmt.Sprint("buyer ", i), Resource: "tv"}
		for _, g := range []core.Guard{limit, ballots, sale} {
			d, err := g.Check(t.Context(), a)
			if err == nil || d.Allowed || guardtest.IsInvalid(err) {
				t.Fatalf("%s: %+v, %v", g.Name(), d, err)
			}
			if errors.Is(err, core.ErrBreakerOpen) {
				notSent++
			}
		}
		d, err := limit.CheckLocal(t.Context(), core.Attempt{Actor: "local"})
		if err != nil || d.Allowed != (i < 2) || d.Source != core.SourceLocal {
			t.Fatalf("inside the process: %+v, %v", d, err)
		}
	}
	sent = rdb.calls.Load() - sent
	if kind == "full" {
		if notSent != 0 {
			t.Errorf("%d of %d calls were not sent", notSent, 3*attempts)
		}
		guardtest.Settle(t, ballots, cast, core.Rollback)
		guardtest.Settle(t, sale, held, core.Rollback)
	} else if notSent < 2*attempts {
		t.Errorf("%d calls were sent, and only %d of %d were not", sent, notSent, 3*attempts)
	}
	t.Logf("%s: %d calls were sent, %d not", kind, sent, notSent)
	end()
	begun := time.Now()
	ready("Redis is asked again")
	t.Logf("%s: asked again after %v", kind, time.Since(begun))

	redistest.Eventually(t, time.Minute, func() bool { return e.Pending() == 0 }, "the undos have ended")
	for _, g := range []core.Guard{limit, ballots} {
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"}), core.ReasonOK)
	}
	switch kind {
	case "stopped": // has lost its data: the test's servers do not persist
		guardtest.WantReason(t, guardtest.Check(t, sale, core.Attempt{Actor: "bob", Resource: "tv"}),
			core.ReasonNotReady)
	case "full":
		wantStatus(t, sale, "tv", 5, 0, 0)
		wantTally(t, ballots, "p", map[string]int64{})
	default:
		guardtest.Settle(t, ballots, cast, core.Rollback)
		guardtest.Settle(t, sale, held, core.Commit)
		// Units of calls sent meanwhile have been returned, unless a call arrived after its undo: then they
		// are held until the hold expires.
		if got, err := sale.Status(t.Context(), "tv"); err != nil || got.Sold != 1 || got.Left+got.Held != 4 {
			t.Errorf("%+v, %v", got, err)
		}
		wantTally(t, ballots, "tv", map[string]int64{"": 1})
		guardtest.WantReason(t, guardtest.Check(t, limit, core.Attempt{Actor: "spent"}), core.ReasonLimited)
	}
	open := 0
	for _, event := range h.Events {
		if event.Breaker == nil {
			continue
		}
		if open += 1; !event.Breaker.Open {
			open -= 2
		}
		if open < 0 || open > 1 {
			t.Fatalf("two openings or two closings in a row: %+v", event.Breaker)
		}
	}
	if open != 0 {
		t.Error("the last event is an opening")
	}
}

// TestOneMasterOfThreeIsDead checks that Redis still decides the keys of the other masters.
func TestOneMasterOfThreeIsDead(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	c := calmCluster(t)
	for _, node := range c.Nodes { // no replica takes over; the others keep running
		rdb := node.Client(t)
		for _, words := range [][]any{
			{"config", "set", "cluster-require-full-coverage", "no"},
			{"config", "set", "cluster-replica-no-failover", "yes"},
		} {
			if err := rdb.Do(t.Context(), words...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	opt := patientOptions(c)
	opt.ContextTimeoutEnabled, opt.DialerRetries = true, 1
	rdb := closing(t, redis.NewClusterClient(opt))
	var h guardtest.Recorder
	e := core.New(rdb, core.WithDeadline(time.Minute), core.WithObserver(&h))
	g := limit.NewSlidingWindow(e, "w", limit.PerHour(1000))
	actors := map[*redistest.Server]string{}
	for i := 0; len(actors) < 3; i++ {
		actor := fmt.Sprint(i)
		actors[c.MasterOf(g.Key(kit.TagOf(core.Attempt{Actor: actor}), "x"))] = actor
	}
	try := func(actor string) (core.Decision, error) { return g.Check(t.Context(), core.Attempt{Actor: actor}) }
	for _, actor := range actors {
		redistest.Eventually(t, time.Minute, func() bool { _, err := try(actor); return err == nil },
			"the cluster decides")
	}

	var dead *redistest.Server
	for dead = range actors {
		break
	}
	dead.Kill()
	refused := 0
	for range 40 {
		for master, actor := range actors {
			d, err := try(actor)
			switch {
			case master != dead && (err != nil || d.Source != core.SourceRedis):
				t.Errorf("a running master: %+v, %v", d, err)
			case master == dead && err == nil:
				t.Errorf("the dead master: %+v", d)
			case errors.Is(err, core.ErrBreakerOpen):
				refused++
			}
		}
	}
	if refused < 20 {
		t.Errorf("of 40 calls to the dead master only %d were not sent", refused)
	}
	for _, event := range h.Events {
		if event.Breaker != nil && event.Breaker.Node != dead.Addr() {
			t.Errorf("event %+v, while %s is dead", event.Breaker, dead.Addr())
		}
	}
	dead.Start()
	redistest.Eventually(t, time.Minute, func() bool { _, err := try(actors[dead]); return err == nil },
		"it is asked again")
}
