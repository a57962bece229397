package saletest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// refusalFor is how long a process remembers a refusal.
const refusalFor = 250 * time.Millisecond

// lived opens a sale and lets everything happen to it. It returns a reservation that is sold and one that is
// held for a minute.
func (k Kind) lived(t *testing.T, g Sales, clock *guardtest.Clock, item string) (sold, held core.Decision) {
	t.Helper()
	Open(t, g, item, seckill.Sale{Stock: 20, PerBuyer: 8, Hold: time.Minute})
	buy := func(buyer, id string, quantity int64) core.Decision {
		t.Helper()
		d := guardtest.Check(t, g, core.Attempt{Actor: buyer, Resource: item, ID: id, Cost: quantity})
		guardtest.WantReason(t, d, core.ReasonOK)
		return d
	}
	buy("walks away", "1", 8) // more than a bucket has
	guardtest.Settle(t, g, buy("fails", "2", 2), core.Rollback)
	clock.Advance(time.Hour)
	if n, err := g.Sweep(t.Context(), item); n != 1 || err != nil {
		t.Fatalf("Sweep: %d, %v", n, err)
	}
	if _, err := g.Restock(t.Context(), item, "r", 3); err != nil {
		t.Fatal(err)
	}
	sold, held = buy("ann", "3", 8), buy("bob ü", "4", 7)
	guardtest.Settle(t, g, sold, core.Commit)
	guardtest.Settle(t, g, buy("ann's friend", "5", 1), core.Commit)
	if k.Lend != nil {
		k.Lend(t, g, item)
	}
	WantStatus(t, g, item, 7, 7, 9)
	return sold, held
}

// LostPartsAreNoticedAndRestored tests this: those who had bought could buy again when the record of buyers
// was lost, and where the reservations were lost their units stayed locked, behind an error of Lua.
func (k Kind) LostPartsAreNoticedAndRestored(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := k.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), seckill.Options{})
		for i, parts := range [][]string{
			{"buyers"}, {"holds"}, {"reservations"}, {"buyers", "holds"}, {"buyers", "holds", "reservations"},
		} {
			item := fmt.Sprint("tv", i)
			sold, held := k.lived(t, g, clock, item)
			Lose(t, b, g, item, parts...)
			clock.Advance(refusalFor) // or a refusal is remembered

			again := core.Attempt{Actor: "ann", Resource: item, ID: "again"}
			for _, a := range []core.Attempt{again, {Actor: "cid", Resource: item}, held.Attempt} {
				d := guardtest.Check(t, g, a)
				guardtest.WantReason(t, d, core.ReasonNotReady)
				if seckill.LostPart(d) != parts[0] {
					t.Errorf("%v: %q is said to be lost", parts, seckill.LostPart(d))
				}
			}
			for what, call := range map[string]func() error{
				"confirm":   func() error { _, err := g.Confirm(t.Context(), held.Attempt); return err },
				"cancel":    func() error { _, err := g.Cancel(t.Context(), held.Attempt); return err },
				"commit":    func() error { return g.Settle(t.Context(), held, core.Commit) },
				"sweep":     func() error { _, err := g.Sweep(t.Context(), item); return err },
				"restock":   func() error { _, err := g.Restock(t.Context(), item, "q", 1); return err },
				"take away": func() error { _, err := g.Restock(t.Context(), item, "p", -1); return err },
			} {
				if err := call(); !errors.Is(err, seckill.ErrLost) || !errors.Is(err, core.ErrNotNow) {
					t.Errorf("%v: %s: %v", parts, what, err)
				}
			}
			if opened, err := g.Open(t.Context(), item, seckill.Sale{Stock: 99}); opened || err != nil {
				t.Errorf("%v: Open: %v, %v", parts, opened, err)
			}
			v, err := Verify(g, item)
			if err != nil || v.Consistent() {
				t.Errorf("%v: Verify: %v\n%v", parts, err, v)
			}
			for _, part := range parts {
				if n := strings.Count(v.String(), "lost: "+part); n < k.Buckets {
					t.Errorf("%v: Verify does not say it for each bucket:\n%v", parts, v)
				}
			}

			restored, err := g.Repair(t.Context(), item)
			if err != nil || len(restored) != k.Buckets*len(parts) {
				t.Fatalf("%v: Repair: %q, %v", parts, restored, err)
			}
			if again, err := g.Repair(t.Context(), item); len(again) > 0 || err != nil {
				t.Errorf("%v: a second Repair: %q, %v", parts, again, err)
			}
			WantStatus(t, g, item, 7, 7, 9)
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
			WantStatus(t, g, item, 14, 0, 9)
			guardtest.Settle(t, g, held, core.Commit)
			WantStatus(t, g, item, 7, 0, 16)
			for _, part := range parts {
				for _, key := range Keys(t, g, item, part) {
					if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl < 29*24*time.Hour {
						t.Errorf("%s is kept for %v", key, ttl)
					}
				}
			}
		}
	})
}

// OpenDoesNotSellAgainOverRemains tests this: the root of a sale was lost, and when it was opened again 36 of
// 20 units were sold. Repair restores it, and Discard makes room for another.
func (k Kind) OpenDoesNotSellAgainOverRemains(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := k.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), seckill.Options{})
		_, held := k.lived(t, g, clock, "tv")
		other := k.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), seckill.Options{}) // knows no buckets
		refused := func() {
			t.Helper()
			unaware := k.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), seckill.Options{})
			opened, err := unaware.Open(t.Context(), "tv", seckill.Sale{Stock: 20})
			if opened || !errors.Is(err, seckill.ErrRemains) || !errors.Is(err, core.ErrNotNow) {
				t.Errorf("Open: %v, %v", opened, err)
			}
			guardtest.WantReason(t, guardtest.Check(t, unaware, core.Attempt{Actor: "cid", Resource: "tv"}),
				core.ReasonNotReady)
		}
		root := g.Key("tv", "sale")
		b.Client.Del(t.Context(), root)
		refused()
		restored, err := other.Repair(t.Context(), "tv")
		if err != nil || !slices.Equal(restored, []string{"sale"}) {
			t.Fatalf("Repair: %q, %v", restored, err)
		}
		WantStatus(t, other, "tv", 7, 7, 9)
		if opened, err := other.Open(t.Context(), "tv", seckill.Sale{Stock: 20}); opened || err != nil {
			t.Errorf("Open: %v, %v", opened, err)
		}

		// The sale was closed since it was opened, and its buckets are lost, but not their records.
		if err := other.Close(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		Lose(t, b, other, "tv", "sale")
		restored, err = other.Repair(t.Context(), "tv")
		if err != nil || len(restored) != k.Buckets {
			t.Fatalf("Repair: %q, %v", restored, err)
		}
		WantStatus(t, other, "tv", 7, 7, 9)
		guardtest.WantReason(t, guardtest.Check(t, other, core.Attempt{Actor: "cid", Resource: "tv"}),
			core.ReasonClosed)
		guardtest.Settle(t, other, held, core.Commit)
		WantStatus(t, other, "tv", 7, 0, 16)

		b.Client.Del(t.Context(), root)
		refused()
		if err := other.Discard(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		if err := other.Discard(t.Context(), "tv"); !errors.Is(err, seckill.ErrNoSale) {
			t.Errorf("nothing to discard: %v", err)
		}
		clock.Advance(time.Millisecond)
		Open(t, other, "tv", seckill.Sale{Stock: 2})
		WantStatus(t, other, "tv", 2, 0, 0)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}), core.ReasonOK)
		WantStatus(t, g, "tv", 1, 1, 0)
	})
}

// ASaleThatHasLostAPartIsClosedAndKept tests this: an operator closes it before Repair lets buyers in again,
// and what is left of it does not expire earlier than a whole sale.
func (k Kind) ASaleThatHasLostAPartIsClosedAndKept(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := k.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), seckill.Options{})
		for _, part := range []string{"buyers", "holds", "reservations"} {
			_, held := k.lived(t, g, clock, part)
			Lose(t, b, g, part, part)
			if k.Keep != nil {
				for _, key := range Keys(t, g, part, "sale") {
					b.Client.PExpire(t.Context(), key, time.Hour)
				}
				k.Keep(t, g, part)
				for _, key := range Keys(t, g, part, "sale") {
					if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl < 29*24*time.Hour {
						t.Errorf("%s is kept for %v", key, ttl)
					}
				}
			}
			for range 2 {
				if err := g.Close(t.Context(), part); err != nil {
					t.Errorf("%s: Close: %v", part, err)
				}
			}
			if restored, err := g.Repair(t.Context(), part); err != nil || len(restored) != k.Buckets {
				t.Fatalf("Repair: %q, %v", restored, err)
			}
			clock.Advance(refusalFor)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: part}),
				core.ReasonClosed)
			Lose(t, b, g, part, "sale") // the terms from which it is restored say that it is closed
			if _, err := g.Repair(t.Context(), part); err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: part}),
				core.ReasonClosed)
			guardtest.Settle(t, g, held, core.Commit)
			WantStatus(t, g, part, 7, 0, 16)
		}
	})
}
