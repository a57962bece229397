package saletest

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// SalesThatBuyersMissAreLogged tests this: after Redis had come back empty each order was refused, and
// nothing said why. Names that clients make up are not logged.
func (k Kind) SalesThatBuyersMissAreLogged(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		sale := seckill.Sale{Stock: 10}
		var log bytes.Buffer
		newGuard := func() Sales {
			return k.New(guardtest.NewEngine(b, core.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))),
				seckill.Options{})
		}
		want := func(lines ...string) {
			t.Helper()
			said := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
			if log.Len() == 0 {
				said = nil
			}
			for i, line := range lines {
				if len(said) != len(lines) || !strings.Contains(said[i], line) {
					t.Fatalf("said %q, want %q", said, lines)
				}
			}
			if len(said) != len(lines) {
				t.Fatalf("said %q, want %q", said, lines)
			}
			log.Reset()
		}
		buy := func(g Sales, item string, reason core.Reason) {
			t.Helper()
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: item}), reason)
		}
		g, other := newGuard(), newGuard()
		for range 3 {
			buy(g, "made up", core.ReasonNotReady)
		}
		for _, item := range []string{"tv", "radio"} {
			if _, err := g.Open(t.Context(), item, sale); err != nil {
				t.Fatal(err)
			}
		}
		buy(other, "tv", core.ReasonOK) // it has not opened the sale, and has seen it
		want()

		for _, item := range []string{"tv", "radio"} { // as a Redis that comes back empty has lost them
			if err := newGuard().Discard(t.Context(), item); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			buy(g, "radio", core.ReasonNotReady)
			buy(other, "radio", core.ReasonNotReady) // it has never seen this one
			buy(g, "made up", core.ReasonNotReady)
		}
		want("item=radio refusals_not_logged=0")
		buy(other, "tv", core.ReasonNotReady)
		want("item=tv")
		if k.Buckets == 1 {
			if _, err := g.Open(t.Context(), "part", sale); err != nil {
				t.Fatal(err)
			}
			Lose(t, b, g, "part", "buyers")
			buy(g, "part", core.ReasonNotReady)
			buy(g, "part", core.ReasonNotReady)
			buy(other, "part", core.ReasonNotReady) // also a process that has never seen it
			want("item=part part=buyers", "item=part part=buyers")
		}

		if _, err := g.Open(t.Context(), "tv", sale); err != nil {
			t.Fatal(err)
		}
		buy(g, "tv", core.ReasonOK)
		if err := g.Discard(t.Context(), "tv"); err != nil {
			t.Fatal(err)
		}
		buy(g, "tv", core.ReasonNotReady)
		want()
	})
}
