package core

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
)

// Attempt is what a guard decides: who does what, which, how much, and under which operation ID.
//
// All text may be any bytes of any length: inside Redis keys it is encoded, and long text is hashed.
type Attempt struct {
	// Actor is who tries: an address, a user, an API key. Required.
	Actor string
	// Resource is what the attempt is about: the poll, the item on sale, the packet. Rate limits take it as part of the key, and
	// may leave it empty: then the guard has one budget an actor.
	Resource string
	// Item is the one of several that the attempt picks: a voter's choice, the article that is read. Guards that have no
	// items ignore it.
	Item string
	// Cost is how much the attempt takes: units of a rate limit, the weight of a vote, the quantity bought.
	// Zero means 1; a negative cost is an ErrInvalidAttempt.
	Cost int64
	// ID is the operation ID. A second attempt with the same ID changes nothing and hears the first one's answer; where
	// it differs from the first one it is refused as ReasonConflict. Empty: one is made, and Decision.Attempt has it. IDs are
	// known within one poll, sale or packet, or within one actor's period of a quota: two sales do not know of each other's.
	// Rate limits use it for giving back only.
	ID string
	// Origin is where the attempt came from, such as an address or a device, for those who look into it later. No guard decides by
	// it; Votes keeps it in its audit stream. May be empty.
	Origin string

	// Shadow says that the answer is only watched: whoever asks lets the attempt pass whatever it is. Guards decide as ever;
	// observers can tell such refusals from those that somebody has met.
	Shadow bool

	// madeID is set where prepare made the ID, so nobody but this attempt's holder knows it.
	madeID bool
	// call names one call of Check, so that a guard can tell a call that go-redis has sent again from a new one.
	call string
}

// prepare fills in what an attempt may leave out, and finds what no guard can decide.
func (a Attempt) Prepare() (Attempt, error) {
	if a.Actor == "" {
		return a, fmt.Errorf("%w: no actor", ErrInvalid)
	}
	if a.Cost < 0 {
		return a, fmt.Errorf("%w: cost %d is negative", ErrInvalid, a.Cost)
	}
	if a.Cost == 0 {
		a.Cost = 1
	}
	if a.ID == "" {
		a.ID, a.madeID = limitIDs.make(), true
	}
	return a, nil
}

// limitIDs makes the IDs of attempts at rate limits. These tell attempts apart whose units are given back, so they have to be
// unique, but nobody gains by guessing one: a counter behind a random word costs a fraction of a random word each.
var limitIDs = &counterIDs{prefix: rand.Text() + "-"}

type counterIDs struct {
	prefix string
	last   atomic.Uint64
}

func (c *counterIDs) make() string {
	buffer := make([]byte, 0, 48)
	return string(strconv.AppendUint(append(buffer, c.prefix...), c.last.Add(1), 36))
}

// prepareClaim is prepare for guards that need to know what is claimed and count in Lua numbers.
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
		return a, fmt.Errorf("%w: cost %d is beyond 2^53-1", ErrInvalid, a.Cost)
	}
	return a.WithCall(), nil
}

// prepareItem is prepare for guards that count different items.
func (a Attempt) PrepareItem() (Attempt, error) {
	a, err := a.Prepare()
	if err != nil {
		return a, err
	}
	if a.Item == "" {
		return a, fmt.Errorf("%w: no item: name which one of those that are counted it is", ErrInvalid)
	}
	if a.Cost != 1 {
		return a, fmt.Errorf("%w: cost %d: an item counts 1", ErrInvalid, a.Cost)
	}
	return a.WithCall(), nil
}

// MadeID reports whether Prepare or PrepareClaim made the operation ID, so that nobody but this attempt's holder knows it.
func (a Attempt) MadeID() bool { return a.madeID }

// Call returns the name of the call of Check that the attempt is made by, by which a script tells a call that go-redis has sent again from a
// new one; empty before WithCall.
func (a Attempt) Call() string { return a.call }

// WithoutCall returns the attempt as another call of Check may make it.
func (a Attempt) WithoutCall() Attempt {
	a.call = ""
	return a
}

// withCall names the call of Check that the attempt is made by, unless it has a name.
func (a Attempt) WithCall() Attempt {
	if a.call == "" {
		a.call = rand.Text()[:10]
	}
	return a
}
