package delay

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// crew is what the workers of an engine share. A process dies as a whole, so a suspect of one queue runs
// apart from the tasks of all of them.
type crew struct {
	engine  *core.Engine
	workers int // calls of Work, under the lock of crews

	mu      sync.Mutex
	busy    int           // handlers that run, and claims under way
	alone   *worker       // it runs a suspect, or is about to: the others claim nothing
	suspect *run          // that runs. It may outlast alone
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

// apart claims the suspect that waits in a slot and runs it, while the crew runs and claims nothing else. It
// waits for what runs, and then for the suspect, each for the length of a lease at most, so that a task that
// runs for long does not hold up all others. It returns false when the crew has a suspect already, or the
// claim failed.
func (w *worker) apart(ctx context.Context, slot int) bool {
	c, mine := w.crew, false
	c.await(ctx, nil, func() bool {
		if c.alone != nil || c.suspect != nil {
			return true
		}
		if mine = len(w.runs) < w.options.Concurrency; mine {
			c.alone = w
		}
		return mine
	})
	if !mine {
		return false
	}
	defer c.change(func() { c.alone = nil })
	c.await(ctx, time.After(w.options.Lease), func() bool { return c.busy == 0 })
	if ctx.Err() != nil {
		return true
	}
	got, err := w.q.claimSlot(context.WithoutCancel(ctx), slot, 1, w.options.Lease, true)
	for _, t := range got.tasks {
		w.start(ctx, t)
	}
	c.await(ctx, time.After(w.options.Lease), func() bool { return c.suspect == nil })
	return err == nil
}
