package leases

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

const (
	// batch is how many waiters one call gives permits to at most, and newcomers how many it gives places to.
	batch, newcomers = 32, 500
	// stepMost is the longest time between two calls for a line. stepFirst is the same for the process of the
	// first in line, and the limit of one call. The scripts take a process to be dead three seconds after its
	// last call. They pass it after 25 ms when there may be permits for its first waiter, or after 300 ms if
	// it was passed before. So a process that was not notified, or has lost a reply, is passed once.
	stepMost, stepFirst = 500 * time.Millisecond, 200 * time.Millisecond
	// linger is how long a process listens on after its last waiter has left.
	linger = 10 * time.Second
)

// lines are those of this process who wait for permits. Each pool with waiters has one goroutine, which makes
// the calls for all of them.
type lines struct {
	process    string        // the name of this guard in this process
	pause      time.Duration // the longest time between two calls for a line
	pauseFirst time.Duration // the same where a waiter of this process is the first

	mu    sync.Mutex
	byTag map[string]*line
	looks map[string]time.Time // by the tags of lines, when this process checks on a notified process
	hears bool                 // this process listens to others, or is about to
	heard *redis.PubSub        // their messages
	idle  *time.Timer          // until it listens no more
}

// line has the waiters of one pool, first come first.
type line struct {
	waiters []*waiter
	kick    chan struct{} // there may be permits for the first, or there is a new one
}

// waiter is an attempt that waits.
type waiter struct {
	h       *Holder
	placed  bool // a call has given it a place in line
	granted chan time.Time
}

// Await lets a holder stand in line, and reports whether it has got its claim.
func (k *Keeper) Await(ctx context.Context, h *Holder) bool {
	ctx, cancel := context.WithTimeout(ctx, k.options.Wait)
	defer cancel()
	h.Late, h.process = true, k.lines.process
	w := &waiter{h: h, granted: make(chan time.Time, 1)}
	k.join(w)
	k.listen()
	select {
	case sent := <-w.granted:
		k.pools.add(h, sent)
		return true
	case <-ctx.Done():
	}
	if k.lines.leave(w) {
		k.base.UndoLater(nil, func(ctx context.Context) error { return k.Give(ctx, h) })
		return false
	}
	k.pools.add(h, <-w.granted) // at the same moment
	return true
}

// join adds a waiter to its line.
func (k *Keeper) join(w *waiter) {
	p := &k.lines
	p.mu.Lock()
	defer p.mu.Unlock()
	l := k.lineOf(w.h.Tag)
	l.waiters = append(l.waiters, w)
	l.awake()
}

// leave removes a waiter, and reports whether it was still waiting.
func (p *lines) leave(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.byTag[w.h.Tag]
	if l == nil {
		return false
	}
	i := slices.Index(l.waiters, w)
	if i < 0 {
		return false
	}
	l.waiters = slices.Delete(l.waiters, i, i+1)
	l.awake()
	return true
}

func (l *line) awake() {
	select {
	case l.kick <- struct{}{}:
	default: // it is awake already
	}
}

// look makes a call for a line in a while, also if nobody waits in it: a process was told that there may be
// permits for its waiters, and if it is dead, the next one has to be told. One look under way is enough: it
// comes again if need be.
func (k *Keeper) look(tag string, in time.Duration) {
	p := &k.lines
	at := time.Now().Add(in)
	p.mu.Lock()
	defer p.mu.Unlock()
	if next, found := p.looks[tag]; found && !next.After(at) {
		return
	}
	p.looks[tag] = at
	time.AfterFunc(in, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.looks[tag].Equal(at) {
			delete(p.looks, tag)
		}
		k.lineOf(tag).awake()
	})
}

// lineOf returns the line of a tag, and makes it if need be. lines.mu is held.
func (k *Keeper) lineOf(tag string) *line {
	l := k.lines.byTag[tag]
	if l == nil {
		l = &line{kick: make(chan struct{}, 1)}
		k.lines.byTag[tag] = l
		go k.serve(tag, l)
	}
	return l
}

// kick makes the calls for a line go on.
func (p *lines) kick(tag string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.byTag[tag]; l != nil {
		l.awake()
	}
}

// kickAll makes the calls for all lines go on.
func (p *lines) kickAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.byTag {
		l.awake()
	}
}

// next returns the waiters of the next call: the first in line, and those without a place. placed is the
// number of waiters with a place, which come first. rest reports whether there are others.
func (p *lines) next(l *line) (some []*waiter, placed int, rest bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range l.waiters {
		if len(some) < newcomers && (i < batch || !w.placed) {
			some = append(some, w)
			if w.placed {
				placed++
			}
		}
	}
	return some, placed, len(some) < len(l.waiters)
}

// served notes what a call that was sent at the given moment has done for some waiters. In a pool with fences
// one of them may have its permit.
func (p *lines) served(l *line, some []*waiter, granted []int64, fence int64, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range some {
		w.placed = true
	}
	for _, place := range granted {
		if place < 1 || place > int64(len(some)) {
			continue
		}
		w := some[place-1]
		if i := slices.Index(l.waiters, w); i >= 0 { // else it has left, and gives back what it got
			l.waiters = slices.Delete(l.waiters, i, i+1)
			w.h.Fence = fence
			w.granted <- sent
		}
	}
}

// end removes a line without waiters.
func (p *lines) end(tag string, l *line) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(l.waiters) > 0 {
		return false
	}
	delete(p.byTag, tag)
	if len(p.byTag) == 0 && p.hears {
		p.idle = time.AfterFunc(linger, p.unheard)
	}
	return true
}

// serve makes the calls for a line until nobody waits in it.
func (k *Keeper) serve(tag string, l *line) {
	for {
		some, placed, rest := k.lines.next(l)
		pause := k.step(tag, l, some, placed, rest)
		if len(some) == 0 && k.lines.end(tag, l) {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-l.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step makes one call for a line, and returns how long to wait for the next one.
func (k *Keeper) step(tag string, l *line, some []*waiter, placed int, rest bool) (pause time.Duration) {
	keys := []string{k.key(tag), k.base.Key(tag, "line"), k.base.Key(tag, "present")}
	args := []any{k.lines.process, k.options.Lease.Milliseconds(), kit.FlagOf(rest), placed, k.keep(), k.now()}
	for _, w := range some {
		keys = append(keys, k.base.Key(tag, "void", w.h.Call))
		args = append(args, w.h.Name, w.h.Most)
	}
	var granted []int64
	var first string
	pause = k.lines.pause
	sent := time.Now()
	ctx := context.Background()
	_ = k.base.Call(ctx, "wait", core.Attempt{}, func() error { // observed; the waiters wait on
		value, err := k.base.Engine().RunWithin(ctx, min(k.base.Engine().SettleTimeout(), stepFirst),
			waitScript, keys, args...)
		if err != nil {
			return err
		}
		r := script.ReadReply(value, 3, 4)
		first = r.Text()
		if wait := r.Duration(time.Millisecond); wait > 0 {
			pause = min(pause, wait+time.Millisecond)
			if len(some) == 0 {
				k.look(tag, pause)
			}
		}
		numbers := script.ReadReply(script.ReadValue[any](r), 0, math.MaxInt)
		for numbers.More() {
			granted = append(granted, numbers.Number())
		}
		fence := fenceOf(r)
		if r.Err == nil {
			r.Err = numbers.Err
		}
		if r.Err == nil {
			k.lines.served(l, some, granted, fence, sent)
		}
		return r.Err
	})
	switch {
	case first != k.lines.process:
		k.tell(first, tag) // the pause is until it is passed
	case len(granted) > 0:
		return 0 // there may be permits for more of them
	default:
		pause = min(pause, k.lines.pauseFirst)
	}
	return pause
}

// tell tells a process that there may be permits for its waiters in a pool.
func (k *Keeper) tell(process, tag string) {
	switch process {
	case "":
	case k.lines.process:
		k.lines.kick(tag)
	default:
		channel := k.channel(process)
		k.base.Later(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, k.base.Engine().SettleTimeout())
			defer cancel()
			// Without it, the process finds out by itself.
			_ = k.base.Engine().Client().Process(ctx, redis.NewIntCmd(ctx, "publish", channel, tag))
		})
	}
}

// channel returns the channel that a process listens to.
func (k *Keeper) channel(process string) string { return k.base.Key(process, "freed") }

// subscriber is a client that can listen: *redis.Client, *redis.ClusterClient, *redis.Ring.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// listen subscribes to the messages of other processes, unless it has already. A client that cannot or may
// not subscribe asks twice a second.
func (k *Keeper) listen() {
	client, ok := k.base.Engine().Client().(subscriber)
	if !ok {
		return
	}
	p := &k.lines
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	if p.hears {
		return
	}
	p.hears = true
	go func() {
		heard := client.Subscribe(context.Background(), k.channel(p.process))
		if !p.hear(heard) {
			return
		}
		for message := range heard.ChannelWithSubscriptions() {
			switch m := message.(type) {
			case *redis.Subscription: // before, nobody could tell this process anything
				p.kickAll()
			case *redis.Message:
				p.kick(m.Payload)
			}
		}
	}()
}

// hear notes a subscription, and reports whether it is needed.
func (p *lines) hear(heard *redis.PubSub) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hears || p.heard != nil {
		_ = heard.Close() // it ends in any case
		return false
	}
	p.heard = heard
	return true
}

// unheard ends the listening, if nobody waits.
func (p *lines) unheard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byTag) > 0 {
		return
	}
	if p.heard != nil {
		_ = p.heard.Close() // it ends in any case
	}
	p.hears, p.heard = false, nil
}
