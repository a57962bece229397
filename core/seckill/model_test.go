package seckill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestSeckillAgainstModel runs random operations and compares with a model in Go after each step.
func TestSeckillAgainstModel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) { seckillAgainstModel(t, b, Options{}) })
}

func seckillAgainstModel(t *testing.T, b redistest.Backend, options Options) {
	engine := guardtest.NewEngine(b)
	number := 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		clock := guardtest.NewClock()
		core.WithClock(clock.Now)(engine)
		g := New(engine, fmt.Sprintf("s%d", number), options)
		sale := Sale{
			Stock:    rapid.Int64Range(1, 8).Draw(rt, "stock"),
			PerBuyer: rapid.Int64Range(1, 3).Draw(rt, "per buyer"),
			Hold:     10 * time.Second,
		}
		openSale(t, g, "tv", sale)
		m := newSaleModel(sale)
		reader := newSaleReader()
		id := rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"})
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			clock.Advance(time.Duration(rapid.IntRange(0, 4000).Draw(rt, "ms")) * time.Millisecond)
			m.now = clock.Now()
			switch rapid.IntRange(0, 7).Draw(rt, "op") {
			case 0, 1, 2:
				a := core.Attempt{
					Actor: rapid.SampledFrom([]string{"ann", "bob", "cid"}).Draw(rt, "buyer"), Resource: "tv",
					Cost: rapid.Int64Range(1, 3).Draw(rt, "quantity"), ID: id.Draw(rt, "id"),
				}
				d, err := g.Check(t.Context(), a)
				if want := m.reserve(a); err != nil || d.Reason != want {
					rt.Fatalf("reserve %+v: %+v (%v), want %q", a, d, err, want)
				}
			case 3:
				id := id.Draw(rt, "id")
				d, err := g.Confirm(t.Context(), "tv", id)
				if want := m.confirm(id); err != nil || d.Reason != want {
					rt.Fatalf("confirm %s: %+v (%v), want %q", id, d, err, want)
				}
			case 4:
				id := id.Draw(rt, "id")
				d, err := g.Cancel(t.Context(), "tv", id)
				if want := m.cancel(id); err != nil || d.Reason != want {
					rt.Fatalf("cancel %s: %+v (%v), want %q", id, d, err, want)
				}
			case 5:
				n, err := g.Sweep(t.Context(), "tv")
				if want := m.sweep(); err != nil || n != want {
					rt.Fatalf("sweep: %d (%v), want %d", n, err, want)
				}
			case 6:
				id, units := id.Draw(rt, "id"),
					rapid.Int64Range(-4, 4).Filter(func(n int64) bool { return n != 0 }).Draw(rt, "units")
				_, err := g.Restock(t.Context(), "tv", id, units)
				if want := m.restock(id, units); !errors.Is(err, want) {
					rt.Fatalf("restock %s by %d: %v, want %v", id, units, err, want)
				}
			case 7:
				if rapid.IntRange(0, 9).Draw(rt, "close") > 0 { // seldom: a closed sale is dull
					continue
				}
				if err := g.Close(t.Context(), "tv"); err != nil {
					rt.Fatalf("close: %v", err)
				}
				m.closed = true
			}
			got, err := g.Status(t.Context(), "tv")
			want := m.status()
			want.Epoch = got.Epoch
			if err != nil || got != want || got.Left+got.Held+got.Sold != got.Stock {
				rt.Fatalf("status %+v (%v), want %+v", got, err, want)
			}
			wantConsistent(rt, g, "tv")
			reader.read(rt, g, "tv")
			if reader.stock != m.sale.Stock || !maps.Equal(reader.reservations, m.values()) {
				rt.Fatalf("the outbox tells of %d, %v, want %d, %v", reader.stock, reader.reservations, m.sale.Stock,
					m.values())
			}
		}
	})
}

type saleModel struct {
	sale         Sale
	now          time.Time
	reservations map[string]*modelReservation
	failed       map[string][]string // the IDs of a buyer's failed reservations
	restocks     map[string]int64
	closed       bool
}

func newSaleModel(sale Sale) *saleModel {
	return &saleModel{
		sale: sale, reservations: map[string]*modelReservation{}, failed: map[string][]string{},
		restocks: map[string]int64{},
	}
}

type modelReservation struct {
	buyer    string
	quantity int64
	state    string // held, sold, expired, cancelled; forgotten: it had expired
	end      time.Time
}

// fail ends a reservation and forgets a failed one of its buyer, when there are more than 16.
func (m *saleModel) fail(id, state string) {
	r := m.reservations[id]
	r.state = state
	failed := slices.Concat(m.failed[r.buyer], []string{id})
	if len(failed) > 16 {
		first := failed[0]
		failed = failed[1:]
		switch old := m.reservations[first]; {
		case old == nil || slices.Contains(failed, first):
		case old.state == "cancelled":
			delete(m.reservations, first)
		case old.state == "expired":
			old.state = "forgotten"
		}
	}
	m.failed[r.buyer] = failed
}

func (m *saleModel) count(state, buyer string) (n int64) {
	for _, r := range m.reservations {
		if r.state == state && (buyer == "" || r.buyer == buyer) {
			n += r.quantity
		}
	}
	return n
}

func (m *saleModel) status() Status {
	held, sold := m.count("held", ""), m.count("sold", "")
	return Status{Stock: m.sale.Stock, Left: m.sale.Stock - held - sold, Held: held, Sold: sold}
}

func (m *saleModel) refused(buyer string, quantity int64) core.Reason {
	switch {
	case m.count("held", buyer)+m.count("sold", buyer)+quantity > m.sale.PerBuyer:
		return core.ReasonDuplicate
	case m.status().Left < quantity:
		return core.ReasonSoldOut
	}
	return core.ReasonOK
}

func (m *saleModel) reserve(a core.Attempt) core.Reason {
	if r := m.reservations[a.ID]; r != nil && r.state != "forgotten" {
		switch {
		case r.buyer != a.Actor || r.quantity != a.Cost && r.state != "cancelled":
			return core.ReasonConflict
		case r.state == "sold", r.state == "held" && m.now.Before(r.end):
			return core.ReasonOK
		case r.state == "held":
			m.fail(a.ID, "expired")
		}
	}
	if m.closed {
		return core.ReasonClosed
	}
	reason := m.refused(a.Actor, a.Cost)
	if reason != core.ReasonOK {
		m.sweep()
		reason = m.refused(a.Actor, a.Cost)
	}
	if reason == core.ReasonOK {
		m.reservations[a.ID] = &modelReservation{a.Actor, a.Cost, "held", m.now.Add(m.sale.Hold)}
	}
	return reason
}

func (m *saleModel) sweep() int {
	var over []string
	for id, r := range m.reservations {
		if r.state == "held" && !m.now.Before(r.end) {
			over = append(over, id)
		}
	}
	slices.SortFunc(over, func(a, b string) int { // in the order of the sorted set
		return cmp.Or(m.reservations[a].end.Compare(m.reservations[b].end), cmp.Compare(a, b))
	})
	for _, id := range over {
		m.fail(id, "expired")
	}
	return len(over)
}

func (m *saleModel) restock(id string, units int64) error {
	done, ok := m.restocks[id]
	switch {
	case ok && done == units:
		return nil
	case ok:
		return core.ErrInvalid
	case m.status().Left+units < 0:
		return ErrTooFewLeft
	}
	m.restocks[id] = units
	m.sale.Stock += units
	return nil
}

// values are the reservations as a reader of the outbox knows them.
func (m *saleModel) values() map[string]modelReservation {
	values := map[string]modelReservation{}
	for id, r := range m.reservations {
		value := *r
		switch r.state {
		case "cancelled":
			continue
		case "forgotten":
			value.state = "expired"
		}
		values[id] = value
	}
	return values
}

func (m *saleModel) confirm(id string) core.Reason {
	r := m.reservations[id]
	if r == nil || r.state == "cancelled" || r.state == "forgotten" ||
		r.state == "expired" && m.refused(r.buyer, r.quantity) != core.ReasonOK {
		return core.ReasonGone
	}
	r.state = "sold"
	return core.ReasonOK
}

func (m *saleModel) cancel(id string) core.Reason {
	r := m.reservations[id]
	switch {
	case r == nil:
		return core.ReasonOK
	case r.state == "sold":
		return core.ReasonConflict
	case r.state == "held":
		m.fail(id, "cancelled")
	}
	return core.ReasonOK
}

// saleReader is an order system that knows a sale from its outbox only.
type saleReader struct {
	position     string
	stock        int64
	opened       map[int]bool // by bucket
	closed       map[int]bool
	loans        map[string]int64 // units on their way
	reservations map[string]modelReservation
}

func newSaleReader() *saleReader {
	return &saleReader{
		opened: map[int]bool{}, closed: map[int]bool{}, loans: map[string]int64{},
		reservations: map[string]modelReservation{},
	}
}

// read reads to the end of the outbox. It fails the test on an event that cannot follow the earlier ones.
func (s *saleReader) read(t rapid.TB, g *Guard, item string) {
	t.Helper()
	for {
		events, err := g.Events(context.Background(), item, s.position, 1000)
		if err != nil {
			t.Fatalf("Events: %v", err)
		}
		for _, e := range events {
			was := s.reservations[e.ID]
			if !s.follow(e) {
				t.Fatalf("%+v cannot follow %+v", e, was)
			}
			s.position = e.Position
		}
		if len(events) < 1000 {
			return
		}
	}
}

// follow records an event and reports whether it can follow the earlier ones.
func (s *saleReader) follow(e Event) bool {
	was := s.reservations[e.ID]
	is := modelReservation{e.Buyer, e.Quantity, string(e.Kind), was.end}
	same := is.buyer == was.buyer && is.quantity == was.quantity
	switch e.Kind {
	case EventOpened:
		s.stock += e.Quantity
		again := s.opened[e.Bucket]
		s.opened[e.Bucket] = true
		return !again && (s.position == "" || len(s.opened) > 1)
	case EventRestocked:
		s.stock += e.Quantity
		return true
	case EventLent: // in another outbox than its counterpart, so either may be read first
		s.loans[e.ID] += e.Quantity
		return s.loans[e.ID] == 0 || s.loans[e.ID] == e.Quantity
	case EventBorrowed:
		s.loans[e.ID] -= e.Quantity
		return s.loans[e.ID] == 0 || s.loans[e.ID] == -e.Quantity
	case EventClosed:
		again := s.closed[e.Bucket]
		s.closed[e.Bucket] = true
		return !again
	case EventHeld:
		is.end = e.Ends
		s.reservations[e.ID] = is
		return was.state == "" || was.state == "expired"
	case EventSold:
		s.reservations[e.ID] = is
		return same && (was.state == "held" && !e.Late || was.state == "expired" && e.Late)
	case EventExpired:
		s.reservations[e.ID] = is
		return same && was.state == "held"
	case EventCancelled:
		delete(s.reservations, e.ID)
		return same && was.state == "held"
	}
	return false
}
