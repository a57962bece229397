package waitingroom

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestTheDrawIsUniform: each of a hundred arrivals is as often in each tenth of the order as any other one
// (chi-square, 99 degrees of freedom, beyond 148.2 once in a thousand).
//
// Promise: Before the opening all are equal. The draw is uniform, committed to beforehand, and can be
// checked.
func TestTheDrawIsUniform(t *testing.T) {
	const n, draws = 100, 3000
	var tenths [n][10]int
	for draw := range draws {
		for place, number := range Draw(fmt.Sprintf("a seed %d", draw), n) {
			tenths[number][place*10/n]++
		}
	}
	for tenth := range 10 {
		chi := 0.0
		for number := range n {
			d := float64(tenths[number][tenth]) - draws/10
			chi += d * d / (draws / 10)
		}
		if chi > 148.2 {
			t.Errorf("tenth %d: chi-square %.1f", tenth, chi)
		}
	}
	one := Draw("a seed", 1000)
	if slices.Sort(one); one[0] != 0 || one[999] != 999 || len(slices.Compact(one)) != 1000 {
		t.Error("the draw is no permutation")
	}
}

// TestBeforeTheOpeningAllAreEqual: who comes first has no better place, the seed was committed to before, and
// the order in which they enter is the one that anybody can draw from the seed.
func TestBeforeTheOpeningAllAreEqual(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		o := Options{Capacity: 1000, Poll: 4 * time.Second, Opens: clock.Now().Add(time.Minute), Draw: true}
		rooms := []*Guard{newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o),
			newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)), o)}
		if err := rooms[0].SetCapacity(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		const early = 20
		tokens := make([]string, early+5)
		commitment := ""
		for i := range early {
			d := come(t, rooms[i%2], fmt.Sprint(i), &tokens[i])
			p, _ := PlaceOf(d)
			if p.State != "lobby" || p.Number != int64(i) || p.Seed != "" || p.Position != 0 {
				t.Fatalf("%+v", p)
			}
			commitment = p.Commitment
		}
		clock.Advance(time.Minute)
		for i := early; i < len(tokens); i++ {
			come(t, rooms[i%2], fmt.Sprint(i), &tokens[i])
		}
		var order []int
		var seed string
		for range 200 {
			for i := range tokens {
				g := rooms[(i+len(order))%2]
				if slices.Contains(order, i) {
					continue
				}
				d := come(t, g, fmt.Sprint(i), &tokens[i])
				if p, ok := PlaceOf(d); ok && p.Seed != "" {
					seed = p.Seed
					if p.Drawn != early {
						t.Errorf("%+v", p)
					}
				}
				if d.Allowed {
					order = append(order, i)
					if err := g.Leave(t.Context(), d); err != nil {
						t.Fatal(err)
					}
				}
			}
			tick(t, rooms[0])
			tick(t, rooms[1])
			clock.Advance(time.Second)
		}
		want := Draw(seed, early)
		for i := early; i < len(tokens); i++ {
			want = append(want, i)
		}
		if !slices.Equal(order, want) {
			t.Errorf("entered %v, drawn %v", order, want)
		}
		if Commitment(seed) != commitment {
			t.Errorf("the commitment of %s is %s, told was %s", seed, Commitment(seed), commitment)
		}
	})
}

// TestTheDrawWaitsForAll: nobody enters before all who are there have had time to say so.
func TestTheDrawWaitsForAll(t *testing.T) {
	b := redistest.Single(t)
	clock := guardtest.NewClock()
	g := newRoom(guardtest.NewEngine(b, guardtest.WithClock(clock)),
		Options{Capacity: 10, Poll: 4 * time.Second, Opens: clock.Now().Add(time.Second), Draw: true})
	var ann, bob string
	d := come(t, g, "ann", &ann)
	if d.RetryAfter < time.Second || d.RetryAfter > 6*time.Second {
		t.Errorf("ask again after %v", d.RetryAfter)
	}
	clock.Advance(1100 * time.Millisecond)
	for range 4 {
		tick(t, g)
		guardtest.WantReason(t, come(t, g, "ann", &ann), ReasonWaiting)
		guardtest.WantReason(t, come(t, g, "bob", &bob), ReasonWaiting) // who comes now does not enter either
		clock.Advance(time.Second)
	}
	clock.Advance(2 * time.Second)
	tick(t, g)
	guardtest.WantReason(t, come(t, g, "ann", &ann), core.ReasonOK)
}

func BenchmarkDraw(b *testing.B) {
	var seed [32]byte
	_, _ = rand.Read(seed[:])
	text := strings.ToLower(hex.EncodeToString(seed[:]))
	for b.Loop() {
		Draw(text, 100_000)
	}
}
