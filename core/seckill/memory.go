package seckill

import (
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// saleMemory remembers refusals inside this process. So buyers who come after the last unit, and buyers who
// have reached PerBuyer and go on clicking, do not all reach Redis.
//
// It answers only attempts without an operation ID. An ID from outside may belong to a retry, which must
// learn that its reservation is held. An ID that the guard has just made belongs to no reservation. A refusal
// answers attempts for the same number of units or more, since fewer may be left or allowed.
//
// A refusal may become wrong. This process forgets it when it gives units back. Units that other processes
// give back, and holds that expire, count again when the refusal's time is over.
type saleMemory struct {
	soldOut *kit.Recall[string, saleRefusal]  // by item, for all buyers
	bought  *kit.Recall[saleKey, saleRefusal] // by item and buyer
	// returned only counts drops, of items whose units an unknown buyer may have given back. soldOut cannot
	// serve for this, because a restock drops it too but gives no buyer room.
	returned *kit.Recall[string, struct{}]
}

const (
	// saleRefusalFor is the maximum time for which a refusal is remembered, from when its call was sent.
	saleRefusalFor = 250 * time.Millisecond
	// soldOutItems is the number of items that are remembered.
	soldOutItems = 1 << 12
	// boughtBuyers is the number of buyers that are remembered.
	boughtBuyers = 1 << 14
)

// saleKey is an item and one of its buyers, both encoded.
type saleKey struct{ item, buyer string }

// Clone is the method that [kit.NewRecall] requires of a key.
func (k saleKey) Clone() saleKey { return saleKey{strings.Clone(k.item), strings.Clone(k.buyer)} }

// saleRefusal is a refusal by Redis.
type saleRefusal struct {
	quantity    int64 // that was refused
	stock, left int64
	waiting     waiting           // of bought
	ends        time.Time         // of the waiting reservation
	returned    kit.Asked[string] // of bought: the refusal holds while the item has not been dropped since
}

// saleAsked is an attempt whose call is under way.
type saleAsked struct {
	at       time.Time
	soldOut  kit.Asked[string]
	bought   kit.Asked[saleKey]
	returned kit.Asked[string]
}

// newSaleMemory returns the memory of sales for an engine that remembers refusals for the given time.
func newSaleMemory(most time.Duration) *saleMemory {
	most = min(most, saleRefusalFor)
	return &saleMemory{
		soldOut:  kit.NewRecall[string, saleRefusal](soldOutItems, most),
		bought:   kit.NewRecall[saleKey, saleRefusal](boughtBuyers, most),
		returned: kit.NewRecall[string, struct{}](1, most), // it holds no answer
	}
}

// answer decides the attempt of d and reports whether it could.
func (m *saleMemory) answer(d *core.Decision, now time.Time) bool {
	key := saleKey{script.Encode(d.Attempt.Resource), script.Encode(d.Attempt.Actor)}
	known, ok := m.bought.Find(key, now)
	if ok && known.answers(d.Attempt) && !m.returned.Dropped(known.returned) {
		known.answer(d, core.ReasonDuplicate)
		if known.ends.After(now) {
			d.SetClaim(known.waiting)
			d.ResetAfter = known.ends.Sub(now)
		}
		return true
	}
	known, ok = m.soldOut.Find(key.item, now)
	if !ok || !known.answers(d.Attempt) {
		return false
	}
	known.answer(d, core.ReasonSoldOut)
	return true
}

// ask must be called before the call of an attempt is sent.
func (m *saleMemory) ask(a core.Attempt, now time.Time) saleAsked {
	item := script.Encode(a.Resource)
	return saleAsked{
		at:       now,
		soldOut:  m.soldOut.Ask(item, now),
		bought:   m.bought.Ask(saleKey{item, script.Encode(a.Actor)}, now),
		returned: m.returned.Ask(item, now),
	}
}

// hear remembers the decision, if it is a refusal that lasts.
func (m *saleMemory) hear(d core.Decision, asked saleAsked) {
	switch d.Reason {
	case core.ReasonSoldOut:
		m.soldOut.Hear(asked.soldOut, refusalOf(d), saleRefusalFor)
	case core.ReasonDuplicate:
		known := refusalOf(d)
		known.waiting, known.ends = waiting(strings.Clone(WaitingOf(d))), asked.at.Add(d.ResetAfter)
		known.returned = asked.returned
		known.returned.Key = strings.Clone(asked.returned.Key) // it may be a piece of a long text
		m.bought.Hear(asked.bought, known, saleRefusalFor)
	default: // may be another the next time, or is none
	}
}

// gaveBack forgets the refusals of an item, also those of calls under way. It is called after units may
// have returned to the stock. buyer had them. Empty means any buyer.
func (m *saleMemory) gaveBack(item, buyer string) {
	m.restocked(item)
	if buyer == "" {
		m.returned.Drop(script.Encode(item))
		return
	}
	m.settled(item, buyer)
}

// settled forgets what a buyer has been told of a reservation that waits.
func (m *saleMemory) settled(item, buyer string) {
	m.bought.Drop(saleKey{script.Encode(item), script.Encode(buyer)})
}

// restocked is gaveBack for units that belonged to no buyer.
func (m *saleMemory) restocked(item string) { m.soldOut.Drop(script.Encode(item)) }

func refusalOf(d core.Decision) saleRefusal {
	return saleRefusal{quantity: d.Attempt.Cost, stock: d.Limit, left: d.Remaining}
}

// answers reports whether an attempt asks for as many units as were refused, or more.
func (r saleRefusal) answers(a core.Attempt) bool { return a.Cost >= r.quantity }

func (r saleRefusal) answer(d *core.Decision, reason core.Reason) {
	d.Reason, d.Source, d.Limit, d.Remaining = reason, core.SourceRemembered, r.stock, r.left
}
