package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// ErrBreakerOpen is wrapped by the errors of calls that were not sent because earlier calls failed: see
// [WithBreaker]. Nothing was taken, decided or given back. An adapter applies the rule's [Outage] policy, as
// for any error of Redis.
var ErrBreakerOpen = errors.New("core: not sent: the breaker is open because recent calls failed")

// BreakerOptions says when an engine stops calling a Redis that does not answer. The zero value has the
// defaults.
type BreakerOptions struct {
	// Failures is how many calls must fail in a row, with no answered call between them, before the breaker
	// opens. Zero means 5.
	Failures int
	// Pause is how long an open breaker sends no calls. After a pause it sends a single probe call, and other
	// calls still fail at once. When Redis answers the probe, the breaker closes; otherwise the next pause
	// begins. Zero means half a second. The most is a minute.
	Pause time.Duration
}

const (
	breakerFailures = 5
	// breakerPause is short enough that calls resume within two seconds after Redis is back: a probe that has
	// just been sent to a dead server takes one deadline, and go-redis may need a second to redial.
	breakerPause = 500 * time.Millisecond
	// breakerForget is how long an open breaker is kept without calls for its server, as after a failover.
	breakerForget = 30 * time.Second
	// breakersMost is how many servers have a breaker before closed breakers are dropped.
	breakersMost = 1000
)

// WithBreaker sets when an engine stops sending calls to a Redis that does not answer, so that an outage
// costs a few timeouts instead of one per request. The default is the zero BreakerOptions. WithBreaker panics
// when the options are negative or the Pause is longer than a minute.
//
// # Failures
//
// These are failures: connections that cannot be made or are lost, timeouts, and answers by which a server
// says that it cannot work now (LOADING, READONLY, MASTERDOWN, CLUSTERDOWN, BUSY, too many clients). These
// are not failures: answers about a single call, such as an error of a script or a full memory (Redis then
// still reads and gives back), and calls that their caller cancelled.
//
// # Scope
//
// On a *redis.ClusterClient each primary has a breaker of its own, and on a *redis.Ring each shard has: keys
// on other servers are still decided. Other clients have one breaker. All calls count, including those in the
// background.
//
// While a breaker is open, calls return an [ErrBreakerOpen] at once. Each opening and closing is an [Event]
// for the observer, and a line in the engine's log, whatever the observer is.
func WithBreaker(o BreakerOptions) Option {
	if o.Failures < 0 || o.Pause < 0 || o.Pause > time.Minute {
		panic(fmt.Sprintf("core: WithBreaker(%+v): set Failures to 0 or more and Pause to a minute at most, "+
			"0 for the defaults, or use WithoutBreaker", o))
	}
	return func(e *Engine) { e.breakers = newBreakers(o) }
}

// WithoutBreaker sends every call, whatever became of earlier calls. In an outage, each call then costs a
// timeout.
func WithoutBreaker() Option { return func(e *Engine) { e.breakers = nil } }

// BreakerChange is what an [Event] says about a breaker that has opened or closed. A breaker that sends a
// probe call is still open.
type BreakerChange struct {
	// Open reports whether the breaker has opened; otherwise it has closed.
	Open bool
	// Node is the address of the breaker's server in a cluster or ring. It is empty when the engine has one
	// breaker.
	Node string
	// NotSent is how many calls were not sent while the breaker was open. It is zero when the breaker has
	// opened.
	NotSent int64
}

// breakers are an engine's breakers, one per server.
type breakers struct {
	options BreakerOptions
	nodeOf  func(ctx context.Context, key string) (string, error) // nil: one breaker for all
	changed func(context.Context, Event)

	open  atomic.Int64 // how many are open
	mu    sync.RWMutex
	nodes map[string]*breaker
	swept time.Time
}

func newBreakers(o BreakerOptions) *breakers {
	if o.Failures == 0 {
		o.Failures = breakerFailures
	}
	if o.Pause == 0 {
		o.Pause = breakerPause
	}
	return &breakers{options: o, nodes: map[string]*breaker{}}
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
	b = newBreaker(s, node)
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
		b.turn(false)
		b.tell(ctx)
	}
}

// breaker guards the calls to one server.
type breaker struct {
	all   *breakers
	node  string
	state *gobreaker.TwoStepCircuitBreaker[struct{}]

	open    atomic.Bool
	asked   atomic.Int64 // when a call last used the open breaker, in Unix nanoseconds
	notSent atomic.Int64
	cause   atomic.Pointer[error]
	opened  time.Time // under mu

	untold  atomic.Bool // whether there are changes to report
	mu      sync.Mutex
	changes []Event
	telling bool
}

// errNeither is the outcome of a call that says nothing about the server.
var errNeither = errors.New("neither")

func newBreaker(all *breakers, node string) *breaker {
	b := &breaker{all: all, node: node}
	b.state = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     all.options.Pause,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return int64(c.ConsecutiveFailures) >= int64(all.options.Failures)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNeither) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch { // changes between open and half-open are not reported
			case from == gobreaker.StateClosed:
				b.turn(true)
			case to == gobreaker.StateClosed:
				b.turn(false)
			}
		},
	})
	return b
}

// turn records that the breaker has opened or closed. It may run under gobreaker's lock, so it leaves the
// report to tell.
func (b *breaker) turn(open bool) {
	if !b.open.CompareAndSwap(!open, open) {
		return // forget came first
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := Event{Op: "breaker", Breaker: &BreakerChange{Open: open, Node: b.node}}
	if now := time.Now(); open {
		b.all.open.Add(1)
		b.opened = now
		b.asked.Store(now.UnixNano())
		if cause := b.cause.Load(); cause != nil {
			e.Err = *cause
		}
	} else {
		b.all.open.Add(-1)
		e.Took, e.Breaker.NotSent = now.Sub(b.opened), b.notSent.Swap(0)
	}
	b.changes = append(b.changes, e)
	b.untold.Store(true)
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
		e := b.changes[0]
		b.changes = b.changes[1:]
		func() {
			b.mu.Unlock()
			defer b.mu.Lock()
			b.all.changed(ctx, e)
		}()
	}
	b.untold.Store(false)
}

// breakerChanged logs and observes a change.
func (e *Engine) breakerChanged(ctx context.Context, event Event) {
	attributes := []any{"took", event.Took, "not_sent", event.Breaker.NotSent}
	message, level := "gatehouse: breaker closed: Redis is called again", slog.LevelInfo
	if event.Breaker.Open {
		message, level = "gatehouse: breaker opened: Redis does not answer", slog.LevelWarn
		attributes = []any{"err", event.Err}
	}
	if event.Breaker.Node != "" {
		attributes = append(attributes, "node", event.Breaker.Node)
	}
	e.Logger().Log(ctx, level, message, attributes...)
	e.observer.Observe(ctx, event)
}

// entry is one call that a breaker has let through.
type entry struct {
	breaker *breaker
	caller  context.Context // distinguishes calls that the caller cancelled from failures
	begun   time.Time
	limit   time.Duration // for the call
	done    func(error)
	outcome error
}

// enter lets a call through, or returns ErrBreakerOpen.
func (b *breaker) enter(caller context.Context, limit, deadline time.Duration) (*entry, error) {
	begun := time.Now()
	done, refused := b.state.Allow()
	if b.open.Load() {
		b.asked.Store(begun.UnixNano())
	}
	if refused != nil {
		b.notSent.Add(1)
		b.tell(caller)
		return nil, ErrBreakerOpen
	}
	if limit > deadline && b.open.Load() {
		limit = deadline // a probe waits only a short time, so that the next one comes soon
	}
	return &entry{breaker: b, caller: caller, begun: begun, limit: limit, done: done, outcome: errNeither}, nil
}

// ended records what the end of the call says about the server.
func (t *entry) ended(err error, heard func() bool) {
	if t.outcome = outcomeOf(t.caller, err, time.Since(t.begun) < t.limit/2); heard != nil && heard() {
		t.outcome = nil
	}
	if t.outcome != nil && !errors.Is(t.outcome, errNeither) {
		t.breaker.cause.Store(&t.outcome)
	}
}

// leave tells the breaker how the call ended.
func (t *entry) leave() {
	t.done(t.outcome)
	t.breaker.tell(t.caller)
}

// outcomeOf returns what an error says about the server: nil when the server works, errNeither when the error
// says nothing, otherwise the error.
func outcomeOf(caller context.Context, err error, early bool) error {
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer) && !isUnready(err):
		return nil
	case errors.As(err, &answer) && strings.Contains(err.Error(), "Hash slot not served"):
		return errNeither // a slot without a server says nothing about the server that answered
	case errors.As(err, &answer):
		return err
	case errors.Is(err, context.Canceled), errors.Is(caller.Err(), context.Canceled),
		caller.Err() != nil && early:
		return errNeither // cancelled by the caller, or ended before Redis had enough time
	case errors.Is(err, redis.ErrClosed), strings.HasPrefix(err.Error(), "redis: can't marshal"):
		return errNeither // caused by the application
	}
	return err
}

// unready are the prefixes of answers by which a server says that it cannot work now, whatever the call.
var unready = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY ",
	"max number of clients reached"}

func isUnready(err error) bool {
	return slices.ContainsFunc(unready, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}
