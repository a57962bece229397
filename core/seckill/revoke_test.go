package seckill

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestASaleThatNobodyHeardOfIsTakenBack: a request was confirmed at the moment at which its time ended, and
// the buyer was told 503. Revoke gives the unit back, once; Rollback after a commit does not.
func TestASaleThatNobodyHeardOfIsTakenBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5, PerBuyer: 2})
		buy := core.Attempt{Actor: "ann", Resource: "tv", Cost: 2}
		d := guardtest.Check(t, g, buy)
		guardtest.Settle(t, g, d, core.Commit)
		guardtest.Settle(t, g, d, core.Rollback)
		wantStatus(t, g, "tv", 3, 0, 2)
		for range 2 {
			guardtest.Settle(t, g, d, core.Revoke)
			wantStatus(t, g, "tv", 5, 0, 0)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, buy), core.ReasonOK) // the buyer's limit is free again
		wantStatus(t, g, "tv", 3, 2, 0)

		// another call was told of the reservation before it was sold
		shared := core.Attempt{Actor: "bob", Resource: "tv", ID: "order"}
		one, other := guardtest.Check(t, g, shared), guardtest.Check(t, g, shared)
		guardtest.WantReason(t, other, core.ReasonOK)
		guardtest.Settle(t, g, one, core.Commit)
		guardtest.Settle(t, g, one, core.Revoke)
		wantStatus(t, g, "tv", 2, 2, 1)

		// what is only held goes back as by Rollback
		held := guardtest.Check(t, g, core.Attempt{Actor: "cid", Resource: "tv"})
		guardtest.Settle(t, g, held, core.Revoke)
		wantStatus(t, g, "tv", 2, 2, 1)

		var kinds []EventKind
		events, err := g.Events(t.Context(), "tv", "", 100)
		for _, e := range events {
			kinds = append(kinds, e.Kind)
		}
		if err != nil || len(kinds) < 5 || kinds[2] != EventSold || kinds[3] != EventWithdrawn ||
			kinds[4] != EventCancelled {
			t.Errorf("%v, %v", kinds, err)
		}
	})
}

// TestASaleThatAnotherRequestWasToldOfStands: a repetition that came after the sale, and before the request that
// had bought took it back, was told that it is sold. Nothing kept that, and the sale was withdrawn.
//
// Promise: A sale is taken back only while no other request has heard of it.
func TestASaleThatAnotherRequestWasToldOfStands(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 5})
		buy := core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}
		first := guardtest.Check(t, g, buy)
		guardtest.Settle(t, g, first, core.Commit)
		for range 3 {
			again := guardtest.Check(t, g, buy)
			if again.Reason != core.ReasonOK || !again.Kept || !again.Replayed {
				t.Fatalf("%+v", again)
			}
			guardtest.Settle(t, g, again, core.Revoke) // it has sold nothing
		}
		guardtest.Settle(t, g, first, core.Revoke)
		wantStatus(t, g, "tv", 4, 0, 1)
		wantConsistent(t, g, "tv")
	})
}

// TestWithdrawnSalesLeaveNoEventsWithoutABound: who hangs up again and again left three or four events each
// time, also where the hold was over before it was sold.
func TestWithdrawnSalesLeaveNoEventsWithoutABound(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		for _, late := range []bool{false, true} {
			clock := guardtest.NewClock()
			g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), fmt.Sprint("s", late), Options{})
			openSale(t, g, "p", Sale{Stock: 5, Hold: time.Minute})
			for n := range 60 {
				d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", ID: fmt.Sprint(n)})
				guardtest.WantReason(t, d, core.ReasonOK)
				if late {
					clock.Advance(2 * time.Minute)
					if _, err := g.Sweep(t.Context(), "p"); err != nil {
						t.Fatal(err)
					}
				}
				guardtest.Settle(t, g, d, core.Commit)
				guardtest.Settle(t, g, d, core.Revoke)
			}
			events, err := g.Events(t.Context(), "p", "", 1000)
			if err != nil || len(events) > 1+16*6 {
				t.Errorf("late %t: %d events, %v: want those of the last 16 at most", late, len(events), err)
			}
			wantConsistent(t, g, "p")
		}
	})
}
