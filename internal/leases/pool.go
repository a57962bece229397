package leases

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
)

// chunk is how many holders one call renews.
const chunk = 500

// pools are the pools of which this process holds permits.
type pools struct {
	lease time.Duration
	cause error // with which the contexts of holders end whose lease was lost
	renew func(ctx context.Context, holders []*Holder) (lost []*Holder, err error)
	crowd *crowd

	mu    sync.Mutex
	byTag map[string]*pool
}

// pool has what this process holds of one pool.
type pool struct {
	holders map[*Holder]struct{}
	held    int64       // permits of the holders
	leased  int         // holders with a lease
	line    []*queued   // waiters of this process for permits, first come first
	narrow  time.Time   // since when the first of these waits beside free permits; or zero
	timer   *time.Timer // of the next renewal; nil before the first lease
}

// of returns the pool of a tag. pools.mu is held.
func (p *pools) of(tag string) *pool {
	one := p.byTag[tag]
	if one == nil {
		one = &pool{holders: map[*Holder]struct{}{}}
		p.byTag[tag] = one
	}
	return one
}

// queued is a holder without a lease that waits.
type queued struct {
	h     *Holder
	waits bool          // not only until the call returns
	ready chan struct{} // closed when it has its permits
}

// take adds a holder without a lease, if the process then holds at most h.Most permits of the pool. It waits
// for that, after those who came before. It returns how many permits the process holds, and ReasonOK,
// ReasonBusy, or ReasonLimited where as many attempts of the actor wait as may.
func (p *pools) take(ctx context.Context, h *Holder, wait time.Duration) (held int64, reason core.Reason) {
	q := &queued{h: h, waits: wait > 0, ready: make(chan struct{})}
	p.mu.Lock()
	one := p.of(h.Tag)
	one.line = append(one.line, q)
	p.admit(one)
	reason = core.ReasonBusy
	waits := q.waits && slices.Contains(one.line, q)
	if waits && !p.crowd.enter(h) {
		waits, reason = false, core.ReasonLimited
	}
	p.mu.Unlock()
	if waits {
		defer p.crowd.leave(h)
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		select {
		case <-q.ready:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(one.line, q); i >= 0 {
		one.line = slices.Delete(one.line, i, i+1)
		p.admit(one) // those behind may ask for less
		p.drop(h.Tag, one)
		return one.held, reason
	}
	return one.held, core.ReasonOK
}

// holdUp is how long a waiter for whom too few permits are free holds up those behind it: see the block
// semaphore_fits of the scripts.
const holdUp = 300 * time.Millisecond

// admit gives permits to the waiters at the head of the line. When too few are free for the first one for a
// while, it gives them to those behind it. pools.mu is held.
func (p *pools) admit(one *pool) {
	for len(one.line) > 0 && one.fits(one.line[0].h) {
		one.give(0)
		one.narrow = time.Time{}
	}
	if len(one.line) == 0 || !one.line[0].waits || one.held >= one.line[0].h.Most {
		return
	}
	if one.narrow.IsZero() {
		one.narrow = time.Now()
		time.AfterFunc(holdUp, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.admit(one)
		})
	}
	if time.Since(one.narrow) < holdUp {
		return
	}
	for i := 1; i < len(one.line); {
		if one.fits(one.line[i].h) {
			one.give(i)
		} else {
			i++
		}
	}
}

func (one *pool) fits(h *Holder) bool { return one.held+h.Attempt.Cost <= h.Most }

// give gives a waiter its permits.
func (one *pool) give(place int) {
	q := one.line[place]
	one.line = slices.Delete(one.line, place, place+1)
	one.holders[q.h] = struct{}{}
	one.held += q.h.Attempt.Cost
	close(q.ready)
}

// drop forgets a pool of which the process holds nothing. pools.mu is held.
func (p *pools) drop(tag string, one *pool) {
	if len(one.holders) == 0 && len(one.line) == 0 {
		delete(p.byTag, tag)
	}
}

// add adds a holder to whom Redis has given permits, by a call that was sent at the given moment.
func (p *pools) add(h *Holder, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of(h.Tag)
	one.holders[h] = struct{}{}
	one.held += h.Attempt.Cost
	one.leased++
	h.expiry = time.AfterFunc(h.rest(sent), func() { p.lose(h) })
	switch {
	case one.timer == nil:
		one.timer = time.AfterFunc(p.lease/3, func() { p.renewAll(one) })
	case one.leased == 1:
		one.timer.Reset(p.lease / 3)
	}
}

// rest returns for how long a lease lasts by the clock of the process that a call took or renewed which was
// sent at the given moment.
func (h *Holder) rest(sent time.Time) time.Duration {
	return schedule.Sure(h.Lease) - time.Since(sent)
}

// lose ends a holder whose lease was lost.
func (p *pools) lose(h *Holder) {
	if p.remove(h) {
		h.lose(p.cause)
	}
}

// holds reports whether a holder is there.
func (p *pools) holds(h *Holder) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byTag[h.Tag]
	if one == nil {
		return false
	}
	_, held := one.holders[h]
	return held
}

// remove removes a holder, and reports whether it was there.
func (p *pools) remove(h *Holder) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byTag[h.Tag]
	if one == nil {
		return false
	}
	if _, found := one.holders[h]; !found {
		return false
	}
	delete(one.holders, h)
	one.held -= h.Attempt.Cost
	if h.Lease > 0 {
		h.expiry.Stop()
		if one.leased--; one.leased == 0 {
			one.timer.Stop()
		}
	}
	p.admit(one)
	p.drop(h.Tag, one)
	return true
}

// renewAll renews the leases of a pool's holders. It runs again a third of the lease later, or sooner after
// a failure.
func (p *pools) renewAll(one *pool) {
	p.mu.Lock()
	leased := make([]*Holder, 0, one.leased)
	for h := range one.holders {
		if h.Lease > 0 {
			leased = append(leased, h)
		}
	}
	p.mu.Unlock()
	pause := p.lease / 3
	for some := range slices.Chunk(leased, chunk) {
		if p.renewSome(context.Background(), some) != nil {
			pause = p.lease / 10
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.leased > 0 {
		one.timer.Reset(pause)
	}
}

// renewSome renews some leases of a pool. Lost leases end.
func (p *pools) renewSome(ctx context.Context, holders []*Holder) error {
	sent := time.Now()
	lost, err := p.renew(ctx, holders)
	if err != nil {
		return err // observed; expired leases end by their timers
	}
	for _, h := range lost {
		p.lose(h)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range holders {
		one := p.byTag[h.Tag]
		if one == nil {
			continue
		}
		if _, held := one.holders[h]; held {
			h.expiry.Reset(h.rest(sent))
		}
	}
	return nil
}
