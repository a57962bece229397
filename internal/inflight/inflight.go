// Package inflight counts what a process has asked Redis for and not been answered yet, so that a rule goes
// along with an earlier one only while that one is certain to allow.
package inflight

import (
	"hash/maphash"
	"sync"
)

const parts = 64

// Units are the units under way of each key. Keys without any take no memory. It is safe for concurrent
// use.
type Units struct {
	seed  maphash.Seed
	parts [parts]part
}

type part struct {
	sync.Mutex
	keys map[string]underWay
}

// underWay is what is under way of a key.
type underWay struct {
	calls, units int64
	leads        int           // how many of the calls have others behind them that go along
	settled      chan struct{} // closed when there are no leads; nil if nobody waits for that
}

// New returns a Units that has nothing under way.
func New() *Units { return &Units{seed: maphash.MakeSeed()} }

// Call is one that is under way. The zero value is none.
type Call struct {
	// Batchable reports whether the units fit beside those that were under way when the call began.
	Batchable bool
	// Settled is closed when the call cannot overtake one that others go along with. Nil: it cannot.
	Settled <-chan struct{}

	of    *part
	key   string
	units int64
	leads bool
}

// Begin notes that Redis is about to be asked for units of the key, beside calls of other rules in front of
// this one (notFirst) or behind it (notLast). fits reports whether the units fit beside those that are
// under way already, by what was heard of the key. It is asked where that matters.
//
// What does not fit must not overtake a call that others go along with, since that one would be refused in
// its place: it has to wait for Settled. So while calls wait for that, no further ones lead.
func (u *Units) Begin(key string, units int64, notFirst, notLast bool, fits func(underWay int64) bool) Call {
	p := u.of(key)
	p.Lock()
	defer p.Unlock()
	if p.keys == nil {
		p.keys = map[string]underWay{}
	}
	w := p.keys[key]
	c := Call{of: p, key: key, units: units}
	lone := !notFirst && !notLast && w.leads == 0
	c.Batchable = lone || (!notLast || w.settled == nil) && fits(w.units)
	switch {
	case c.Batchable && notLast:
		c.leads = true
		w.leads++
	case !c.Batchable && w.leads > 0:
		if w.settled == nil {
			w.settled = make(chan struct{})
		}
		c.Settled = w.settled
	}
	w.calls++
	w.units += units
	p.keys[key] = w
	return c
}

// End notes that the call has been answered, or was not made; of no call, nothing. Call it when what the
// answer said is known, so that no unit is forgotten in between.
func (c *Call) End() {
	p := c.of
	if p == nil {
		return
	}
	p.Lock()
	defer p.Unlock()
	w := p.keys[c.key]
	w.calls--
	w.units -= c.units
	if c.leads {
		w.leads--
	}
	if w.leads == 0 && w.settled != nil {
		close(w.settled)
		w.settled = nil
	}
	if w.calls == 0 {
		delete(p.keys, c.key)
	} else {
		p.keys[c.key] = w
	}
}

func (u *Units) of(key string) *part { return &u.parts[maphash.String(u.seed, key)%parts] }
