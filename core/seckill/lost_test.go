package seckill

import (
	"errors"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestWhatCannotBeRestoredIsSaid: without an outbox nobody knows the reservations.
func TestWhatCannotBeRestoredIsSaid(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "s", Options{NoOutbox: true})
		lose := func(field string) { b.Client.Del(t.Context(), g.stockOf("tv").key(field)) }
		openSale(t, g, "tv", Sale{Stock: 5})
		guardtest.Settle(t, g, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "tv"}), core.Commit)
		lose("buyers")
		if restored, err := g.Repair(t.Context(), "tv"); err != nil || len(restored) != 1 {
			t.Errorf("%q, %v: the buyers are in the reservations", restored, err)
		}
		wantStatus(t, g, "tv", 4, 0, 1)
		lose("reservations")
		if restored, err := g.Repair(t.Context(), "tv"); len(restored) > 0 || !errors.Is(err, ErrLost) {
			t.Errorf("%q, %v", restored, err)
		}
		lose("sale")
		if restored, err := g.Repair(t.Context(), "tv"); len(restored) > 0 || !errors.Is(err, ErrLost) {
			t.Errorf("%q, %v", restored, err)
		}
		if err := g.Discard(t.Context(), "tv"); err != nil {
			t.Error(err)
		}
		openSale(t, g, "tv", Sale{Stock: 5})
		for what, err := range map[string]error{
			"repair":  func() error { _, err := g.Repair(t.Context(), "unknown"); return err }(),
			"discard": g.Discard(t.Context(), "unknown"),
		} {
			if !errors.Is(err, ErrNoSale) {
				t.Errorf("%s of an unknown sale: %v", what, err)
			}
		}
		_, repair := g.Repair(t.Context(), "")
		if !guardtest.IsInvalid(repair) || !guardtest.IsInvalid(g.Discard(t.Context(), "")) {
			t.Errorf("no item: %v", repair)
		}
	})
}
