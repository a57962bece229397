package core

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

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func openSale(t testing.TB, g *Seckill, item string, sale Sale) {
	t.Helper()
	if opened, err := g.Open(t.Context(), item, sale); err != nil || !opened {
		t.Fatalf("Open: %v, %v", opened, err)
	}
}

func wantStatus(t testing.TB, g *Seckill, item string, left, held, sold int64) {
	t.Helper()
	s, err := g.Status(t.Context(), item)
	if want := saleStatus(left+held+sold, left, held, sold, s.Epoch); err != nil || s != want || s.Epoch == 0 {
		t.Fatalf("status %+v (%v), want %+v", s, err, want)
	}
	wantConsistent(t, g, item)
}

func saleStatus(stock, left, held, sold, epoch int64) SaleStatus {
	return SaleStatus{Stock: stock, Left: left, Held: held, Sold: sold, Epoch: epoch}
}

// wantConsistent wants the sale's counters, reservations, buyers, timers and outbox to say the same.
func wantConsistent(t rapid.TB, g *Seckill, item string) {
	t.Helper()
	if r, err := g.Reconcile(context.Background(), item); err != nil || !r.Consistent() {
		t.Fatalf("%v\n%v", err, r)
	}
}

func TestSeckillSells(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 3, PerBuyer: 2})
		ann := check(t, g, Attempt{Actor: "ann", Resource: "tv", Cost: 2})
		wantReason(t, ann, ReasonOK)
		if StateOf(ann) != StateHeld || ann.Remaining != 1 || ann.Limit != 3 || ann.ResetAfter != 5*time.Minute {
			t.Fatalf("%+v", ann)
		}
		wantStatus(t, g, "tv", 1, 2, 0)
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "tv"}), ReasonDuplicate)
		wantReason(t, check(t, g, Attempt{Actor: "bob", Resource: "tv", Cost: 2}), ReasonSoldOut)
		bob := check(t, g, Attempt{Actor: "bob", Resource: "tv"})
		wantReason(t, bob, ReasonOK)
		settle(t, g, ann, true)
		settle(t, g, bob, false)
		wantStatus(t, g, "tv", 1, 0, 2)
		settle(t, g, ann, true) // confirming twice is confirming once
		settle(t, g, bob, false)
		wantStatus(t, g, "tv", 1, 0, 2)
		wantReason(t, check(t, g, Attempt{Actor: "cid", Resource: "tv"}), ReasonOK)
		d := check(t, g, Attempt{Actor: "dan", Resource: "tv"})
		wantReason(t, d, ReasonSoldOut)
		if d.RetryAfter != 0 {
			t.Errorf("%+v: waiting is no help when all is sold", d)
		}
	})
}

func TestSeckillUnknownSaleFailsClosed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Seckill("s", SeckillOptions{})
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "tv"}), ReasonNotReady)
		if _, err := g.Status(t.Context(), "tv"); !errors.Is(err, ErrNoSale) {
			t.Errorf("Status: %v", err)
		}
		for _, end := range []func() (Decision, error){
			func() (Decision, error) { return g.Confirm(t.Context(), "tv", "id") },
			func() (Decision, error) { return g.Cancel(t.Context(), "tv", "id") },
		} {
			d, err := end()
			if err != nil {
				t.Fatal(err)
			}
			wantReason(t, d, ReasonNotReady)
		}
		if n, err := g.Sweep(t.Context(), "tv"); n != 0 || err != nil {
			t.Errorf("Sweep: %d, %v", n, err)
		}
	})
}

func TestSeckillOpensOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 2})
		settle(t, g, check(t, g, Attempt{Actor: "ann", Resource: "tv"}), true)
		if opened, err := g.Open(t.Context(), "tv", Sale{Stock: 99}); opened || err != nil {
			t.Errorf("Open again: %v, %v", opened, err)
		}
		wantStatus(t, g, "tv", 1, 0, 1)
		for _, sale := range []Sale{
			{}, {Stock: -1}, {Stock: 1 << 53}, {Stock: 1, PerBuyer: -1}, {Stock: 1, Hold: -1}, {Stock: 1, Hold: time.Microsecond},
			{Stock: 1, Hold: 31 * 24 * time.Hour}, {Stock: 1, Opens: time.Now(), Closes: time.Now().Add(-time.Hour)},
		} {
			if opened, err := g.Open(t.Context(), "pc", sale); opened || !isInvalid(err) {
				t.Errorf("Open(%+v): %v, %v", sale, opened, err)
			}
		}
		if _, err := g.Open(t.Context(), "", Sale{Stock: 1}); !isInvalid(err) {
			t.Errorf("Open without an item: %v", err)
		}
	})
}

func TestSeckillOpenAndClose(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 2, Opens: clock.Now().Add(time.Minute), Closes: clock.Now().Add(time.Hour)})
		d := check(t, g, Attempt{Actor: "ann", Resource: "tv"})
		wantReason(t, d, ReasonEarly)
		if d.RetryAfter != time.Minute {
			t.Errorf("%+v: want a retry when the sale opens", d)
		}
		clock.Advance(59*time.Minute + 59*time.Second)
		ann := check(t, g, Attempt{Actor: "ann", Resource: "tv"})
		wantReason(t, ann, ReasonOK)
		clock.Advance(time.Second)
		wantReason(t, check(t, g, Attempt{Actor: "bob", Resource: "tv"}), ReasonClosed)
		settle(t, g, ann, true) // in time, and paid after the closing
		wantStatus(t, g, "tv", 1, 0, 1)
	})
}

func TestSeckillReplay(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 1, Closes: clock.Now().Add(time.Minute), Hold: time.Hour})
		buy := Attempt{Actor: "ann", Resource: "tv", ID: "op 1"}
		first := check(t, g, buy)
		again := check(t, g, buy) // sold out by now, and still hers
		if !again.Allowed || !again.Replayed || StateOf(again) != StateHeld {
			t.Fatalf("%+v: want the held reservation", again)
		}
		settle(t, g, again, false) // the first request is still at work: its reservation stays
		wantStatus(t, g, "tv", 0, 1, 0)
		for _, other := range []Attempt{
			{Actor: "bob", Resource: "tv", ID: "op 1"}, {Actor: "ann", Resource: "tv", ID: "op 1", Cost: 2},
		} {
			wantReason(t, check(t, g, other), ReasonConflict)
		}
		settle(t, g, first, true)
		clock.Advance(time.Minute)
		again = check(t, g, buy) // the sale is closed by now
		if !again.Allowed || !again.Replayed || StateOf(again) != StateSold {
			t.Fatalf("%+v: want the sold reservation", again)
		}
		settle(t, g, again, false)
		settle(t, g, again, true)
		wantStatus(t, g, "tv", 0, 0, 1)
		if d, err := g.Cancel(t.Context(), "tv", "op 1"); err != nil || d.Reason != ReasonConflict {
			t.Errorf("cancelling what is sold: %+v, %v", d, err)
		}
		wantStatus(t, g, "tv", 0, 0, 1)
	})
}

func TestSeckillCancelledIsGone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 1})
		d := check(t, g, Attempt{Actor: "ann", Resource: "tv", ID: "op"})
		settle(t, g, d, false)
		if err := g.Settle(t.Context(), d, true); !errors.Is(err, ErrGone) {
			t.Errorf("confirming what was cancelled: %v", err)
		}
		wantStatus(t, g, "tv", 1, 0, 0)
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "tv", ID: "op"}), ReasonOK) // tried again
		wantStatus(t, g, "tv", 0, 1, 0)
		if _, err := g.Confirm(t.Context(), "tv", ""); !isInvalid(err) {
			t.Errorf("Confirm without an ID: %v", err)
		}
	})
}

func TestSeckillHoldsExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 2, Hold: time.Minute})
		ann := check(t, g, Attempt{Actor: "ann", Resource: "tv"})
		bob := check(t, g, Attempt{Actor: "bob", Resource: "tv"})
		clock.Advance(time.Minute - time.Millisecond)
		cid := Attempt{Actor: "cid", Resource: "tv", ID: "an attempt with an ID is asked of Redis"}
		wantReason(t, check(t, g, cid), ReasonSoldOut)
		clock.Advance(time.Millisecond)

		wantReason(t, check(t, g, cid), ReasonOK) // finds both holds over, without anybody's help
		wantStatus(t, g, "tv", 1, 1, 0)
		settle(t, g, ann, true) // late, but a unit is left
		wantStatus(t, g, "tv", 0, 1, 1)
		if err := g.Settle(t.Context(), bob, true); !errors.Is(err, ErrGone) {
			t.Errorf("confirming late with none left: %v", err)
		}
		settle(t, g, bob, false) // nothing to give back
		wantStatus(t, g, "tv", 0, 1, 1)

		clock.Advance(time.Minute)
		if n, err := g.Sweep(t.Context(), "tv"); n != 1 || err != nil {
			t.Errorf("Sweep: %d, %v", n, err)
		}
		wantStatus(t, g, "tv", 1, 0, 1)
		wantReason(t, check(t, g, Attempt{Actor: "bob", Resource: "tv", ID: bob.Attempt.ID}), ReasonOK) // tries anew
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "tv"}), ReasonDuplicate)
	})
}

// TestSeckillSharedByRetries: a hold that several calls with one operation ID were told of goes back when all have failed.
func TestSeckillSharedByRetries(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 5})
		a := Attempt{Actor: "ann", Resource: "tv", ID: "op"}
		one, two := check(t, g, a), check(t, g, a)
		settle(t, g, one, false) // its client has gone, and tries again
		wantStatus(t, g, "tv", 4, 1, 0)
		settle(t, g, two, true)
		settle(t, g, one, false)
		wantStatus(t, g, "tv", 4, 0, 1)

		a.Actor, a.ID = "bob", "op 2"
		one, two = check(t, g, a), check(t, g, a)
		for _, d := range []Decision{two, two} {
			settle(t, g, d, false)
			wantStatus(t, g, "tv", 3, 1, 1)
		}
		settle(t, g, one, false)
		wantStatus(t, g, "tv", 4, 0, 1)
		for range 100 {
			check(t, g, a)
		}
		if n := len(b.Client.HGet(t.Context(), g.saleKeys("tv")[3], encode("op 2")).Val()); n > 250 {
			t.Errorf("the record of the reservation has %d bytes", n)
		}
	})
}

// TestSeckillGoneIsHeard: somebody may have been told that he has bought.
func TestSeckillGoneIsHeard(t *testing.T) {
	b := redistest.Mini(t)
	var h heard
	g := newEngine(b, WithObserver(&h)).Seckill("s", SeckillOptions{})
	openSale(t, g, "tv", Sale{Stock: 1})
	d := check(t, g, Attempt{Actor: "ann", Resource: "tv"})
	settle(t, g, d, false)
	if err := g.Settle(t.Context(), d, true); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
	if last := h.events[len(h.events)-1]; last.Op != "settle" || !errors.Is(last.Err, ErrGone) {
		t.Errorf("the last that was heard is %+v", last)
	}
}

// TestSeckillManyHoldsOver has more holds over than one call takes back.
func TestSeckillManyHoldsOver(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 250, PerBuyer: 250, Hold: time.Minute})
		for i := range 250 {
			check(t, g, Attempt{Actor: fmt.Sprint(i), Resource: "tv"})
		}
		clock.Advance(time.Minute)
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "tv", Cost: 250}), ReasonOK)
		wantStatus(t, g, "tv", 0, 250, 0)
	})
}

func TestTimesThatMakeNoSense(t *testing.T) {
	b := redistest.Mini(t)
	e := newEngine(b)
	g := e.Seckill("s", SeckillOptions{})
	for _, at := range []time.Time{
		time.Unix(0, 0), time.Unix(-1, 0), time.UnixMilli(math.MaxInt64), time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		for _, sale := range []Sale{{Stock: 1, Opens: at}, {Stock: 1, Closes: at}} {
			if opened, err := g.Open(t.Context(), "tv", sale); opened || !isInvalid(err) {
				t.Errorf("Open(%+v): %v, %v", sale, opened, err)
			}
		}
		wantPanic(t, "1970 to 2200", func() { e.Votes("v", VoteOptions{Poll: Poll{Closes: at}}) })
	}
	far := time.Date(2200, 12, 31, 0, 0, 0, 0, time.UTC)
	openSale(t, g, "pc", Sale{Stock: 1, Closes: far})
	wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "pc"}), ReasonOK)
	votes := e.Votes("v", VoteOptions{Poll: Poll{Closes: far}})
	wantReason(t, check(t, votes, Attempt{Actor: "ann", Resource: "p", ID: "given"}), ReasonOK)
}

func TestSeckillOwnHoldOver(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 5, Hold: time.Minute})
		check(t, g, Attempt{Actor: "ann", Resource: "tv", ID: "one"})
		check(t, g, Attempt{Actor: "bob", Resource: "tv"})
		clock.Advance(time.Minute)
		if d := check(t, g, Attempt{Actor: "ann", Resource: "tv", ID: "one"}); !d.Allowed || d.Replayed {
			t.Errorf("%+v: the same operation gets a new hold", d)
		}
		if d := check(t, g, Attempt{Actor: "bob", Resource: "tv"}); !d.Allowed {
			t.Errorf("%+v: a hold that is over does not count against the buyer", d)
		}
		wantStatus(t, g, "tv", 3, 2, 0)
	})
}

func TestSeckillConfirmsAHoldThatIsOverWhileNobodyElseAsked(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 1, Hold: time.Minute})
		ann := check(t, g, Attempt{Actor: "ann", Resource: "tv"})
		clock.Advance(time.Hour)
		settle(t, g, ann, true)
		wantStatus(t, g, "tv", 0, 0, 1)
	})
}

func TestSeckillHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Seckill("s", SeckillOptions{})
		openSale(t, g, "buyers", Sale{Stock: 1000})
		openSale(t, g, "ids", Sale{Stock: 1000})
		for i, text := range hostile {
			openSale(t, g, "item "+text, Sale{Stock: 1})
			for _, a := range []Attempt{
				{Actor: text, Resource: "buyers"}, {Actor: fmt.Sprint(i), Resource: "ids", ID: text}, {Actor: "ann", Resource: "item " + text},
			} {
				d := check(t, g, a)
				if !d.Allowed || d.Replayed {
					t.Errorf("%.40q collides with another: %+v", text, d)
				}
				settle(t, g, d, i%2 == 0)
			}
		}
		wantStatus(t, g, "buyers", 1000-int64(len(hostile)+1)/2, 0, int64(len(hostile)+1)/2)
	})
}

func TestSeckillInvalid(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 1<<53 - 1, PerBuyer: 1<<53 - 1})
		for _, a := range []Attempt{
			{Resource: "tv"}, {Actor: "ann"}, {Actor: "ann", Resource: "tv", Cost: -1},
			{Actor: "ann", Resource: "tv", Cost: 1 << 53}, {Actor: "ann", Resource: "tv", Cost: math.MaxInt64},
		} {
			if d, err := g.Check(t.Context(), a); !isInvalid(err) || d.Allowed {
				t.Errorf("%+v: %+v, %v", a, d, err)
			}
		}
		d := check(t, g, Attempt{Actor: "ann", Resource: "tv", Cost: 1<<53 - 1}) // to the last unit
		wantReason(t, d, ReasonOK)
		settle(t, g, d, true)
		wantStatus(t, g, "tv", 0, 0, 1<<53-1)
	})
}

func TestSeckillRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const buyers, stock = 400, 100
		g := newEngine(b).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: stock})
		var won atomic.Int64
		var all sync.WaitGroup
		for i := range buyers * 2 { // each buyer tries twice
			all.Go(func() {
				d, err := g.Check(t.Context(), Attempt{Actor: fmt.Sprint(i % buyers), Resource: "tv"})
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					won.Add(1)
					if err := g.Settle(t.Context(), d, true); err != nil {
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

// TestSeckillCorruptSaleSellsNothing meddles with a sale: what does not add up is not sold from.
func TestSeckillCorruptSaleSellsNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Seckill("s", SeckillOptions{})
		openSale(t, g, "tv", Sale{Stock: 5})
		d := check(t, g, Attempt{Actor: "ann", Resource: "tv"})
		b.Client.HSet(t.Context(), g.saleKeys("tv")[0], "left", 99)
		if d, err := g.Check(t.Context(), Attempt{Actor: "bob", Resource: "tv"}); err == nil || isInvalid(err) || d.Allowed {
			t.Errorf("Check: %+v, %v", d, err)
		}
		for _, ok := range []bool{true, false} {
			if err := g.Settle(t.Context(), d, ok); err == nil {
				t.Errorf("Settle(%v) went on", ok)
			}
		}
	})
}

func TestSeckillFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	clock := newTestClock()
	g := New(rdb, WithObserver(ignore{}), WithDeadline(10*time.Second), withClock(clock)).Seckill("s", SeckillOptions{})
	openSale(t, g, "tv", Sale{Stock: 3, Hold: time.Minute})
	ann := check(t, g, Attempt{Actor: "ann", Resource: "tv"})
	over := check(t, g, Attempt{Actor: "bob", Resource: "tv", Cost: 1})
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
	_, err := g.Check(t.Context(), Attempt{Actor: "cid", Resource: "tv"})
	full("a reservation", err)

	// What has been promised needs no more memory, and goes on.
	settle(t, g, ann, true)
	wantStatus(t, g, "tv", 1, 1, 1)
	settle(t, g, over, false)
	wantStatus(t, g, "tv", 2, 0, 1)
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	check(t, g, Attempt{Actor: "bob", Resource: "tv"})
	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	clock.Advance(time.Minute)
	if n, err := g.Sweep(t.Context(), "tv"); n != 1 || err != nil {
		t.Errorf("Sweep: %d, %v", n, err)
	}
	wantStatus(t, g, "tv", 2, 0, 1)

	// A stock that changes needs memory for the operation; to close a sale may be what helps.
	if _, err := g.Restock(t.Context(), "tv", "r", 5); err == nil {
		t.Error("a restock went through in a full Redis")
	}
	wantStatus(t, g, "tv", 2, 0, 1)
	if err := g.Close(t.Context(), "tv"); err != nil {
		t.Errorf("Close: %v", err)
	}
	wantStatus(t, g, "tv", 2, 0, 1)
	wantReason(t, check(t, g, Attempt{Actor: "dan", Resource: "tv"}), ReasonClosed)
}
