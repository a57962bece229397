package leases

import (
	"sync"

	"github.com/gatehouse-go/gatehouse/core"
)

// crowd counts the attempts of each actor that wait for a pool in this process, so that no actor fills a line.
type crowd struct {
	most int64 // of an actor

	mu      sync.Mutex
	waiting map[spot]int64
}

// spot is what an actor's attempts that wait for a pool have in common.
type spot struct{ tag, actor string }

// full reports whether no further attempt of the actor may wait for the pool.
func (c *crowd) full(tag, actor string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[spot{tag, actor}] >= c.most
}

// enter counts a holder that is about to wait, and reports whether it may.
func (c *crowd) enter(h *Holder) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := spot{h.Tag, h.Attempt.Actor}
	if c.waiting[of] >= c.most {
		return false
	}
	c.waiting[of]++
	return true
}

// leave counts a holder of enter no longer.
func (c *crowd) leave(h *Holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := spot{h.Tag, h.Attempt.Actor}
	if c.waiting[of]--; c.waiting[of] == 0 {
		delete(c.waiting, of)
	}
}

// TooManyWait is what clients are told.
const TooManyWait = "Too many of your requests are waiting."

// TooMany refuses an attempt whose actor has as many waiting for the pool as may, and reports whether it did:
// Redis need not be asked, since those who wait are served before.
func (k *Keeper) TooMany(tag string, d *core.Decision) bool {
	if k.options.Wait == 0 || !k.crowd.full(tag, d.Attempt.Actor) {
		return false
	}
	d.Reason, d.RetryAfter = core.ReasonLimited, LocalRetry
	return true
}
