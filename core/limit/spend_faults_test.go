package limit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestADebtIsChargedOnceAlthoughRepliesAreLost: the charge is sent again, by the call itself and by a later
// one, and a copy of it arrives late.
//
// Promise: Of several settlements of an attempt the first counts, also when replies are lost or copies come
// late.
func TestADebtIsChargedOnceAlthoughRepliesAreLost(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b, core.WithBreaker(1000, 0),
			core.WithRefusalMemory(0))
		for _, k := range append(kinds[:len(kinds):len(kinds)], byParts) {
			g := k.make(e, "lost-"+k.name[:5]+k.name[len(k.name)-5:], PerDay(100))
			charge := slidingSettleScript.SHA()
			if alg := limiterOf(g).algorithm; !alg.log {
				charge = alg.settle.SHA()
			}
			if err := e.Preload(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := core.Attempt{Actor: "ann", Cost: 10}
			wants := func(when string, want int64) {
				t.Helper()
				if d := peek(t, g, a); d.Remaining != want {
					t.Errorf("%s, %s: %d remaining, want %d", k.name, when, d.Remaining, want)
				}
			}
			d := guardtest.Check(t, g, a)
			faults.SwallowReply(charge)
			spend(t, g, d, 15)
			wants("a lost reply", 85)

			d = guardtest.Check(t, g, a)
			faults.SwallowReplies(charge, 2)
			if err := g.Spend(t.Context(), d, 15); err == nil {
				t.Errorf("%s: two lost replies were not reported", k.name)
			}
			spend(t, g, d, 15)
			spend(t, g, d, 50)
			wants("two lost replies", 70)

			d = guardtest.Check(t, g, a)
			faults.HoldBack(charge)
			spend(t, g, d, 15)
			wants("a held request", 55)
			faults.Deliver(t, 1)
			wants("a late copy", 55)
			refund(t, g, d)
			wants("a refund of what was settled", 55)
		}
	})
}

// TestAnEndingOfABusyActorIsSentAgain: where an actor has three endings a second, those of the last 20 s are
// known. One that is sent again was given up as soon as there were 120 in all, however long ago they were.
//
// Promise: A settlement is tried for 30 s, then the observer is told. If 60 to 120 newer ones of the actor
// have hidden it, it is `core.ErrGone`.
func TestAnEndingOfABusyActorIsSentAgain(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		// The script stores six digits of the tenths of seconds: here they begin with zeros.
		clock.Advance(time.Duration(1_000_000-clock.Now().UnixMilli()/100%1_000_000) * 100 * time.Millisecond)
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)), "w",
			Per(1000, 30*24*time.Hour))
		a := core.Attempt{Actor: "a", Cost: 2}
		for range 130 {
			clock.Advance(300 * time.Millisecond)
			spend(t, g, guardtest.Check(t, g, a), 1)
		}
		sentBefore := func(ago time.Duration) core.Decision {
			d := guardtest.Check(t, g, a)
			took, _ := core.ClaimOf[*taken](d)
			took.ending = &ending{units: -3, sent: time.Now().Add(-ago)}
			return d
		}
		left := peek(t, g, a).Remaining
		if err := g.Spend(t.Context(), sentBefore(50*time.Second), 5); !errors.Is(err, core.ErrGone) {
			t.Errorf("an ending of 50 seconds ago: %v, want an ErrGone", err)
		}
		spend(t, g, sentBefore(200*time.Millisecond), 5)
		if d := peek(t, g, a); d.Remaining != left-2-5 {
			t.Errorf("%d remaining, want %d", d.Remaining, left-2-5)
		}
		if b.Client != nil {
			if n := b.Client.StrLen(t.Context(), refundsKey(g, a)).Val(); n != 960 {
				t.Errorf("the endings of an actor take %d bytes, want 960", n)
			}
		}
	})
}

// TestADebtOutlivesAnOutage: what cannot be charged is tried again in the background, once in the end.
func TestADebtOutlivesAnOutage(t *testing.T) {
	b := redistest.Single(t)
	faults := redistest.NewFaults(t)
	b.Client = b.NewClientWith(t, faults)
	e := guardtest.NewEngine(b, core.WithDeadline(time.Minute), core.WithRefusalMemory(0))
	a := core.Attempt{Actor: "ann", Cost: 10}
	var guards []rateLimit
	var more, less []core.Decision
	for i, k := range append(kinds[:len(kinds):len(kinds)], byParts) {
		g := k.make(e, fmt.Sprint("out", i), PerDay(100))
		guards = append(guards, g)
		more, less = append(more, guardtest.Check(t, g, a)), append(less, guardtest.Check(t, g, a))
	}
	faults.Refuse(true)
	faults.CutAll()
	var places [8]core.Place
	for i, g := range guards {
		places[2*i].Settle(t.Context(), g, more[i], core.CommitCost(30))
		places[2*i+1].Settle(t.Context(), g, less[i], core.CommitCost(1))
	}
	faults.Heal()
	if err := e.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, g := range guards {
		if d := peek(t, g, a); d.Remaining != 69 {
			t.Errorf("guard %d: %d remaining, want 69", i, d.Remaining)
		}
	}
}
