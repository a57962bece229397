package seckill

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// lived opens a sale and lets everything happen to it. It returns a reservation that is sold and one that is
// held for a minute.
func lived(
	t *testing.T, g *Guard, clock *guardtest.Clock, item string, buckets int,
) (sold, held core.Decision) {
	t.Helper()
	openSale(t, g, item, Sale{Stock: 20, PerBuyer: 8, Hold: time.Minute, Buckets: buckets})
	buy := func(buyer, id string, quantity int64) core.Decision {
		t.Helper()
		d := guardtest.Check(t, g, core.Attempt{Actor: buyer, Resource: item, ID: id, Cost: quantity})
		guardtest.WantReason(t, d, core.ReasonOK)
		return d
	}
	buy("walks away", "1", 8) // more than a bucket has
	guardtest.Settle(t, g, buy("fails", "2", 2), false)
	clock.Advance(time.Hour)
	if n, err := g.Sweep(t.Context(), item); n != 1 || err != nil {
		t.Fatalf("Sweep: %d, %v", n, err)
	}
	if _, err := g.Restock(t.Context(), item, "r", 3); err != nil {
		t.Fatal(err)
	}
	sold, held = buy("ann", "3", 8), buy("bob ü", "4", 7)
	guardtest.Settle(t, g, sold, true)
	guardtest.Settle(t, g, buy("ann's friend", "5", 1), true)
	if at, several := g.stockOf(item).(*spread); several { // one loan is on its way
		if _, err := at.lend(t.Context(), 0, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	wantStatus(t, g, item, 7, 7, 9)
	return sold, held
}

// lose deletes a key of a sale, in each of its buckets.
func lose(t *testing.T, b redistest.Backend, g *Guard, item string, fields ...string) {
	t.Helper()
	at, err := g.whereabouts(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range bucketsOf(at) {
		for _, field := range fields {
			if n := b.Client.Del(t.Context(), bucket.key(field)).Val(); n != 1 {
				t.Fatalf("there was no %s to lose", field)
			}
		}
	}
}

// TestLostPartsAreNoticedAndRestored: who had bought bought again when the record of buyers was lost, and
// where the reservations were lost their units stayed locked, behind an error of Lua.
func TestLostPartsAreNoticedAndRestored(t *testing.T) {
	oneAndSeveralBuckets(t, func(t *testing.T, b redistest.Backend, buckets int) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		for i, parts := range [][]string{
			{"buyers"}, {"holds"}, {"reservations"}, {"buyers", "holds"}, {"buyers", "holds", "reservations"},
		} {
			item := fmt.Sprint("tv", i)
			sold, held := lived(t, g, clock, item, buckets)
			lose(t, b, g, item, parts...)
			clock.Advance(saleRefusalFor) // or a refusal is remembered

			again := core.Attempt{Actor: "ann", Resource: item, ID: "again"}
			for _, a := range []core.Attempt{again, {Actor: "cid", Resource: item}, held.Attempt} {
				d := guardtest.Check(t, g, a)
				guardtest.WantReason(t, d, core.ReasonNotReady)
				if LostPart(d) != parts[0] {
					t.Errorf("%v: %q is said to be lost", parts, LostPart(d))
				}
			}
			for what, call := range map[string]func() error{
				"confirm":   func() error { _, err := g.Confirm(t.Context(), item, "4"); return err },
				"cancel":    func() error { _, err := g.Cancel(t.Context(), item, "4"); return err },
				"commit":    func() error { return g.Settle(t.Context(), held, core.Commit) },
				"sweep":     func() error { _, err := g.Sweep(t.Context(), item); return err },
				"restock":   func() error { _, err := g.Restock(t.Context(), item, "q", 1); return err },
				"take away": func() error { _, err := g.Restock(t.Context(), item, "p", -1); return err },
			} {
				if err := call(); !errors.Is(err, ErrLost) || !errors.Is(err, core.ErrNotNow) {
					t.Errorf("%v: %s: %v", parts, what, err)
				}
			}
			if opened, err := g.Open(t.Context(), item, Sale{Stock: 99}); opened || err != nil {
				t.Errorf("%v: Open: %v, %v", parts, opened, err)
			}
			v, err := g.Verify(t.Context(), item)
			if len(v.Buckets) > 0 {
				v = v.Buckets[0]
			}
			if err != nil || v.Consistent() || !slices.Equal(v.Lost, parts) {
				t.Errorf("%v: Verify: %v\n%v", parts, err, v)
			}

			restored, err := g.Repair(t.Context(), item)
			if err != nil || len(restored) != buckets*len(parts) {
				t.Fatalf("%v: Repair: %q, %v", parts, restored, err)
			}
			if again, err := g.Repair(t.Context(), item); len(again) > 0 || err != nil {
				t.Errorf("%v: a second Repair: %q, %v", parts, again, err)
			}
			wantStatus(t, g, item, 7, 7, 9)
			guardtest.WantReason(t, guardtest.Check(t, g, again), core.ReasonDuplicate)
			guardtest.WantReason(t, guardtest.Check(t, g, // failed under bob's nose, before all that
				core.Attempt{Actor: "fails", Resource: item, ID: "2"}), core.ReasonOK)
			if d := guardtest.Check(t, g, sold.Attempt); !d.Allowed || !d.Kept {
				t.Errorf("%v: %+v: want the sale", parts, d)
			}
			if s, err := g.Restock(t.Context(), item, "r", 3); err != nil || s.Stock != 23 {
				t.Errorf("%v: the restock counts again: %+v, %v", parts, s, err)
			}
			clock.Advance(time.Minute)
			if n, err := g.Sweep(t.Context(), item); n != 2 || err != nil {
				t.Errorf("%v: Sweep: %d, %v", parts, n, err)
			}
			wantStatus(t, g, item, 14, 0, 9)
			guardtest.Settle(t, g, held, true)
			wantStatus(t, g, item, 7, 0, 16)
			for _, bucket := range bucketsOf(g.stockOf(item)) {
				for _, part := range parts {
					if ttl := b.Client.PTTL(t.Context(), bucket.key(part)).Val(); ttl < 29*24*time.Hour {
						t.Errorf("%s is kept for %v", part, ttl)
					}
				}
			}
		}
	})
}

// TestOpenDoesNotSellAgainOverRemains: the root of a sale was lost, and when it was opened again 36 of 20
// units were sold. Repair restores it, and Discard makes room for another.
func TestOpenDoesNotSellAgainOverRemains(t *testing.T) {
	oneAndSeveralBuckets(t, func(t *testing.T, b redistest.Backend, buckets int) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		_, held := lived(t, g, clock, "tv", buckets)
		other := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{}) // knows no buckets
		refused := func() {
			t.Helper()
			unaware := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
			for _, n := range []int{1, 4, 8} {
				opened, err := unaware.Open(t.Context(), "tv", Sale{Stock: 20, Buckets: n})
				if opened || !errors.Is(err, ErrRemains) || !errors.Is(err, core.ErrNotNow) {
					t.Errorf("Open with %d buckets: %v, %v", n, opened, err)
				}
			}
			guardtest.WantReason(t, guardtest.Check(t, unaware, core.Attempt{Actor: "cid", Resource: "tv"}),
				core.ReasonNotReady)
		}
		root := g.saleKeys("tv")[0]
		b.Client.Del(t.Context(), root)
		refused()
		restored, err := other.Repair(t.Context(), "tv")
		if err != nil || !slices.Equal(restored, []string{"sale"}) {
			t.Fatalf("Repair: %q, %v", restored, err)
		}
		wantStatus(t, other, "tv", 7, 7, 9)
		if opened, err := other.Open(t.Context(), "tv", Sale{Stock: 20}); opened || err != nil {
			t.Errorf("Open: %v, %v", opened, err)
		}

		// The sale was closed since it was opened, and its buckets are lost, but not their records.
		if err := other.Close(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		lose(t, b, other, "tv", "sale")
		restored, err = other.Repair(t.Context(), "tv")
		if err != nil || len(restored) != buckets {
			t.Fatalf("Repair: %q, %v", restored, err)
		}
		wantStatus(t, other, "tv", 7, 7, 9)
		guardtest.WantReason(t, guardtest.Check(t, other, core.Attempt{Actor: "cid", Resource: "tv"}),
			core.ReasonClosed)
		guardtest.Settle(t, other, other.handOver(held), true)
		wantStatus(t, other, "tv", 7, 0, 16)

		b.Client.Del(t.Context(), root)
		refused()
		if err := other.Discard(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		if err := other.Discard(t.Context(), "tv"); !errors.Is(err, ErrNoSale) {
			t.Errorf("nothing to discard: %v", err)
		}
		clock.Advance(time.Millisecond)
		openSale(t, other, "tv", Sale{Stock: 2})
		wantStatus(t, other, "tv", 2, 0, 0)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}), core.ReasonOK)
		wantStatus(t, g, "tv", 1, 1, 0)
	})
}

// handOver returns a decision as this process would have it, had it made it.
func (g *Guard) handOver(d core.Decision) core.Decision {
	d.Guard = g.Name()
	return d
}

// TestWhatCannotBeRestoredIsSaid: without an outbox nobody knows the reservations.
func TestWhatCannotBeRestoredIsSaid(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{NoOutbox: true})
		openSale(t, g, "tv", Sale{Stock: 5})
		guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}), true)
		lose(t, b, g, "tv", "buyers")
		if restored, err := g.Repair(t.Context(), "tv"); err != nil || len(restored) != 1 {
			t.Errorf("%q, %v: the buyers are in the reservations", restored, err)
		}
		wantStatus(t, g, "tv", 4, 0, 1)
		lose(t, b, g, "tv", "reservations")
		if restored, err := g.Repair(t.Context(), "tv"); len(restored) > 0 || !errors.Is(err, ErrLost) {
			t.Errorf("%q, %v", restored, err)
		}
		lose(t, b, g, "tv", "sale")
		if restored, err := g.Repair(t.Context(), "tv"); len(restored) > 0 || !errors.Is(err, ErrLost) {
			t.Errorf("%q, %v", restored, err)
		}
		if err := g.Discard(t.Context(), "tv"); err != nil {
			t.Error(err)
		}
		openSale(t, g, "tv", Sale{Stock: 5})
		for what, err := range map[string]error{
			"repair":  func() error { _, err := g.Repair(t.Context(), "unknown"); return err }(),
			"discard": g.Discard(t.Context(), "unknown"),
		} {
			if !errors.Is(err, ErrNoSale) {
				t.Errorf("%s of an unknown sale: %v", what, err)
			}
		}
		_, repair := g.Repair(t.Context(), "")
		if !guardtest.IsInvalid(repair) || !guardtest.IsInvalid(g.Discard(t.Context(), "")) {
			t.Errorf("no item: %v", repair)
		}
	})
}
