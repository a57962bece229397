package semaphore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// holder is what one call of Check holds: the claim of its decision.
type holder struct {
	tag      string
	resource string
	call     string
	name     string        // as the scripts know it: "call|lease|actor"
	actor    string        // as it was given
	cost     int64         // permits
	process  string        // that has waited for the permits; empty: nobody has
	lease    time.Duration // zero: the permits are this process's own
	late     bool          // the call, or a copy of it, may still arrive: its release leaves a tombstone

	lost context.Context // ends when the lease is lost, with ErrLost as its cause
	lose context.CancelCauseFunc

	expiry *time.Timer // when the lease is over by the clock of the process; of pools
}

func newHolder(tag string, a core.Attempt, lease time.Duration) *holder {
	h := &holder{
		tag: tag, resource: a.Resource, call: a.Call(), actor: a.Actor, cost: a.Cost, lease: lease,
		name: a.Call() + "|" + strconv.FormatInt(lease.Milliseconds(), 10) + "|" + core.Encode(a.Actor),
	}
	h.lost, h.lose = context.WithCancelCause(context.Background())
	return h
}

// Hold implements [core.Holder]. It returns a context that ends when the lease of the decision's permits is
// lost, with the cause [ErrLost], or when ctx ends. The decision must come from this guard's Check in this
// process; otherwise the context is ctx. Call stop when the work is done, and then Settle:
//
//	d, err := exports.Check(ctx, core.Attempt{Actor: worker})
//	if err != nil || !d.Allowed {
//		return err
//	}
//	defer exports.Settle(context.WithoutCancel(ctx), d, core.Commit)
//	ctx, stop := exports.Hold(ctx, d)
//	defer stop()
func (g *Guard) Hold(ctx context.Context, d core.Decision) (held context.Context, stop context.CancelFunc) {
	h, err := core.Claimed[*holder](&g.Base, d)
	if err != nil {
		return ctx, func() {}
	}
	held, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(h.lost, func() { cancel(context.Cause(h.lost)) })
	return held, func() {
		release()
		cancel(nil)
	}
}

// chunk is how many holders one call renews.
const chunk = 500

// pools are the pools of which this process holds permits.
type pools struct {
	lease time.Duration
	renew func(ctx context.Context, holders []*holder) (lost []*holder, err error)

	mu    sync.Mutex
	byTag map[string]*pool
}

// pool has what this process holds of one pool.
type pool struct {
	holders map[*holder]struct{}
	held    int64       // permits of the holders
	leased  int         // holders with a lease
	line    []*queued   // who waits for permits of this process, first come first
	timer   *time.Timer // of the next renewal; nil before the first lease
}

// of returns the pool of a tag. pools.mu is held.
func (p *pools) of(tag string) *pool {
	one := p.byTag[tag]
	if one == nil {
		one = &pool{holders: map[*holder]struct{}{}}
		p.byTag[tag] = one
	}
	return one
}

// queued is a holder without a lease that waits.
type queued struct {
	h     *holder
	most  int64
	ready chan struct{} // closed when it has its permits
}

// take adds a holder without a lease, if the process then holds at most so many permits of the pool as most
// says. It waits for that, after those who came before. It returns how many permits the process holds.
func (p *pools) take(ctx context.Context, h *holder, most int64, wait time.Duration) (held int64, ok bool) {
	q := &queued{h: h, most: most, ready: make(chan struct{})}
	p.mu.Lock()
	one := p.of(h.tag)
	one.line = append(one.line, q)
	one.admit()
	p.mu.Unlock()
	if wait > 0 {
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
		one.admit() // those behind may ask for less
		p.drop(h.tag, one)
		return one.held, false
	}
	return one.held, true
}

// admit gives permits to those at the head of the line. pools.mu is held.
func (one *pool) admit() {
	for len(one.line) > 0 && one.held+one.line[0].h.cost <= one.line[0].most {
		q := one.line[0]
		one.line = one.line[1:]
		one.holders[q.h] = struct{}{}
		one.held += q.h.cost
		close(q.ready)
	}
}

// drop forgets a pool of which the process holds nothing. pools.mu is held.
func (p *pools) drop(tag string, one *pool) {
	if len(one.holders) == 0 && len(one.line) == 0 {
		delete(p.byTag, tag)
	}
}

// add adds a holder to whom Redis has given permits, by a call that was sent at the given moment.
func (p *pools) add(h *holder, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of(h.tag)
	one.holders[h] = struct{}{}
	one.held += h.cost
	one.leased++
	h.expiry = time.AfterFunc(h.lease-time.Since(sent), func() { p.lose(h) })
	switch {
	case one.timer == nil:
		one.timer = time.AfterFunc(p.lease/3, func() { p.renewAll(one) })
	case one.leased == 1:
		one.timer.Reset(p.lease / 3)
	}
}

// lose ends a holder whose lease was lost.
func (p *pools) lose(h *holder) {
	if p.remove(h) {
		h.lose(ErrLost)
	}
}

// remove removes a holder, and reports whether it was there.
func (p *pools) remove(h *holder) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byTag[h.tag]
	if one == nil {
		return false
	}
	if _, found := one.holders[h]; !found {
		return false
	}
	delete(one.holders, h)
	one.held -= h.cost
	if h.lease > 0 {
		h.expiry.Stop()
		if one.leased--; one.leased == 0 {
			one.timer.Stop()
		}
	}
	one.admit()
	p.drop(h.tag, one)
	return true
}

// renewAll renews the leases of a pool's holders, and comes again a third of the lease later; after a
// failure, sooner.
func (p *pools) renewAll(one *pool) {
	p.mu.Lock()
	leased := make([]*holder, 0, one.leased)
	for h := range one.holders {
		if h.lease > 0 {
			leased = append(leased, h)
		}
	}
	p.mu.Unlock()
	pause := p.lease / 3
	for some := range slices.Chunk(leased, chunk) {
		if !p.renewSome(some) {
			pause = p.lease / 10
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if one.leased > 0 {
		one.timer.Reset(pause)
	}
}

// renewSome renews some leases, and reports whether Redis has answered.
func (p *pools) renewSome(holders []*holder) bool {
	sent := time.Now()
	lost, err := p.renew(context.Background(), holders)
	if err != nil {
		return false // observed; the leases that are over end by their timers
	}
	for _, h := range lost {
		p.lose(h)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range holders {
		one := p.byTag[h.tag]
		if one == nil {
			continue
		}
		if _, held := one.holders[h]; held {
			h.expiry.Reset(h.lease - time.Since(sent))
		}
	}
	return true
}
