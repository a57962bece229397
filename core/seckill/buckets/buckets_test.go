package buckets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
)

// newGuard returns a guard named s. openSale sets the number of buckets.
func newGuard(e *core.Engine) *Guard { return New(e, "s", Options{Buckets: 2}) }

// openSale opens a sale of so many buckets.
func openSale(t testing.TB, g *Guard, item string, buckets int, sale seckill.Sale) {
	t.Helper()
	g.options.Buckets = buckets
	saletest.Open(t, g, item, sale)
}

func wantStatus(t testing.TB, g *Guard, item string, left, held, sold int64) {
	t.Helper()
	saletest.WantStatus(t, g, item, left, held, sold)
}

func status(stock, left, held, sold, epoch int64) seckill.Status {
	return seckill.Status{Stock: stock, Left: left, Held: held, Sold: sold, Epoch: epoch}
}

// buyerOf returns a buyer of the given bucket; n selects one of several.
func buyerOf(at *spread, bucket, n int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("buyer-%d-%d", n, i); at.homeOf(name) == bucket {
			return name
		}
	}
}

// spreadOf returns the buckets of a sale, as the root has them.
func spreadOf(t testing.TB, g *Guard, item string, buckets int) *spread {
	t.Helper()
	at, err := g.find(t.Context(), item)
	if err != nil || at == nil || len(at.tags) != buckets {
		t.Fatalf("%+v (%v), want %d buckets", at, err, buckets)
	}
	return at
}

// by returns the same buckets for another guard of the same name.
func by(g *Guard, at *spread) *spread { return g.newSpread(at.item, len(at.tags), at.epoch) }

// key returns a key of a bucket.
func (s *spread) key(n int, field string) string { return s.g.Key(s.tags[n], field) }

// busy is a client that sees each command before it is sent.
type busy struct {
	script.Client
	before func(cmd redis.Cmder)
}

func (b busy) Process(ctx context.Context, cmd redis.Cmder) error {
	b.before(cmd)
	return b.Client.Process(ctx, cmd)
}

// twoProcesses returns a guard in two processes; asked counts the calls of the first one to Redis.
func twoProcesses(b redistest.Backend) (here, there *Guard, clock *guardtest.Clock, asked *atomic.Int64) {
	clock, asked = guardtest.NewClock(), new(atomic.Int64)
	e := guardtest.NewEngineOver(b, busy{b.Client, func(redis.Cmder) { asked.Add(1) }},
		guardtest.WithClock(clock))
	return newGuard(e), newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock))), clock, asked
}

func TestBucketsSellWhatTheyHaveTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const stock = 20
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, guardtest.WithClock(clock))
		g := newGuard(e)
		openSale(t, g, "tv", 8, seckill.Sale{Stock: stock, PerBuyer: 2})
		at := spreadOf(t, g, "tv", 8)
		wantStatus(t, g, "tv", stock, 0, 0)

		var won []core.Decision
		for i := range stock { // all of one bucket, whose own share is 3
			d := guardtest.Check(t, g, core.Attempt{Actor: buyerOf(at, 5, i), Resource: "tv",
				ID: fmt.Sprint("op ", i)})
			guardtest.WantReason(t, d, core.ReasonOK)
			won = append(won, d)
			wantStatus(t, g, "tv", int64(stock-i-1), int64(i+1), 0)
		}
		for bucket := range at.tags {
			d := guardtest.Check(t, g, core.Attempt{Actor: buyerOf(at, bucket, 99), Resource: "tv"})
			guardtest.WantReason(t, d, core.ReasonSoldOut)
			if d.RetryAfter != 0 {
				t.Errorf("%+v: waiting is no help when all is sold", d)
			}
		}
		again := guardtest.Check(t, g, core.Attempt{Actor: won[7].Attempt.Actor, Resource: "tv", ID: "op 7"})
		if !again.Allowed || !again.Replayed {
			t.Errorf("a winner who asks again: %+v", again)
		}
		guardtest.Settle(t, g, won[0], core.Commit)
		guardtest.Settle(t, g, won[0], core.Commit)
		guardtest.Settle(t, g, won[1], core.Rollback)
		guardtest.Settle(t, g, won[2], core.Rollback)
		wantStatus(t, g, "tv", 2, stock-3, 1)
		clock.Advance(time.Microsecond)
		two := core.Attempt{Actor: buyerOf(at, 2, 1), Resource: "tv", Cost: 2, ID: "two"}
		guardtest.WantReason(t, guardtest.Check(t, g, two), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: two.Actor, Resource: "tv"}),
			core.ReasonDuplicate)
		wantStatus(t, g, "tv", 0, stock-1, 1)
	})
}

// TestBucketsGatherScatteredUnits: an attempt for all scattered units gets them, and an attempt for more
// moves none.
func TestBucketsGatherScatteredUnits(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", 8, seckill.Sale{Stock: 8, PerBuyer: 9})
		at := spreadOf(t, g, "tv", 8)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", Cost: 9}),
			core.ReasonSoldOut)
		for bucket := range 8 {
			if state, _, err := at.look(t.Context(), bucket); err != nil || state.Left != 1 ||
				state.moves != 0 {
				t.Errorf("bucket %d: %+v, %v: want it as it was", bucket, state, err)
			}
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", Cost: 8}),
			core.ReasonOK)
		wantStatus(t, g, "tv", 0, 8, 0)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", Cost: 2, ID: "x"}),
			core.ReasonDuplicate)
	})
}

// TestBucketsWithFewerUnitsThanBuckets: some buckets begin without units.
func TestBucketsWithFewerUnitsThanBuckets(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", maxBuckets, seckill.Sale{Stock: 2})
		at := spreadOf(t, g, "tv", maxBuckets)
		for i := range 3 {
			want := core.ReasonOK
			if i == 2 {
				want = core.ReasonSoldOut
			}
			guardtest.WantReason(t, guardtest.Check(t, g,
				core.Attempt{Actor: buyerOf(at, maxBuckets-1-i, 0), Resource: "tv"}), want)
		}
		wantStatus(t, g, "tv", 0, 2, 0)
	})
}

func TestBucketsTakeBackHoldsOfOthers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock)))
		openSale(t, g, "tv", 2, seckill.Sale{Stock: 400, PerBuyer: 400, Hold: time.Minute})
		at := spreadOf(t, g, "tv", 2)
		one, other := buyerOf(at, 0, 0), buyerOf(at, 1, 0)
		for i := range 250 { // more than one call takes back
			guardtest.Check(t, g, core.Attempt{Actor: one, Resource: "tv", ID: fmt.Sprint(i)})
		}
		last := guardtest.Check(t, g, core.Attempt{Actor: one, Resource: "tv", Cost: 150})
		ask := core.Attempt{Actor: other, Resource: "tv", Cost: 400, ID: "all"}
		clock.Advance(time.Minute - time.Millisecond)
		guardtest.WantReason(t, guardtest.Check(t, g, ask), core.ReasonSoldOut)
		clock.Advance(refusalFor)
		guardtest.WantReason(t, guardtest.Check(t, g, ask), core.ReasonOK)
		wantStatus(t, g, "tv", 0, 400, 0)
		if err := g.Settle(t.Context(), last, core.Commit); !errors.Is(err, core.ErrGone) {
			t.Errorf("confirming late with none left: %v", err)
		}
		endOf(t, g.Cancel, ask)
		guardtest.Settle(t, g, last, core.Commit) // late, with units from the other bucket
		wantStatus(t, g, "tv", 250, 0, 150)
	})
}

// TestBucketsOneCall: once the process knows the buckets, an attempt takes one call, and so does its end.
func TestBucketsOneCall(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		here, there, _, asked := twoProcesses(b)
		if err := there.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, buckets := range []int{2, 8} {
			item := fmt.Sprint("tv", buckets)
			openSale(t, there, item, buckets, seckill.Sale{Stock: 800})
			guardtest.Check(t, here, core.Attempt{Actor: "first", Resource: item})
			for i := range 100 {
				before := asked.Load()
				d := guardtest.Check(t, here, core.Attempt{Actor: fmt.Sprint(i), Resource: item})
				reserved := asked.Load()
				guardtest.Settle(t, here, d, guardtest.Ending(i%2 == 0))
				if reserved != before+1 || i > 1 && asked.Load() != reserved+1 {
					t.Fatalf("%d buckets, buyer %d: %d calls to reserve, %d to settle", buckets, i, reserved-before,
						asked.Load()-reserved)
				}
			}
		}
	})
}

// TestBucketsOfBuyersNeverChange: other versions of the library must find the same buckets.
func TestBucketsOfBuyersNeverChange(t *testing.T) {
	at := &spread{tags: make([]string, 8)}
	for buyer, want := range map[string]int{"ann": 6, "bob": 2, "": 4, "日本": 3, "\x00": 0,
		strings.Repeat("x", 10_000): 2} {
		if got := at.homeOf(buyer); got != want {
			t.Errorf("%.20q is at home in %d, want %d", buyer, got, want)
		}
	}
	for _, form := range []string{"%d", "user-%08d", "%d@example.org"} {
		counts := make([]int, 8)
		for i := range 8000 {
			counts[at.homeOf(fmt.Sprintf(form, 8*i))]++
		}
		for bucket, n := range counts {
			if math.Abs(float64(n)-1000) > 150 { // five standard deviations
				t.Errorf("%s: bucket %d has %d of 8000 buyers", form, bucket, n)
			}
		}
	}
}

// TestBucketsAreSpreadEvenly: the tags are even over the slots, whatever the item's name, so that masters
// with equal ranges have equal shares.
func TestBucketsAreSpreadEvenly(t *testing.T) {
	for _, buckets := range []int{2, 3, 8, maxBuckets} {
		for _, item := range append([]string{"tv", "tv-55", "pc", "a very long name of an item that is on sale"},
			guardtest.Hostile[:10]...) {
			tags := bucketTags(item, "5000", buckets)
			parts := map[int]bool{}
			for _, one := range tags {
				if got, want := slot(one), redistest.Slot("{"+one+"}"); got != want {
					t.Fatalf("slot of %q is %d, want %d", one, got, want)
				}
				parts[slot(one)*buckets/slots] = true
			}
			if len(parts) != buckets {
				t.Errorf("%.40q: %d buckets are in %d parts of the slots: %q", item, buckets, len(parts), tags)
			}
		}
	}
	if got, want := fmt.Sprint(bucketTags("tv", "5000", 8)), "[tv|5000|0 tv|5000|1|4 tv|5000|2|4 tv|5000|3|40 "+
		"tv|5000|4|4 tv|5000|5|41 tv|5000|6|41 tv|5000|7|4]"; got != want {
		t.Errorf("buckets of tv are %s, want %s for all time", got, want)
	}
}

// mortal is a client of a process that dies after a number of commands.
type mortal struct {
	script.Client
	left atomic.Int64
}

var errDead = errors.New("the process is dead")

func (m *mortal) Process(ctx context.Context, cmd redis.Cmder) error {
	if m.left.Add(-1) < 0 {
		cmd.SetErr(errDead)
		return errDead
	}
	return m.Client.Process(ctx, cmd)
}

// TestBucketsOpenerDies: a process dies at each step of an opening, and another one completes it.
func TestBucketsOpenerDies(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		for steps := int64(0); ; steps++ {
			item := fmt.Sprint("tv", steps)
			m := &mortal{Client: b.Client}
			m.left.Store(steps)
			e := guardtest.NewEngineOver(b, m)
			opened, err := New(e, "s", Options{Buckets: 4}).Open(t.Context(), item,
				seckill.Sale{Stock: 13, PerBuyer: 13})
			if err == nil {
				if !opened || steps < 6 {
					t.Errorf("opened %v in %d calls", opened, steps)
				}
				break
			}
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: item}),
				core.ReasonNotReady)
			if _, err := g.Status(t.Context(), item); !errors.Is(err, seckill.ErrNoSale) {
				t.Errorf("the status of half a sale: %v", err)
			}
			if err := g.Close(t.Context(), item); !errors.Is(err, seckill.ErrNoSale) {
				t.Errorf("closing half a sale: %v", err)
			}
			// By a process that would have other buckets.
			openSale(t, g, item, 8, seckill.Sale{Stock: 7, PerBuyer: 7})
			stock := int64(13)
			if s, err := g.Status(t.Context(), item); err == nil && s.Stock == 7 && steps < 3 {
				stock = 7 // the first had not come as far as to decide
			}
			wantStatus(t, g, item, stock, 0, 0)
			for range 2 { // and the first comes back, restarted
				if again, err := g.Open(t.Context(), item, seckill.Sale{Stock: 13}); again || err != nil {
					t.Errorf("opened again: %v, %v", again, err)
				}
			}
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: item, Cost: stock}),
				core.ReasonOK)
			wantStatus(t, g, item, 0, stock, 0)
		}
	})
}

// TestBucketsOpenedAtOnceByProcessesThatDisagree: the terms of one process apply, all of them.
func TestBucketsOpenedAtOnceByProcessesThatDisagree(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		for round := range 20 {
			item := fmt.Sprint("tv", round)
			var won atomic.Int64
			var all sync.WaitGroup
			for buckets := 2; buckets <= 8; buckets++ {
				other := New(guardtest.NewEngine(b), "s", Options{Buckets: buckets})
				all.Go(func() {
					opened, err := other.Open(context.Background(), item,
						seckill.Sale{Stock: int64(100 + buckets), PerBuyer: 1000})
					if err != nil {
						t.Error(err)
					}
					if opened {
						won.Add(1)
					}
				})
			}
			all.Wait()
			at, err := g.find(t.Context(), item)
			if err != nil || won.Load() != 1 {
				t.Fatalf("%d have opened the sale (%v)", won.Load(), err)
			}
			stock := int64(100 + len(at.tags))
			wantStatus(t, g, item, stock, 0, 0)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: item, Cost: stock}),
				core.ReasonOK)
		}
	})
}

func TestInvalidBuckets(t *testing.T) {
	e := guardtest.NewEngine(redistest.Mini(t))
	for _, buckets := range []int{-1, 0, 1, maxBuckets + 1, math.MaxInt} {
		guardtest.WantPanic(t, "set Buckets to 2 to 64", func() { New(e, "s", Options{Buckets: buckets}) })
	}
}

// TestSaleLostAndOpenedAgain: a process that remembers the buckets of the lost sale finds those of the new
// one.
func TestSaleLostAndOpenedAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		here, there, clock, _ := twoProcesses(b)
		lose := func(at *spread) {
			b.Client.Del(t.Context(), there.rootKeys("tv")...)
			for n := range at.tags {
				for _, key := range at.keys(n) {
					b.Client.Del(t.Context(), key)
				}
			}
		}
		var epoch int64
		for _, buckets := range []int{8, 8, 2, 4} {
			if epoch != 0 {
				guardtest.WantReason(t, guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: "tv"}),
					core.ReasonNotReady)
			}
			clock.Advance(time.Millisecond)
			openSale(t, there, "tv", buckets, seckill.Sale{Stock: 10})
			at, err := there.find(t.Context(), "tv")
			if err != nil || len(at.tags) != buckets {
				t.Fatalf("%+v (%v), want %d buckets", at, err, buckets)
			}
			guardtest.WantReason(t, guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: "tv"}),
				core.ReasonOK)
			wantStatus(t, there, "tv", 9, 1, 0)
			s, err := here.Status(t.Context(), "tv")
			if err != nil || s.Epoch <= epoch {
				t.Errorf("epoch %d (%v) after %d", s.Epoch, err, epoch)
			}
			epoch = s.Epoch
			events, err := here.Events(t.Context(), "tv", "", 1)
			if err != nil || len(events) != 1 || events[0].Kind != seckill.EventOpened || events[0].Epoch != epoch {
				t.Errorf("%+v (%v), want the sale of %d opened", events, err, epoch)
			}
			lose(at)
		}
	})
}

// TestBucketsThatOutliveTheirRoot: a process sells from them only as long as it remembers them.
func TestBucketsThatOutliveTheirRoot(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		here, there, clock, _ := twoProcesses(b)
		openSale(t, there, "tv", 8, seckill.Sale{Stock: 80})
		guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: "tv"})
		old := here.placeOf("tv")
		b.Client.Del(t.Context(), there.rootKeys("tv")...) // with its copy, or the sale could not be opened again
		clock.Advance(time.Millisecond)
		openSale(t, there, "tv", 4, seckill.Sale{Stock: 40})
		guardtest.WantReason(t, guardtest.Check(t, here, core.Attempt{Actor: "bob", Resource: "tv"}), core.ReasonOK)
		wantStatus(t, there, "tv", 40, 0, 0)
		clock.Advance(placeFor)
		if len(old.tags) != 8 || !here.placeOf("tv").same(old) { // and has asked
			t.Errorf("%+v, %+v", old, here.placeOf("tv"))
		}
		redistest.Eventually(t, time.Minute, func() bool { return len(here.placeOf("tv").tags) == 4 },
			"the process has learned of the new sale")
		guardtest.WantReason(t, guardtest.Check(t, here, core.Attempt{Actor: "bob", Resource: "tv"}), core.ReasonOK)
		wantStatus(t, there, "tv", 39, 1, 0)
	})
}

// TestBucketsGoOnWithoutTheirRoot: a process that cannot reach the root goes on with the buckets it
// remembers.
func TestBucketsGoOnWithoutTheirRoot(t *testing.T) {
	b := redistest.Mini(t)
	clock := guardtest.NewClock()
	var failed atomic.Int64
	down := false
	e := guardtest.NewEngineOver(b, refusing{b.Client, func(cmd redis.Cmder) error {
		if down && fmt.Sprint(cmd.Args()[1]) == rootScript.SHA() {
			failed.Add(1)
			return errDead
		}
		return nil
	}}, guardtest.WithClock(clock))
	g := newGuard(e)
	openSale(t, g, "tv", 8, seckill.Sale{Stock: 80})
	down = true
	for i := range 10 {
		clock.Advance(placeFor)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "tv"}),
			core.ReasonOK)
	}
	redistest.Eventually(t, time.Minute, func() bool { return failed.Load() == 10 }, "it has asked each time")
}

// refusing is a client that fails chosen commands without sending them.
type refusing struct {
	script.Client
	refuse func(cmd redis.Cmder) error
}

func (r refusing) Process(ctx context.Context, cmd redis.Cmder) error {
	if err := r.refuse(cmd); err != nil {
		cmd.SetErr(err)
		return err
	}
	return r.Client.Process(ctx, cmd)
}

// TestBucketLost: its stock is unknown, so no attempt gets sold_out.
func TestBucketLost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", 4, seckill.Sale{Stock: 4, PerBuyer: 4})
		at := spreadOf(t, g, "tv", 4)
		for _, key := range at.keys(3) {
			b.Client.Del(t.Context(), key)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: buyerOf(at, 0, 0), Resource: "tv"}),
			core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: buyerOf(at, 0, 1), Resource: "tv"}),
			core.ReasonNotReady)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: buyerOf(at, 3, 0), Resource: "tv"}),
			core.ReasonNotReady)
		if _, err := g.Status(t.Context(), "tv"); !errors.Is(err, seckill.ErrNoSale) {
			t.Errorf("seckill.Status: %v", err)
		}
		if _, err := g.Verify(t.Context(), "tv"); !errors.Is(err, seckill.ErrNoSale) {
			t.Errorf("Verify: %v", err)
		}
		if _, err := g.Restock(t.Context(), "tv", "r", 1); !errors.Is(err, seckill.ErrNoSale) {
			t.Errorf("Restock: %v", err)
		}
		if err := g.Close(t.Context(), "tv"); !errors.Is(err, seckill.ErrNoSale) {
			t.Errorf("Close: %v", err)
		}
		// the others are closed
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: buyerOf(at, 1, 0), Resource: "tv"}),
			core.ReasonClosed)
	})
}

// TestBucketsEndByName: each bucket has orders of one name, and who names the buyer means theirs.
func TestBucketsEndByName(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", 8, seckill.Sale{Stock: 80, PerBuyer: 9})
		at := spreadOf(t, g, "tv", 8)
		end := func(f func(context.Context, core.Attempt) (core.Decision, error), a core.Attempt,
			want core.Reason, replayed bool) {
			t.Helper()
			d, err := f(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, d, want)
			if d.Replayed != replayed || d.Attempt.Actor != a.Actor {
				t.Fatalf("%+v: want %+v, replayed: %v", d, a, replayed)
			}
		}
		for bucket := range 8 {
			paid := core.Attempt{Actor: buyerOf(at, bucket, 0), Resource: "tv", ID: "paid"}
			failed := paid
			failed.ID = "failed"
			guardtest.Check(t, g, paid)
			guardtest.Check(t, g, failed)
			for again := range 2 {
				end(g.Confirm, paid, core.ReasonOK, again == 1)
				end(g.Cancel, failed, core.ReasonOK, again == 1)
			}
			end(g.Cancel, paid, core.ReasonConflict, false)
			end(g.Confirm, failed, core.ReasonGone, false)
		}
		wantStatus(t, g, "tv", 72, 0, 8)
	})
}

func TestBucketsClose(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock)))
		openSale(t, g, "tv", 8, seckill.Sale{Stock: 80, Closes: clock.Now().Add(100 * 24 * time.Hour)})
		at := spreadOf(t, g, "tv", 8)
		ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
		for range 2 {
			if err := g.Close(t.Context(), "tv"); err != nil {
				t.Fatal(err)
			}
		}
		for bucket := range 8 {
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: buyerOf(at, bucket, 1), Resource: "tv"}),
				core.ReasonClosed)
		}
		guardtest.Settle(t, g, ann, core.Commit)
		wantStatus(t, g, "tv", 79, 0, 1)
		wantBucketTTLs(t, b, g, at, 33*24*time.Hour)
	})
}

// wantBucketTTLs fails the test unless the root and all keys of all buckets have this TTL, less a minute
// or a 64th more at most.
func wantBucketTTLs(t *testing.T, b redistest.Backend, g *Guard, at *spread, want time.Duration) {
	t.Helper()
	keys := g.rootKeys(at.item)[:1]
	for bucket := range at.tags {
		keys = append(keys, at.keys(bucket)...)
	}
	for _, key := range keys {
		if ttl, err := b.Client.PTTL(t.Context(), key).Result(); err != nil || ttl != -2 &&
			(ttl < want-time.Minute || ttl > want+want/64) {
			t.Errorf("%s lives on for %v (%v), want %v", key, ttl, err, want)
		}
	}
}

// TestBucketsExpireTogether: a sale is kept after its last change, together with the buckets that have not
// changed.
func TestBucketsExpireTogether(t *testing.T) {
	const day = 24 * time.Hour
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock)))
		openSale(t, g, "tv", 8, seckill.Sale{Stock: 80, PerBuyer: 80, Hold: 29 * day})
		at := spreadOf(t, g, "tv", 8)
		wantBucketTTLs(t, b, g, at, 33*day)
		pass := func(d time.Duration) { passBuckets(t, b, g, at, clock, d) }
		// A change after two days renews no key yet: the keys have three days to spare.
		pass(2 * day)
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "op"})
		if ttl := b.Client.PTTL(t.Context(), g.rootKeys("tv")[0]).Val(); ttl > 31*day {
			t.Errorf("the root lives on for %v already", ttl)
		}
		other := core.Attempt{Actor: "ann", Resource: "tv", ID: "op 2"}
		third := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "op 3"})
		restock := func(id string) {
			if _, err := g.Restock(t.Context(), "tv", id, 5); err != nil {
				t.Error(err)
			}
		}
		restock("again")
		changes := map[string]func(){
			"reserve": func() { guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}) },
			"confirm": func() { guardtest.Settle(t, g, d, core.Commit) },
			"restock": func() { restock("r") },
			"cancel":  func() { g.Cancel(t.Context(), other) },
			"settle":  func() { guardtest.Settle(t, g, third, core.Rollback) },
		}
		guardtest.Check(t, g, other)
		for what, change := range changes {
			pass(4 * day)
			// which are no changes
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", Cost: 81}),
				core.ReasonDuplicate)
			restock("again")
			if ttl := b.Client.PTTL(t.Context(), g.rootKeys("tv")[0]).Val(); ttl > 30*day {
				t.Errorf("before %s: the root lives on for %v", what, ttl)
			}
			change()
			redistest.Eventually(t, time.Minute, func() bool {
				return b.Client.PTTL(t.Context(), g.rootKeys("tv")[0]).Val() > 33*day-time.Minute
			}, "the sale lives on after "+what)
			wantBucketTTLs(t, b, g, at, 33*day)
		}
	})
}

// passBuckets lets the time of a sale pass.
func passBuckets(
	t *testing.T, b redistest.Backend, g *Guard, at *spread, clock *guardtest.Clock, d time.Duration,
) {
	t.Helper()
	keys := slices.Clone(g.rootKeys(at.item)[:2])
	for bucket := range at.tags {
		keys = append(keys, at.keys(bucket)...)
	}
	for _, key := range keys {
		if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl > 0 {
			b.Client.PExpire(t.Context(), key, ttl-d)
		}
	}
	// Last: otherwise a background call to the root would see the new clock and old TTLs.
	clock.Advance(d)
}

// TestARootDoesNotOutliveItsBuckets: nobody can buy from a sale whose root is there and whose buckets are
// not, and it cannot be opened again. Another Close renewed the root alone. So did an Open or Close that went on
// where a process had died, and a Repair of the root.
//
// Promise: A sale of several buckets ends as a whole: its root does not outlive its buckets.
func TestARootDoesNotOutliveItsBuckets(t *testing.T) {
	const day, buckets = 24 * time.Hour, 4
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{Buckets: buckets})
		sale := seckill.Sale{Stock: 80}
		want := func(what string, at *spread, want time.Duration) {
			t.Helper()
			root := b.Client.PTTL(t.Context(), g.rootKeys(at.item)[0]).Val()
			if root < want-time.Minute || root > want {
				t.Errorf("%s: the root lives on for %v, want %v", what, root, want)
			}
			for bucket := range at.tags {
				for _, key := range at.keys(bucket) {
					ttl := b.Client.PTTL(t.Context(), key).Val()
					if ttl != -2 && (ttl < root || ttl > root+33*day/64+time.Minute) {
						t.Errorf("%s: %s lives on for %v, the root for %v", what, key, ttl, root)
					}
				}
			}
		}
		terms, err := g.parts.Terms(sale)
		if err != nil {
			t.Fatal(err)
		}
		begun, err := g.begin(t.Context(), "tv", terms)
		if err != nil {
			t.Fatal(err)
		}
		at := begun.at
		first := append([]any{20}, begun.terms...)
		if _, err := g.parts.Open(t.Context(), at.tags[0], first, at.epoch); err != nil {
			t.Fatal(err)
		}
		passBuckets(t, b, g, at, clock, 10*day)
		if opened, err := g.Open(t.Context(), "tv", sale); !opened || err != nil {
			t.Errorf("open: %t, %v", opened, err)
		}
		want("an opening that was not done", at, 33*day)
		passBuckets(t, b, g, at, clock, day)
		if opened, err := g.Open(t.Context(), "tv", sale); opened || err != nil {
			t.Errorf("open: %t, %v", opened, err)
		}
		want("open again", at, 32*day)

		b.Client.Del(t.Context(), g.rootKeys("tv")[0])
		if restored, err := g.Repair(t.Context(), "tv"); len(restored) != 1 || err != nil {
			t.Errorf("repair: %q, %v", restored, err)
		}
		want("a root that was restored", at, 32*day)

		if _, err := g.parts.Close(t.Context(), at.tags[0]); err != nil {
			t.Fatal(err)
		}
		passBuckets(t, b, g, at, clock, 10*day)
		if err := g.Close(t.Context(), "tv"); err != nil {
			t.Error(err)
		}
		want("a closing that was not done", at, 33*day)
		passBuckets(t, b, g, at, clock, 10*day)
		if err := g.Close(t.Context(), "tv"); err != nil {
			t.Error(err)
		}
		want("closed again", at, 23*day)
		wantStatus(t, g, "tv", 80, 0, 0)
	})
}

func TestBucketsRestock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", 4, seckill.Sale{Stock: 7, PerBuyer: 2})
		guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "1"}),
			core.Commit)
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", ID: "2"})
		opened, err := g.Status(t.Context(), "tv")
		if err != nil {
			t.Fatal(err)
		}
		epoch := opened.Epoch
		for _, step := range []struct {
			id    string
			units int64
			want  seckill.Status
			err   error
		}{
			{"1", 4, status(11, 9, 1, 1, epoch), nil}, // a reservation has the same ID, which does not matter
			{"1", 4, status(11, 9, 1, 1, epoch), nil},
			{"1", 5, status(11, 9, 1, 1, epoch), core.ErrInvalid},
			{"2", -10, status(11, 9, 1, 1, epoch), seckill.ErrTooFewLeft},
			{"2", -9, status(2, 0, 1, 1, epoch), nil}, // from all buckets
			{"2", -9, status(2, 0, 1, 1, epoch), nil},
			{"3", -1, status(2, 0, 1, 1, epoch), seckill.ErrTooFewLeft},
			{"3", core.MaxAmount - 1, status(2, 0, 1, 1, epoch), core.ErrInvalid},
			{"3", 1, status(3, 1, 1, 1, epoch), nil},
		} {
			got, err := g.Restock(t.Context(), "tv", step.id, step.units)
			if got != step.want || !errors.Is(err, step.err) {
				t.Errorf("restock %q by %d: %+v, %v; want %+v, %v", step.id, step.units, got, err, step.want, step.err)
			}
		}
		wantStatus(t, g, "tv", 1, 1, 1)
		// in any bucket
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "tv"}), core.ReasonOK)
		wantStatus(t, g, "tv", 0, 2, 1)
	})
}

// TestBucketsRestockAgainUpToTheLargestStock: a repeated restock succeeds although the same units would not
// fit again.
func TestBucketsRestockAgainUpToTheLargestStock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", 4, seckill.Sale{Stock: core.MaxAmount - 5})
		for _, step := range []struct {
			id    string
			units int64
			err   error
		}{{"1", 5, nil}, {"1", 5, nil}, {"1", 4, core.ErrInvalid}, {"2", 1, core.ErrInvalid}} {
			got, err := g.Restock(t.Context(), "tv", step.id, step.units)
			if got.Stock != core.MaxAmount || !errors.Is(err, step.err) {
				t.Errorf("restock %q by %d: %+v, %v; want %v", step.id, step.units, got, err, step.err)
			}
		}
	})
}

func TestBucketsSweep(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock)))
		openSale(t, g, "tv", 4, seckill.Sale{Stock: 80, PerBuyer: 2, Hold: time.Minute})
		at := spreadOf(t, g, "tv", 4)
		for bucket := range 4 {
			guardtest.Check(t, g, core.Attempt{Actor: buyerOf(at, bucket, 0), Resource: "tv"})
		}
		other := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock))) // knows of no buckets
		clock.Advance(time.Minute)
		for _, want := range []int{4, 0} {
			if n, err := other.Sweep(t.Context(), "tv"); n != want || err != nil {
				t.Errorf("Sweep: %d, %v, want %d", n, err, want)
			}
		}
		wantStatus(t, g, "tv", 80, 0, 0)
	})
}

func TestBucketsEvents(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock)))
		if _, err := g.OutboxKeys(t.Context(), "tv"); !errors.Is(err, seckill.ErrNoSale) {
			t.Errorf("the outboxes of an unknown sale: %v", err)
		}
		openSale(t, g, "tv", 4, seckill.Sale{Stock: 40})
		keys, err := g.OutboxKeys(t.Context(), "tv")
		if err != nil || len(keys) != 4 {
			t.Fatalf("%q, %v", keys, err)
		}
		messages := int64(0)
		for i := range 30 {
			d := guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "tv", ID: fmt.Sprint(i)})
			guardtest.Settle(t, g, d, core.Commit)
		}
		for _, key := range keys {
			messages += b.Client.XLen(t.Context(), key).Val()
		}
		seen, opened := map[string]seckill.EventKind{}, int64(0)
		follows := map[seckill.EventKind]seckill.EventKind{
			seckill.EventHeld: "", seckill.EventSold: seckill.EventHeld,
		}
		var last string
		count := int64(0)
		for position := ""; ; {
			events, err := newGuard(guardtest.NewEngine(b)).Events(t.Context(), "tv", position, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				count++
				position, last = e.Position, e.Position
				if e.Kind == seckill.EventOpened {
					opened += e.Quantity
				}
				if before, ok := follows[e.Kind]; ok {
					if seen[e.ID] != before {
						t.Errorf("%+v after %s", e, seen[e.ID])
					}
					seen[e.ID] = e.Kind
				}
				if want := spreadOf(t, g, "tv", 4).homeOf(e.Buyer); e.Buyer != "" && e.Bucket != want {
					t.Errorf("%+v: want bucket %d", e, want)
				}
			}
			if len(events) < 7 {
				break
			}
		}
		if count != messages || opened != 40 || len(seen) != 30 {
			t.Errorf("%d of %d events, %d units, %d orders", count, messages, opened, len(seen))
		}
		if more, err := g.Events(t.Context(), "tv", last, 1000); err != nil || len(more) != 0 {
			t.Errorf("after the last: %+v, %v", more, err)
		}
		epoch, _, _ := strings.Cut(last, ":")
		for _, wrong := range []string{epoch + ":", epoch + ":1-1", epoch + ":x,x,x,x",
			epoch + ":" + strings.Repeat("1-1,", 9)} {
			if events, err := g.Events(t.Context(), "tv", wrong, 1); err == nil {
				t.Errorf("position %q: %+v", wrong, events)
			}
		}

		// A sale that is opened again is read from its beginning, whatever the form of the position.
		for _, buckets := range []int{3, 2, 4} {
			at := g.placeOf("tv")
			for n := range at.tags {
				for _, key := range append(at.keys(n), g.rootKeys("tv")...) {
					b.Client.Del(t.Context(), key)
				}
			}
			clock.Advance(time.Millisecond)
			openSale(t, g, "tv", buckets, seckill.Sale{Stock: 40})
			spreadOf(t, g, "tv", buckets)
			for _, form := range []string{last, "1-1", "1:1-1,1-1"} {
				if events, err := g.Events(t.Context(), "tv", form, 1000); err != nil || len(events) != buckets {
					t.Errorf("%q: %+v, %v", form, events, err)
				}
			}
			events, err := g.Events(t.Context(), "tv", last, 1000)
			if err != nil || len(events) != buckets || events[0].Kind != seckill.EventOpened {
				t.Fatalf("%d buckets: %+v, %v", buckets, events, err)
			}
			last = events[len(events)-1].Position
		}
	})
}

func TestBucketsHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		for i, text := range guardtest.Hostile {
			openSale(t, g, text, 2, seckill.Sale{Stock: 3})
			d := guardtest.Check(t, g, core.Attempt{Actor: text, Resource: text, ID: text})
			if !d.Allowed || d.Replayed {
				t.Errorf("%.40q collides with another: %+v", text, d)
			}
			guardtest.Settle(t, g, d, guardtest.Ending(i%2 == 0))
			wantStatus(t, g, text, 2+int64(i%2), 0, 1-int64(i%2))
		}
	})
}

func TestBucketsWithoutOutbox(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s",
			Options{Options: seckill.Options{NoOutbox: true}, Buckets: 2})
		openSale(t, g, "tv", 4, seckill.Sale{Stock: 4, PerBuyer: 4, Hold: time.Minute})
		guardtest.Settle(t, g,
			guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", Cost: 2}), core.Commit)
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", Cost: 2})
		clock.Advance(time.Minute)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "tv", Cost: 2}),
			core.ReasonOK)
		if n, err := g.Sweep(t.Context(), "tv"); n != 0 || err != nil {
			t.Errorf("Sweep: %d, %v", n, err)
		}
		if err := g.Close(t.Context(), "tv"); err != nil {
			t.Error(err)
		}
		wantStatus(t, g, "tv", 0, 2, 2)
		if events, err := g.Events(t.Context(), "tv", "", 10); err != nil || len(events) != 0 {
			t.Errorf("%+v, %v", events, err)
		}
	})
}

// TestVerifyOfBucketsSeesTampering: the test changes the keys of one bucket directly.
func TestVerifyOfBucketsSeesTampering(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		for name, c := range map[string]struct {
			meddle func(keys []string)
			want   string
		}{
			"units from nowhere": {func(keys []string) {
				b.Client.HIncrBy(t.Context(), keys[0], "stock", 2)
				b.Client.HIncrBy(t.Context(), keys[0], "left", 2)
			}, "bucket 1: outbox: stock: "},
			"a loan that was swallowed": {func(keys []string) {
				b.Client.HSet(t.Context(), keys[0], "lent|2", "1 0")
			}, "outbox: stock: 40, want 3"},
			"a buyer": {func(keys []string) {
				b.Client.HSet(t.Context(), keys[1], "eve", "1")
				b.Client.PExpire(t.Context(), keys[1], time.Hour)
			}, "bucket 1: buyers: held + sold: 1, want 0 (+1)"},
		} {
			openSale(t, g, name, 4, seckill.Sale{Stock: 40})
			at := spreadOf(t, g, name, 4)
			if _, err := by(g, at).lend(t.Context(), 1, 2, 3); err != nil {
				t.Fatal(err)
			}
			wantStatus(t, g, name, 40, 0, 0)
			r, err := g.Verify(t.Context(), name)
			if err != nil || !r.Consistent() || r.InTransit != 5 || len(r.Buckets) != 4 ||
				!strings.Contains(r.String(), "5 on their way between buckets") ||
				!strings.Contains(r.String(), "\nbucket 3: ") {
				t.Errorf("%v\n%v", err, r)
			}
			c.meddle(at.keys(1))
			r, err = g.Verify(t.Context(), name)
			if err != nil || r.Consistent() || r.Moving ||
				!strings.Contains(strings.Join(r.Differences(), "\n"), c.want) {
				t.Errorf("%s: %v\n%v\nwant %q", name, err, r, c.want)
			}
		}
	})
}

// endOf ends a reservation by its buyer and ID, as a process does that did not make it.
func endOf(t *testing.T, end func(context.Context, core.Attempt) (core.Decision, error), a core.Attempt) {
	t.Helper()
	if _, err := end(t.Context(), a); err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
}

// TestAnotherBucketsIDKeepsNobodyFromConfirming: Mallory's bucket does not know Ann's ID, so she can reserve
// under it. Ann's paid order could not be confirmed any more.
func TestAnotherBucketsIDKeepsNobodyFromConfirming(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newGuard(guardtest.NewEngine(b))
		openSale(t, g, "tv", 4, seckill.Sale{Stock: 40})
		at := spreadOf(t, g, "tv", 4)
		ann, mallory := buyerOf(at, 0, 0), buyerOf(at, 1, 0)
		for _, buyer := range []string{ann, mallory} {
			guardtest.WantReason(t, guardtest.Check(t, g,
				core.Attempt{Actor: buyer, Resource: "tv", ID: "order"}), core.ReasonOK)
		}
		endOf(t, g.Confirm, core.Attempt{Actor: ann, Resource: "tv", ID: "order"})
		wantStatus(t, g, "tv", 38, 1, 1)
		endOf(t, g.Cancel, core.Attempt{Actor: mallory, Resource: "tv", ID: "order"})
		d, err := g.Confirm(t.Context(), core.Attempt{Actor: ann, Resource: "tv", ID: "order"})
		if err != nil || !d.Replayed || d.Attempt.Actor != ann {
			t.Errorf("%+v, %v: want Ann's sale", d, err)
		}
		wantStatus(t, g, "tv", 39, 0, 1)
	})
}
