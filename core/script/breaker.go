package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	breakerFailures = 5
	// breakerPause is short enough that calls resume within two seconds after Redis is back. A probe that has
	// just been sent to a dead server takes one deadline and half a second for a new connection. go-redis may
	// need a second to redial.
	breakerPause = 500 * time.Millisecond
	// earlyAgain is how many pauses must lie between two openings for the second to end before its Pause.
	earlyAgain = 10
	// sparedMost is how many calls may lose their connections while a probe looks at these, without being
	// failures: a server that closes idle connections closes many at once. No more, and not again within ten
	// pauses, since a server may answer probes and fail calls.
	sparedMost = 100
	// breakerForget is how long an open breaker is kept without calls for its server, as after a failover.
	breakerForget = 30 * time.Second
	// breakersMost is how many servers have a breaker before closed breakers are dropped.
	breakersMost = 1000
)

// BreakerChange says which breaker has opened or closed. A breaker that sends a probe call is still open.
type BreakerChange struct {
	// Open reports whether the breaker has opened; otherwise it has closed.
	Open bool
	// Node is the address of the breaker's server in a cluster or ring. It is empty when there is one
	// breaker.
	Node string
	// NotSent is how many calls were not sent while the breaker was open. It is zero when the breaker has
	// opened.
	NotSent int64
}

// breakers are a runner's breakers, one per server.
type breakers struct {
	failures int
	pause    time.Duration
	nodeOf   func(ctx context.Context, key string) (string, error) // nil: one breaker for all
	changed  func(ctx context.Context, change BreakerChange, took time.Duration, err error)
	// probe looks at the server of the key and at the connections to it. It is nil where the client can reserve
	// no connection; then calls are the probes.
	probe func(node, key string) (found probed)
	// learned receives the finding of the first probe that failed in an outage. If that probe did not find the
	// cause, learned also receives the first finding with the cause. It also receives pooled connections that
	// a working server had closed.
	learned func(found probed)

	open  atomic.Int64 // how many are open
	mu    sync.RWMutex
	nodes map[string]*breaker
	swept time.Time
}

// OpenBreaker is a breaker that is open: a server of Redis that does not answer is not called.
type OpenBreaker struct {
	// Node is the address of the server in a cluster or ring. It is empty when there is one breaker.
	Node string
	// For is how long the breaker has been open.
	For time.Duration
	// NotSent is how many calls were not sent since then.
	NotSent int64
}

// openNow returns the breakers that are open, sorted by their Node.
func (s *breakers) openNow() []OpenBreaker {
	if s.open.Load() == 0 {
		return nil
	}
	s.mu.RLock()
	known := slices.Collect(maps.Values(s.nodes))
	s.mu.RUnlock()
	var all []OpenBreaker
	for _, b := range known {
		b.mu.Lock()
		if b.open.Load() {
			all = append(all, OpenBreaker{Node: b.node, For: time.Since(b.opened), NotSent: b.notSent.Load()})
		}
		b.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b OpenBreaker) int { return strings.Compare(a.Node, b.Node) })
	return all
}

func newBreakers(
	failures int, pause time.Duration,
	changed func(ctx context.Context, change BreakerChange, took time.Duration, err error),
) *breakers {
	return &breakers{
		failures: cmp.Or(failures, breakerFailures), pause: cmp.Or(pause, breakerPause), changed: changed,
		nodes: map[string]*breaker{},
	}
}

// nodesOf returns a function that finds the address of the server that has a key. It returns nil when there
// is only one server.
func nodesOf(rdb Client) func(ctx context.Context, key string) (string, error) {
	find := nodes(rdb)
	if _, single := rdb.(node); single || find == nil {
		return nil
	}
	return func(ctx context.Context, key string) (string, error) {
		n, err := find(ctx, key)
		if err != nil {
			return "", err
		}
		return n.Options().Addr, nil
	}
}

// of returns the breaker of a server.
func (s *breakers) of(ctx context.Context, node string) *breaker {
	if s.open.Load() > 0 {
		s.forget(ctx, time.Now())
	}
	s.mu.RLock()
	b := s.nodes[node]
	s.mu.RUnlock()
	if b != nil {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b = s.nodes[node]; b != nil {
		return b
	}
	if len(s.nodes) >= breakersMost {
		maps.DeleteFunc(s.nodes, func(_ string, b *breaker) bool { return !b.open.Load() })
	}
	b = &breaker{all: s, node: node}
	s.nodes[node] = b
	return b
}

// forget drops the open breakers that no call has used for breakerForget. Their servers are gone, and without
// calls nothing would find out whether they answer.
func (s *breakers) forget(ctx context.Context, now time.Time) {
	s.mu.Lock()
	if now.Sub(s.swept) < time.Second {
		s.mu.Unlock()
		return
	}
	s.swept = now
	var gone []*breaker
	for node, b := range s.nodes {
		if b.open.Load() && now.UnixNano()-b.asked.Load() > int64(breakerForget) {
			delete(s.nodes, node)
			gone = append(gone, b)
		}
	}
	s.mu.Unlock()
	for _, b := range gone {
		b.mu.Lock()
		b.turn(false)
		b.mu.Unlock()
		b.tell(ctx)
	}
}

// breaker guards the calls to one server.
type breaker struct {
	all  *breakers
	node string

	open    atomic.Bool  // changed under mu
	asked   atomic.Int64 // when a call last used the open breaker, in Unix nanoseconds
	notSent atomic.Int64
	refusal atomic.Pointer[error] // of calls that are not sent

	// The following two change under mu. Calls of a closed breaker read them without it, so that they do not
	// wait for each other.
	epoch    atomic.Int64 // odd while the breaker is open; the ends of calls of an earlier epoch are ignored
	failures atomic.Int64 // in a row, while closed

	mu      sync.Mutex
	opened  time.Time // the last time
	due     time.Time // when an open breaker may send a probe
	trying  bool      // an open breaker's probe is a call, which has not ended
	probing *probing  // in the background; nil: none
	looked  time.Time // when the last probe in the background ended
	spared  int       // how many calls may still lose their connections beside this probe
	told    bool      // learned was called in this outage
	unsure  bool      // only a timeout was reported

	untold  atomic.Bool // whether there are changes to report
	changes []turned
	telling bool
}

// turned is a change of a breaker that has not been told yet.
type turned struct {
	change BreakerChange
	took   time.Duration
	err    error
}

// probing is a probe in the background.
type probing struct{ ended chan struct{} }

// turn records that the breaker has opened or closed. The caller holds mu.
func (b *breaker) turn(open bool) {
	if !b.open.CompareAndSwap(!open, open) {
		return // forget came first
	}
	b.epoch.Add(1)
	b.failures.Store(0)
	b.trying, b.told, b.unsure = false, false, false
	t := turned{change: BreakerChange{Open: open, Node: b.node}}
	if now := time.Now(); open {
		b.all.open.Add(1)
		b.opened, b.due = now, now.Add(b.all.pause)
		b.asked.Store(now.UnixNano())
	} else {
		b.all.open.Add(-1)
		t.took, t.change.NotSent = now.Sub(b.opened), b.notSent.Swap(0)
	}
	b.changes = append(b.changes, t)
	b.untold.Store(true)
}

// because sets the error of the calls that are not sent.
func (b *breaker) because(cause error) {
	refusal := fmt.Errorf("%w: %s", ErrBreakerOpen, cause.Error()) // as text: it is not the error of the call
	b.refusal.Store(&refusal)
}

// tell reports the changes in order, with no lock held.
func (b *breaker) tell(ctx context.Context) {
	if !b.untold.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.telling {
		return // the goroutine that is reporting reports these too
	}
	b.telling = true
	defer func() { b.telling = false }()
	for len(b.changes) > 0 {
		t := b.changes[0]
		b.changes = b.changes[1:]
		func() {
			b.mu.Unlock()
			defer b.mu.Lock()
			b.all.changed(ctx, t.change, t.took, t.err)
		}()
	}
	b.untold.Store(false)
}

// entry is one call that a breaker has let through.
type entry struct {
	breaker *breaker
	epoch   int64
	caller  context.Context // distinguishes calls that the caller cancelled from failures
	key     string
	begun   time.Time
	limit   time.Duration // for the call
	outcome error         // of the call, as to the server: see outcomeOf
	cause   error         // the outcome as callers see it
}

// enter lets a call through, or returns ErrBreakerOpen.
func (t *entry) enter(now time.Time, deadline time.Duration) error {
	t.begun, t.outcome, t.epoch = now, errNeither, t.breaker.epoch.Load()
	if t.epoch%2 == 0 {
		return nil // the breaker is closed
	}
	b, begun, limit := t.breaker, t.begun, t.limit
	passes, wait := b.admit(t)
	if wait != nil {
		b.await(t.caller, wait, min(limit, deadline))
		t.begun = time.Now()
		t.limit = limit - t.begun.Sub(begun)
		passes = b.closed(t) && t.limit > 0
	}
	if !passes {
		b.notSent.Add(1)
		b.tell(t.caller)
		if refusal := b.refusal.Load(); refusal != nil {
			return *refusal
		}
		return ErrBreakerOpen
	}
	if t.limit > deadline && b.open.Load() {
		t.limit = deadline // a probe waits only a short time, so that the next one comes soon
	}
	return nil
}

// admit reports whether a call passes. Otherwise it may have the call wait for a probe.
func (b *breaker) admit(t *entry) (passes bool, wait *probing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.epoch = b.epoch.Load()
	if !b.open.Load() {
		return true, nil
	}
	b.asked.Store(t.begun.UnixNano())
	if b.trying || b.probing != nil || t.begun.Before(b.due) {
		return false, nil
	}
	if b.canProbe(t.key) {
		return false, b.startProbe(t.key)
	}
	b.trying = true
	return true, nil
}

// closed reports whether the breaker is closed, and so lets a call through that has waited.
func (b *breaker) closed(t *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.epoch = b.epoch.Load()
	return !b.open.Load()
}

// await returns when a probe has ended or the time is over.
func (b *breaker) await(caller context.Context, p *probing, longest time.Duration) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
	case <-caller.Done():
	}
}

// ended records what the end of the call says about the server. cause is the error as the caller will see it.
func (t *entry) ended(err, cause error, heard func() bool) {
	if err == nil {
		t.outcome = nil
		return
	}
	if t.outcome = outcomeOf(t.caller, err, time.Since(t.begun) < t.limit/2); heard != nil && heard() {
		t.outcome = nil
	} else if t.outcome != nil && !errors.Is(t.outcome, errNeither) && isReported(err) {
		t.outcome = errNeither // one lost connection is one failure, however many calls shared it
	}
	t.cause = cause
}

// leave tells the breaker how the call ended.
func (t *entry) leave() {
	b := t.breaker
	epoch := b.epoch.Load()
	if t.outcome == nil && t.epoch == epoch && epoch%2 == 0 && b.failures.Load() == 0 {
		return // a success in a row of successes
	}
	b.left(t)
	b.tell(t.caller)
}

func (b *breaker) left(t *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case t.epoch != b.epoch.Load():
	case b.open.Load():
		b.tried(t)
	case t.outcome == nil:
		b.failures.Store(0)
	case !errors.Is(t.outcome, errNeither):
		b.failed(t)
	}
}

// tried ends a call that was the probe of an open breaker.
func (b *breaker) tried(t *entry) {
	b.trying = false
	switch {
	case t.outcome == nil:
		b.turn(false)
	case !errors.Is(t.outcome, errNeither):
		b.because(t.cause)
		b.due = time.Now().Add(b.all.pause)
	}
}

// failed counts a failure, and opens the breaker at the last.
func (b *breaker) failed(t *entry) {
	if b.probing != nil && isBroken(t.outcome) && b.spared > 0 {
		b.spared-- // its connection was lost with those that the probe looks at
		return
	}
	failures := b.failures.Add(1)
	if isHopeless(t.outcome) {
		failures = int64(b.all.failures)
		b.failures.Store(failures)
	}
	if failures < int64(b.all.failures) {
		b.lookAtOthers(t)
		return
	}
	// A breaker that has not opened for long may close as soon as a probe is answered: the outage may have been
	// short, or over for all but the pooled connections. Else it stays open for a Pause, or a server that
	// answers probes and fails calls would cost a few timeouts again and again.
	early := b.opened.IsZero() || time.Since(b.opened) > earlyAgain*b.all.pause
	b.because(t.cause)
	b.turn(true)
	b.changes[len(b.changes)-1].err = t.cause
	if early && b.probing == nil && b.canProbe(t.key) {
		b.startProbe(t.key)
	}
}

// lookAtOthers starts a probe if the call has lost its connection: the client's others may be lost too, and
// each of them would fail a call.
func (b *breaker) lookAtOthers(t *entry) {
	since := time.Since(b.looked)
	if !isBroken(t.outcome) || since <= b.all.pause || b.probing != nil || !b.canProbe(t.key) {
		return
	}
	b.spared = 0
	if b.looked.IsZero() || since > earlyAgain*b.all.pause {
		b.spared = sparedMost
	}
	b.startProbe(t.key)
}

// canProbe reports whether the server can be looked at in the background. In a cluster, a key says which it
// is.
func (b *breaker) canProbe(key string) bool {
	return b.all.probe != nil && (b.all.nodeOf == nil || key != "")
}

// startProbe starts a probe in the background. The caller holds mu.
func (b *breaker) startProbe(key string) *probing {
	p := &probing{ended: make(chan struct{})}
	b.probing = p
	go func() {
		found := b.all.probe(b.node, key)
		b.probed(found)
		close(p.ended)
		b.tell(context.Background())
	}()
	return p
}

// probed ends a probe in the background.
func (b *breaker) probed(found probed) {
	b.mu.Lock()
	b.probing, b.looked = nil, time.Now()
	learned := false
	switch {
	case found.err == nil:
		learned = !b.open.Load() && found.closed > 0
		b.failures.Store(0)
		if b.open.Load() {
			b.turn(false)
		}
	case !b.open.Load():
		if isHopeless(found.err) { // calls have lost their connections before they heard why
			b.because(found.err)
			b.turn(true)
			b.changes[len(b.changes)-1].err = found.err
			b.told = true
		}
	default:
		b.due = b.looked.Add(b.all.pause)
		if errors.Is(found.err, redis.ErrClosed) {
			// Whoever tries again until Redis answers can stop now.
			refusal := fmt.Errorf("%w: %w", ErrBreakerOpen, redis.ErrClosed)
			b.refusal.Store(&refusal)
		} else if !errors.Is(found.err, errNeither) {
			// A client that dials again and again may spend a probe's time before it says what is wrong.
			late := errors.Is(found.err, context.DeadlineExceeded)
			learned = !b.told || b.unsure && !late
			b.unsure = late && (b.unsure || !b.told)
			b.because(found.err)
			b.told = true
		}
	}
	b.mu.Unlock()
	if learned {
		b.all.learned(found)
	}
}
