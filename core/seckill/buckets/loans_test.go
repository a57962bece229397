package buckets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/salemodel"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
	"github.com/gatehouse-go/gatehouse/lua"
)

// TestMoverDies: a process dies after each step of a loan. A buyer who needs the units, or a sweep, completes
// the loan, and the first process changes nothing when it wakes up later.
//
// Promise: Units on their way between buckets survive the process that moves them.
func TestMoverDies(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		mover := newGuard(guardtest.NewEngine(b))
		for died, steps := range map[string]int{"after it lent": 1, "after it was accepted": 2,
			"after it was finished": 3} {
			for finder, find := range map[string]func(t *testing.T, g *Guard, at *spread, item string){
				"a buyer at home where the units went": func(t *testing.T, g *Guard, at *spread, item string) {
					guardtest.WantReason(t, guardtest.Check(t, g,
						core.Attempt{Actor: buyerOf(at, 1, 0), Resource: item, Cost: 12}), core.ReasonOK)
					wantStatus(t, g, item, 0, 12, 0)
				},
				"a buyer at home where they came from": func(t *testing.T, g *Guard, at *spread, item string) {
					guardtest.WantReason(t, guardtest.Check(t, g,
						core.Attempt{Actor: buyerOf(at, 0, 0), Resource: item, Cost: 12}), core.ReasonOK)
				},
				"a buyer at home elsewhere": func(t *testing.T, g *Guard, at *spread, item string) {
					guardtest.WantReason(t, guardtest.Check(t, g,
						core.Attempt{Actor: buyerOf(at, 2, 0), Resource: item, Cost: 12}), core.ReasonOK)
				},
				"a buyer who asks for more than there is": func(t *testing.T, g *Guard, at *spread, item string) {
					guardtest.WantReason(t, guardtest.Check(t, g,
						core.Attempt{Actor: buyerOf(at, 2, 0), Resource: item, Cost: 13}), core.ReasonSoldOut)
				},
				"a sweeper": func(t *testing.T, g *Guard, _ *spread, item string) {
					if n, err := g.Sweep(t.Context(), item); n != 0 || err != nil {
						t.Errorf("Sweep: %d, %v", n, err)
					}
				},
				"who takes stock away": func(t *testing.T, g *Guard, _ *spread, item string) {
					if s, err := g.Restock(t.Context(), item, "r", -12); err != nil || s.Stock != 0 {
						t.Errorf("Restock: %+v, %v", s, err)
					}
				},
			} {
				t.Run(died+" "+finder, func(t *testing.T) {
					item := "tv " + died + finder
					openSale(t, mover, item, 3, seckill.Sale{Stock: 12, PerBuyer: 13})
					at := spreadOf(t, mover, item, 3)
					l, err := by(mover, at).lend(t.Context(), 0, 1, 1)
					if err != nil || l.units != 2 {
						t.Fatalf("lent %+v, %v", l, err)
					}
					wantStatus(t, mover, item, 12, 0, 0)
					for i, step := range []func(context.Context, loan) error{by(mover, at).accept, by(mover, at).finish} {
						if steps > i+1 {
							if err := step(t.Context(), l); err != nil {
								t.Fatal(err)
							}
						}
						wantStatus(t, mover, item, 12, 0, 0)
					}
					r, err := mover.Verify(t.Context(), item)
					if err != nil || (r.InTransit == 2) != (steps == 1) {
						t.Errorf("%v\n%v", err, r)
					}

					g := newGuard(guardtest.NewEngine(b))
					find(t, g, at, item)
					state, _, err := by(g, at).lookAll(t.Context())
					if err != nil || state.inTransit() != 0 {
						t.Errorf("%d units are on their way still (%v)", state.inTransit(), err)
					}
					before, err := g.Status(t.Context(), item)
					if err != nil {
						t.Fatal(err)
					}
					for range 2 { // the zombie
						if err := by(mover, at).complete(t.Context(), []loan{l}); err != nil {
							t.Fatal(err)
						}
						if after, _, err := by(g, at).lookAll(t.Context()); err != nil || !after.same(state) {
							t.Errorf("the zombie has changed %+v to %+v (%v)", state, after, err)
						}
					}
					wantStatus(t, g, item, before.Left, before.Held, before.Sold)
				})
			}
		}
	})
}

// TestLoansBetweenTwoBucketsAreNumbered: a process that sleeps during several loans mistakes none of them for
// its own.
func TestLoansBetweenTwoBucketsAreNumbered(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", 2, seckill.Sale{Stock: 100})
		at := spreadOf(t, g, "tv", 2)
		var loans []loan
		for i := range 10 {
			l, err := by(g, at).lend(t.Context(), i%2, 1-i%2, 1)
			if err != nil || l.number != int64(i/2+1) {
				t.Fatalf("%+v, %v", l, err)
			}
			if again, err := by(g, at).lend(t.Context(), i%2, 1-i%2, 7); again != l || err != nil {
				t.Errorf("%+v (%v) is lent while %+v is on its way", again, err, l)
			}
			loans = append(loans, l)
			for _, zombie := range loans {
				if zombie != l {
					if err := by(g, at).complete(t.Context(), []loan{zombie}); err != nil {
						t.Fatal(err)
					}
				}
			}
			r, err := g.Verify(t.Context(), "tv")
			if err != nil || r.InTransit != l.units || !r.Consistent() {
				t.Fatalf("%v\n%v\nwant %d on their way", err, r, l.units)
			}
			if err := by(g, at).complete(t.Context(), []loan{l}); err != nil {
				t.Fatal(err)
			}
			wantStatus(t, g, "tv", 100, 0, 0)
		}
		if l, err := by(g, at).lend(t.Context(), 0, 1, 1000); err != nil || l.units == 0 {
			t.Errorf("%+v, %v", l, err)
		} else if err := by(g, at).complete(t.Context(), []loan{l}); err != nil {
			t.Error(err)
		}
		if l, err := by(g, at).lend(t.Context(), 0, 1, 1); err != nil || l.units != 0 {
			t.Errorf("%+v (%v) is lent where nothing is left", l, err)
		}
		wantStatus(t, g, "tv", 100, 0, 0)
	})
}

// of returns a script of package seckill.
func of(name string) *script.Script {
	return script.New("seckill_"+name, lua.Source("seckill/"+name), script.Idempotent)
}

// TestLoansWithLostReplies: go-redis sends each step again.
func TestLoansWithLostReplies(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		other := newGuard(guardtest.NewEngine(b))
		if err := other.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b), "s", Options{Buckets: 4})
		for i, script := range []*script.Script{
			beginScript, of("open"), rootScript, loansScript, lendScript, acceptScript, keepScript, of("reserve"),
			of("confirm"), of("close"),
		} {
			faults.SwallowReply(script.SHA())
			if _, err := g.Open(t.Context(), script.Name(), seckill.Sale{Stock: 8, PerBuyer: 8}); err != nil {
				t.Fatal(err)
			}
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: script.Name(), Cost: 5, ID: "op"})
			guardtest.WantReason(t, d, core.ReasonOK)
			if d.Replayed {
				t.Errorf("%s: %+v", script.Name(), d)
			}
			wantStatus(t, other, script.Name(), 3, 5, 0)
			if d, err := g.Confirm(t.Context(), d.Attempt); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", script.Name(), d, err)
			}
			if err := g.Close(t.Context(), script.Name()); err != nil {
				t.Errorf("%s: %v", script.Name(), err)
			}
			wantStatus(t, other, script.Name(), 3, 0, 5)
			if got := faults.Swallowed(); got != i+1 {
				t.Fatalf("%s: %d replies were lost, want %d", script.Name(), got, i+1)
			}
		}
	})
}

// TestLoansInAFullRedis: no loan begins, and open loans are completed.
func TestLoansInAFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	g := New(core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute)), "s",
		Options{Buckets: 2})
	openSale(t, g, "tv", 3, seckill.Sale{Stock: 30, PerBuyer: 30})
	at := spreadOf(t, g, "tv", 3)
	l, err := by(g, at).lend(t.Context(), 0, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := by(g, at).lend(t.Context(), 0, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := by(g, at).accept(t.Context(), accepted); err != nil {
		t.Fatal(err)
	}
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	if l, err := by(g, at).lend(t.Context(), 1, 2, 1); err == nil {
		t.Errorf("%+v is lent in a full Redis", l)
	}
	wantStatus(t, g, "tv", 30, 0, 0)
	if n, err := g.Sweep(t.Context(), "tv"); n != 0 || err != nil {
		t.Errorf("Sweep: %d, %v", n, err)
	}
	state, _, err := by(g, at).lookAll(t.Context())
	if err != nil || state.inTransit() != 0 || state[1].Left != 10+l.units {
		t.Errorf("%+v, %v: want the loan at its end", state, err)
	}
	wantStatus(t, g, "tv", 30, 0, 0)
	if d, err := g.Check(t.Context(),
		core.Attempt{Actor: buyerOf(at, 0, 0), Resource: "tv", Cost: 20}); err == nil {
		t.Errorf("%+v", d)
	}
	if opened, err := g.Open(t.Context(), "pc", seckill.Sale{Stock: 1}); err == nil {
		t.Errorf("opened in a full Redis: %v", opened)
	}
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "pc"}),
		core.ReasonNotReady)
	if err := g.Close(t.Context(), "tv"); err != nil {
		t.Errorf("Close: %v", err)
	}
	wantStatus(t, g, "tv", 30, 0, 0)
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"}), core.ReasonClosed)
}

// TestSoldOutIsNeverSaidWhileUnitsAreLeft: of two units at most one is held at any moment, in changing
// buckets, while both move.
//
// Promise: With several buckets the limit per buyer is exact, and `sold_out` means that all are empty.
func TestSoldOutIsNeverSaidWhileUnitsAreLeft(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		rounds := 150
		if guardtest.Soak() {
			rounds = 500
		}
		const buckets, callers = 4, 4
		here := newGuard(guardtest.NewEngine(b, core.WithDeadline(time.Minute)))
		openSale(t, here, "tv", buckets, seckill.Sale{Stock: 2, PerBuyer: 2})
		at := spreadOf(t, here, "tv", buckets)
		buyers := make([]string, buckets)
		for bucket := range buyers {
			buyers[bucket] = buyerOf(at, bucket, 0)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var done atomic.Bool
		var all sync.WaitGroup
		for i := range callers {
			g := newGuard(guardtest.NewEngine(b, core.WithDeadline(time.Minute)))
			all.Go(func() {
				for n := i; !done.Load(); n++ {
					if enough, _, err := by(g, at).gather(ctx, n%buckets, 1); err != nil || !enough {
						t.Errorf("enough: %v, %v: one of two is left at all times", enough, err)
						return
					}
				}
			})
		}
		all.Go(func() { // and three are never left
			g := newGuard(guardtest.NewEngine(b, core.WithDeadline(time.Minute)))
			for !done.Load() {
				if enough, _, err := by(g, at).gather(ctx, 0, 3); err != nil &&
					!errors.Is(err, context.DeadlineExceeded) || enough {
					t.Errorf("enough: %v, %v: there are no three", enough, err)
					return
				}
			}
		})
		for n := range rounds {
			d := guardtest.Check(t, here, core.Attempt{Actor: buyers[n%buckets], Resource: "tv"})
			if !d.Allowed {
				t.Errorf("%+v", d)
				break
			}
			guardtest.Settle(t, here, d, core.Rollback)
		}
		done.Store(true)
		all.Wait()
		wantStatus(t, here, "tv", 2, 0, 0)
	})
}

// oneByOne is a client that sees each command before it is sent, and sends one at a time.
type oneByOne struct {
	script.Client
	mu     *sync.Mutex
	before func(cmd redis.Cmder)
}

func (c oneByOne) Process(ctx context.Context, cmd redis.Cmder) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before(cmd)
	return c.Client.Process(ctx, cmd)
}

// TestSoldOutIsNotSaidOfAlternatingBuckets: whenever a bucket is asked, it has nothing left, because its only
// unit was just taken, a moment after the other bucket's unit came back.
func TestSoldOutIsNotSaidOfAlternatingBuckets(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for what, gives := range map[string]func(g *Guard, clock *guardtest.Clock, d core.Decision){
			"a hold is cancelled": func(g *Guard, _ *guardtest.Clock,
				d core.Decision) {
				guardtest.Settle(t, g, d, core.Rollback)
			},
			"a hold is over": func(g *Guard, clock *guardtest.Clock, d core.Decision) {
				clock.Advance(time.Minute)
				g.Sweep(t.Context(), d.Attempt.Resource)
			},
		} {
			clock := guardtest.NewClock()
			other := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock)))
			if err := other.Engine().Preload(t.Context()); err != nil { // or a question would be two commands
				t.Fatal(err)
			}
			openSale(t, other, what, 2, seckill.Sale{Stock: 2, Hold: time.Minute})
			at := spreadOf(t, other, what, 2)
			var held [2]core.Decision
			take := func(bucket int) {
				held[bucket] = guardtest.Check(t, other, core.Attempt{Actor: buyerOf(at, bucket, 0), Resource: what})
				guardtest.WantReason(t, held[bucket], core.ReasonOK)
			}
			take(0)
			asked := 0
			e := guardtest.NewEngineOver(b, oneByOne{b.Client, new(sync.Mutex), func(cmd redis.Cmder) {
				args := cmd.Args()
				if args[1] != loansScript.SHA() || asked == 10 {
					return
				}
				asked++
				bucket := 0
				if args[3] == at.keys(1)[0] {
					bucket = 1
				}
				if held[1-bucket].Allowed {
					gives(other, clock, held[1-bucket])
					held[1-bucket] = core.Decision{}
					take(bucket)
				}
			}}, guardtest.WithClock(clock))
			g := newGuard(e)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if enough, _, err := by(g, at).gather(ctx, 0, 1); err != nil || !enough || asked != 10 {
				t.Errorf("%s: enough: %v, %v, after %d questions: one of two is left at all times", what, enough, err,
					asked)
			}
		}
	})
}

// TestBucketsAgainstModel is TestSeckillAgainstModel with several buckets, two processes, and processes that
// die during loans.
func TestBucketsAgainstModel(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		// What a process remembers has tests of its own.
		engines := []*core.Engine{
			guardtest.NewEngine(b, core.WithRefusalMemory(0)), guardtest.NewEngine(b, core.WithRefusalMemory(0)),
		}
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			clock := guardtest.NewClock()
			guards := make([]*Guard, len(engines))
			for i, e := range engines {
				guardtest.WithClock(clock)(e)
				guards[i] = New(e, fmt.Sprintf("s%d", number), Options{Buckets: 2})
			}
			sale := seckill.Sale{
				Stock:    rapid.Int64Range(1, 12).Draw(rt, "stock"),
				PerBuyer: rapid.Int64Range(1, 3).Draw(rt, "per buyer"),
				Hold:     10 * time.Second,
			}
			buckets := rapid.IntRange(2, 5).Draw(rt, "buckets")
			openSale(t, guards[0], "tv", buckets, sale)
			at := spreadOf(t, guards[0], "tv", buckets)
			m := salemodel.New(sale)
			reader := saletest.NewReader()
			buyer := rapid.SampledFrom([]string{"ann", "bob", "cid", "dan", "eve", "fay"})
			var zombies []loan
			for range rapid.IntRange(1, 25).Draw(rt, "steps") {
				clock.Advance(time.Duration(rapid.IntRange(0, 4000).Draw(rt, "ms")) * time.Millisecond)
				m.Now = clock.Now()
				g := guards[rapid.IntRange(0, 1).Draw(rt, "process")]
				who := buyer.Draw(rt, "buyer")
				// of one buyer: other buckets do not know it
				id := who + rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "id")
				switch rapid.IntRange(0, 9).Draw(rt, "op") {
				case 0, 1, 2:
					a := core.Attempt{Actor: who, Resource: "tv", Cost: rapid.Int64Range(1, 3).Draw(rt, "quantity"), ID: id}
					d, err := g.Check(t.Context(), a)
					if want := m.Reserve(a); err != nil || d.Reason != want {
						rt.Fatalf("reserve %+v: %+v (%v), want %q", a, d, err, want)
					}
					m.WantWaiting(rt, d)
				case 3:
					if r := m.Reservations[id]; r != nil && r.State == "expired" &&
						m.Refused(r.Buyer, r.Quantity) == core.ReasonSoldOut {
						m.Sweep() // who borrows for it takes holds back whose time is over
					}
					d, err := g.Confirm(t.Context(), core.Attempt{Actor: who, Resource: "tv", ID: id})
					if want := m.Confirm(who, id); err != nil || d.Reason != want {
						rt.Fatalf("confirm %s: %+v (%v), want %q", id, d, err, want)
					}
				case 4:
					d, err := g.Cancel(t.Context(), core.Attempt{Actor: who, Resource: "tv", ID: id})
					if want := m.Cancel(who, id); err != nil || d.Reason != want {
						rt.Fatalf("cancel %s: %+v (%v), want %q", id, d, err, want)
					}
				case 5:
					n, err := g.Sweep(t.Context(), "tv")
					if want := m.Sweep(); err != nil || n != want {
						rt.Fatalf("sweep: %d (%v), want %d", n, err, want)
					}
				case 6:
					units := rapid.Int64Range(-4, 4).Filter(func(n int64) bool { return n != 0 }).Draw(rt, "units")
					if _, done := m.Restocks[id]; !done && m.Status().Left+units < 0 {
						m.Sweep()
					}
					_, err := g.Restock(t.Context(), "tv", id, units)
					if want := m.Restock(id, units); !errors.Is(err, want) {
						rt.Fatalf("restock %s by %d: %v, want %v", id, units, err, want)
					}
				case 7:
					if rapid.IntRange(0, 9).Draw(rt, "close") > 0 { // seldom: a closed sale is dull
						continue
					}
					if err := g.Close(t.Context(), "tv"); err != nil {
						rt.Fatalf("close: %v", err)
					}
					m.Closed = true
				case 8: // a mover dies on the way
					from, to := rapid.IntRange(0, buckets-1).Draw(rt, "from"),
						rapid.IntRange(0, buckets-1).Draw(rt, "to")
					if from == to {
						continue
					}
					l, err := by(g, at).lend(t.Context(), from, to, rapid.Int64Range(1, 3).Draw(rt, "want"))
					if err == nil && l.units > 0 {
						zombies = append(zombies, l)
						if rapid.Bool().Draw(rt, "accepted") {
							err = by(g, at).accept(t.Context(), l)
						}
					}
					if err != nil {
						rt.Fatal(err)
					}
				case 9: // and comes back
					for _, l := range zombies {
						if rapid.Bool().Draw(rt, "back") {
							if err := by(g, at).complete(t.Context(), []loan{l}); err != nil {
								rt.Fatal(err)
							}
						}
					}
				}

				reader.Read(rt, g, "tv")
				// The model takes back all expired holds, or none. Each bucket takes back its own: the
				// buyer's bucket when it would refuse, and all of them when units have to be borrowed.
				for id, r := range m.Reservations {
					if (r.State == "held" || r.State == "expired") && !m.Now.Before(r.End) {
						r.State = reader.Reservations[id].State
					}
				}
				got, err := g.Status(t.Context(), "tv")
				want := m.Status()
				want.Epoch = got.Epoch
				if err != nil || got != want || got.Left+got.Held+got.Sold != got.Stock {
					rt.Fatalf("status %+v (%v), want %+v", got, err, want)
				}
				saletest.WantConsistent(rt, g, "tv")
				if reader.Stock != m.Sale.Stock || !maps.Equal(reader.Reservations, m.Values()) {
					rt.Fatalf("the outbox tells of %d, %v, want %d, %v", reader.Stock, reader.Reservations, m.Sale.Stock,
						m.Values())
				}
			}
		})
	})
}

// TestLoanToAnUnknownBucket: a call that finds it returns an error.
func TestLoanToAnUnknownBucket(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", 2, seckill.Sale{Stock: 2})
		at := spreadOf(t, g, "tv", 2)
		b.Client.HSet(t.Context(), at.key(1, "sale"), "lent|9", "1 1")
		if n, err := g.Sweep(t.Context(), "tv"); err == nil {
			t.Errorf("Sweep: %d", n)
		}
	})
}
