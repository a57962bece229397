package seckill

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// twoProcesses returns a guard in two processes; asked counts the calls of the first one to Redis.
func twoProcesses(b redistest.Backend) (here, there *Guard, clock *guardtest.Clock, asked *atomic.Int64) {
	clock, asked = guardtest.NewClock(), new(atomic.Int64)
	e := guardtest.NewEngineOver(b, busy{b.Client, func(redis.Cmder) { asked.Add(1) }},
		guardtest.WithClock(clock))
	return New(e, "s", Options{}), New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{}),
		clock, asked
}

func TestSoldOutIsRemembered(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		here, there, clock, asked := twoProcesses(b)
		openSale(t, there, "tv", Sale{Stock: 3, PerBuyer: 9})
		winner := core.Attempt{Actor: "ann", Resource: "tv", ID: "op", Cost: 2}
		won := guardtest.Check(t, there, winner)
		wants := func(what string, cost int64, id string, reason core.Reason, asks bool) {
			t.Helper()
			before := asked.Load()
			d := guardtest.Check(t, here, core.Attempt{Actor: "cid", Resource: "tv", Cost: cost, ID: id})
			if d.Reason != reason || reason == core.ReasonSoldOut && (d.Limit != 3 || d.RetryAfter != 0) {
				t.Errorf("%s: %+v, want %s", what, d, reason)
			}
			if got := asked.Load() > before; got != asks {
				t.Errorf("%s: asked Redis: %v, want %v", what, got, asks)
			}
			if d.Allowed { // the other process gives it back, so that this one remembers
				guardtest.Settle(t, there, d, core.Rollback)
			}
		}
		wants("the first", 2, "", core.ReasonSoldOut, true)
		wants("the same again", 2, "", core.ReasonSoldOut, false)
		wants("more", 3, "", core.ReasonSoldOut, false)
		wants("less, of which there is enough", 1, "", core.ReasonOK, true)
		wants("the same with an ID", 2, "id", core.ReasonSoldOut, true)
		if d := guardtest.Check(t, here, winner); !d.Allowed || !d.Replayed {
			t.Errorf("a winner who tries again: %+v", d)
		}
		guardtest.Settle(t, there, won, core.Rollback) // the retry here still holds it
		if _, err := there.Cancel(t.Context(), won.Attempt); err != nil {
			t.Fatal(err)
		}
		wants("the other process gave back", 2, "", core.ReasonSoldOut, false)
		clock.Advance(saleRefusalFor - time.Millisecond)
		wants("shortly after", 2, "", core.ReasonSoldOut, false)
		clock.Advance(time.Millisecond)
		wants("when the time is over", 2, "", core.ReasonOK, true)
	})
}

func TestSalesRememberNothingWhereRefusalsAreNotRemembered(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		var asked atomic.Int64
		e := guardtest.NewEngineOver(b, busy{b.Client, func(redis.Cmder) { asked.Add(1) }},
			core.WithRefusalMemory(0))
		g := New(e, "s", Options{})
		openSale(t, g, "tv", Sale{Stock: 1})
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"})
		for _, buyer := range []string{"ann", "bob"} { // has bought, comes too late
			guardtest.Check(t, g, core.Attempt{Actor: buyer, Resource: "tv"})
			before := asked.Load()
			if d := guardtest.Check(t, g, core.Attempt{Actor: buyer, Resource: "tv"}); d.Source != core.SourceRedis ||
				asked.Load() == before {
				t.Errorf("%+v, without asking Redis", d)
			}
		}
	})
}

func TestSoldOutIsForgottenByWhatGivesBackHere(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		here, _, clock, _ := twoProcesses(b)
		for name, giveBack := range map[string]func(item string, d core.Decision){
			"settle":  func(_ string, d core.Decision) { guardtest.Settle(t, here, d, core.Rollback) },
			"cancel":  func(_ string, d core.Decision) { here.Cancel(t.Context(), d.Attempt) },
			"restock": func(item string, _ core.Decision) { here.Restock(t.Context(), item, "r", 1) },
			"sweep": func(item string, _ core.Decision) {
				clock.Advance(saleRefusalFor / 2) // the hold is over, and the memory is not
				here.Sweep(t.Context(), item)
			},
		} {
			openSale(t, here, name, Sale{Stock: 1, Hold: saleRefusalFor / 2})
			d := guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: name})
			guardtest.WantReason(t, guardtest.Check(t, here, core.Attempt{Actor: "bob", Resource: name}),
				core.ReasonSoldOut)
			giveBack(name, d)
			if d := guardtest.Check(t, here, core.Attempt{Actor: "bob", Resource: name}); !d.Allowed {
				t.Errorf("%s: %+v", name, d)
			}
		}
	})
}

// TestSoldOutIsNoAnswerToARetry: after an error a caller asks again with the decision's attempt, whose ID the
// guard made, and may have won.
//
// Promise: A known ID is answered first, also after the sell-out.
func TestSoldOutIsNoAnswerToARetry(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		here, _, _, _ := twoProcesses(b)
		openSale(t, here, "tv", Sale{Stock: 1})
		won := guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: "tv"})
		guardtest.WantReason(t, guardtest.Check(t, here, core.Attempt{Actor: "bob", Resource: "tv"}),
			core.ReasonSoldOut)
		if d := guardtest.Check(t, here, won.Attempt); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

// TestRefusalsThatWereOnTheirWayAreNotKept: Redis sent the refusal before units were given back, and it
// arrives after.
func TestRefusalsThatWereOnTheirWayAreNotKept(t *testing.T) {
	for _, reason := range []core.Reason{core.ReasonSoldOut, core.ReasonDuplicate} {
		for _, buyer := range []string{"", "ann"} {
			clock := guardtest.NewClock()
			m := newSaleMemory(saleRefusalFor)
			d := core.Decision{Attempt: core.Attempt{Actor: "ann", Resource: "tv", Cost: 1}, Reason: reason}
			asked := m.ask(d.Attempt, clock.Now())
			clock.Advance(time.Millisecond)
			m.gaveBack("tv", buyer)
			m.hear(d, asked)
			if m.answer(&d, clock.Now()) {
				t.Errorf("%s is kept", reason)
			}
			clock.Advance(time.Millisecond)
			m.hear(d, m.ask(d.Attempt, clock.Now()))
			if got := (core.Decision{Attempt: d.Attempt}); !m.answer(&got, clock.Now()) || got.Reason != reason {
				t.Errorf("%s that was sent later is not kept: %+v", reason, got)
			}
			if m.answer(&d, clock.Now().Add(-time.Millisecond)) {
				t.Error("a clock that is set back lengthens it")
			}
			clock.Advance(time.Millisecond)
			m.gaveBack("tv", buyer)
			if m.answer(&d, clock.Now()) {
				t.Errorf("%s outlives what was given back", reason)
			}
		}
	}
}

func TestSaleMemoryIsBounded(t *testing.T) {
	m := newSaleMemory(saleRefusalFor)
	now := time.Now()
	for i := range 2 * boughtBuyers {
		a := core.Attempt{Actor: "ann", Resource: fmt.Sprint(i), Cost: 1}
		m.hear(core.Decision{Attempt: a, Reason: core.ReasonSoldOut}, m.ask(a, now))
		m.hear(core.Decision{Attempt: a, Reason: core.ReasonDuplicate}, m.ask(a, now))
	}
	if n := m.soldOut.Len(); n > soldOutItems || n < soldOutItems/2 {
		t.Errorf("%d items are remembered, want %d at most", n, soldOutItems)
	}
	if n := m.bought.Len(); n > boughtBuyers || n < boughtBuyers/2 {
		t.Errorf("%d buyers are remembered, want %d at most", n, boughtBuyers)
	}
}

// TestBoughtIsRemembered: a buyer has reached PerBuyer and goes on clicking.
func TestBoughtIsRemembered(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		here, there, clock, asked := twoProcesses(b)
		openSale(t, there, "tv", Sale{Stock: 9, PerBuyer: 3})
		won := guardtest.Check(t, there, core.Attempt{Actor: "ann", Resource: "tv", ID: "op", Cost: 2})
		wants := func(what string, a core.Attempt, reason core.Reason, asks bool) {
			t.Helper()
			a.Resource = "tv"
			before := asked.Load()
			d := guardtest.Check(t, here, a)
			if d.Reason != reason || reason == core.ReasonDuplicate &&
				(d.Limit != 9 || d.Remaining > 7 || d.RetryAfter != 0) {
				t.Errorf("%s: %+v, want %s", what, d, reason)
			}
			if got := asked.Load() > before; got != asks {
				t.Errorf("%s: asked Redis: %v, want %v", what, got, asks)
			}
			if d.Allowed && !d.Replayed { // the other process gives it back, so that this one remembers
				guardtest.Settle(t, there, d, core.Rollback)
			}
		}
		wants("the first", core.Attempt{Actor: "ann", Cost: 2}, core.ReasonDuplicate, true)
		wants("the same again", core.Attempt{Actor: "ann", Cost: 2}, core.ReasonDuplicate, false)
		wants("more", core.Attempt{Actor: "ann", Cost: 3}, core.ReasonDuplicate, false)
		wants("less, which she may have", core.Attempt{Actor: "ann", Cost: 1}, core.ReasonOK, true)
		wants("another buyer", core.Attempt{Actor: "bob", Cost: 2}, core.ReasonOK, true)
		wants("the same with an ID", core.Attempt{Actor: "ann", Cost: 2, ID: "id"}, core.ReasonDuplicate, true)
		wants("the one that she has", core.Attempt{Actor: "ann", Cost: 2, ID: "op"}, core.ReasonOK, true)
		wants("a buyer of another text", core.Attempt{Actor: "ann|", Cost: 2}, core.ReasonOK, true)

		// If the item is sold out as well, the reasons have the same order as from Redis.
		cid := guardtest.Check(t, there, core.Attempt{Actor: "cid", Resource: "tv", Cost: 3})
		guardtest.Check(t, there, core.Attempt{Actor: "dan", Resource: "tv", Cost: 3})
		wants("sold out to others", core.Attempt{Actor: "eve", Cost: 2}, core.ReasonSoldOut, true)
		wants("sold out to others again", core.Attempt{Actor: "fay", Cost: 2}, core.ReasonSoldOut, false)
		wants("both", core.Attempt{Actor: "ann", Cost: 2}, core.ReasonDuplicate, false)
		guardtest.Settle(t, there, cid, core.Rollback)

		if _, err := there.Cancel(t.Context(), won.Attempt); err != nil {
			t.Fatal(err)
		}
		clock.Advance(saleRefusalFor - time.Millisecond)
		wants("the other process gave back", core.Attempt{Actor: "ann", Cost: 2}, core.ReasonDuplicate, false)
		clock.Advance(time.Millisecond)
		wants("when the time is over", core.Attempt{Actor: "ann", Cost: 2}, core.ReasonOK, true)
	})
}

func TestBoughtIsForgottenByWhatGivesBackHere(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		here, _, clock, asked := twoProcesses(b)
		for name, c := range map[string]struct {
			giveBack func(item string, d core.Decision)
			forgets  bool
		}{
			"settle": {func(_ string, d core.Decision) { guardtest.Settle(t, here, d, core.Rollback) }, true},
			"cancel": {func(_ string, d core.Decision) { here.Cancel(t.Context(), d.Attempt) }, true},
			"sweep": {func(item string, _ core.Decision) {
				clock.Advance(saleRefusalFor / 2) // the hold is over, and the memory is not
				here.Sweep(t.Context(), item)
			}, true},
			"restock, which gives her no room": {func(item string,
				_ core.Decision) {
				here.Restock(t.Context(), item, "r", 1)
			}, false},
			"another's units": {func(item string, _ core.Decision) {
				guardtest.Settle(t, here, guardtest.Check(t, here, core.Attempt{Actor: "bob", Resource: item}),
					core.Rollback)
			}, false},
		} {
			openSale(t, here, name, Sale{Stock: 9, Hold: saleRefusalFor / 2})
			d := guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: name})
			guardtest.WantReason(t, guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: name}),
				core.ReasonDuplicate)
			c.giveBack(name, d)
			before := asked.Load()
			d = guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: name})
			if d.Allowed != c.forgets || (asked.Load() > before) != c.forgets {
				t.Errorf("%s: %+v, asked %d", name, d, asked.Load()-before)
			}
		}
	})
}

// TestBoughtFlood: hardly any further click of such a buyer reaches Redis.
func TestBoughtFlood(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		here, _, _, asked := twoProcesses(b)
		openSale(t, here, "tv", Sale{Stock: 9})
		guardtest.Check(t, here, core.Attempt{Actor: "ann", Resource: "tv"})
		asked.Store(0)
		const callers, each = 16, 1000
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					d, err := here.Check(context.Background(), core.Attempt{Actor: "ann", Resource: "tv"})
					if err != nil || d.Reason != core.ReasonDuplicate {
						t.Errorf("%+v, %v", d, err)
					}
				}
			})
		}
		all.Wait()
		if n := asked.Load(); n > 2*callers {
			t.Errorf("%d of %d calls reached Redis", n, callers*each)
		}
	})
}

// TestSoldOutFlood: after the sell-out hardly any attempt reaches Redis, and units that are given back are
// bought within the time of the memory.
func TestSoldOutFlood(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		here, there, clock, asked := twoProcesses(b)
		openSale(t, there, "tv", Sale{Stock: 1})
		won := guardtest.Check(t, there, core.Attempt{Actor: "ann", Resource: "tv"})
		const callers, each = 16, 1000
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range each {
					d, err := here.Check(context.Background(), core.Attempt{Actor: fmt.Sprint(i), Resource: "tv"})
					if err != nil || d.Reason != core.ReasonSoldOut {
						t.Errorf("%+v, %v", d, err)
					}
				}
			})
		}
		all.Wait()
		// each before the first refusal, and once more for a script that is not loaded
		if n := asked.Load(); n > 2*callers {
			t.Errorf("%d of %d calls reached Redis", n, callers*each)
		}
		guardtest.Settle(t, there, won, core.Rollback)
		clock.Advance(saleRefusalFor)
		guardtest.WantReason(t, guardtest.Check(t, here, core.Attempt{Actor: "bob", Resource: "tv"}), core.ReasonOK)
	})
}
