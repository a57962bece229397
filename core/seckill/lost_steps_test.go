package seckill

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestABucketThatHasLostAPartLendsNothing: it refused its own buyers, and gave their units to the buyers of
// other buckets. A loan that is on its way arrives, or nobody could have its units.
func TestABucketThatHasLostAPartLendsNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		for _, part := range []string{"buyers", "holds", "reservations"} {
			openSale(t, g, part, Sale{Stock: 8, Buckets: 2})
			at := spreadOf(t, g, part, 2)
			buyer := buyerOf(at, 0, 0)
			guardtest.WantReason(t, guardtest.Check(t, g,
				core.Attempt{Actor: buyer, Resource: part, ID: "order"}), core.ReasonOK)
			under, err := at.lend(t.Context(), 0, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			lose(t, b, g, part, part)

			for _, from := range []int{0, 1} {
				l, err := at.lend(t.Context(), from, 1-from, 1)
				if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: lend: %+v, %v", part, l, err)
				}
			}
			for range 2 {
				if err := at.complete(t.Context(), []loan{under}); err != nil {
					t.Errorf("%s: the loan that is on its way: %v", part, err)
				}
			}
			if status, _, err := at.status(t.Context()); err != nil || status.Left != 7 || status.Held != 1 {
				t.Errorf("%s: %+v, %v", part, status, err)
			}
			if there := at.buckets[0].key(part); b.Client.Exists(t.Context(), there).Val() != 0 {
				t.Errorf("%s is there again, so nobody notices that it was lost", part)
			}
			if restored, err := g.Repair(t.Context(), part); err != nil || len(restored) != 2 {
				t.Errorf("Repair: %q, %v", restored, err)
			}
			if _, err := at.lend(t.Context(), 1, 0, 1); err != nil {
				t.Errorf("%s: lend: %v", part, err)
			}
			wantStatus(t, g, part, 7, 1, 0)
		}
	})
}

// TestASaleThatHasLostAPartIsClosedAndKept: an operator closes it before Repair lets buyers in again, and
// what is left of it does not expire earlier than a whole sale.
func TestASaleThatHasLostAPartIsClosedAndKept(t *testing.T) {
	oneAndSeveralBuckets(t, func(t *testing.T, b redistest.Backend, buckets int) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		for _, part := range []string{"buyers", "holds", "reservations"} {
			_, held := lived(t, g, clock, part, buckets)
			lose(t, b, g, part, part)
			if s, several := g.stockOf(part).(*spread); several {
				for _, bucket := range s.buckets {
					b.Client.PExpire(t.Context(), bucket.key("sale"), time.Hour)
				}
				s.keep(t.Context())
				for _, bucket := range s.buckets {
					if ttl := b.Client.PTTL(t.Context(), bucket.key("sale")).Val(); ttl < 29*24*time.Hour {
						t.Errorf("%s: a bucket is kept for %v", part, ttl)
					}
				}
			}
			for range 2 {
				if err := g.Close(t.Context(), part); err != nil {
					t.Errorf("%s: Close: %v", part, err)
				}
			}
			if restored, err := g.Repair(t.Context(), part); err != nil || len(restored) != buckets {
				t.Fatalf("Repair: %q, %v", restored, err)
			}
			clock.Advance(saleRefusalFor)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: part}),
				core.ReasonClosed)
			lose(t, b, g, part, "sale") // the terms from which it is restored say that it is closed
			if _, err := g.Repair(t.Context(), part); err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: part}),
				core.ReasonClosed)
			guardtest.Settle(t, g, held, true)
			wantStatus(t, g, part, 7, 0, 16)
		}
	})
}
