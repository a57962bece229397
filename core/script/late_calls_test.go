package script_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/lua"
)

// lateClaims is a guard whose claims are taken back, in two processes: the first sends a call again when its
// reply is lost, the second gives up and takes it back.
type lateClaims struct {
	script       *script.Script // of Check
	sends, gives core.Guard
	a            core.Attempt
	other        core.Attempt           // while it is claimed, a is refused
	held         func(t *testing.T) int // how many claims there are
	returns      bool                   // Commit gives the claim back, too
}

// claimsOf makes the guards of the test for each kind of claim.
var claimsOf = map[string]func(t *testing.T, sends, gives *core.Engine, name string) lateClaims{
	"sales": func(t *testing.T, sends, gives *core.Engine, name string) lateClaims {
		g := seckill.New(sends, name, seckill.Options{})
		openSale(t, g, "tv", seckill.Sale{Stock: 1})
		return lateClaims{
			script: script.New("late", lua.Source("seckill/reserve"), script.Idempotent),
			sends:  g, gives: seckill.New(gives, name, seckill.Options{}),
			a:     core.Attempt{Actor: "ann", Resource: "tv", ID: "op"},
			other: core.Attempt{Actor: "bob", Resource: "tv", ID: "another"},
			held: func(t *testing.T) int {
				s, err := g.Status(t.Context(), "tv")
				if err != nil {
					t.Fatal(err)
				}
				return int(s.Held + s.Sold)
			},
		}
	},
	"votes": func(_ *testing.T, sends, gives *core.Engine, name string) lateClaims {
		g := votes.New(sends, name, votes.Options{})
		return lateClaims{
			script: voteScript, sends: g, gives: votes.New(gives, name, votes.Options{}),
			a:     core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "op"},
			other: core.Attempt{Actor: "ann", Resource: "p", Item: "blue", ID: "another"},
			held: func(t *testing.T) int {
				sum := 0
				for _, n := range tally(t, g, "p") {
					sum += int(n)
				}
				return sum
			},
		}
	},
	"quotas": func(_ *testing.T, sends, gives *core.Engine, name string) lateClaims {
		options := quota.Options{Items: 1, Period: period.Monthly(time.UTC)}
		g := quota.New(sends, name, options)
		return lateClaims{
			script: script.New("late", lua.Source("quota/quota"), script.Idempotent),
			sends:  g, gives: quota.New(gives, name, options),
			a:     core.Attempt{Actor: "ann", Item: "a7", ID: "op"},
			other: core.Attempt{Actor: "ann", Item: "a8", ID: "another"},
			held: func(t *testing.T) int {
				items, _, err := g.Used(t.Context(), core.Attempt{Actor: "ann"})
				if err != nil {
					t.Fatal(err)
				}
				return len(items)
			},
		}
	},
	"permits": func(_ *testing.T, sends, gives *core.Engine, name string) lateClaims {
		g := semaphore.New(sends, name, semaphore.Options{Max: 1})
		return lateClaims{
			script: script.New("late", lua.Source("semaphore/acquire"), script.Idempotent),
			sends:  g, gives: semaphore.New(gives, name, semaphore.Options{Max: 1}),
			a: core.Attempt{Actor: "ann"}, other: core.Attempt{Actor: "bob"}, returns: true,
			held: func(t *testing.T) int {
				s, err := g.Peek(t.Context(), core.Attempt{})
				if err != nil {
					t.Fatal(err)
				}
				return int(s.Held)
			},
		}
	},
	"locks": func(_ *testing.T, sends, gives *core.Engine, name string) lateClaims {
		g := lock.New(sends, name, lock.Options{})
		return lateClaims{
			script: script.New("late", lua.Source("semaphore/acquire"), script.Idempotent),
			sends:  g, gives: lock.New(gives, name, lock.Options{}),
			a: core.Attempt{Actor: "ann", Resource: "p"}, other: core.Attempt{Actor: "bob", Resource: "p"},
			returns: true,
			held: func(t *testing.T) int {
				s, err := g.Peek(t.Context(), "p")
				if err != nil {
					t.Fatal(err)
				}
				if s.Held {
					return 1
				}
				return 0
			},
		}
	},
	"operations": func(_ *testing.T, sends, gives *core.Engine, name string) lateClaims {
		g := idempotency.New(sends, name, idempotency.Options{})
		a := core.Attempt{Actor: "ann", ID: "op"}
		return lateClaims{
			script: script.New("late", lua.Source("idempotency/begin"), script.Idempotent),
			sends:  g, gives: idempotency.New(gives, name, idempotency.Options{}),
			a: a, other: a,
			held: func(t *testing.T) int {
				d := guardtest.Check(t, g, a)
				guardtest.Settle(t, g, d, core.Rollback)
				if d.Allowed {
					return 0
				}
				return 1
			},
		}
	},
}

// lateOrders are the orders in which a late call, its undo and other calls with the same ID may arrive, and
// how many claims stand in the end.
var lateOrders = []struct {
	name string
	want int
	run  func(l *lateRun)
}{
	{"alone", 0, func(l *lateRun) {
		l.giveUp()
		l.deliver(1)
	}},
	{"two that gave up", 0, func(l *lateRun) {
		l.giveUp()
		l.giveUp()
		l.deliver(2)
	}},
	{"after another that came since has failed", 0, func(l *lateRun) {
		l.giveUp()
		l.settle(l.check(), false)
		l.deliver(1)
	}},
	{"after another that came before has failed", 0, func(l *lateRun) {
		first := l.check()
		l.giveUp()
		l.settle(first, false)
		l.deliver(1)
	}},
	{"before another that came before fails", 0, func(l *lateRun) {
		first := l.check()
		l.giveUp()
		l.deliver(1)
		l.settle(first, false)
	}},
	{"beside another that goes well", 1, func(l *lateRun) {
		l.giveUp()
		first := l.check()
		l.giveUp()
		l.settle(first, true)
		l.deliver(2)
	}},
	{"sent twice and failed", 0, func(l *lateRun) {
		l.faults.HoldBack(l.script.SHA())
		l.settle(l.check(), false)
		l.deliver(1)
	}},
	{"sent twice and refused", 0, func(l *lateRun) {
		other := guardtest.Check(l.t, l.sends, l.other)
		guardtest.WantReason(l.t, other, core.ReasonOK)
		l.faults.HoldBack(l.script.SHA())
		if d := guardtest.Check(l.t, l.sends, l.a); d.Allowed {
			l.t.Fatalf("%+v: want a refusal", d)
		}
		l.settled()
		l.settle(other, false)
		l.deliver(1)
	}},
}

// lateRun is one order, at one guard.
type lateRun struct {
	lateClaims
	t       *testing.T
	faults  *redistest.Faults
	engines [2]*core.Engine
}

func (l *lateRun) check() core.Decision {
	l.t.Helper()
	d := guardtest.Check(l.t, l.sends, l.a)
	guardtest.WantReason(l.t, d, core.ReasonOK)
	return d
}

func (l *lateRun) settle(d core.Decision, ok bool) {
	l.t.Helper()
	guardtest.Settle(l.t, l.sends, d, guardtest.Ending(ok))
}

// giveUp makes a call that does not arrive. Its undo does.
func (l *lateRun) giveUp() {
	l.t.Helper()
	l.faults.HoldBack(l.script.SHA())
	if d, err := l.gives.Check(l.t.Context(), l.a); err == nil {
		l.t.Fatalf("%+v: want an error", d)
	}
	l.settled()
}

// settled waits until nothing is being undone.
func (l *lateRun) settled() {
	l.t.Helper()
	redistest.Eventually(l.t, time.Minute,
		func() bool { return l.engines[0].Pending()+l.engines[1].Pending() == 0 }, "the call is undone")
}

// deliver lets n calls arrive that did not.
func (l *lateRun) deliver(n int) {
	l.t.Helper()
	l.t.Logf("%q", l.faults.Deliver(l.t, n))
}

// TestWhatArrivesLateLeavesNothing: a call that the network delivers after its caller gave up, or after the
// answer to another sending of it, claims nothing that is not taken back. A tombstone was missing where the
// undo found another call of the same operation, where two calls had been undone, and where the call had been
// sent twice: a vote stood, an item counted, and an operation was in progress for its lease.
//
// Promise: A claim that arrives up to a minute after its undo holds nothing, for the last 16 calls of an ID.
func TestWhatArrivesLateLeavesNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		sends, gives := b, b
		sends.Client = b.NewClientWith(t, faults)
		options := b.Options()
		options.Dialer, options.MaxRetries, options.MaxRedirects = faults.Dial, -1, -1
		options.ReadTimeout = time.Minute
		client := redis.NewUniversalClient(options)
		t.Cleanup(func() { _ = client.Close() })
		gives.Client = client
		engines := [2]*core.Engine{guardtest.NewEngine(sends), guardtest.NewEngine(gives)}
		for kind, claims := range claimsOf {
			for i, order := range lateOrders {
				t.Run(kind+"/"+order.name, func(t *testing.T) {
					c := claims(t, engines[0], engines[1], kind+strconv.Itoa(i))
					if err := engines[0].Preload(t.Context()); err != nil {
						t.Fatal(err)
					}
					l := &lateRun{c, t, faults, engines}
					order.run(l)
					want := order.want
					if l.returns {
						want = 0
					}
					if held := l.held(t); held != want {
						t.Errorf("%d claims are held, want %d", held, want)
					}
				})
			}
		}
	})
}
