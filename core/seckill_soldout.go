package core

import (
	"strings"
	"time"
)

// soldOuts is which items this process remembers as sold out, so that those who come after the last unit do not all reach
// Redis.
//
// It answers only attempts that came without an operation ID. An ID from outside may be a winner's who tries again, and has
// to hear that the reservation is held; an ID that was made a moment ago no reservation can have. It answers as many units as
// were refused or more: fewer may be left.
//
// "Sold out" can end: by what this process gives back, which drops the memory, and by others and by holds that end, which are
// seen when the time is over.
type soldOuts struct{ items *shards[string, soldOut] }

const (
	// soldOutFor is how long an item counts as sold out, from when the call that was refused was sent.
	soldOutFor = 250 * time.Millisecond
	// soldOutItems is how many items are remembered.
	soldOutItems = 1 << 12
)

// soldOut is what Redis has answered for one item.
type soldOut struct {
	quantity    int64 // that was refused; 0: nothing is remembered
	stock, left int64
	sent        time.Time
	dropped     time.Time // what was sent before may not have seen the units that were given back
}

func newSoldOuts() *soldOuts { return &soldOuts{newShards[string, soldOut](soldOutItems)} }

// answer decides the attempt of d and reports whether it could.
func (m *soldOuts) answer(d *Decision, now time.Time) bool {
	item := encode(d.Attempt.Resource)
	s := m.items.of(item)
	s.Lock()
	defer s.Unlock()
	known, ok := s.Get(item)
	age := now.Sub(known.sent) // negative when the clock was set back
	if !ok || known.quantity == 0 || d.Attempt.Cost < known.quantity || age < 0 || age >= soldOutFor {
		return false
	}
	d.Reason, d.Source, d.Limit, d.Remaining = ReasonSoldOut, SourceRemembered, known.stock, known.left
	return true
}

// hear remembers a refusal whose call was sent at the given moment. The item may be a piece of a long text, which would be
// kept with it, hence the clone.
func (m *soldOuts) hear(d Decision, sent time.Time) {
	item := encode(d.Attempt.Resource)
	s := m.items.of(item)
	s.Lock()
	defer s.Unlock()
	known, ok := s.Get(item)
	if ok && !sent.After(known.dropped) {
		return
	}
	s.Add(strings.Clone(item), soldOut{d.Attempt.Cost, d.Limit, d.Remaining, sent, known.dropped})
}

// drop forgets an item, and what is under way. It is called when units may have been given back.
func (m *soldOuts) drop(item string, moment func() time.Time) {
	item = encode(item)
	s := m.items.of(item)
	s.Lock()
	defer s.Unlock()
	s.Add(strings.Clone(item), soldOut{dropped: moment()})
}
