package saletest

import (
	"context"
	"time"

	"github.com/gatehouse-go/gatehouse/core/seckill"
)

// Reservation is one of a model, or as a reader of the outbox knows it.
type Reservation struct {
	Buyer    string
	Quantity int64
	State    string // held, sold, expired, cancelled; forgotten: it had expired
	End      time.Time
}

// Reader is an order system that knows a sale from its outbox only.
type Reader struct {
	position     string
	Stock        int64
	opened       map[int]bool // by bucket
	closed       map[int]bool
	loans        map[string]int64 // units on their way
	Reservations map[string]Reservation
}

// NewReader returns one that has read nothing.
func NewReader() *Reader {
	return &Reader{
		opened: map[int]bool{}, closed: map[int]bool{}, loans: map[string]int64{},
		Reservations: map[string]Reservation{},
	}
}

// Read reads to the end of the outbox. It fails the test on an event that cannot follow the earlier ones.
func (s *Reader) Read(t TB, g Sales, item string) {
	t.Helper()
	for {
		events, err := g.Events(context.Background(), item, s.position, 1000)
		if err != nil {
			t.Fatalf("Events: %v", err)
		}
		for _, e := range events {
			was := s.Reservations[e.ID]
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
func (s *Reader) follow(e seckill.Event) bool {
	was := s.Reservations[e.ID]
	is := Reservation{e.Buyer, e.Quantity, string(e.Kind), was.End}
	same := is.Buyer == was.Buyer && is.Quantity == was.Quantity
	switch e.Kind {
	case seckill.EventOpened:
		s.Stock += e.Quantity
		again := s.opened[e.Bucket]
		s.opened[e.Bucket] = true
		return !again && (s.position == "" || len(s.opened) > 1)
	case seckill.EventRestocked:
		s.Stock += e.Quantity
		return true
	case seckill.EventMoved: // in another outbox than its counterpart, so either may be read first
		s.loans[e.ID] += e.Quantity
		return s.loans[e.ID] == 0 || s.loans[e.ID] == e.Quantity
	case seckill.EventClosed:
		again := s.closed[e.Bucket]
		s.closed[e.Bucket] = true
		return !again
	case seckill.EventHeld:
		is.End = e.Ends
		s.Reservations[e.ID] = is
		return was.State == "" || was.State == "expired"
	case seckill.EventSold:
		s.Reservations[e.ID] = is
		return same && (was.State == "held" && !e.Late || was.State == "expired" && e.Late)
	case seckill.EventWithdrawn:
		s.Reservations[e.ID] = Reservation{e.Buyer, e.Quantity, "held", was.End}
		return same && was.State == "sold"
	case seckill.EventExpired:
		s.Reservations[e.ID] = is
		return same && was.State == "held"
	case seckill.EventCancelled:
		delete(s.Reservations, e.ID)
		return same && was.State == "held"
	}
	return false
}
