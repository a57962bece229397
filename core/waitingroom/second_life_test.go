package waitingroom

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// order has the visitors ask, each in turn, once a second, and returns in which order they enter. Each of
// them leaves at once.
func order(t *testing.T, g *Guard, clock *guardtest.Clock, seconds int, who, tokens []string) []string {
	t.Helper()
	var entered []string
	for range seconds {
		for i, name := range who {
			if slices.Contains(entered, name) {
				continue
			}
			if d := come(t, g, name, &tokens[i]); d.Allowed {
				entered = append(entered, name)
				if err := g.Leave(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
		}
		tick(t, g)
		clock.Advance(time.Second)
	}
	return entered
}

// TestALaterOpeningBeginsANewRoom: a room that was open remained open, whatever the next release said of
// its opening, as long as anybody asked. An old release that asks meanwhile opens nothing, and brings
// nothing back.
//
// Promise: A later opening begins a new room, or postpones a room that has not opened. Tickets of an earlier
// room are arrivals.
func TestALaterOpeningBeginsANewRoom(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		old := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)),
			Options{Capacity: 2, Opens: clock.Now().Add(-time.Hour)})
		tokens := fill(t, old, "ann", "bob", "cid")
		if err := old.Close(t.Context(), "sold out"); err != nil {
			t.Fatal(err)
		}
		opens := clock.Now().Add(time.Hour)
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)),
			Options{Capacity: 2, Opens: opens, Draw: true, Poll: 4 * time.Second})
		var first string
		d := come(t, g, "dan", &first)
		if p, _ := PlaceOf(d); d.Allowed || p.State != "lobby" || p.Number != 0 || !p.Opens.Equal(opens) {
			t.Errorf("the first visitor: %+v, %+v", d, p)
		}
		if s, err := g.Peek(t.Context()); err != nil || s.State != "lobby" || s.Given != 1 || s.Inside != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		tick(t, old)
		for i, name := range []string{"ann", "bob", "cid"} { // each has a number in the new room
			d := come(t, old, name, &tokens[i])
			if p, _ := PlaceOf(d); d.Allowed || p.State != "lobby" || p.Number != int64(i+1) {
				t.Errorf("%s: %+v, %+v", name, d, p)
			}
		}
		clock.Advance(time.Hour)
		who, all := []string{"ann", "bob", "cid", "dan"}, slices.Concat(tokens, []string{first})
		got := order(t, g, clock, 10, who, all)
		var want []string
		for _, number := range Draw(g.picture.Load().seed, 4) {
			want = append(want, []string{"dan", "ann", "bob", "cid"}[number])
		}
		slices.Sort(got) // two enter at a time
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("entered %v", got)
		}
	})
}

// TestAnOpeningIsPostponed: a room that has not opened is the same one with a later opening, whatever
// processes ask that have not heard of it.
func TestAnOpeningIsPostponed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		opens := clock.Now().Add(time.Minute)
		o := Options{Capacity: 1, Opens: opens, Poll: 4 * time.Second}
		one := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		tokens := fill(t, one, "ann", "bob")
		o.Opens = opens.Add(time.Minute)
		two := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
		tick(t, two)
		clock.Advance(time.Minute)
		tick(t, one)
		d := come(t, one, "ann", &tokens[0])
		if p, _ := PlaceOf(d); d.Allowed || p.State != "lobby" || !p.Opens.Equal(o.Opens) {
			t.Errorf("%+v, %+v", d, p)
		}
		come(t, one, "bob", &tokens[1])
		clock.Advance(time.Minute)
		tick(t, one)
		if got := order(t, one, clock, 12, []string{"bob", "ann"}, []string{tokens[1], tokens[0]}); !slices.Equal(
			got, []string{"ann", "bob"}) {
			t.Errorf("entered %v", got)
		}
	})
}

// TestTicketsOfAnEarlierRoomAreArrivals: they were in front of everybody, also of the draw, and a number that
// had been used was the first in line.
func TestTicketsOfAnEarlierRoomAreArrivals(t *testing.T) {
	const n = 8
	for name, c := range map[string]struct{ lost, draw, opens bool }{
		"the room was forgotten":          {lost: true},
		"an opening":                      {lost: true, opens: true},
		"a draw":                          {lost: true, opens: true, draw: true},
		"a later opening":                 {opens: true},
		"a later opening, with a draw":    {opens: true, draw: true},
		"forgotten, a minute ago, a draw": {lost: true, opens: true, draw: true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				clock := guardtest.NewClock()
				e := guardtest.NewEngine(b, guardtest.WithClock(clock))
				former := newRoom(e, Options{Capacity: 1, Poll: 4 * time.Second})
				old := fill(t, former, names("old", n)...)
				used := old[1]
				if err := former.Leave(t.Context(), core.Decision{Token: old[0]}); err != nil {
					t.Fatal(err)
				}
				tick(t, former)
				guardtest.WantReason(t, come(t, former, "old1", &old[1]), core.ReasonOK)
				old[1] = used
				if c.lost {
					if err := former.Delete(t.Context(), former.keys...); err != nil {
						t.Fatal(err)
					}
				}
				e.Release("shop")
				if name == "forgotten, a minute ago, a draw" {
					clock.Advance(time.Second)
				} else {
					clock.Advance(7 * 24 * time.Hour)
				}
				o := Options{Capacity: 1, Poll: 4 * time.Second, Draw: c.draw}
				if c.opens {
					o.Opens = clock.Now().Add(time.Minute)
				}
				g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
				who, tokens := names("new", n), make([]string, n)
				for i, name := range who {
					come(t, g, name, &tokens[i])
				}
				for i := range n {
					d := come(t, g, fmt.Sprint("old", i), &old[i])
					p, _ := PlaceOf(d)
					if c.draw && p.Number != int64(n+i) {
						t.Errorf("old%d has the number %d", i, p.Number)
					}
				}
				who, tokens = append(who, names("old", n)...), append(tokens, old...)
				clock.Advance(time.Minute)
				tick(t, g)
				got, want := order(t, g, clock, 60, who, tokens), who
				if c.draw {
					want = nil
					for _, number := range Draw(g.picture.Load().seed, 2*n) {
						want = append(want, who[number])
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("entered %v, want %v", got, want)
				}
			})
		})
	}
}

// TestTheOpeningIsForThoseWhoWaited: without a draw, newcomers of the first moment took all places, since
// those in the lobby ask again within a poll of the opening.
//
// Promise: At the opening nobody enters before all who waited have had time to ask.
func TestTheOpeningIsForThoseWhoWaited(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		opens := clock.Now().Add(3 * time.Minute)
		rooms := make([]*Guard, 2)
		for i := range rooms {
			rooms[i] = newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 5, Opens: opens})
		}
		type client struct {
			token string
			next  time.Time
		}
		clients := make([]client, 20)
		for i := 10; i < 20; i++ {
			clients[i].next = opens.Add(50 * time.Millisecond)
		}
		entered := map[int]bool{}
		for clock.Now().Before(opens.Add(time.Minute)) {
			for i := range clients {
				c := &clients[i]
				if entered[i] || clock.Now().Before(c.next) {
					continue
				}
				d := come(t, rooms[i%2], fmt.Sprint(i), &c.token)
				entered[i] = d.Allowed
				c.next = clock.Now().Add((d.RetryAfter + time.Second - 1).Truncate(time.Second))
			}
			clock.Advance(250 * time.Millisecond)
			if clock.Now().UnixMilli()%1000 < 250 {
				tick(t, rooms[0])
				tick(t, rooms[1])
			}
		}
		var in []int
		for i := range clients {
			if entered[i] {
				in = append(in, i)
			}
		}
		if !slices.Equal(in, []int{0, 1, 2, 3, 4}) {
			t.Errorf("inside are %v", in)
		}
	})
}

// TestOnlyCalledVisitorsAskRedis: after one Leave at the end of the line, or a break of two intervals, each
// who waited cost a call per poll for the rest of the sale.
func TestOnlyCalledVisitorsAskRedis(t *testing.T) {
	for _, name := range []string{"nothing", "leave", "break"} {
		t.Run(name, func(t *testing.T) {
			b := redistest.Single(t)
			client := &guardtest.Counting{Client: b.NewClient(t)}
			clock := guardtest.NewClock()
			g := newRoom(guardtest.NewEngineOver(b, client, guardtest.WithClock(clock), core.WithoutSharedCalls()),
				Options{Capacity: 1, Idle: 10 * time.Minute})
			who := names("v", 400)
			tokens := fill(t, g, who...)
			tick(t, g)
			switch name {
			case "leave":
				if err := g.Leave(t.Context(), core.Decision{Token: tokens[399]}); err != nil {
					t.Fatal(err)
				}
				who = who[:399]
			case "break":
				clock.Advance(60 * time.Second)
				if err := g.Leave(t.Context(), core.Decision{Token: tokens[0]}); err != nil {
					t.Fatal(err)
				}
				new := ""
				guardtest.WantReason(t, come(t, g, "new", &new), core.ReasonOK) // nobody else is here
				tick(t, g)
			}
			before := client.Sent.Load()
			for range 3 {
				for i, name := range who[1:] {
					come(t, g, name, &tokens[i+1])
				}
				clock.Advance(20 * time.Second)
				tick(t, g)
			}
			if calls := client.Sent.Load() - before; calls > 3 {
				t.Errorf("%d calls in three rounds", calls)
			}
		})
	}
}

// TestNumbersHaveAnAge: numbers that were taken beforehand came back in front of all who had waited.
//
// Promise: A visitor who does not ask for `Away` is an arrival. While nobody can ask, no number ages.
func TestNumbersHaveAnAge(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)),
			Options{Capacity: 1, Poll: 4 * time.Second, Pass: 2 * time.Minute})
		inside := fill(t, g, "in")[0]
		away, short := fill(t, g, names("away", 5)...), fill(t, g, "short")
		who := names("here", 5)
		tokens := fill(t, g, who...)
		for second := range 41 { // 10 polls, and a second
			if second%4 == 0 {
				for i, name := range who {
					come(t, g, name, &tokens[i])
				}
			}
			if second == 36 {
				come(t, g, "short", &short[0])
			}
			come(t, g, "in", &inside)
			tick(t, g)
			clock.Advance(time.Second)
		}
		if err := g.Leave(t.Context(), core.Decision{Token: inside}); err != nil {
			t.Fatal(err)
		}
		all := append(append(names("away", 5), "short"), who...)
		got := order(t, g, clock, 30, all, append(append(away, short...), tokens...))
		if want := append(append([]string{"short"}, who...), names("away", 5)...); !slices.Equal(got, want) {
			t.Errorf("entered %v, want %v", got, want)
		}
	})
}

// TestNobodyAgesWhileNobodyCanAsk: when the whole site was away for a while, those who wait keep their
// places.
func TestNobodyAgesWhileNobodyCanAsk(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)),
			Options{Capacity: 1, Poll: 4 * time.Second})
		who := names("v", 6)
		tokens := fill(t, g, who...)
		clock.Advance(30 * time.Minute)
		tick(t, g)
		for i := 5; i > 0; i-- { // the pass has ended, and the last in line come first
			come(t, g, who[i], &tokens[i])
		}
		tick(t, g)
		got := order(t, g, clock, 30, who[1:], tokens[1:])
		if len(got) != 5 || !slices.IsSorted(got[1:]) {
			t.Errorf("entered %v", got)
		}
	})
}

// TestACutOffProcessLetsPassesInUntilTheyEnd: Redis gives the place of a visitor whom it has not seen for
// Idle to the next one. So each pass that a cut-off process is shown is one visitor more than the capacity,
// until it ends.
//
// Promise: A process that is cut off accepts passes. It lets in at most `Capacity` visitors too many, for
// `Pass` at most.
func TestACutOffProcessLetsPassesInUntilTheyEnd(t *testing.T) {
	b, faults := redistest.Single(t), redistest.NewFaults(t)
	client := b.NewClientWith(t, faults, func(o *redis.UniversalOptions) {
		o.MaxRetries, o.DialerRetries = -1, 1
	})
	clock := guardtest.NewClock()
	o := Options{Capacity: 1, Pass: time.Minute, Idle: 10 * time.Second, Poll: 4 * time.Second}
	cut := newRoom(guardtest.NewEngineOver(b, client, guardtest.WithClock(clock)), o)
	g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)
	tokens := fill(t, cut, "ann", "bob")
	faults.Refuse(true)
	faults.CutAll()
	for second := range 70 {
		bob := guardtest.Check(t, g, core.Attempt{Actor: "bob", Token: tokens[1]})
		if bob.Token != "" {
			tokens[1] = bob.Token
		}
		d, err := cut.Check(t.Context(), core.Attempt{Actor: "ann", Token: tokens[0]})
		if inside := err == nil && d.Allowed; inside != (second < 60) {
			t.Fatalf("after %d s: inside: %t, %v", second, inside, err)
		}
		if d, err := cut.Check(t.Context(), core.Attempt{Actor: "bob", Token: "x"}); err == nil && d.Allowed {
			t.Fatalf("after %d s: a visitor without a pass is inside", second)
		}
		tick(t, g)
		clock.Advance(time.Second)
	}
	if pass, _ := g.tickets.read(tokens[1]); !pass.isPass() {
		t.Error("bob has not entered")
	}
}

// TestWhoLeavesTheLobbyTakesNoDrawnPlace: the mark of a number that was given back in the lobby stood at
// the place of another visitor after the draw, who got one in front of the draw.
func TestWhoLeavesTheLobbyTakesNoDrawnPlace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)),
			Options{Capacity: 1, Poll: 4 * time.Second, Draw: true, Opens: clock.Now().Add(time.Minute)})
		who := names("v", 12)
		tokens := fill(t, g, who...)
		for _, token := range tokens[:6] {
			if err := g.Leave(t.Context(), core.Decision{Token: token}); err != nil {
				t.Fatal(err)
			}
		}
		clock.Advance(time.Minute)
		tick(t, g)
		got := order(t, g, clock, 40, who[6:], tokens[6:])
		var want []string
		for _, number := range Draw(g.picture.Load().seed, 12) {
			if number >= 6 {
				want = append(want, who[number])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("entered %v, drawn %v", got, want)
		}
	})
}

// TestAPassOfALostRoomIsGivenBack: Redis did not know it, so processes went on to accept it.
func TestAPassOfALostRoomIsGivenBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 1})
		ann := fill(t, g, "ann")[0]
		tick(t, g)
		if err := g.Delete(t.Context(), g.keys...); err != nil {
			t.Fatal(err)
		}
		tick(t, g)
		if err := g.Leave(t.Context(), core.Decision{Token: ann}); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, come(t, g, "ann", &ann), ReasonWaiting)
	})
}
