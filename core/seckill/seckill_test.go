package seckill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func openSale(t testing.TB, g *Guard, item string, sale Sale) {
	t.Helper()
	if opened, err := g.Open(t.Context(), item, sale); err != nil || !opened {
		t.Fatalf("Open: %v, %v", opened, err)
	}
}

func wantStatus(t testing.TB, g *Guard, item string, left, held, sold int64) {
	t.Helper()
	s, err := g.Status(t.Context(), item)
	if want := saleStatus(left+held+sold, left, held, sold, s.Epoch); err != nil || s != want || s.Epoch == 0 {
		t.Fatalf("status %+v (%v), want %+v", s, err, want)
	}
	wantConsistent(t, g, item)
}

func saleStatus(stock, left, held, sold, epoch int64) Status {
	return Status{Stock: stock, Left: left, Held: held, Sold: sold, Epoch: epoch}
}

// wantConsistent wants the sale's counters, reservations, buyers, timers and outbox to agree.
func wantConsistent(t rapid.TB, g *Guard, item string) {
	t.Helper()
	if r, err := g.Verify(context.Background(), item); err != nil || !r.Consistent() {
		t.Fatalf("%v\n%v", err, r)
	}
}

// saleKeys returns the keys of a sale.
func (g *Guard) saleKeys(item string) []string { return g.stockOf(item).keys() }

func TestSeckillSells(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 3, PerBuyer: 2})
		ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", Cost: 2})
		guardtest.WantReason(t, ann, core.ReasonOK)
		if StateOf(ann) != StateHeld || ann.Remaining != 1 || ann.Limit != 3 || ann.ResetAfter != 5*time.Minute {
			t.Fatalf("%+v", ann)
		}
		wantStatus(t, g, "tv", 1, 2, 0)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}),
			core.ReasonDuplicate)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", Cost: 2}),
			core.ReasonSoldOut)
		bob := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"})
		guardtest.WantReason(t, bob, core.ReasonOK)
		guardtest.Settle(t, g, ann, core.Commit)
		guardtest.Settle(t, g, bob, core.Rollback)
		wantStatus(t, g, "tv", 1, 0, 2)
		guardtest.Settle(t, g, ann, core.Commit) // confirming twice is confirming once
		guardtest.Settle(t, g, bob, core.Rollback)
		wantStatus(t, g, "tv", 1, 0, 2)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "tv"}), core.ReasonOK)
		d := guardtest.Check(t, g, core.Attempt{Actor: "dan", Resource: "tv"})
		guardtest.WantReason(t, d, core.ReasonSoldOut)
		if d.RetryAfter != 0 {
			t.Errorf("%+v: waiting is no help when all is sold", d)
		}
	})
}

// Promise: An unknown sale is `not_ready`, never a stock.
func TestSeckillUnknownSaleFailsClosed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}),
			core.ReasonNotReady)
		if _, err := g.Status(t.Context(), "tv"); !errors.Is(err, ErrNoSale) {
			t.Errorf("Status: %v", err)
		}
		for _, end := range []func(context.Context, core.Attempt) (core.Decision, error){g.Confirm, g.Cancel} {
			d, err := end(t.Context(), core.Attempt{Actor: "ann", Resource: "tv", ID: "id"})
			if err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, d, core.ReasonNotReady)
		}
		if n, err := g.Sweep(t.Context(), "tv"); n != 0 || err != nil {
			t.Errorf("Sweep: %d, %v", n, err)
		}
	})
}

// Promise: A sale is opened once. A restart does not reset it.
func TestSeckillOpensOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 2})
		guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}), core.Commit)
		if opened, err := g.Open(t.Context(), "tv", Sale{Stock: 99}); opened || err != nil {
			t.Errorf("Open again: %v, %v", opened, err)
		}
		wantStatus(t, g, "tv", 1, 0, 1)
		for _, sale := range []Sale{
			{}, {Stock: -1}, {Stock: 1 << 53}, {Stock: 1, PerBuyer: -1}, {Stock: 1, Hold: -1},
			{Stock: 1, Hold: time.Microsecond},
			{Stock: 1, Hold: 31 * 24 * time.Hour}, {Stock: 1, Opens: time.Now(), Closes: time.Now().Add(-time.Hour)},
		} {
			if opened, err := g.Open(t.Context(), "pc", sale); opened || !guardtest.IsInvalid(err) {
				t.Errorf("Open(%+v): %v, %v", sale, opened, err)
			}
		}
		if _, err := g.Open(t.Context(), "", Sale{Stock: 1}); !guardtest.IsInvalid(err) {
			t.Errorf("Open without an item: %v", err)
		}
	})
}

func TestSeckillOpenAndClose(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 2, Opens: clock.Now().Add(time.Minute),
			Closes: clock.Now().Add(time.Hour)})
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
		guardtest.WantReason(t, d, core.ReasonEarly)
		if d.RetryAfter != time.Minute {
			t.Errorf("%+v: want a retry when the sale opens", d)
		}
		clock.Advance(59*time.Minute + 59*time.Second)
		ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
		guardtest.WantReason(t, ann, core.ReasonOK)
		clock.Advance(time.Second)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"}),
			core.ReasonClosed)
		guardtest.Settle(t, g, ann, core.Commit) // in time, and paid after the closing
		wantStatus(t, g, "tv", 1, 0, 1)
	})
}

func TestSeckillReplay(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 1, Closes: clock.Now().Add(time.Minute), Hold: time.Hour})
		buy := core.Attempt{Actor: "ann", Resource: "tv", ID: "op 1"}
		first := guardtest.Check(t, g, buy)
		again := guardtest.Check(t, g, buy) // sold out by now, and still hers
		if !again.Allowed || !again.Replayed || StateOf(again) != StateHeld {
			t.Fatalf("%+v: want the held reservation", again)
		}
		guardtest.Settle(t, g, again, core.Rollback) // the first request is still at work: its reservation stays
		wantStatus(t, g, "tv", 0, 1, 0)
		for _, other := range []core.Attempt{
			{Actor: "bob", Resource: "tv", ID: "op 1"}, {Actor: "ann", Resource: "tv", ID: "op 1", Cost: 2},
		} {
			guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonConflict)
		}
		guardtest.Settle(t, g, first, core.Commit)
		clock.Advance(time.Minute)
		again = guardtest.Check(t, g, buy) // the sale is closed by now
		if !again.Allowed || !again.Replayed || StateOf(again) != StateSold {
			t.Fatalf("%+v: want the sold reservation", again)
		}
		guardtest.Settle(t, g, again, core.Rollback)
		guardtest.Settle(t, g, again, core.Commit)
		wantStatus(t, g, "tv", 0, 0, 1)
		if d, err := g.Cancel(t.Context(), buy); err != nil || d.Reason != core.ReasonConflict {
			t.Errorf("cancelling what is sold: %+v, %v", d, err)
		}
		wantStatus(t, g, "tv", 0, 0, 1)
	})
}

func TestSeckillCancelledIsGone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 1})
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "op"})
		guardtest.Settle(t, g, d, core.Rollback)
		if err := g.Settle(t.Context(), d, core.Commit); !errors.Is(err, core.ErrGone) {
			t.Errorf("confirming what was cancelled: %v", err)
		}
		wantStatus(t, g, "tv", 1, 0, 0)
		// tried again
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "op"}),
			core.ReasonOK)
		wantStatus(t, g, "tv", 0, 1, 0)
		if _, err := g.Confirm(t.Context(), core.Attempt{Actor: "ann", Resource: "tv"}); !guardtest.IsInvalid(err) {
			t.Errorf("Confirm without an ID: %v", err)
		}
	})
}

// Promise: An unconfirmed hold goes back by itself. Confirm is then `gone`, unless units are left.
func TestSeckillHoldsExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 2, Hold: time.Minute})
		ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
		bob := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"})
		clock.Advance(time.Minute - time.Millisecond)
		cid := core.Attempt{Actor: "cid", Resource: "tv", ID: "an attempt with an ID is asked of Redis"}
		guardtest.WantReason(t, guardtest.Check(t, g, cid), core.ReasonSoldOut)
		clock.Advance(time.Millisecond)

		// finds both holds expired, without a sweep
		guardtest.WantReason(t, guardtest.Check(t, g, cid), core.ReasonOK)
		wantStatus(t, g, "tv", 1, 1, 0)
		guardtest.Settle(t, g, ann, core.Commit) // late, but a unit is left
		wantStatus(t, g, "tv", 0, 1, 1)
		if err := g.Settle(t.Context(), bob, core.Commit); !errors.Is(err, core.ErrGone) {
			t.Errorf("confirming late with none left: %v", err)
		}
		guardtest.Settle(t, g, bob, core.Rollback) // nothing to give back
		wantStatus(t, g, "tv", 0, 1, 1)

		clock.Advance(time.Minute)
		if n, err := g.Sweep(t.Context(), "tv"); n != 1 || err != nil {
			t.Errorf("Sweep: %d, %v", n, err)
		}
		wantStatus(t, g, "tv", 1, 0, 1)
		// tries anew
		guardtest.WantReason(t, guardtest.Check(t, g,
			core.Attempt{Actor: "bob", Resource: "tv", ID: bob.Attempt.ID}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}),
			core.ReasonDuplicate)
	})
}

// TestSeckillSharedByRetries: a hold that several calls with one operation ID share goes back when all of
// them have failed.
func TestSeckillSharedByRetries(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5})
		a := core.Attempt{Actor: "ann", Resource: "tv", ID: "op"}
		one, two := guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		guardtest.Settle(t, g, one, core.Rollback) // its client has gone, and tries again
		wantStatus(t, g, "tv", 4, 1, 0)
		guardtest.Settle(t, g, two, core.Commit)
		guardtest.Settle(t, g, one, core.Rollback)
		wantStatus(t, g, "tv", 4, 0, 1)

		a.Actor, a.ID = "bob", "op 2"
		one, two = guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		for _, d := range []core.Decision{two, two} {
			guardtest.Settle(t, g, d, core.Rollback)
			wantStatus(t, g, "tv", 3, 1, 1)
		}
		guardtest.Settle(t, g, one, core.Rollback)
		wantStatus(t, g, "tv", 4, 0, 1)
		for range 100 {
			guardtest.Check(t, g, a)
		}
		if n := len(b.Client.HGet(t.Context(), g.saleKeys("tv")[3], script.Encode("op 2")).Val()); n > 250 {
			t.Errorf("the record of the reservation has %d bytes", n)
		}
	})
}

// TestSeckillGoneIsReported: a buyer may have been told that they have bought.
func TestSeckillGoneIsReported(t *testing.T) {
	b := redistest.Mini(t)
	var h guardtest.Recorder
	g := New(guardtest.NewEngine(b, core.WithObserver(&h)), "s", Options{})
	openSale(t, g, "tv", Sale{Stock: 1})
	d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
	guardtest.Settle(t, g, d, core.Rollback)
	if err := g.Settle(t.Context(), d, core.Commit); !errors.Is(err, core.ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
	if last := h.Events[len(h.Events)-1]; last.Op != "settle" || !errors.Is(last.Err, core.ErrGone) {
		t.Errorf("the last that was heard is %+v", last)
	}
}

// TestSeckillManyExpiredHolds: more holds have expired than one call takes back.
func TestSeckillManyExpiredHolds(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 250, PerBuyer: 250, Hold: time.Minute})
		for i := range 250 {
			guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "tv"})
		}
		clock.Advance(time.Minute)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", Cost: 250}),
			core.ReasonOK)
		wantStatus(t, g, "tv", 0, 250, 0)
	})
}

func TestInvalidTimes(t *testing.T) {
	b := redistest.Mini(t)
	e := guardtest.NewEngine(b)
	g := New(e, "s", Options{})
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(-1, 0), time.UnixMilli(math.MaxInt64),
		time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		for _, sale := range []Sale{{Stock: 1, Opens: at}, {Stock: 1, Closes: at}} {
			if opened, err := g.Open(t.Context(), "tv", sale); opened || !guardtest.IsInvalid(err) {
				t.Errorf("Open(%+v): %v, %v", sale, opened, err)
			}
		}
		guardtest.WantPanic(t, "1970 to 2200",
			func() { votes.New(e, "v", votes.Options{Poll: votes.Poll{Closes: at}}) })
	}
	far := time.Date(2200, 12, 31, 0, 0, 0, 0, time.UTC)
	openSale(t, g, "pc", Sale{Stock: 1, Closes: far})
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "pc"}), core.ReasonOK)
	votes := votes.New(e, "v", votes.Options{Poll: votes.Poll{Closes: far}})
	guardtest.WantReason(t, guardtest.Check(t, votes, core.Attempt{Actor: "ann", Resource: "p", ID: "given"}),
		core.ReasonOK)
}

func TestSeckillOwnExpiredHold(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5, Hold: time.Minute})
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "one"})
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"})
		clock.Advance(time.Minute)
		if d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "one"}); !d.Allowed ||
			d.Replayed {
			t.Errorf("%+v: the same operation gets a new hold", d)
		}
		if d := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"}); !d.Allowed {
			t.Errorf("%+v: a hold that is over does not count against the buyer", d)
		}
		wantStatus(t, g, "tv", 3, 2, 0)
	})
}

func TestSeckillConfirmsAnExpiredHoldThatNobodyTook(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 1, Hold: time.Minute})
		ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
		clock.Advance(time.Hour)
		guardtest.Settle(t, g, ann, core.Commit)
		wantStatus(t, g, "tv", 0, 0, 1)
	})
}

func TestSeckillHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "buyers", Sale{Stock: 1000})
		openSale(t, g, "ids", Sale{Stock: 1000})
		for i, text := range guardtest.Hostile {
			openSale(t, g, "item "+text, Sale{Stock: 1})
			for _, a := range []core.Attempt{
				{Actor: text, Resource: "buyers"}, {Actor: fmt.Sprint(i), Resource: "ids", ID: text},
				{Actor: "ann", Resource: "item " + text},
			} {
				d := guardtest.Check(t, g, a)
				if !d.Allowed || d.Replayed {
					t.Errorf("%.40q collides with another: %+v", text, d)
				}
				guardtest.Settle(t, g, d, guardtest.Ending(i%2 == 0))
			}
		}
		wantStatus(t, g, "buyers", 1000-int64(len(guardtest.Hostile)+1)/2, 0, int64(len(guardtest.Hostile)+1)/2)
	})
}

func TestSeckillInvalid(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 1<<53 - 1, PerBuyer: 1<<53 - 1})
		for _, a := range []core.Attempt{
			{Resource: "tv"}, {Actor: "ann"}, {Actor: "ann", Resource: "tv", Cost: -1},
			{Actor: "ann", Resource: "tv", Cost: 1 << 53}, {Actor: "ann", Resource: "tv", Cost: math.MaxInt64},
		} {
			if d, err := g.Check(t.Context(), a); !guardtest.IsInvalid(err) || d.Allowed {
				t.Errorf("%+v: %+v, %v", a, d, err)
			}
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", Cost: 1<<53 - 1}) // to the last unit
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.Settle(t, g, d, core.Commit)
		wantStatus(t, g, "tv", 0, 0, 1<<53-1)
	})
}

func TestSeckillRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const buyers, stock = 400, 100
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: stock})
		var won atomic.Int64
		var all sync.WaitGroup
		for i := range buyers * 2 { // each buyer tries twice
			all.Go(func() {
				d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i % buyers), Resource: "tv"})
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					won.Add(1)
					if err := g.Settle(t.Context(), d, core.Commit); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if won.Load() != stock {
			t.Errorf("%d buyers won, want %d", won.Load(), stock)
		}
		wantStatus(t, g, "tv", 0, 0, stock)
	})
}

// TestSeckillCorruptSaleSellsNothing: a sale whose counters are inconsistent sells nothing.
func TestSeckillCorruptSaleSellsNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5})
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
		b.Client.HSet(t.Context(), g.saleKeys("tv")[0], "left", 99)
		if d, err := g.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "tv"}); err == nil ||
			guardtest.IsInvalid(err) || d.Allowed {
			t.Errorf("Check: %+v, %v", d, err)
		}
		for _, ok := range []bool{true, false} {
			if err := g.Settle(t.Context(), d, guardtest.Ending(ok)); err == nil {
				t.Errorf("Settle(%v) went on", ok)
			}
		}
	})
}

func TestSeckillFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	clock := guardtest.NewClock()
	g := New(core.New(rdb, core.WithObserver(guardtest.Ignore{}), core.WithDeadline(time.Minute),
		guardtest.WithClock(clock)), "s", Options{})
	openSale(t, g, "tv", Sale{Stock: 3, Hold: time.Minute})
	ann := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
	over := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", Cost: 1})
	clock.Advance(30 * time.Second)
	wantStatus(t, g, "tv", 1, 2, 0)

	full := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s went through in a full Redis", what)
		}
		wantStatus(t, g, "tv", 1, 2, 0)
	}
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	_, err := g.Check(t.Context(), core.Attempt{Actor: "cid", Resource: "tv"})
	full("a reservation", err)

	// Promised units need no more memory and can be settled.
	guardtest.Settle(t, g, ann, core.Commit)
	wantStatus(t, g, "tv", 1, 1, 1)
	guardtest.Settle(t, g, over, core.Rollback)
	wantStatus(t, g, "tv", 2, 0, 1)
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv"})
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	clock.Advance(time.Minute)
	if n, err := g.Sweep(t.Context(), "tv"); n != 1 || err != nil {
		t.Errorf("Sweep: %d, %v", n, err)
	}
	wantStatus(t, g, "tv", 2, 0, 1)

	// A restock needs memory for its operation. Closing a sale must work, because it may be the remedy.
	if _, err := g.Restock(t.Context(), "tv", "r", 5); err == nil {
		t.Error("a restock went through in a full Redis")
	}
	wantStatus(t, g, "tv", 2, 0, 1)
	if err := g.Close(t.Context(), "tv"); err != nil {
		t.Errorf("Close: %v", err)
	}
	wantStatus(t, g, "tv", 2, 0, 1)
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "dan", Resource: "tv"}), core.ReasonClosed)
}
