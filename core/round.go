package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// This file lets calls of several guards about one request go out together.

// Round makes calls of several guards, such as the checks of one request, so that their scripts go out
// together: in one pipeline per server, in the order of the calls. It is for adapters. The zero value is
// ready for one use. Its methods must not be called concurrently.
type Round struct {
	ctx      context.Context
	call     func(ctx context.Context, i int) bool
	parts    []part
	begun    int
	stopped  bool
	panicked any
	parked   []*part // what has to be sent, in the order of the calls
}

// ErrEarly is returned by a Check that a [Round] has made before the guards in front have answered, if the
// guard wants to be asked again after they have: see [Expect]. Nothing was taken. The guards in front are
// those of the earlier calls.
var ErrEarly = errors.New("core: asked before the guards in front have answered")

// Make makes the calls 0 to n-1 in order, and returns how many it has made. When the script of a call is
// about to be sent, and its guard expects to allow the attempt ([Expect]), Make makes the next call first.
// The scripts of these calls go out together when no further call can be made early. A call whose guard does
// not call Expect goes out as it would without a Round.
//
// call reports whether the calls behind it are still wanted: it returns false when it refuses. Make then
// makes no further calls, and the caller has to take back those behind the refusal that were made by then.
// Make does not count a call that returned [ErrEarly], and ends there; the caller makes it again in another
// Round.
//
// All calls run one inside another in the goroutine of Make, each with a context of its own, so call needs no
// locks. If one that was made early panics, the others end before Make panics with the same value.
//
// Events that the guards report during a call are kept until Tell or Drop. After them, further events of the
// call go to the observer at once.
func (r *Round) Make(ctx context.Context, n int, call func(ctx context.Context, i int) bool) (made int) {
	r.ctx, r.call, r.parts = ctx, call, make([]part, n)
	for r.begun < n && !r.stopped {
		r.next(false)
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.begun
}

// Tell passes the events of call i that were kept to their observers. It has no effect on a call that was not
// made.
func (r *Round) Tell(i int) { r.tell(i, func(Event) bool { return true }) }

// Drop forgets the events of call i that were kept, because its answer does not count. Events with an error
// go to their observers all the same.
func (r *Round) Drop(i int) { r.tell(i, func(e Event) bool { return e.Err != nil }) }

func (r *Round) tell(i int, which func(Event) bool) {
	if i >= len(r.parts) {
		return
	}
	for _, e := range r.parts[i].untold() {
		if which(e.Event) {
			e.observer.Observe(r.ctx, e.Event)
		}
	}
}

// Expect is for guards with [Traits].Early. Check calls it before it asks Redis, unless it knows the answer.
// allows reports whether Check expects to allow the attempt and to leave enough for others. Expect calls it
// only where the check is one of a [Round]. When Expect returns false, Check must return [ErrEarly] without
// asking Redis.
//
// While guards expect to allow, the checks of a Round go out together. A guard that does not expect to allow
// is asked after those in front have answered, and those behind it are asked after its answer. So there is
// seldom anything to take back, and it is not what other requests need.
func Expect(ctx context.Context, allows func() bool) (ask bool) {
	p := partOf(ctx)
	if p == nil || !p.early && p.round.begun == len(p.round.parts) {
		return true
	}
	yes := allows()
	p.along.Store(yes)
	p.again.Store(p.early && !yes)
	return yes || !p.early
}

// InRound reports whether the check is one of a [Round] that is made before those in front have ended, and
// whether further ones are behind it, which go out together with it if its guard says so by [Expect].
func InRound(ctx context.Context) (early, followed bool) {
	p := partOf(ctx)
	return p != nil && p.early, p != nil && p.round.begun < len(p.round.parts)
}

// SharesCalls reports whether calls of the engine may share a pipeline: see [WithoutSharedCalls].
func (e *Engine) SharesCalls() bool { return e.shared != nil }

// part is one call of a Round, and its context.
//
// An application's own guard may use the context in several goroutines, also when the call has ended. mu sees
// to it that one of them at a time goes on with the Round, while the call lasts; the others' scripts go out
// by themselves.
type part struct {
	context.Context
	round *Round
	early bool        // earlier calls have not ended
	along atomic.Bool // the next call may be made before this one's script is sent
	again atomic.Bool // it returned ErrEarly

	mu    sync.Mutex // held while it waits in send or meanwhile
	ended bool
	sent  bool

	sharing *sharing
	line    *line[sending]
	what    sending
	limit   time.Duration // from when it is sent
	waits   *waiting[sending]
	reply   any
	err     error

	own    sync.Mutex   // of what follows
	flies  *line[Joint] // where it is one of those under way
	told   bool
	events []untold
}

// untold is an event that the observer has not been told.
type untold struct {
	observer Observer
	Event
}

type partKey struct{}

// Value returns the part, or a value of the Round's context.
func (p *part) Value(key any) any {
	if _, ok := key.(partKey); ok {
		return p
	}
	return p.Context.Value(key)
}

// partOf returns the call of a Round that ctx belongs to, or nil.
func partOf(ctx context.Context) *part {
	p, _ := ctx.Value(partKey{}).(*part)
	return p
}

// next makes the next call. A panic of one that is made early waits until those in front have ended.
func (r *Round) next(early bool) {
	i := r.begun
	r.begun++
	p := &r.parts[i]
	p.Context, p.round, p.early = r.ctx, r, early
	defer func() {
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		if p.again.Load() {
			r.begun, r.stopped = i, true
			p.untold()
		}
		if early {
			if value := recover(); value != nil {
				r.stopped, r.panicked = true, value
			}
		}
	}()
	if !r.call(p, i) {
		r.stopped = true
	}
}

// more makes further calls while p waits.
func (r *Round) more(p *part) {
	for p.along.Load() && !p.sent && !r.stopped && r.begun < len(r.parts) {
		r.next(true)
	}
}

// enter reports whether the goroutine may go on with the Round. It unlocks mu then.
func (p *part) enter() bool {
	if p == nil || !p.mu.TryLock() {
		return false
	}
	if p.ended {
		p.mu.Unlock()
		return false
	}
	return true
}

// send sends a command together with those of other calls, and returns what came back. mu is held.
func (p *part) send(ctx context.Context, s *sharing, l *line[sending], what sending) (any, error) {
	defer p.mu.Unlock()
	r := p.round
	end, _ := ctx.Deadline() // Engine.call sets one
	p.sharing, p.line, p.what, p.sent, p.limit = s, l, what, false, time.Until(end)
	r.parked = append(r.parked, p)
	begun := r.begun
	r.more(p)
	if p.sent || len(r.parked) > 1 {
		r.flush()
		return s.follow(ctx, what.cmd, p.reply, p.err)
	}
	r.parked = nil
	if r.begun > begun { // what those calls took of the time, as a function of the application may, is not p's
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), p.limit)
		defer cancel()
	}
	return s.alone(ctx, l, what)
}

// meanwhile makes the calls that can be made while p waits for calls that others have under way. Those of the
// Round do not wait for it in turn, since calls may wait for them.
func (p *part) meanwhile() {
	if !p.enter() {
		return
	}
	defer p.mu.Unlock()
	p.sent = false
	p.round.more(p)
	p.round.flush()
}

// flush sends what has to be sent, in a pipeline per server, and waits for the replies.
func (r *Round) flush() {
	parked := r.parked
	r.parked = nil
	if len(parked) == 0 {
		return
	}
	limit := time.Duration(0)
	for _, p := range parked {
		limit = max(limit, p.limit)
	}
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	for i, p := range parked {
		if p.waits == nil {
			calls := batch(ctx, parked[i:])
			p.line.sendAll(calls, len(calls) == len(parked) && p.sharing.engine.obeysDeadline)
		}
	}
	for _, p := range parked {
		p.reply, _, p.err = p.waits.wait()
		p.sent, p.waits = true, nil
		p.landed()
	}
}

// batch returns the calls that go to the server of the first.
func batch(ctx context.Context, parked []*part) []*waiting[sending] {
	calls := make([]*waiting[sending], 0, len(parked))
	for _, p := range parked {
		if p.line == parked[0].line {
			p.waits = &waiting[sending]{what: p.what, ctx: ctx, line: p.line, since: time.Now(),
				done: make(chan struct{}, 1)}
			calls = append(calls, p.waits)
		}
	}
	return calls
}

// flying notes that the call is one of those under way in l, and reports whether landed leaves the line.
func (p *part) flying(l *line[Joint]) bool {
	if p == nil {
		return false
	}
	p.own.Lock()
	defer p.own.Unlock()
	if p.flies != nil {
		return false
	}
	p.flies = l
	return true
}

// landed leaves the line in which the call was under way.
func (p *part) landed() {
	p.own.Lock()
	l := p.flies
	p.flies = nil
	p.own.Unlock()
	if l != nil {
		l.leave()
	}
}

// holds keeps an event for Tell or Drop. It reports false when these have been called.
func (p *part) holds(o Observer, e Event) bool {
	if p == nil {
		return false
	}
	p.own.Lock()
	defer p.own.Unlock()
	if !p.told {
		p.events = append(p.events, untold{o, e})
	}
	return !p.told
}

// untold returns the events that were kept. Further ones are not.
func (p *part) untold() []untold {
	p.own.Lock()
	defer p.own.Unlock()
	events := p.events
	p.told, p.events = true, nil
	return events
}
