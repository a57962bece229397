package script_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// waits is a hook that answers in the place of a server. It says what each run of a script and each WAIT is
// answered; nil is success.
type waits struct {
	script, wait func(n int) error
	ran, waited  int
}

func (w *waits) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }
}

func (w *waits) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		w.ran++
		if err := w.script(w.ran); err != nil {
			cmd.SetErr(err)
			return err
		}
		cmd.(interface{ SetVal(any) }).SetVal(int64(7))
		return nil
	}
}

func (w *waits) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		w.waited++
		if err := w.wait(w.waited); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		for _, cmd := range cmds {
			cmd.(interface{ SetVal(int64) }).SetVal(1)
		}
		return nil
	}
}

// runAcked makes a call that waits for a replica.
func (w *waits) runAcked(t *testing.T, deadline time.Duration) (any, error) {
	rdb := redis.NewClient(&redis.Options{Addr: "192.0.2.1:6379", DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(w)
	e := core.New(rdb, core.WithDeadline(deadline), core.WithObserver(guardtest.Ignore{}), core.WithoutBreaker())
	claim := script.New("claim", "return 7", script.Idempotent)
	return e.RunAcked(t.Context(), &script.Call{Limit: deadline, Script: claim, Keys: []string{e.Key("k", "p")}},
		script.Acks{Replicas: 1, Within: deadline / 2, Needed: func(any) bool { return true }})
}

// TestAWaitThatIsRefusedIsRepeated: a master that is demoted, or whose slot moves, between the script and
// WAIT refuses the WAIT. The second refusal held the call up for ever.
func TestAWaitThatIsRefusedIsRepeated(t *testing.T) {
	const deadline = 100 * time.Millisecond
	never := func(int) error { return nil }
	for _, text := range []string{"MOVED 1 192.0.2.2:6379", "ASK 1 192.0.2.2:6379", "TRYAGAIN Multiple keys"} {
		refused := refusedError(text)
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &waits{script: never, wait: func(n int) error {
					if n <= 3 {
						return refused
					}
					return nil
				}}
				if reply, err := w.runAcked(t, deadline); reply != int64(7) || err != nil || w.waited != 4 {
					t.Errorf("after three refusals: %v, %v; it waited %d times", reply, err, w.waited)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				w := &waits{script: never, wait: func(int) error { return refused }}
				begun := time.Now()
				reply, err := w.runAcked(t, deadline)
				if took := time.Since(begun); took > 10*deadline || reply != int64(7) ||
					!errors.Is(err, script.ErrUnconfirmed) || !errors.Is(err, refused) {
					t.Errorf("refused for ever: %v, %v after %v", reply, err, took)
				}
				if w.waited > 500 {
					t.Errorf("asked %d times within a second", w.waited)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				w := &waits{
					script: func(n int) error {
						if n > 1 {
							return refused // the server that has the key now is not found
						}
						return nil
					},
					wait: func(int) error { return refused },
				}
				if reply, err := w.runAcked(t, deadline); reply != int64(7) || !errors.Is(err, script.ErrUnconfirmed) ||
					script.NotRun(err) {
					t.Errorf("what has run once: %v, %v", reply, err)
				}
			})
		})
	}
}

// TestAnAckedCallThatMayHaveRunBeforeItsSlotMovedIsUndone: the first reply was lost, and then the slot moved
// for longer than a round. The refusals of later rounds do not say that nothing has run.
func TestAnAckedCallThatMayHaveRunBeforeItsSlotMovedIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waits{script: func(n int) error {
			if n == 1 {
				return io.EOF
			}
			return refusedError("TRYAGAIN Multiple keys request during rehashing of slot")
		}}
		if _, err := w.runAcked(t, 100*time.Millisecond); err == nil || script.NotRun(err) {
			t.Errorf("%v: is taken for a call that has not run", err)
		}
	})
}

type refusedError string

func (r refusedError) Error() string { return string(r) }
func (r refusedError) RedisError()   {}

// gate stops calls at a step of theirs until something has happened.
type gate struct {
	step    string // dial, script or wait
	want    int64
	armed   atomic.Bool
	arrived atomic.Int64
	all     chan struct{} // closed when want calls are there
	open    chan struct{}
}

func newGate(step string, want int64) *gate {
	return &gate{step: step, want: want, all: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) pass(step string) {
	if step != g.step || !g.armed.Load() {
		return
	}
	if g.arrived.Add(1) == g.want {
		close(g.all)
	}
	<-g.open
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		g.pass("dial")
		return next(ctx, network, addr)
	}
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			g.pass("script")
		}
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[len(cmds)-1].Name() == "wait" {
			g.pass("wait")
		}
		return next(ctx, cmds)
	}
}

// ackedCalls are one call of each kind, each of a sale of its own in one slot.
type ackedCalls struct {
	names []string
	calls []func(*seckill.Guard) error
	held  [6]core.Decision
}

const ackedDeadline = 30 * time.Second

const (
	ackedOpen = iota
	ackedCheck
	ackedSettle
	ackedConfirm
	ackedRestock
	ackedClose
)

func newAckedCalls(t *testing.T) *ackedCalls {
	buyer := core.Attempt{Actor: "ann", Resource: "p", ID: "op"}
	a := &ackedCalls{names: []string{"Open", "Check", "Settle", "Confirm", "Restock", "Close"}}
	a.calls = []func(g *seckill.Guard) error{
		func(g *seckill.Guard) error {
			_, err := g.Open(t.Context(), "p", seckill.Sale{Stock: 5})
			return err
		},
		func(g *seckill.Guard) error {
			switch d, err := g.Check(t.Context(), buyer); {
			case err != nil:
				return err
			case d.Reason == core.ReasonUnconfirmed:
				return core.ErrUnconfirmed
			case !d.Allowed:
				return fmt.Errorf("refused: %+v", d)
			}
			return nil
		},
		func(g *seckill.Guard) error { return g.Settle(t.Context(), a.held[ackedSettle], core.Commit) },
		func(g *seckill.Guard) error {
			d, err := g.Confirm(t.Context(), buyer)
			if err == nil && !d.Allowed {
				err = fmt.Errorf("refused: %+v", d)
			}
			return err
		},
		func(g *seckill.Guard) error { _, err := g.Restock(t.Context(), "p", "r", 3); return err },
		func(g *seckill.Guard) error { return g.Close(t.Context(), "p") },
	}
	return a
}

// guards are the sales, by a client of their own. Names of sales of one moment have a suffix of theirs.
func (a *ackedCalls) guards(t *testing.T, rdb *redis.ClusterClient, suffix string) []*seckill.Guard {
	e := core.New(rdb, core.WithDeadline(ackedDeadline), core.WithObserver(guardtest.Ignore{}),
		core.WithoutBreaker())
	guards := make([]*seckill.Guard, len(a.names))
	for i, name := range a.names {
		guards[i] = seckill.New(e, name+suffix, seckill.Options{Durability: seckill.Acked})
	}
	return guards
}

// prepare opens the sales that are open before the call, and holds a unit for the calls that settle.
func (a *ackedCalls) prepare(t *testing.T, guards []*seckill.Guard) {
	t.Helper()
	for i, g := range guards {
		if i == ackedOpen {
			continue
		}
		eventually(t, a.names[i]+": opened", func() error { return a.calls[ackedOpen](g) })
		if i == ackedSettle || i == ackedConfirm {
			eventually(t, a.names[i]+": held", func() error {
				d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "p", ID: "op"})
				a.held[i] = d
				if err == nil && !d.Allowed {
					err = fmt.Errorf("refused: %+v", d)
				}
				return err
			})
		}
	}
}

// wantBooks asserts that each call has made its change, and made it once.
func (a *ackedCalls) wantBooks(t *testing.T, guards []*seckill.Guard) {
	t.Helper()
	for i, want := range [][3]int64{{5, 0, 0}, {4, 1, 0}, {4, 0, 1}, {4, 0, 1}, {8, 0, 0}} {
		wantStatus(t, guards[i], "p", want[0], want[1], want[2])
	}
	d := guardtest.Check(t, guards[ackedClose], core.Attempt{Actor: "bob", Resource: "p"})
	guardtest.WantReason(t, d, core.ReasonClosed)
}

// eventually repeats a call until it succeeds. It may be unconfirmed as long as the replica is away.
func eventually(t *testing.T, what string, call func() error) {
	t.Helper()
	var err error
	redistest.Eventually(t, time.Minute, func() bool {
		err = call()
		return !errors.Is(err, core.ErrUnconfirmed)
	}, what)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestAckedCallsReturnWhateverMoves: the master of a sale is demoted, or its slot moves, at each step of a
// call between dial and WAIT. A Check whose WAIT was answered with MOVED never returned.
func TestAckedCallsReturnWhateverMoves(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	cluster := calmCluster(t)
	slot := redistest.Slot("{p}")
	moves := map[string]func(){
		"slot": func() {
			from := cluster.MasterOfSlot(slot)
			to := cluster.MasterOfSlot((slot + 5461) % 16384)
			if from == to {
				to = cluster.MasterOfSlot((slot + 2*5461) % 16384)
			}
			cluster.MigrateSlot(t, slot, from, to)
		},
		"master": func() { cluster.Promote(slot) },
	}
	for what, move := range moves {
		for _, step := range []string{"dial", "script", "wait"} {
			t.Run(what+" before "+step, func(t *testing.T) {
				a := newAckedCalls(t)
				suffix := "-" + what + "-" + step
				a.prepare(t, a.guards(t, patientClient(t, cluster), suffix))
				options := patientOptions(cluster)
				options.ContextTimeoutEnabled = true // else the call is left, and its goroutine hangs
				rdb := redis.NewClusterClient(options)
				t.Cleanup(func() { _ = rdb.Close() })
				g := newGate(step, int64(len(a.calls)-1)) // one may have a connection that has found the slots
				rdb.OnNewNode(func(node *redis.Client) { node.AddHook(g) })
				guards := a.guards(t, rdb, suffix)
				if _, err := rdb.MasterForKey(t.Context(), "{p}"); err != nil { // knows the slots now
					t.Fatal(err)
				}
				g.armed.Store(true)
				var all sync.WaitGroup
				returned := make(chan struct{})
				for i, call := range a.calls {
					all.Go(func() {
						if err := call(guards[i]); err != nil && !errors.Is(err, core.ErrUnconfirmed) {
							t.Errorf("%s: %v", a.names[i], err)
						}
					})
				}
				go func() { all.Wait(); close(returned) }()
				select {
				case <-g.all:
				case <-time.After(time.Second): // fewer connections are dialed
				}
				move()
				close(g.open)
				select {
				case <-returned:
				case <-time.After(11 * ackedDeadline):
					t.Fatal("calls do not return")
				}
				for i, call := range a.calls {
					eventually(t, a.names[i]+" again", func() error { return call(guards[i]) })
				}
				a.wantBooks(t, guards)
			})
		}
	}
}
