package seckill

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestALatePaymentIsTakenWhenTheRivalsHoldIsOverToo: a reservation that has expired is sold while units are
// left, and units of other expired holds are, even if nobody has given them back yet. A sale of one slot
// said gone, where one of several buckets said ok. So it is with what Restock takes away.
func TestALatePaymentIsTakenWhenTheRivalsHoldIsOverToo(t *testing.T) {
	const rivals = 230 // more than one call gives back
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		reserve := func(item, buyer string, quantity int64) core.Attempt {
			t.Helper()
			a := core.Attempt{Actor: buyer, Resource: item, ID: buyer, Cost: quantity}
			d := guardtest.Check(t, g, a)
			guardtest.WantReason(t, d, core.ReasonOK)
			return a
		}
		confirm := func(a core.Attempt, want core.Reason) {
			t.Helper()
			d, err := g.Confirm(t.Context(), a)
			if err != nil || d.Reason != want {
				t.Errorf("confirm %+v: %+v, %v, want %s", a, d, err, want)
			}
		}
		for _, of := range []string{"one rival", "many", "their own", "restock"} {
			openSale(t, g, of, Sale{Stock: rivals, PerBuyer: rivals, Hold: time.Minute})
			late := reserve(of, "ann", rivals)
			clock.Advance(time.Minute)
			switch of {
			case "one rival":
				reserve(of, "bob", rivals)
			case "many", "restock":
				for i := range rivals {
					reserve(of, fmt.Sprint("rival ", i), 1)
				}
			case "their own": // who may have no more
				late.ID = "again"
				guardtest.WantReason(t, guardtest.Check(t, g, late), core.ReasonOK)
				late.ID = "ann"
			}
			left := func(units int64) error {
				_, err := g.Restock(t.Context(), of, "less", -units)
				return err
			}
			if of == "restock" {
				if err := left(rivals); !errors.Is(err, ErrTooFewLeft) {
					t.Errorf("units that others hold were taken away: %v", err)
				}
			} else {
				confirm(late, core.ReasonGone) // their holds are not over yet
			}
			clock.Advance(time.Minute)
			if of == "restock" {
				if err := left(rivals); err != nil {
					t.Errorf("units of expired holds stay: %v", err)
				}
				wantStatus(t, g, of, 0, 0, 0)
			} else {
				confirm(late, core.ReasonOK)
				wantStatus(t, g, of, 0, 0, rivals)
			}
			wantConsistent(t, g, of)
		}
	})
}

// TestAFailureCostsTheSameHoweverManyABuyerHas: the list of a buyer's failed reservations was made anew for
// each, at 3.5 ms of Redis where PerBuyer is 500. The fields of the last ones stand by themselves.
func TestAFailureCostsTheSameHoweverManyABuyerHas(t *testing.T) {
	b := redistest.Single(t)
	clock := guardtest.NewClock()
	g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
	openSale(t, g, "tv", Sale{Stock: 1000, PerBuyer: 500, Hold: time.Minute})
	for i := range 550 {
		order := fmt.Sprint("an order of ann's ", i)
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: order})
		guardtest.WantReason(t, d, core.ReasonOK)
		guardtest.Settle(t, g, d, core.Rollback)
	}
	longest := 0
	for _, value := range b.Client.HGetAll(t.Context(), g.saleKeys("tv")[3]).Val() {
		longest = max(longest, len(value))
	}
	if longest > 200 {
		t.Errorf("a field of %d bytes is made anew with each failure", longest)
	}
	if n := b.Client.HLen(t.Context(), g.saleKeys("tv")[3]).Val(); n != 1+1+2*500 {
		t.Errorf("%d fields after 550 failures, of which 500 are kept", n)
	}
	wantConsistent(t, g, "tv")
}
