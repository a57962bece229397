package saletest

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TheSeventeenthTryIsCountedOrNotToldYes tests this: a client tries again and again under one ID and hangs up
// on all but the last. A record remembers 16 callers; the 17th was told yes and not counted.
func (k Kind) TheSeventeenthTryIsCountedOrNotToldYes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := k.New(guardtest.NewEngine(b), seckill.Options{})
		Open(t, g, "tv", seckill.Sale{Stock: 5})
		a := core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}
		var told []core.Decision
		for range 40 {
			d := guardtest.Check(t, g, a)
			if d.Allowed {
				told = append(told, d)
				continue
			}
			guardtest.WantReason(t, d, core.ReasonInProgress)
			if d.RetryAfter != time.Second {
				t.Errorf("%+v: want a retry in a second", d)
			}
		}
		if len(told) != 16 {
			t.Fatalf("%d were told yes, want 16", len(told))
		}
		guardtest.Settle(t, g, told[0], core.Rollback) // it leaves the list, so another is told
		last := guardtest.Check(t, g, a)
		guardtest.WantReason(t, last, core.ReasonOK)
		for _, d := range told {
			guardtest.Settle(t, g, d, core.Rollback)
		}
		WantStatus(t, g, "tv", 4, 1, 0)
		guardtest.Settle(t, g, last, core.Commit)
		WantStatus(t, g, "tv", 4, 0, 1)

		a.ID, a.Actor = "order 2", "bob"
		for range 100 { // however many fail, one after the other: the record stays short
			guardtest.Settle(t, g, guardtest.Check(t, g, a), core.Rollback)
		}
		WantStatus(t, g, "tv", 4, 0, 1)
		guardtest.Settle(t, g, guardtest.Check(t, g, a), core.Commit)
		WantStatus(t, g, "tv", 3, 0, 2)
	})
}

// WhoAsksAgainIsToldOfAReplay tests this, also when the first call never heard its answer, and when it comes
// with the attempt of an earlier decision. What go-redis sends again within one call is no replay.
func (k Kind) WhoAsksAgainIsToldOfAReplay(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		g := k.New(e, seckill.Options{})
		Open(t, g, "tv", seckill.Sale{Stock: 20})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := func(d core.Decision, replayed, kept bool) {
			t.Helper()
			if !d.Allowed || d.Replayed != replayed || d.Kept != kept {
				t.Errorf("%+v: want replayed %v, kept %v", d, replayed, kept)
			}
		}
		faults.SwallowReply("evalsha")
		first := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "order"})
		want(first, false, false)
		want(guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}), true, false)
		want(guardtest.Check(t, g, first.Attempt), true, false)
		guardtest.Settle(t, g, first, core.Commit)
		faults.SwallowReply("evalsha")
		want(guardtest.Check(t, g, first.Attempt), true, true)
		want(guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}), true, true)
		if faults.Swallowed() != 2 {
			t.Errorf("%d replies were lost, want 2", faults.Swallowed())
		}
	})
}

// AReplayWhoseReplyWasLostIsAReplay tests this: the reply to a replay was lost, go-redis sent the call again,
// and the script took it for the call that had made the hold: Replayed was false, and a handler made a second
// order.
func (k Kind) AReplayWhoseReplyWasLostIsAReplay(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		g := k.New(e, seckill.Options{})
		Open(t, g, "tv", seckill.Sale{Stock: 1})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := core.Attempt{Actor: "ann", Resource: "tv", ID: "order"}
		first := guardtest.Check(t, g, a)
		faults.SwallowReply("evalsha")
		again := guardtest.Check(t, g, a)
		if faults.Swallowed() != 1 || !again.Allowed || !again.Replayed {
			t.Errorf("%+v: want a replay, after one lost reply (%d)", again, faults.Swallowed())
		}
		for i, d := range []core.Decision{first, again} { // the hold lasts for each of the two calls
			guardtest.Settle(t, g, d, core.Rollback)
			s, err := g.Status(t.Context(), "tv")
			if err != nil || s.Held != int64(1-i) {
				t.Errorf("%+v, %v: want %d held", s, err, 1-i)
			}
		}
	})
}

// WhatIsCancelledAfterItsHoldIsNotSold tests this: a reservation is cancelled, or its requests fail, when its
// hold is over. Whether it could be confirmed while a unit was left depended on whether a script had taken
// the unit back before that. Its ID stays its buyer's. It is still sold late while one of its requests has
// not failed.
func (k Kind) WhatIsCancelledAfterItsHoldIsNotSold(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := k.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), seckill.Options{})
		confirm := func(what string, a core.Attempt, want core.Reason) {
			t.Helper()
			d, err := g.Confirm(t.Context(), a)
			if err != nil || d.Reason != want {
				t.Errorf("%s: %+v, %v, want %s", what, d, err, want)
			}
		}
		ways := map[string]func(a core.Attempt, told core.Decision){
			"cancelled": func(a core.Attempt, _ core.Decision) {
				d, err := g.Cancel(t.Context(), a)
				if err != nil || d.Reason != core.ReasonOK {
					t.Errorf("cancel: %+v, %v", d, err)
				}
			},
			"rolled back": func(_ core.Attempt, told core.Decision) { guardtest.Settle(t, g, told, core.Rollback) },
			"revoked":     func(_ core.Attempt, told core.Decision) { guardtest.Settle(t, g, told, core.Revoke) },
		}
		for way, end := range ways {
			for _, swept := range []string{"swept", "not swept"} {
				item := way + ", " + swept
				Open(t, g, item, seckill.Sale{Stock: 9, PerBuyer: 9, Hold: time.Minute})
				a := core.Attempt{Actor: "ann", Resource: item, ID: "order"}
				told := guardtest.Check(t, g, a)
				tries := core.Attempt{Actor: "bob", Resource: item, ID: "twice"}
				first, second := guardtest.Check(t, g, tries), guardtest.Check(t, g, tries)
				clock.Advance(time.Minute)
				if swept == "swept" {
					if n, err := g.Sweep(t.Context(), item); n != 2 || err != nil {
						t.Errorf("%s: %d, %v", item, n, err)
					}
				}
				end(a, told)
				end(a, told)
				confirm(item, a, core.ReasonGone)
				stranger := core.Attempt{Actor: "cid", Resource: item, ID: a.ID}
				if k.Buckets == 1 { // another bucket does not know the ID
					guardtest.WantReason(t, guardtest.Check(t, g, stranger), core.ReasonConflict)
				}
				guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK) // anew
				confirm(item, a, core.ReasonOK)

				guardtest.Settle(t, g, first, core.Rollback)
				guardtest.Settle(t, g, second, core.Commit) // late
				EndHolds(t, g, item)
				WantStatus(t, g, item, 7, 0, 2)
			}
		}
	})
}
