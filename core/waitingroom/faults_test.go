package waitingroom

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAUsedTicketDoesNotEmptyTheLine: a ticket that was used came first in a new interval. The script turned
// the interval, refused, and did not note that it had; the next call turned it again, so that nobody who
// waited was there any more, and who came next entered before them all.
func TestAUsedTicketDoesNotEmptyTheLine(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)),
			Options{Capacity: 1, Poll: 4 * time.Second})
		tokens := fill(t, g, "ann", "bob", "cid", "dan")
		used := tokens[1]
		for i := range 2 { // ann and bob have been inside
			if err := g.Leave(t.Context(), core.Decision{Token: tokens[i]}); err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Second)
			come(t, g, []string{"bob", "cid"}[i], &tokens[i+1])
		}
		eve := ""
		come(t, g, "eve", &eve)
		clock.Advance(3 * time.Second) // a new interval: all have been seen in the last one
		guardtest.WantReason(t, come(t, g, "bob", &used), ReasonWaiting)
		clock.Advance(time.Second)
		p, err := g.Peek(t.Context())
		if err != nil || p.Waiting != 3 {
			t.Errorf("%d wait, want dan, eve and bob again: %+v, %v", p.Waiting, p, err)
		}
	})
}

// TestWhoLeavesAtTheOpeningTakesNobodysPlace: the draw gives the visitors other places. A process that had
// not heard of it gave back the place that the number had before, which is another visitor's now.
func TestWhoLeavesAtTheOpeningTakesNobodysPlace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		o := Options{Capacity: 10, Poll: 4 * time.Second, Opens: clock.Now().Add(time.Second), Draw: true}
		one := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		two := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		who := names("v", 8)
		tokens := fill(t, one, who...)
		tick(t, two)
		clock.Advance(time.Second)
		tick(t, one) // it is open, and the other process does not know
		if err := two.Leave(t.Context(), core.Decision{Token: tokens[0]}); err != nil {
			t.Fatal(err)
		}
		entered := map[string]bool{}
		for range 10 {
			for i, name := range who[1:] {
				entered[name] = come(t, one, name, &tokens[i+1]).Allowed
			}
			tick(t, one)
			clock.Advance(time.Second)
		}
		p, err := one.Peek(t.Context())
		if err != nil || p.Inside != 7 || p.Given != 8 || len(entered) != 7 {
			t.Errorf("%+v, %v; entered %v", p, err, entered)
		}
	})
}

// TestAProcessThatMissedTheOpening, and is asked by a visitor inside, took their place for the one that they
// had before the draw, and noted it as a pass that Redis had lost.
func TestAProcessThatMissedTheOpening(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		o := Options{Capacity: 10, Poll: 4 * time.Second, Opens: clock.Now().Add(time.Second), Draw: true}
		one := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		two := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		who := names("v", 8)
		tokens := fill(t, one, who...)
		tick(t, two)
		clock.Advance(time.Second)
		for range 10 {
			tick(t, one)
			for i, name := range who {
				come(t, one, name, &tokens[i])
			}
			clock.Advance(time.Second)
		}
		for i, name := range who {
			guardtest.WantReason(t, come(t, two, name, &tokens[i]), core.ReasonOK)
		}
		tick(t, two)
		if p, err := one.Peek(t.Context()); err != nil || p.Inside != 8 || p.Called != 0 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// TestAnArrivalWhoseEntryFailsKeepsItsNumber: who came first, and whose pass was lost on its way, got an
// error and came again as somebody new, while the pass took a place until it ended.
func TestAnArrivalWhoseEntryFailsKeepsItsNumber(t *testing.T) {
	b, faults := redistest.Single(t), redistest.NewFaults(t)
	client := b.NewClientWith(t, faults, func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
	g := newRoom(guardtest.NewEngineOver(b, client, guardtest.WithClock(guardtest.NewClock())),
		Options{Capacity: 2, Idle: 10 * time.Second})
	var warm, ann string
	come(t, g, "warm", &warm) // the scripts are loaded
	faults.SwallowReply(enterScript.SHA())
	d := come(t, g, "ann", &ann)
	guardtest.WantReason(t, d, ReasonWaiting)
	if d.RetryAfter > 5*time.Second {
		t.Errorf("ask again after %v: the pass may end before", d.RetryAfter)
	}
	guardtest.WantReason(t, come(t, g, "ann", &ann), core.ReasonOK)
	if p, err := g.Peek(t.Context()); err != nil || p.Inside != 2 || p.Given != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

// snapshot copies what Redis keeps of a room, as a replica has it, and returns what brings it back.
func snapshot(t *testing.T, b redistest.Backend, g *Guard) (restore func()) {
	t.Helper()
	dumps := map[string]string{}
	for _, key := range g.keys {
		if dump, err := b.Client.Dump(t.Context(), key).Result(); err == nil {
			dumps[key] = dump
		}
	}
	return func() {
		for _, key := range g.keys {
			if err := b.Client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
			if dump, ok := dumps[key]; ok {
				if err := b.Client.Restore(t.Context(), key, time.Hour, dump).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestAPassThatAFailoverLosesIsOneVisitor: a replica that has not heard of an entry has the visitor in line.
// Redis hears of the pass again; their place was then called for nobody, and their number was free to be used
// again.
func TestAPassThatAFailoverLosesIsOneVisitor(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		o := Options{Capacity: 1, Poll: 4 * time.Second, Pass: time.Minute, Idle: 20 * time.Second}
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		tokens := fill(t, g, "ann", "bob", "cid")
		number := tokens[1]
		failover := snapshot(t, b, g)
		if err := g.Leave(t.Context(), core.Decision{Token: tokens[0]}); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, come(t, g, "bob", &tokens[1]), core.ReasonOK)
		pass, _ := g.tickets.read(tokens[1])
		ends := pass.end
		failover()
		for range 90 {
			clock.Advance(time.Second)
			if clock.Now().UnixMilli() < ends {
				come(t, g, "bob", &tokens[1])
			}
			come(t, g, "cid", &tokens[2])
			tick(t, g)
			if d := guardtest.Check(t, g, core.Attempt{Actor: "bob", Token: number}); d.Allowed {
				if pass, ok := g.tickets.read(d.Token); !ok || pass.end != ends {
					t.Fatalf("the number has entered again: %+v", d)
				}
			}
		}
	})
}

// TestManyWhoLeaveFreeTheirPlaces: above 500 in the time of Idle, Leave did nothing.
func TestManyWhoLeaveFreeTheirPlaces(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		one := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 700})
		two := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 700})
		who := names("v", 700)
		tokens := fill(t, one, who...)
		for _, token := range tokens {
			if err := one.Leave(t.Context(), core.Decision{Token: token}); err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Millisecond)
		}
		if p, err := one.Peek(t.Context()); err != nil || p.Inside != 0 {
			t.Errorf("%d are inside: %v", p.Inside, err)
		}
		tick(t, two)
		tick(t, two) // it hears of 500 at a time
		for i, g := range []*Guard{one, two, one, two} {
			if d := guardtest.Check(t, g, core.Attempt{Actor: who[i*200], Token: tokens[i*200]}); d.Token == "" {
				t.Error("a pass that was given back is valid")
			}
		}
	})
}

// TestAProcessThatNobodyHasAsked for a while looks before it answers: its picture had a pass that was given
// back meanwhile.
func TestAProcessThatNobodyHasAsked(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		one := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 1})
		two := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 1})
		tokens := fill(t, one, "ann", "bob")
		tick(t, two)
		clock.Advance(10 * time.Second)
		if err := one.Leave(t.Context(), core.Decision{Token: tokens[0]}); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, come(t, two, "ann", &tokens[0]), ReasonWaiting)
	})
}

// TestASecondHolderIsNotRefused: a failover gave a number twice. Its first holder has entered and left before
// the second one asks, who was told that it is used and got a number at the end.
//
// Promise: The second holder of a number that a failover repeats is next, not refused. One in 127 counts as a
// new visitor.
func TestASecondHolderIsNotRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(guardtest.NewClock())), Options{Capacity: 1})
		tokens := fill(t, g, "ann", "bob", "cid")
		second, _ := g.tickets.read(tokens[1])
		second.id, second.who = [6]byte{second.id[0] + 1}, whoOf("eve")
		eve := g.tickets.sign(&second)
		for i, name := range []string{"bob", "eve", "cid"} {
			if i < 2 {
				if err := g.Leave(t.Context(), core.Decision{Token: tokens[i]}); err != nil {
					t.Fatal(err)
				}
			}
			tick(t, g)
			switch name {
			case "bob":
				guardtest.WantReason(t, come(t, g, "bob", &tokens[1]), core.ReasonOK)
			case "eve": // cid was called meanwhile
				guardtest.WantReason(t, come(t, g, "eve", &eve), ReasonWaiting)
				guardtest.WantReason(t, come(t, g, "cid", &tokens[2]), core.ReasonOK)
			}
		}
		dan := ""
		guardtest.WantReason(t, come(t, g, "dan", &dan), ReasonWaiting)
		if err := g.Leave(t.Context(), core.Decision{Token: tokens[2]}); err != nil {
			t.Fatal(err)
		}
		tick(t, g)
		guardtest.WantReason(t, come(t, g, "dan", &dan), ReasonWaiting)
		guardtest.WantReason(t, come(t, g, "eve", &eve), core.ReasonOK)
		if p, err := g.Peek(t.Context()); err != nil || p.Given != 4 {
			t.Errorf("%d numbers were given: %v", p.Given, err)
		}
	})
}

// TestWhoWasAwayDoesNotEnterByALostReply: who was away for Idle, and whose place another visitor has, was let
// in when the answer of Redis was lost.
func TestWhoWasAwayDoesNotEnterByALostReply(t *testing.T) {
	b, faults, clock := redistest.Single(t), redistest.NewFaults(t), guardtest.NewClock()
	client := b.NewClientWith(t, faults, func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
	g := newRoom(guardtest.NewEngineOver(b, client, guardtest.WithClock(clock)),
		Options{Capacity: 1, Idle: 10 * time.Second})
	tokens := fill(t, g, "ann", "bob")
	clock.Advance(11 * time.Second)
	tick(t, g)
	guardtest.WantReason(t, come(t, g, "bob", &tokens[1]), core.ReasonOK)
	faults.SwallowReply(enterScript.SHA())
	guardtest.WantReason(t, come(t, g, "ann", &tokens[0]), ReasonWaiting)
	if err := g.Leave(t.Context(), core.Decision{Token: tokens[1]}); err != nil {
		t.Fatal(err)
	}
	guardtest.WantReason(t, come(t, g, "ann", &tokens[0]), core.ReasonOK)
}
