// Package salemodel is a model of a sale in Go, with which tests compare the guards of sales.
package salemodel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/saletest"
)

// AgainstModel runs random operations on a sale of one slot and compares with the model after each step.
func AgainstModel(t *testing.T, b redistest.Backend, options seckill.Options) {
	engine := guardtest.NewEngine(b)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		clock := guardtest.NewClock()
		core.WithClock(clock.Now)(engine)
		g := seckill.New(engine, fmt.Sprintf("s%d", number), options)
		sale := seckill.Sale{
			Stock:    rapid.Int64Range(1, 8).Draw(rt, "stock"),
			PerBuyer: rapid.Int64Range(1, 3).Draw(rt, "per buyer"),
			Hold:     10 * time.Second,
		}
		saletest.Open(t, g, "tv", sale)
		m := New(sale)
		reader := saletest.NewReader()
		buyer := rapid.SampledFrom([]string{"ann", "bob", "cid"})
		id := rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"})
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			clock.Advance(time.Duration(rapid.IntRange(0, 4000).Draw(rt, "ms")) * time.Millisecond)
			m.Now = clock.Now()
			switch rapid.IntRange(0, 7).Draw(rt, "op") {
			case 0, 1, 2:
				a := core.Attempt{
					Actor: buyer.Draw(rt, "buyer"), Resource: "tv",
					Cost: rapid.Int64Range(1, 3).Draw(rt, "quantity"), ID: id.Draw(rt, "id"),
				}
				d, err := g.Check(t.Context(), a)
				if want := m.Reserve(a); err != nil || d.Reason != want {
					rt.Fatalf("reserve %+v: %+v (%v), want %q", a, d, err, want)
				}
				m.WantWaiting(rt, d)
			case 3:
				a := core.Attempt{Actor: buyer.Draw(rt, "buyer"), Resource: "tv", ID: id.Draw(rt, "id")}
				d, err := g.Confirm(t.Context(), a)
				if want := m.Confirm(a.Actor, a.ID); err != nil || d.Reason != want {
					rt.Fatalf("confirm %+v: %+v (%v), want %q", a, d, err, want)
				}
			case 4:
				a := core.Attempt{Actor: buyer.Draw(rt, "buyer"), Resource: "tv", ID: id.Draw(rt, "id")}
				d, err := g.Cancel(t.Context(), a)
				if want := m.Cancel(a.Actor, a.ID); err != nil || d.Reason != want {
					rt.Fatalf("cancel %+v: %+v (%v), want %q", a, d, err, want)
				}
			case 5:
				n, err := g.Sweep(t.Context(), "tv")
				if want := m.Sweep(); err != nil || n != want {
					rt.Fatalf("sweep: %d (%v), want %d", n, err, want)
				}
			case 6:
				id, units := id.Draw(rt, "id"),
					rapid.Int64Range(-4, 4).Filter(func(n int64) bool { return n != 0 }).Draw(rt, "units")
				_, err := g.Restock(t.Context(), "tv", id, units)
				if want := m.Restock(id, units); !errors.Is(err, want) {
					rt.Fatalf("restock %s by %d: %v, want %v", id, units, err, want)
				}
			case 7:
				if rapid.IntRange(0, 9).Draw(rt, "close") > 0 { // seldom: a closed sale is dull
					continue
				}
				if err := g.Close(t.Context(), "tv"); err != nil {
					rt.Fatalf("close: %v", err)
				}
				m.Closed = true
			}
			got, err := g.Status(t.Context(), "tv")
			want := m.Status()
			want.Epoch = got.Epoch
			if err != nil || got != want || got.Left+got.Held+got.Sold != got.Stock {
				rt.Fatalf("status %+v (%v), want %+v", got, err, want)
			}
			saletest.WantConsistent(rt, g, "tv")
			reader.Read(rt, g, "tv")
			if reader.Stock != m.Sale.Stock || !maps.Equal(reader.Reservations, m.Values()) {
				rt.Fatalf("the outbox tells of %d, %v, want %d, %v", reader.Stock, reader.Reservations, m.Sale.Stock,
					m.Values())
			}
		}
	})
}

// Model is what a sale does, in Go.
type Model struct {
	Sale         seckill.Sale
	Now          time.Time
	Reservations map[string]*saletest.Reservation
	failed       map[string][]string // the IDs of a buyer's failed reservations
	Restocks     map[string]int64
	Closed       bool
	made         []string // the IDs of holds, in their order
}

// New returns the model of a sale that was just opened.
func New(sale seckill.Sale) *Model {
	return &Model{
		Sale: sale, Reservations: map[string]*saletest.Reservation{}, failed: map[string][]string{},
		Restocks: map[string]int64{},
	}
}

// fail ends a reservation and forgets a failed one of its buyer, when there are more than 16.
func (m *Model) fail(id, state string) {
	r := m.Reservations[id]
	r.State = state
	failed := slices.Concat(m.failed[r.Buyer], []string{id})
	if len(failed) > 16 {
		first := failed[0]
		failed = failed[1:]
		switch old := m.Reservations[first]; {
		case old == nil || slices.Contains(failed, first):
		case old.State == "cancelled":
			delete(m.Reservations, first)
		case old.State == "expired", old.State == "given up":
			old.State = "forgotten"
		}
	}
	m.failed[r.Buyer] = failed
}

func (m *Model) count(state, buyer string) (n int64) {
	for _, r := range m.Reservations {
		if r.State == state && (buyer == "" || r.Buyer == buyer) {
			n += r.Quantity
		}
	}
	return n
}

// Status is what [seckill.Guard.Status] returns.
func (m *Model) Status() seckill.Status {
	held, sold := m.count("held", ""), m.count("sold", "")
	return seckill.Status{Stock: m.Sale.Stock, Left: m.Sale.Stock - held - sold, Held: held, Sold: sold}
}

// Refused returns why the buyer cannot have so many units, or ReasonOK.
func (m *Model) Refused(buyer string, quantity int64) core.Reason {
	switch {
	case m.count("held", buyer)+m.count("sold", buyer)+quantity > m.Sale.PerBuyer:
		return core.ReasonDuplicate
	case m.Status().Left < quantity:
		return core.ReasonSoldOut
	}
	return core.ReasonOK
}

// Reserve is Check.
func (m *Model) Reserve(a core.Attempt) core.Reason {
	if r := m.Reservations[a.ID]; r != nil && r.State != "forgotten" {
		switch {
		case r.Buyer != a.Actor || r.Quantity != a.Cost && r.State != "cancelled" && r.State != "given up":
			return core.ReasonConflict
		case r.State == "sold", r.State == "held" && m.Now.Before(r.End):
			return core.ReasonOK
		case r.State == "held":
			m.fail(a.ID, "expired")
		}
	}
	if m.Closed {
		return core.ReasonClosed
	}
	reason := m.Refused(a.Actor, a.Cost)
	if reason != core.ReasonOK {
		m.Sweep()
		reason = m.Refused(a.Actor, a.Cost)
	}
	if reason == core.ReasonOK {
		m.Reservations[a.ID] = &saletest.Reservation{
			Buyer: a.Actor, Quantity: a.Cost, State: "held", End: m.Now.Add(m.Sale.Hold),
		}
		m.made = append(m.made, a.ID)
	}
	return reason
}

// Waiting is what [seckill.WaitingOf] returns to a buyer who gets no more.
func (m *Model) Waiting(buyer string) string {
	for _, id := range slices.Backward(m.made) {
		if r := m.Reservations[id]; r != nil && r.State == "held" && r.Buyer == buyer && m.Now.Before(r.End) {
			return id
		}
	}
	return ""
}

// WantWaiting checks what a refused buyer is told of what they hold.
func (m *Model) WantWaiting(rt *rapid.T, d core.Decision) {
	want := ""
	if d.Reason == core.ReasonDuplicate {
		want = m.Waiting(d.Attempt.Actor)
	}
	if got := seckill.WaitingOf(d); got != want {
		rt.Fatalf("%+v: %q is said to be held, want %q", d, got, want)
	}
}

// Sweep is the guard's.
func (m *Model) Sweep() int {
	var over []string
	for id, r := range m.Reservations {
		if r.State == "held" && !m.Now.Before(r.End) {
			over = append(over, id)
		}
	}
	slices.SortFunc(over, func(a, b string) int { // in the order of the sorted set
		return cmp.Or(m.Reservations[a].End.Compare(m.Reservations[b].End), cmp.Compare(a, b))
	})
	for _, id := range over {
		m.fail(id, "expired")
	}
	return len(over)
}

// Restock is the guard's.
func (m *Model) Restock(id string, units int64) error {
	done, ok := m.Restocks[id]
	switch {
	case ok && done == units:
		return nil
	case ok:
		return core.ErrInvalid
	case m.Status().Left+units < 0:
		if m.Sweep(); m.Status().Left+units < 0 {
			return seckill.ErrTooFewLeft
		}
	}
	m.Restocks[id] = units
	m.Sale.Stock += units
	return nil
}

// Values are the reservations as a reader of the outbox knows them.
func (m *Model) Values() map[string]saletest.Reservation {
	values := map[string]saletest.Reservation{}
	for id, r := range m.Reservations {
		value := *r
		switch r.State {
		case "cancelled":
			continue
		case "forgotten", "given up":
			value.State = "expired"
		}
		values[id] = value
	}
	return values
}

// Confirm is the guard's.
func (m *Model) Confirm(buyer, id string) core.Reason {
	r := m.Reservations[id]
	if r == nil || r.Buyer != buyer || slices.Contains([]string{"cancelled", "given up", "forgotten"}, r.State) {
		return core.ReasonGone
	}
	if r.State == "expired" && m.Refused(r.Buyer, r.Quantity) != core.ReasonOK {
		m.Sweep() // which may forget r
		if r.State != "expired" || m.Refused(r.Buyer, r.Quantity) != core.ReasonOK {
			return core.ReasonGone
		}
	}
	r.State = "sold"
	return core.ReasonOK
}

// Cancel is the guard's.
func (m *Model) Cancel(buyer, id string) core.Reason {
	r := m.Reservations[id]
	switch {
	case r == nil || r.Buyer != buyer:
		return core.ReasonOK
	case r.State == "sold":
		return core.ReasonConflict
	case r.State == "held":
		m.fail(id, "cancelled")
	case r.State == "expired": // the outbox has told of its end
		r.State = "given up"
	}
	return core.ReasonOK
}
