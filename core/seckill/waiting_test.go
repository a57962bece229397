package seckill

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestWhoClicksAgainIsToldOfTheirReservation: a buyer whose page had no operation ID heard only that they
// have all that one may have, and could not pay until the hold was over.
//
// Promise: A `duplicate` names the latest reservation that this buyer holds, in the decision and in the body.
// It writes nothing.
func TestWhoClicksAgainIsToldOfTheirReservation(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{})
		other := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{}) // in another process
		openSale(t, g, "tv", Sale{Stock: 9, PerBuyer: 2, Hold: time.Minute})
		ann := core.Attempt{Actor: "ann ü", Resource: "tv"}
		wants := func(what, id string, held time.Duration) {
			t.Helper()
			before := b.Client.HGetAll(t.Context(), g.saleKeys("tv")[3]).Val()
			for range 2 { // the second time from memory
				for _, a := range []core.Attempt{ann, {Actor: ann.Actor, Resource: "tv", ID: "another"}} {
					d := guardtest.Check(t, g, a)
					guardtest.WantReason(t, d, core.ReasonDuplicate)
					if got := WaitingOf(d); got != id || d.ResetAfter != held || d.RetryAfter != 0 {
						t.Errorf("%s: %q for %v is said to be held, want %q for %v", what, got, d.ResetAfter, id, held)
					}
				}
			}
			if now := b.Client.HGetAll(t.Context(), g.saleKeys("tv")[3]).Val(); fmt.Sprint(now) != fmt.Sprint(before) {
				t.Errorf("%s: refused attempts have written", what)
			}
			clock.Advance(saleRefusalFor)
		}
		first := guardtest.Check(t, g, ann) // whose ID the guard makes
		clock.Advance(time.Second)
		second := guardtest.Check(t, other, ann)
		wants("two", second.Attempt.ID, time.Minute)
		if id := WaitingOf(guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "tv", Cost: 3})); id != "" {
			t.Errorf("bob is told of %q", id)
		}
		if d, err := g.Confirm(t.Context(), second.Attempt); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		wants("the later one is sold", first.Attempt.ID, time.Minute-time.Second-saleRefusalFor)

		paid := first.Attempt // what the answer has is enough to pay
		paid.ID = WaitingOf(guardtest.Check(t, g, ann))
		if d, err := g.Confirm(t.Context(), paid); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		wants("both are sold", "", 0)
		wantStatus(t, g, "tv", 7, 0, 2)

		// What is over is not held any more, also before anybody takes it back.
		dan := core.Attempt{Actor: "dan", Resource: "tv", Cost: 2}
		guardtest.Check(t, g, dan)
		clock.Advance(time.Minute)
		dan.Cost = 3
		if d := guardtest.Check(t, g, dan); d.Reason != core.ReasonDuplicate || WaitingOf(d) != "" {
			t.Errorf("%+v: %q is over", d, WaitingOf(d))
		}
		// The hash of a long ID is no ID.
		eve := core.Attempt{Actor: "eve", Resource: "tv", Cost: 2, ID: strings.Repeat("long ", 30)}
		guardtest.Check(t, g, eve)
		eve.ID = ""
		if d := guardtest.Check(t, g, eve); d.Reason != core.ReasonDuplicate || WaitingOf(d) != "" {
			t.Errorf("%+v: %q is no ID", d, WaitingOf(d))
		}
	})
}

// TestAForgottenIDIsToldToItsBuyerOnly: an ID that failed and was forgotten is free, and another buyer has
// reserved under it.
func TestAForgottenIDIsToldToItsBuyerOnly(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 99, PerBuyer: 16})
		hold := func(buyer string, units int64, id string) core.Decision {
			t.Helper()
			d := guardtest.Check(t, g, core.Attempt{Actor: buyer, Resource: "tv", Cost: units, ID: id})
			guardtest.WantReason(t, d, core.ReasonOK)
			return d
		}
		var held []core.Decision
		for i := range 16 {
			held = append(held, hold("ann", 1, fmt.Sprint("o", i)))
		}
		guardtest.Settle(t, g, held[15], core.Rollback) // o15 is the first to fail
		for _, d := range held[1:15] {
			guardtest.Settle(t, g, d, core.Rollback)
		}
		for i := range 2 {
			guardtest.Settle(t, g, hold("ann", 1, fmt.Sprint("n", i)), core.Rollback)
		}
		hold("mallory", 1, "o15")
		guardtest.Settle(t, g, hold("ann", 15, "rest"), core.Commit)
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
		guardtest.WantReason(t, d, core.ReasonDuplicate)
		if id := WaitingOf(d); id == "o15" {
			t.Errorf("ann is told of mallory's reservation")
		}
	})
}
