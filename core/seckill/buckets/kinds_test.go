package buckets

import (
	"errors"
	"slices"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestNeitherKindSellsAgainWhatTheOtherHas: a program that gives a sale buckets, or takes them away, while
// the sale is open does not open it once more.
func TestNeitherKindSellsAgainWhatTheOtherHas(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		plain := seckill.New(guardtest.NewEngine(b), "s", seckill.Options{})
		spread := newGuard(guardtest.NewEngine(b))
		if opened, err := plain.Open(t.Context(), "tv", seckill.Sale{Stock: 2}); !opened || err != nil {
			t.Fatal(opened, err)
		}
		if opened, err := spread.Open(t.Context(), "tv", seckill.Sale{Stock: 2}); opened ||
			!errors.Is(err, seckill.ErrRemains) {
			t.Errorf("%v, %v", opened, err)
		}
		openSale(t, spread, "pc", 2, seckill.Sale{Stock: 2})
		if opened, err := plain.Open(t.Context(), "pc", seckill.Sale{Stock: 2}); opened || err != nil {
			t.Errorf("%v, %v", opened, err)
		}
		for item, g := range map[string]core.Guard{"tv": spread, "pc": plain} {
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: item}),
				core.ReasonNotReady)
		}
		wantStatus(t, spread, "pc", 2, 0, 0)
	})
}

// TestEachCallIsObservedOnce, under the item's name: what a call does with the buckets is part of it.
func TestEachCallIsObservedOnce(t *testing.T) {
	b := redistest.Mini(t)
	h := &guardtest.Recorder{}
	g := newGuard(guardtest.NewEngine(b, core.WithObserver(h)))
	openSale(t, g, "tv", 2, seckill.Sale{Stock: 2, PerBuyer: 2})
	d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv", Cost: 2, ID: "o"}) // borrows
	guardtest.Settle(t, g, d, core.Commit)
	none := core.Attempt{Actor: "ann", Resource: "tv", ID: "none"}
	for _, call := range []func() error{
		func() error { _, err := g.Sweep(t.Context(), "tv"); return err },
		func() error { _, err := g.Restock(t.Context(), "tv", "r", 1); return err },
		func() error { _, err := g.Cancel(t.Context(), none); return err },
		func() error { return g.Close(t.Context(), "tv") },
		func() error { return g.Discard(t.Context(), "tv") },
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"open", "check", "confirm", "sweep", "restock", "cancel", "close", "discard"}
	var ops []string
	for _, e := range h.Events {
		ops = append(ops, e.Op)
		if item := e.Decision.Attempt.Resource; item != "" && item != "tv" {
			t.Errorf("%s of %q", e.Op, item)
		}
	}
	if !slices.Equal(ops, want) {
		t.Errorf("observed %q, want %q", ops, want)
	}
}
