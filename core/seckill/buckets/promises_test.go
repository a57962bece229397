package buckets

import (
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// several is the kind of sales of so many buckets.
func several(buckets int) saletest.Kind {
	at := func(t testing.TB, g saletest.Sales, item string) *spread {
		return spreadOf(t, g.(*Guard), item, buckets)
	}
	return saletest.Kind{
		New: func(e *core.Engine, options seckill.Options) saletest.Sales {
			return New(e, "s", Options{Options: options, Buckets: buckets})
		},
		Buckets: buckets,
		Lend: func(t testing.TB, g saletest.Sales, item string) {
			if _, err := at(t, g, item).lend(t.Context(), 0, 1, 1); err != nil {
				t.Fatal(err)
			}
		},
		Keep: func(t testing.TB, g saletest.Sales, item string) { at(t, g, item).keep(t.Context()) },
	}
}

// What follows holds for sales of one slot as well.

func TestBucketsManyBuyersAndFaults(t *testing.T) {
	redistest.EachReal(t, several(8).ManyBuyersAndFaults)
}

func TestTheSeventeenthTryIsCountedOrNotToldYes(t *testing.T) {
	several(4).TheSeventeenthTryIsCountedOrNotToldYes(t)
}

func TestWhoAsksAgainIsToldOfAReplay(t *testing.T) { several(4).WhoAsksAgainIsToldOfAReplay(t) }

func TestAReplayWhoseReplyWasLostIsAReplay(t *testing.T) {
	several(4).AReplayWhoseReplyWasLostIsAReplay(t)
}

func TestWhatIsCancelledAfterItsHoldIsNotSold(t *testing.T) {
	several(4).WhatIsCancelledAfterItsHoldIsNotSold(t)
}

func TestLostPartsAreNoticedAndRestored(t *testing.T) { several(4).LostPartsAreNoticedAndRestored(t) }

func TestOpenDoesNotSellAgainOverRemains(t *testing.T) { several(4).OpenDoesNotSellAgainOverRemains(t) }

func TestASaleThatHasLostAPartIsClosedAndKept(t *testing.T) {
	several(4).ASaleThatHasLostAPartIsClosedAndKept(t)
}

func TestSalesThatBuyersMissAreLogged(t *testing.T) { several(4).SalesThatBuyersMissAreLogged(t) }

// TestABucketThatHasLostAPartLendsNothing: it refused its own buyers, and gave their units to the buyers of
// other buckets. A loan that is on its way arrives, or nobody could have its units.
func TestABucketThatHasLostAPartLendsNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newGuard(guardtest.NewEngine(b, guardtest.WithClock(clock)))
		for _, part := range []string{"buyers", "holds", "reservations"} {
			openSale(t, g, part, 2, seckill.Sale{Stock: 8})
			at := spreadOf(t, g, part, 2)
			buyer := buyerOf(at, 0, 0)
			guardtest.WantReason(t, guardtest.Check(t, g,
				core.Attempt{Actor: buyer, Resource: part, ID: "order"}), core.ReasonOK)
			under, err := at.lend(t.Context(), 0, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			saletest.Lose(t, b, g, part, part)

			for _, from := range []int{0, 1} {
				l, err := at.lend(t.Context(), from, 1-from, 1)
				if !errors.Is(err, seckill.ErrLost) || !strings.Contains(err.Error(), part) {
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
			if there := at.key(0, part); b.Client.Exists(t.Context(), there).Val() != 0 {
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
