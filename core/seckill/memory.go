package seckill

import (
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// saleMemory remembers refusals inside this process, so that the buyers who come after the last unit, and
// those who have all that one buyer may have and click on, do not all reach Redis.
//
// It answers only attempts without an operation ID. An ID from outside may belong to a winner who tries again
// and has to hear that the reservation is held; no reservation can have an ID that was made a moment ago. A
// refusal answers attempts of as many units or more: fewer may be left, or allowed.
//
// A refusal can end. This process forgets it when it gives units back. What other processes give back, and
// holds that end, it sees when the time of the refusal is over.
type saleMemory struct {
	soldOut *core.Recall[string, saleRefusal]  // by item, for all buyers
	bought  *core.Recall[saleKey, saleRefusal] // by item and buyer
	// returned only counts drops: the items of which an unknown buyer may have given units back. It is not
	// soldOut, because a restock drops that one and gives no buyer room.
	returned *core.Recall[string, struct{}]
}

const (
	// saleRefusalFor is how long a refusal is remembered at most, from when its call was sent.
	saleRefusalFor = 250 * time.Millisecond
	// soldOutItems is how many items are remembered.
	soldOutItems = 1 << 12
	// boughtBuyers is how many buyers are remembered.
	boughtBuyers = 1 << 14
)

// saleKey is an item and one of its buyers, both encoded.
type saleKey struct{ item, buyer string }

// Clone implements what [core.NewRecall] asks of a key.
func (k saleKey) Clone() saleKey { return saleKey{strings.Clone(k.item), strings.Clone(k.buyer)} }

// saleRefusal is what Redis has answered.
type saleRefusal struct {
	quantity    int64 // that was refused
	stock, left int64
	returned    core.Asked[string] // of bought: the refusal holds while the item has not been dropped since
}

// saleAsked is an attempt whose call is under way.
type saleAsked struct {
	soldOut  core.Asked[string]
	bought   core.Asked[saleKey]
	returned core.Asked[string]
}

// newSaleMemory makes a memory of sales in an engine that remembers refusals for so long.
func newSaleMemory(most time.Duration) *saleMemory {
	most = min(most, saleRefusalFor)
	return &saleMemory{
		soldOut:  core.NewRecall[string, saleRefusal](soldOutItems, most),
		bought:   core.NewRecall[saleKey, saleRefusal](boughtBuyers, most),
		returned: core.NewRecall[string, struct{}](1, most), // it holds no answer
	}
}

// answer decides the attempt of d and reports whether it could.
func (m *saleMemory) answer(d *core.Decision, now time.Time) bool {
	key := saleKey{core.Encode(d.Attempt.Resource), core.Encode(d.Attempt.Actor)}
	known, ok := m.bought.Find(key, now)
	if ok && known.answers(d.Attempt) && !m.returned.Dropped(known.returned) {
		known.answer(d, core.ReasonDuplicate)
		return true
	}
	return m.answerSoldOut(d, now)
}

// answerSoldOut is answer by what holds for all buyers alone.
func (m *saleMemory) answerSoldOut(d *core.Decision, now time.Time) bool {
	known, ok := m.soldOut.Find(core.Encode(d.Attempt.Resource), now)
	if !ok || !known.answers(d.Attempt) {
		return false
	}
	known.answer(d, core.ReasonSoldOut)
	return true
}

// ask has to be called before the call of an attempt is sent.
func (m *saleMemory) ask(a core.Attempt, now time.Time) saleAsked {
	item := core.Encode(a.Resource)
	return saleAsked{
		soldOut:  m.soldOut.Ask(item, now),
		bought:   m.bought.Ask(saleKey{item, core.Encode(a.Actor)}, now),
		returned: m.returned.Ask(item, now),
	}
}

// askSoldOut is ask for calls that can say nothing of one buyer.
func (m *saleMemory) askSoldOut(item string, now time.Time) core.Asked[string] {
	return m.soldOut.Ask(core.Encode(item), now)
}

// hear remembers the decision, if it is a refusal that lasts.
func (m *saleMemory) hear(d core.Decision, asked saleAsked) {
	switch d.Reason {
	case core.ReasonSoldOut:
		m.hearSoldOut(d, asked.soldOut)
	case core.ReasonDuplicate:
		known := refusalOf(d)
		known.returned = asked.returned
		known.returned.Key = strings.Clone(asked.returned.Key) // it may be a piece of a long text
		m.bought.Hear(asked.bought, known, saleRefusalFor)
	default: // may be another the next time, or is none
	}
}

// hearSoldOut remembers that an item is sold out.
func (m *saleMemory) hearSoldOut(d core.Decision, asked core.Asked[string]) {
	m.soldOut.Hear(asked, refusalOf(d), saleRefusalFor)
}

// gaveBack forgets what is remembered of an item, and what is under way. It is called after units may have
// gone back to the stock. Buyer is whose they were; empty stands for any buyer.
func (m *saleMemory) gaveBack(item, buyer string) {
	m.restocked(item)
	if buyer == "" {
		m.returned.Drop(core.Encode(item))
		return
	}
	m.bought.Drop(saleKey{core.Encode(item), core.Encode(buyer)})
}

// restocked is gaveBack for units that were nobody's.
func (m *saleMemory) restocked(item string) { m.soldOut.Drop(core.Encode(item)) }

func refusalOf(d core.Decision) saleRefusal {
	return saleRefusal{quantity: d.Attempt.Cost, stock: d.Limit, left: d.Remaining}
}

// answers reports whether an attempt is of as many units as were refused, or more.
func (r saleRefusal) answers(a core.Attempt) bool { return a.Cost >= r.quantity }

func (r saleRefusal) answer(d *core.Decision, reason core.Reason) {
	d.Reason, d.Source, d.Limit, d.Remaining = reason, core.SourceRemembered, r.stock, r.left
}
