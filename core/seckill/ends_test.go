package seckill

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestChangesRenewTheTTLsOfASaleOnlyWhenDue: each change renewed the TTL of each key. Now the keys end
// together, not before Keep has passed since the last change, and a 64th of Keep later at most. Changes
// before they are due leave them.
func TestChangesRenewTheTTLsOfASaleOnlyWhenDue(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const keep = 64 * time.Hour
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "s", Options{Keep: keep})
		anns := func(id string) core.Attempt { return core.Attempt{Actor: "ann", Resource: "tv", ID: id} }
		changes := []func(id string) error{
			func(id string) error { _, err := g.Check(t.Context(), anns(id)); return err },
			func(id string) error { _, err := g.Confirm(t.Context(), anns(id)); return err },
			func(id string) error { _, err := g.Check(t.Context(), anns(id+"b")); return err },
			func(id string) error { _, err := g.Cancel(t.Context(), anns(id+"b")); return err },
			func(id string) error { _, err := g.Restock(t.Context(), "tv", id, 1); return err },
			func(id string) error {
				_, err := g.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "tv", ID: id + "c"})
				return err
			},
			func(string) error { _, err := g.Sweep(t.Context(), "tv"); return err },
		}
		for name, closes := range map[string]time.Time{"open end": {}, "closes": clock.Now().Add(20 * time.Hour)} {
			t.Run(name, func(t *testing.T) {
				defer g.Discard(t.Context(), "tv")
				openSale(t, g, "tv", Sale{Stock: 99, PerBuyer: 99, Hold: time.Minute, Closes: closes})
				begun, passed := clock.Now(), time.Duration(0)
				ends := time.Time{}
				check := func(what string) {
					t.Helper()
					least := clock.Now().Add(keep)
					if closes.After(clock.Now()) {
						least = closes.Add(keep)
					}
					if least.After(ends) {
						ends = least.Add(keep / 64)
					}
					for _, key := range g.saleKeys("tv") {
						// The server's clock stands still while the test's goes on.
						ttl := b.Client.PTTL(t.Context(), key).Val()
						if want := ends.Sub(clock.Now()); (ttl - want).Abs() > time.Minute {
							t.Errorf("%s, after %v: %s lives on for %v, want %v", what, passed, key, ttl, want)
						}
					}
				}
				check("open")
				for i := range 24 {
					const step = 25 * time.Minute
					clock.Advance(step)
					for _, key := range g.saleKeys("tv") {
						b.Client.PExpire(t.Context(), key, ends.Sub(clock.Now()))
					}
					passed = clock.Now().Sub(begun)
					if err := changes[i%len(changes)](fmt.Sprint("op", i/len(changes))); err != nil {
						t.Fatal(err)
					}
					check(fmt.Sprint("change ", i))
				}
				if err := g.Close(t.Context(), "tv"); err != nil {
					t.Fatal(err)
				}
				closes, ends = clock.Now(), time.Time{} // the sale is kept from now on
				check("close")
			})
		}
	})
}
