package script_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	reserveScript = script.New("reserve", lua.Source("seckill/reserve"), script.Idempotent)
)

// lostRoad is a hook that loses the commands of a script once: they do not arrive, or only the replies do
// not.
type lostRoad struct {
	sha     string
	arrives bool            // the commands run
	says    error           // to their callers
	until   <-chan struct{} // when their callers hear of it; nil: at once
	sent    chan struct{}   // is closed when they are lost

	mu   sync.Mutex
	lost [][]any
	done bool
}

func newLostRoad(sha string) *lostRoad {
	return &lostRoad{sha: sha, says: errNoReply, sent: make(chan struct{})}
}

func (r *lostRoad) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *lostRoad) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !r.loses(cmd) {
			return next(ctx, cmd)
		}
		if r.arrives {
			_ = next(ctx, cmd)
		}
		return r.fail(cmd)
	}
}

func (r *lostRoad) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !r.loses(cmds...) {
			return next(ctx, cmds)
		}
		if r.arrives {
			_ = next(ctx, cmds)
		}
		return r.fail(cmds...)
	}
}

// loses reports whether the commands are lost. One by itself is lost if it decides several attempts.
func (r *lostRoad) loses(cmds ...redis.Cmder) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := func(cmd redis.Cmder) bool { return cmd.Name() == "evalsha" && cmd.Args()[1] == r.sha }
	joint := r.sha == reserveScript.SHA() && len(cmds[0].Args()) > 20
	if r.done || !slices.ContainsFunc(cmds, is) || len(cmds) == 1 && !joint {
		return false
	}
	r.done = true
	for _, cmd := range cmds {
		r.lost = append(r.lost, cmd.Args())
	}
	return true
}

func (r *lostRoad) fail(cmds ...redis.Cmder) error {
	close(r.sent)
	if r.until != nil {
		<-r.until
	}
	for _, cmd := range cmds {
		cmd.(interface{ SetVal(value any) }).SetVal(nil)
		cmd.SetErr(r.says)
	}
	return r.says
}

// deliver lets the commands arrive that were lost.
func (r *lostRoad) deliver(t *testing.T, c *crowd) {
	t.Helper()
	r.mu.Lock()
	lost := r.lost
	r.mu.Unlock()
	if len(lost) == 0 {
		t.Fatal("nothing was lost")
	}
	for _, args := range lost {
		reply, err := c.e.Client().(redis.UniversalClient).Do(t.Context(), args...).Result()
		if err != nil {
			t.Fatalf("%.200q: %v", fmt.Sprint(args), err)
		}
		t.Logf("%.300q", fmt.Sprint(reply))
	}
}

// over adds the hook to the client of a crowd, or to its nodes.
func (r *lostRoad) over(t *testing.T, b redistest.Backend, options ...core.Option) *crowd {
	t.Helper()
	rdb := b.NewClient(t)
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(r) })
	} else {
		rdb.AddHook(r)
	}
	return newCrowdOver(t, b, rdb, options...)
}

// claimKinds are guards whose claims share calls. Their keys are in the slot of the crowd's own. A caller has
// a guard, so that no claims are decided together.
var claimKinds = map[string]struct {
	sha  string
	make func(t *testing.T, e *core.Engine) (of func(i int) core.Guard, claims func() int64)
}{
	"votes": {voteScript.SHA(), func(t *testing.T, e *core.Engine) (func(i int) core.Guard, func() int64) {
		var guards [20]*votes.Guard
		for i := range guards {
			guards[i] = votes.New(e, fmt.Sprint("v", i), votes.Options{})
		}
		return func(i int) core.Guard { return guards[i] }, func() (sum int64) {
			for _, g := range guards {
				sum += tally(t, g, "p")["red"]
			}
			return sum
		}
	}},
	"sales": {reserveScript.SHA(), func(t *testing.T, e *core.Engine) (func(i int) core.Guard, func() int64) {
		var guards [20]*seckill.Guard
		for i := range guards {
			guards[i] = seckill.New(e, fmt.Sprint("s", i), seckill.Options{NoOutbox: true})
			openSale(t, guards[i], "p", seckill.Sale{Stock: 1})
		}
		return func(i int) core.Guard { return guards[i] }, func() (sum int64) {
			for _, g := range guards {
				s, err := g.Status(t.Context(), "p")
				if err != nil {
					t.Fatal(err)
				}
				sum += s.Held + s.Sold
			}
			return sum
		}
	}},
}

func claimOf(i int) core.Attempt {
	return core.Attempt{Actor: fmt.Sprint("actor", i), Resource: "p", Item: "red", ID: fmt.Sprint("id", i)}
}

// TestClaimsShareAPipeline: votes of the same moment, each with its own answer and its own undo.
func TestClaimsShareAPipeline(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b)
		g := votes.New(c.e, "v", votes.Options{Audit: true})
		if err := c.e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.fill(t)
		c.wait(t, 30, func(i int) {
			d, err := g.Check(t.Context(), claimOf(i/2)) // each voter twice, by one operation
			if err != nil || !d.Allowed || d.Attempt.Actor != fmt.Sprint("actor", i/2) {
				t.Errorf("%+v, %v", d, err)
				return
			}
			end := core.Commit
			if i/2 >= 10 {
				end = core.Rollback
			}
			if err := g.Settle(t.Context(), d, end); err != nil {
				t.Error(err)
			}
		})
		c.open()
		if got := c.lengths(); !slices.Equal(got, []int{30}) {
			t.Errorf("pipelines of %v calls, want one of 30", got)
		}
		wantTally(t, g, "p", map[string]int64{"red": 10})
	})
}

// TestClaimsOfALostPipelineThatArriveLateLeaveNothing: their callers have sent them again by themselves, and
// given the claims back. In the end a claim stands only where it was not given back, and once.
func TestClaimsOfALostPipelineThatArriveLateLeaveNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for kind, k := range claimKinds {
			for _, end := range []core.Ending{core.Commit, core.Rollback} {
				t.Run(fmt.Sprintf("%s/kept %t", kind, end.Commits()), func(t *testing.T) {
					b := b
					b.Prefix += fmt.Sprint(kind, end.Commits())
					r := newLostRoad(k.sha)
					c := r.over(t, b)
					of, claims := k.make(t, c.e)
					if err := c.e.Preload(t.Context()); err != nil {
						t.Fatal(err)
					}
					c.fill(t)
					c.wait(t, 20, func(i int) {
						d, err := of(i).Check(t.Context(), claimOf(i))
						if err != nil || !d.Allowed || d.Replayed {
							t.Errorf("%+v, %v", d, err)
						} else if err := of(i).Settle(t.Context(), d, end); err != nil {
							t.Error(err)
						}
					})
					c.open()
					r.deliver(t, c)
					want := int64(0)
					if end.Commits() {
						want = 20
					}
					if got := claims(); got != want {
						t.Errorf("%d claims stand, want %d", got, want)
					}
				})
			}
		}
	})
}

// TestAClaimWhoseCallerLeftAPipelineIsTakenBack: it arrives after its undo, and takes nothing.
func TestAClaimWhoseCallerLeftAPipelineIsTakenBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for kind, k := range claimKinds {
			t.Run(kind, func(t *testing.T) {
				b := b
				b.Prefix += kind
				r := newLostRoad(k.sha)
				goOn := make(chan struct{})
				r.until = goOn
				c := r.over(t, b)
				of, claims := k.make(t, c.e)
				if err := c.e.Preload(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				c.fill(t)
				c.wait(t, 20, func(i int) {
					if d, err := of(i).Check(ctx, claimOf(i)); !errors.Is(err, context.Canceled) {
						t.Errorf("%+v, %v", d, err)
					}
				})
				c.all.Go(func() {
					<-r.sent
					cancel()
				})
				c.open()
				redistest.Eventually(t, time.Minute, func() bool { return c.e.Pending() == 0 }, "all is undone")
				close(goOn)
				r.deliver(t, c)
				if got := claims(); got != 0 {
					t.Errorf("%d claims stand, want none", got)
				}
			})
		}
	})
}

// holdTwo has two claims of one thing under way, so that others have to wait.
func (c *crowd) holdTwo(t *testing.T, claim func(i int)) {
	t.Helper()
	c.holds.Store(true)
	for i := range 2 {
		c.all.Go(func() { claim(1000 + i) })
	}
	redistest.Eventually(t, time.Minute, func() bool { return c.held.Load() == 2 }, "two are under way")
}

// TestBuyersOfTheSameMomentAreDecidedTogether: by one run of a script. Each has an answer, a reservation and
// an undo of its own.
func TestBuyersOfTheSameMomentAreDecidedTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		c := newCrowd(t, b, core.WithRefusalMemory(0))
		g := seckill.New(c.e, "s", seckill.Options{})
		openSale(t, g, "p", seckill.Sale{Stock: 60, PerBuyer: 2})
		if err := c.e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var won []core.Decision
		var lefts []int64
		buy := func(i int) {
			d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p"})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil || d.Attempt.Actor != fmt.Sprint(i) || d.Limit != 60:
				t.Errorf("%+v, %v", d, err)
			case d.Allowed:
				won, lefts = append(won, d), append(lefts, d.Remaining)
			case d.Reason != core.ReasonSoldOut:
				t.Errorf("%+v", d)
			}
		}
		c.holds.Store(true)
		for i := range 2 {
			c.all.Go(func() { buy(1000 + i) })
		}
		redistest.Eventually(t, time.Minute, func() bool { return c.held.Load() == 2 }, "two are under way")
		before := c.commands.Load()
		c.wait(t, 100, buy)
		c.open()
		if got := c.commands.Load() - before; got != 3 {
			t.Errorf("%d scripts ran for the two under way and those that waited, want 3", got)
		}
		slices.Sort(lefts)
		for i, n := range lefts {
			if n != int64(i) {
				t.Fatalf("units left after each reservation: %v", lefts)
			}
		}
		if len(won) != 60 {
			t.Fatalf("%d buyers have reserved, want 60", len(won))
		}
		for i, d := range won {
			guardtest.Settle(t, g, d, guardtest.Ending(i < 25))
		}
		wantStatus(t, g, "p", 35, 0, 25)
	})
}

// TestAJoinedRunThatFailsLeavesEachBuyerToItself: where its reply is lost, where it was refused, and where the
// breaker has opened since. Whoever got a yes has a unit and nobody else, also when the run arrives late.
func TestAJoinedRunThatFailsLeavesEachBuyerToItself(t *testing.T) {
	for name, fault := range map[string]struct {
		says    error
		arrives bool
		breaks  bool
	}{
		"lost":                        {says: errNoReply},
		"reply lost":                  {says: errNoReply, arrives: true},
		"full":                        {says: answered("OOM command not allowed when used memory > 'maxmemory'.")},
		"slot moves":                  {says: answered("TRYAGAIN Multiple keys request during rehashing of slot")},
		"reply lost, breaker open":    {says: errNoReply, arrives: true, breaks: true},
		"lost and late, breaker open": {says: errNoReply, breaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				quiet(t)
				r := newLostRoad(reserveScript.SHA())
				r.says, r.arrives = fault.says, fault.arrives
				options := []core.Option{core.WithRefusalMemory(0)}
				if fault.breaks {
					options = append(options, core.WithBreaker(1, 20*time.Millisecond))
				}
				c := r.over(t, b, options...)
				g := seckill.New(c.e, "s", seckill.Options{})
				openSale(t, g, "p", seckill.Sale{Stock: 10})
				if err := c.e.Preload(t.Context()); err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				var won []core.Decision
				failed := 0
				buy := func(i int) {
					d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p"})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err != nil:
						failed++
						if !fault.breaks {
							t.Error(err)
						}
					case d.Allowed && !d.Replayed:
						won = append(won, d)
					case d.Reason != core.ReasonSoldOut:
						t.Errorf("%+v", d)
					}
				}
				c.holds.Store(true)
				for i := range 2 {
					c.all.Go(func() { buy(1000 + i) })
				}
				redistest.Eventually(t, time.Minute, func() bool { return c.held.Load() == 2 },
					"two are under way")
				c.wait(t, 20, buy)
				c.open()
				redistest.Eventually(t, time.Minute, func() bool { return c.e.Pending() == 0 }, "all is undone")
				if len(won)+failed < 10 || failed == 0 && len(won) != 10 {
					t.Errorf("%d buyers have reserved, %d failed", len(won), failed)
				}
				wantStatus(t, g, "p", 10-int64(len(won)), int64(len(won)), 0)
				for i, d := range won {
					guardtest.Settle(t, g, d, guardtest.Ending(i < 4))
				}
				if errors.Is(fault.says, errNoReply) && !fault.arrives {
					r.deliver(t, c)
				}
				wantStatus(t, g, "p", 10-int64(min(len(won), 4)), 0, int64(min(len(won), 4)))
			})
		})
	}
}

// TestWithoutSharedCallsNoBuyerWaits for another.
func TestWithoutSharedCallsNoBuyerWaits(t *testing.T) {
	b := redistest.Mini(t)
	var sent atomic.Int64
	g := seckill.New(core.New(counting{b.Client, &sent}, core.WithPrefix(b.Prefix),
		core.WithDeadline(time.Minute), core.WithRefusalMemory(0), core.WithoutSharedCalls()), "s",
		seckill.Options{})
	openSale(t, g, "p", seckill.Sale{Stock: 100})
	guardtest.Check(t, g, core.Attempt{Actor: "first", Resource: "p"})
	sent.Store(0)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p"})
			if err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	all.Wait()
	if sent.Load() != 50 {
		t.Errorf("%d commands for 50 buyers", sent.Load())
	}
}

// TestOneReplyToAllIsNotTakenApart, although it has as many values as there are calls, and some are texts.
func TestOneReplyToAllIsNotTakenApart(t *testing.T) {
	b := redistest.Mini(t)
	c := newCrowd(t, b)
	g := seckill.New(c.e, "s", seckill.Options{})
	buy := func(i int) {
		d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "never opened"})
		if err != nil || d.Reason != core.ReasonNotReady {
			t.Errorf("%+v, %v", d, err)
		}
	}
	c.holdTwo(t, buy)
	c.wait(t, 7, buy)
	c.open()
}
