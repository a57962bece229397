package core

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"sync/atomic"
)

// MaxAmount is the largest amount that a script counts exactly: Lua numbers are doubles.
const MaxAmount = 1<<53 - 1

// Attempt is the question that a guard decides: the actor, the resource, the item, the cost and the
// operation ID.
//
// All text may hold any bytes and have any length: inside Redis keys it is encoded, and long text is hashed.
type Attempt struct {
	// Actor is who makes the attempt: an address, a user, an API key. Required.
	Actor string
	// Resource is the subject of the attempt: the poll, the item on sale, the packet. For rate limits it is
	// part of the key. If it is empty, the guard has one budget per actor.
	Resource string
	// Item is which of several the attempt picks: a voter's choice, the article that is read. Guards without
	// items ignore it.
	Item string
	// Cost is how much the attempt takes: units of a rate limit, the weight of a vote, the quantity bought.
	// Zero means 1. A negative cost is an [ErrInvalid].
	Cost int64
	// ID is the operation ID. A second attempt with the same ID changes nothing and gets a replay of the first
	// answer. If it differs from the first attempt, it is denied as [ReasonConflict].
	//
	// When ID is empty, the guard makes one, which Decision.Attempt holds. IDs are known within one poll, sale
	// or packet, or within one actor's period of a quota: two sales do not share IDs. Rate limits use the ID
	// only to give units back.
	ID string
	// Origin is the source of the attempt, such as an address or a device, for later investigation. No guard
	// decides by it. Package votes keeps it in its audit stream. May be empty.
	Origin string
	// Token is what the client has kept of an earlier decision: see Decision.Token. Guards whose Traits do not
	// say KeepsToken ignore it.
	Token string

	// Shadow reports that the caller only observes the answer and lets the attempt pass in any case. Guards
	// decide as usual. Observers can distinguish such denials from those that took effect.
	Shadow bool

	// madeID reports that Prepare made the ID, so that only the holder of this attempt knows it.
	madeID bool
	// call identifies one call of Check. A script uses it to tell a call that go-redis sent again from a new
	// call.
	call string
}

// Prepare fills in the fields that an attempt may leave out. It returns an [ErrInvalid] for an attempt that
// no guard can decide.
func (a Attempt) Prepare() (Attempt, error) {
	err := a.PrepareInPlace()
	return a, err
}

// PrepareInPlace is [Attempt.Prepare] without a copy of the attempt, which is large.
func (a *Attempt) PrepareInPlace() error {
	if a.Actor == "" {
		return fmt.Errorf("%w: no actor", ErrInvalid)
	}
	if a.Cost < 0 {
		return fmt.Errorf("%w: cost %d is negative", ErrInvalid, a.Cost)
	}
	if a.Cost == 0 {
		a.Cost = 1
	}
	if a.ID == "" {
		a.ID, a.madeID = limitIDs.make(), true
	}
	return nil
}

// limitIDs makes the IDs of attempts at rate limits. They distinguish attempts whose units are given back,
// so they must be unique. Guessing an ID gains nothing.
var limitIDs idMaker

// idMaker makes unique IDs, most of them without an allocation: the parts of idLength characters of a long
// random text. Two of them are equal as rarely as two random texts of that length, also if they overlap.
// Whoever keeps one of them keeps the text of all, a kibibyte.
type idMaker struct{ current atomic.Pointer[idText] }

type idText struct {
	text string
	used atomic.Int64
}

const (
	idLength = 26  // 130 bits, as rand.Text has
	idBytes  = 640 // in base32 the text of 999 IDs
)

func (m *idMaker) make() string {
	for {
		t := m.current.Load()
		if t != nil {
			if at := int(t.used.Add(1)) - 1; at <= len(t.text)-idLength {
				return t.text[at : at+idLength]
			}
		}
		var random [idBytes]byte
		_, _ = rand.Read(random[:]) // cannot fail
		m.current.CompareAndSwap(t, &idText{text: base32.StdEncoding.EncodeToString(random[:])})
	}
}

// PrepareClaim is [Attempt.Prepare] for guards that need a resource and count in Lua numbers. It also names
// the call: see [Attempt.WithCall]. An ID that it makes is random and cannot be guessed. The text what
// completes the error for a missing resource, as in "name the poll".
func (a Attempt) PrepareClaim(what string) (Attempt, error) {
	if a.ID == "" {
		a.ID, a.madeID = rand.Text(), true
	}
	a, err := a.Prepare()
	if err != nil {
		return a, err
	}
	if a.Resource == "" {
		return a, fmt.Errorf("%w: no resource: name %s", ErrInvalid, what)
	}
	if a.Cost > MaxAmount {
		return a, fmt.Errorf("%w: cost %d is more than 2^53-1", ErrInvalid, a.Cost)
	}
	return a.WithCall(), nil
}

// PrepareItem is [Attempt.Prepare] for guards that count different items. The attempt needs an item and a
// cost of 1. It also names the call: see [Attempt.WithCall]. An ID that it makes is random and cannot be
// guessed.
func (a Attempt) PrepareItem() (Attempt, error) {
	if a.ID == "" {
		a.ID, a.madeID = rand.Text(), true
	}
	a, err := a.Prepare()
	if err != nil {
		return a, err
	}
	if a.Item == "" {
		return a, fmt.Errorf("%w: no item: name the item to count", ErrInvalid)
	}
	if a.Cost != 1 {
		return a, fmt.Errorf("%w: cost %d: an item costs 1", ErrInvalid, a.Cost)
	}
	return a.WithCall(), nil
}

// MadeID reports whether Prepare, PrepareClaim or PrepareItem made the operation ID, so that only the holder
// of this attempt knows it.
func (a Attempt) MadeID() bool { return a.madeID }

// Call returns the name of the call of Check that makes the attempt. By it, a script tells a call that
// go-redis sent again from a new call. It is empty before [Attempt.WithCall].
func (a Attempt) Call() string { return a.call }

// WithoutCall returns the attempt without the name of its call, so that another call of Check can make it.
func (a Attempt) WithoutCall() Attempt {
	a.call = ""
	return a
}

// WithCall names the call of Check that makes the attempt, unless it already has a name.
func (a Attempt) WithCall() Attempt {
	if a.call == "" {
		a.call = rand.Text()[:10]
	}
	return a
}
