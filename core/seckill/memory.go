package seckill

import (
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"strings"
	"time"
)

// saleMemory is what this process remembers of the refusals of sales, so that those who come after the last unit, or who have all that
// one buyer may have and click on, do not all reach Redis.
//
// It answers only attempts that came without an operation ID. An ID from outside may be a winner's who tries again, and has
// to hear that the reservation is held; an ID that was made a moment ago no reservation can have. It answers as many units as
// were refused or more: fewer may be left, or allowed.
//
// A refusal can end: by what this process gives back, which drops the memory, and by others and by holds that end, which are
// seen when the time is over.
type saleMemory struct {
	soldOut saleRefusals // of an item, to all buyers
	bought  saleRefusals // of an item, to one buyer; what was given back to an unknown one is kept under none
}

const (
	// saleRefusalFor is how long a refusal is remembered at most, from when its call was sent.
	saleRefusalFor = 250 * time.Millisecond
	// soldOutItems is how many items are remembered.
	soldOutItems = 1 << 12
	// boughtBuyers is how many buyers are remembered.
	boughtBuyers = 1 << 14
)

// newSaleMemory makes a memory of sales in an engine that remembers refusals for so long.
func newSaleMemory(most time.Duration) *saleMemory {
	most = min(most, saleRefusalFor)
	return &saleMemory{soldOut: newSaleRefusals(most, soldOutItems), bought: newSaleRefusals(most, boughtBuyers)}
}

// answer decides the attempt of d and reports whether it could.
func (m *saleMemory) answer(d *core.Decision, now time.Time) bool {
	item, buyer := core.Encode(d.Attempt.Resource), core.Encode(d.Attempt.Actor)
	known, ok := m.bought.find(saleKey{item, buyer}, d.Attempt.Cost, now)
	if ok && known.sent.After(m.bought.droppedAt(saleKey{item: item})) {
		known.answer(d, core.ReasonDuplicate)
		return true
	}
	return m.answerSoldOut(d, now)
}

// answerSoldOut is answer by what holds for all buyers alone.
func (m *saleMemory) answerSoldOut(d *core.Decision, now time.Time) bool {
	known, ok := m.soldOut.find(saleKey{item: core.Encode(d.Attempt.Resource)}, d.Attempt.Cost, now)
	if ok {
		known.answer(d, core.ReasonSoldOut)
	}
	return ok
}

// hear remembers the decision, if it is a refusal that lasts, whose call was sent at the given moment.
func (m *saleMemory) hear(d core.Decision, sent time.Time) {
	switch d.Reason {
	case core.ReasonSoldOut:
		m.soldOut.hear(saleKey{item: core.Encode(d.Attempt.Resource)}, d, sent)
	case core.ReasonDuplicate:
		m.bought.hear(saleKey{core.Encode(d.Attempt.Resource), core.Encode(d.Attempt.Actor)}, d, sent)
	default: // may be another the next time, or is none
	}
}

// gaveBack forgets what has been remembered of an item, and what is under way. It is called when units may have gone back to the stock,
// to be bought by anybody; buyer is whose they were, empty: any buyer's.
func (m *saleMemory) gaveBack(item, buyer string, moment func() time.Time) {
	m.restocked(item, moment)
	key := saleKey{item: core.Encode(item)}
	if buyer != "" {
		key.buyer = core.Encode(buyer)
	}
	m.bought.drop(key, moment)
}

// restocked is gaveBack for units that were nobody's.
func (m *saleMemory) restocked(item string, moment func() time.Time) {
	m.soldOut.drop(saleKey{item: core.Encode(item)}, moment)
}

// saleKey is what a refusal is of: an item, to a buyer or to all. Both are encoded.
type saleKey struct{ item, buyer string }

// saleRefusals are refusals for one reason.
type saleRefusals struct {
	most time.Duration // how long one is remembered; 0: not at all
	*bounded.Map[saleKey, saleRefusal]
}

// saleRefusal is what Redis has answered.
type saleRefusal struct {
	quantity    int64 // that was refused; 0: nothing is remembered
	stock, left int64
	sent        time.Time
	dropped     time.Time // what was sent before may not have seen the units that were given back
}

func newSaleRefusals(most time.Duration, size int) saleRefusals {
	return saleRefusals{most, bounded.New[saleKey, saleRefusal](size)}
}

// find returns the refusal of so many units now.
func (m saleRefusals) find(key saleKey, quantity int64, now time.Time) (saleRefusal, bool) {
	s := m.Of(key)
	s.Lock()
	defer s.Unlock()
	known, ok := s.Get(key)
	age := now.Sub(known.sent) // negative when the clock was set back
	return known, ok && known.quantity != 0 && quantity >= known.quantity && age >= 0 && age < m.most
}

func (r saleRefusal) answer(d *core.Decision, reason core.Reason) {
	d.Reason, d.Source, d.Limit, d.Remaining = reason, core.SourceRemembered, r.stock, r.left
}

// droppedAt returns when the key was dropped last.
func (m saleRefusals) droppedAt(key saleKey) time.Time {
	s := m.Of(key)
	s.Lock()
	defer s.Unlock()
	known, _ := s.Get(key)
	return known.dropped
}

// hear remembers a refusal. The texts of the key may be pieces of long ones, which would be kept with them, hence the clones.
func (m saleRefusals) hear(key saleKey, d core.Decision, sent time.Time) {
	s := m.Of(key)
	s.Lock()
	defer s.Unlock()
	known, ok := s.Get(key)
	if ok && !sent.After(known.dropped) {
		return
	}
	s.Add(key.clone(), saleRefusal{d.Attempt.Cost, d.Limit, d.Remaining, sent, known.dropped})
}

// drop forgets what is remembered under the key, and what is under way.
func (m saleRefusals) drop(key saleKey, moment func() time.Time) {
	s := m.Of(key)
	s.Lock()
	defer s.Unlock()
	s.Add(key.clone(), saleRefusal{dropped: moment()})
}

func (k saleKey) clone() saleKey { return saleKey{strings.Clone(k.item), strings.Clone(k.buyer)} }
