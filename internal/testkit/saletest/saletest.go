// Package saletest has what tests of sales share: the promises that a sale of one slot and one of several
// buckets both keep, a model of a sale, engines with a deadline that suits a busy machine, and the final
// content of a sale's outbox, for comparison with what buyers were told.
package saletest

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// NewEngine makes an engine on the backend, with a deadline that suits a busy machine. It does not log what
// tests break on purpose.
func NewEngine(b redistest.Backend, rdb script.Client) *core.Engine {
	return core.New(rdb, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute), core.WithObserver(ignore{}))
}

type ignore struct{}

func (ignore) Observe(context.Context, core.Event) {}

// Open opens a sale, which must not exist yet.
func Open(t testing.TB, g Sales, item string, sale seckill.Sale) {
	t.Helper()
	if opened, err := g.Open(t.Context(), item, sale); err != nil || !opened {
		t.Fatalf("Open: %t, %v; want a new sale", opened, err)
	}
}

// Ledger summarizes an outbox.
type Ledger struct {
	Last map[string]seckill.Event // the last event of each reservation
	Most map[string]int64         // the most units that each buyer had at any moment, held and sold
}

// Read reads an outbox to its end.
func Read(t testing.TB, g Sales, item string) Ledger {
	t.Helper()
	l := Ledger{map[string]seckill.Event{}, map[string]int64{}}
	has := map[string]int64{}
	for position := ""; ; {
		events, err := g.Events(t.Context(), item, position, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			return l
		}
		for _, e := range events {
			position = e.Position
			switch e.Kind {
			case seckill.EventHeld:
				has[e.Buyer] += e.Quantity
			case seckill.EventCancelled, seckill.EventExpired:
				has[e.Buyer] -= e.Quantity
			case seckill.EventSold:
				if e.Late {
					has[e.Buyer] += e.Quantity
				}
			default:
				continue
			}
			l.Last[e.ID] = e
			l.Most[e.Buyer] = max(l.Most[e.Buyer], has[e.Buyer])
		}
	}
}

// In returns the reservations whose last event is of this kind, with their buyers by ID.
func (l Ledger) In(kind seckill.EventKind) map[string]string {
	buyers := map[string]string{}
	for id, e := range l.Last {
		if e.Kind == kind {
			buyers[id] = e.Buyer
		}
	}
	return buyers
}

// EndHolds sweeps until the last hold has expired and no unit is held.
func EndHolds(t testing.TB, g Sales, item string) {
	t.Helper()
	redistest.Eventually(t, 2*time.Minute, func() bool {
		if _, err := g.Sweep(t.Context(), item); err != nil {
			t.Fatal(err)
		}
		s, err := g.Status(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		return s.Held == 0
	}, "all holds have expired")
}

// TB is what WantConsistent needs of a test, or of a check of package rapid.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// WantConsistent wants Verify to account for every unit.
func WantConsistent(t TB, g Sales, item string) seckill.Status {
	t.Helper()
	r, err := Verify(g, item)
	if err != nil || !r.Consistent() {
		t.Errorf("%v\n%v", err, r)
	}
	s, err := g.Status(context.Background(), item)
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	return s
}

// WantStatus wants these units, and Verify to account for them.
func WantStatus(t testing.TB, g Sales, item string, left, held, sold int64) {
	t.Helper()
	s, err := g.Status(t.Context(), item)
	want := seckill.Status{Stock: left + held + sold, Left: left, Held: held, Sold: sold, Epoch: s.Epoch}
	if err != nil || s != want || s.Epoch == 0 {
		t.Fatalf("status %+v (%v), want %+v", s, err, want)
	}
	WantConsistent(t, g, item)
}
