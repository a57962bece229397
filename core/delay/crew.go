package delay

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// crew is what the workers of an engine share. A process dies as a whole, so suspects of one queue run apart
// from the tasks of all of them.
type crew struct {
	engine  *core.Engine
	workers int // calls of Work, under the lock of crews

	mu      sync.Mutex
	busy    int           // handlers that run, and claims under way
	alone   *worker       // it runs suspects, or is about to: the others claim nothing
	apart   int           // suspects that run. They may outlast alone
	changed chan struct{} // closed, and made anew, after a change
}

var crews = struct {
	sync.Mutex
	of map[*core.Engine]*crew
}{of: map[*core.Engine]*crew{}}

// join returns the crew of an engine, with one worker more.
func join(e *core.Engine) *crew {
	crews.Lock()
	defer crews.Unlock()
	c := crews.of[e]
	if c == nil {
		c = &crew{engine: e, changed: make(chan struct{})}
		crews.of[e] = c
	}
	c.workers++
	return c
}

// leave ends what join began.
func (c *crew) leave() {
	crews.Lock()
	defer crews.Unlock()
	if c.workers--; c.workers == 0 {
		delete(crews.of, c.engine)
	}
}

// change changes the crew, and wakes those who wait for that.
func (c *crew) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until cond holds, which is asked under the lock, until the context ends, or over has a value.
func (c *crew) await(ctx context.Context, over <-chan time.Time, cond func() bool) {
	for {
		c.mu.Lock()
		met, changed := cond(), c.changed
		c.mu.Unlock()
		if met {
			return
		}
		select {
		case <-changed:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// runApart claims the suspects that wait in a slot, as many as may run together, and runs them while the
// crew runs and claims nothing else. It waits for the running tasks, and then for the suspects, each for
// the length of a lease at most, so that a long task does not hold up all others. It returns false when the
// crew has suspects already, or the claim failed.
func (w *worker) runApart(ctx context.Context, slot int) bool {
	c, room := w.crew, 0
	c.await(ctx, nil, func() bool {
		if c.alone != nil || c.apart > 0 {
			return true
		}
		if room = w.options.Concurrency - len(w.runs); room > 0 {
			c.alone = w
		}
		return room > 0
	})
	if room == 0 {
		return false
	}
	defer c.change(func() { c.alone = nil })
	c.await(ctx, time.After(w.options.Lease), func() bool {
		room = w.options.Concurrency - len(w.runs)
		return c.busy == 0
	})
	if ctx.Err() != nil {
		return true
	}
	got, err := w.q.claimSlot(context.WithoutCancel(ctx), slot, min(room, chunk), w.options.Lease, true)
	for _, t := range got.tasks {
		w.start(ctx, t)
	}
	c.await(ctx, time.After(w.options.Lease), func() bool { return c.apart == 0 })
	return err == nil
}
