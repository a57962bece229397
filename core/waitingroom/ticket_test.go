package waitingroom

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// come has a visitor ask, who keeps what they are given.
func come(t *testing.T, g *Guard, actor string, token *string) core.Decision {
	t.Helper()
	d := guardtest.Check(t, g, core.Attempt{Actor: actor, Token: *token})
	if d.Token != "" {
		*token = d.Token
	}
	return d
}

// TestForgedAndUsedTicketsDoNotEnter: whatever is sent in place of a ticket is a visitor who has just come,
// and so are tickets of others, of other rooms and secrets, and those that were used.
//
// Promise: Forged, shared, old, used and foreign tickets do not enter.
func TestForgedAndUsedTicketsDoNotEnter(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 1, Pass: time.Minute,
			Idle: 20 * time.Second})
		var ann, bob, eve string
		guardtest.WantReason(t, come(t, g, "eve", &eve), core.ReasonOK)
		given := eve // a pass that was given back, and the number that has become a pass
		read, _ := g.tickets.read(given)
		read.end = 0
		used := g.tickets.sign(&read)
		if err := g.Leave(t.Context(), core.Decision{Token: given}); err != nil {
			t.Fatal(err)
		}
		read.base, read.opens = read.base-1, 1 // of another opening
		old := g.tickets.sign(&read)
		guardtest.WantReason(t, come(t, g, "ann", &ann), core.ReasonOK)
		guardtest.WantReason(t, come(t, g, "bob", &bob), ReasonWaiting)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		others := newSigner("shop", [][]byte{[]byte("another secret, also sixteen")})
		elsewhere := newSigner("another room", secrets)
		forgeries := 4_000
		switch {
		case guardtest.Soak():
			forgeries = 1_000_000
		case b.Mini != nil:
			forgeries = 1_000
		}
		for n := range forgeries {
			of, want := []byte(ann), ReasonWaiting
			if n%2 == 0 {
				of = []byte(bob)
			}
			text := string(of)
			switch n % 8 {
			case 0: // a bit
				of[rng.IntN(len(of))] ^= 1 << rng.IntN(8)
				text = string(of)
			case 1: // cut, or longer
				text = text[:rng.IntN(len(text))] + text[:rng.IntN(3)]
			case 2: // of another secret or room
				forged, _ := g.tickets.read(text)
				text = others.sign(&forged)
				if n%2 == 0 {
					text = elsewhere.sign(&forged)
				}
			case 3: // a pass made of nothing
				forged := ticket{base: 1, index: firstPlace, end: 1 << 50, until: 1 << 50}
				text = others.sign(&forged)
			case 4: // shared
				want = ReasonElsewhere
			case 5:
				text = given
			case 6:
				text = used
			case 7:
				text = old
			}
			if text == ann || text == bob {
				if want != ReasonElsewhere {
					continue
				}
			}
			d := guardtest.Check(t, g, core.Attempt{Actor: "eve", Token: text})
			if d.Allowed || d.Reason != want {
				t.Fatalf("%d: %q: %+v", n, text, d)
			}
		}
		if p, err := g.Peek(t.Context()); err != nil || p.Entered != 2 || p.Inside != 1 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// TestANumberEntersOnce: a ticket that was used, before a pass and after it, gets no second pass.
//
// Promise: A number enters once. Asking again gets the same pass.
func TestANumberEntersOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), Options{Capacity: 1, Pass: time.Minute,
			Idle: 20 * time.Second})
		var ann, bob string
		come(t, g, "ann", &ann)
		come(t, g, "bob", &bob)
		number := bob
		if err := g.Leave(t.Context(), core.Decision{Guard: "shop", Token: ann}); err != nil {
			t.Fatal(err)
		}
		tick(t, g)
		guardtest.WantReason(t, come(t, g, "bob", &bob), core.ReasonOK)
		pass := bob
		// The same browser asks with the number again, as when the answer was lost: the same pass.
		again := number
		guardtest.WantReason(t, come(t, g, "bob", &again), core.ReasonOK)
		one, _ := g.tickets.read(pass)
		two, _ := g.tickets.read(again)
		if one.end != two.end {
			t.Errorf("the pass ends at %d, again at %d", one.end, two.end)
		}
		guardtest.WantReason(t, come(t, g, "ann", &ann), ReasonWaiting) // her pass was given back
		clock.Advance(2 * time.Minute)
		tick(t, g)
		var carl string
		guardtest.WantReason(t, come(t, g, "carl", &carl), core.ReasonOK)
		for _, used := range []string{number, pass, again} {
			if d := guardtest.Check(t, g, core.Attempt{Actor: "bob", Token: used}); d.Allowed {
				t.Errorf("%q entered again: %+v", used, d)
			}
		}
	})
}

func tick(t *testing.T, g *Guard) {
	t.Helper()
	if err := g.tick(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestSecretsRotate: tickets of a former secret stay valid while it is listed, and the new one signs.
func TestSecretsRotate(t *testing.T) {
	former, next := []byte("the former secret of the room"), []byte("the next secret of the room")
	b := redistest.Single(t)
	o := Options{Capacity: 1, Secrets: [][]byte{former}}
	one := newRoom(guardtest.NewEngine(b), o)
	var ann, bob string
	come(t, one, "ann", &ann)
	come(t, one, "bob", &bob)
	o.Secrets = [][]byte{next, former}
	two := newRoom(guardtest.NewEngine(b), o)
	guardtest.WantReason(t, come(t, two, "ann", &ann), core.ReasonOK)
	if d := guardtest.Check(t, two, core.Attempt{Actor: "bob", Token: bob}); d.Reason != ReasonWaiting {
		t.Errorf("%+v", d)
	}
	if p, _ := two.Peek(t.Context()); p.Given != 2 {
		t.Errorf("%d numbers were given, want 2", p.Given)
	}
	o.Secrets = [][]byte{next}
	three := newRoom(guardtest.NewEngine(b), o)
	guardtest.WantReason(t, come(t, three, "ann", &ann), ReasonWaiting)
}

func FuzzTicket(f *testing.F) {
	s := newSigner("shop", secrets)
	t := newTicket(1, 2, firstPlace, "ann")
	f.Add(s.sign(&t))
	t.until, t.end = 1, 2
	f.Add(s.sign(&t))
	f.Fuzz(func(t *testing.T, text string) {
		if read, ok := s.read(text); ok && s.sign(&read) != text {
			t.Errorf("%q is another text of a ticket", text)
		}
	})
}
