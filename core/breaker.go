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

// ErrBreakerOpen is wrapped by the errors of calls that were not sent, because the calls before them have failed: see
// WithBreaker. Nothing has been taken, decided or given back. An adapter answers by the rule's Outage, as for any error of Redis.
var ErrBreakerOpen = errors.New("core: not sent: Redis could not be asked a moment ago")

// BreakerOptions says when an engine stops asking a Redis that does not answer. The zero value is the default.
type BreakerOptions struct {
	// Failures is how many calls have to fail one after the other, with none between them that Redis has answered, until no more
	// are sent. Zero: 5.
	Failures int
	// Pause is how long none is sent then. After it one call is sent to see, while the others wait for nothing: when Redis answers
	// it, all are sent again, else the next pause begins. Zero: half a second.
	Pause time.Duration
}

const (
	breakerFailures = 5
	// breakerPause is short enough for calls to be sent again within two seconds of Redis being back: a call to see that has just
	// been sent into the void takes one deadline, and go-redis may need a second to dial again.
	breakerPause = 500 * time.Millisecond
	// breakerForget is how long an open breaker is kept when no call wants to go to its server any more, as after a failover.
	breakerForget = 30 * time.Second
	// breakersMost is how many servers have a breaker before those of servers that answer are dropped.
	breakersMost = 1000
)

// WithBreaker sets when calls stop being sent to a Redis that does not answer, so that an outage costs a few time-outs and not one
// a request. The default is the zero BreakerOptions.
//
// Failures are connections that can not be made or are lost, time-outs, and answers by which a server says that it can not
// work now: LOADING, READONLY, MASTERDOWN, CLUSTERDOWN, BUSY, and that it has too many clients. No failures are what a server says about
// one call (mistakes of a script, a full memory, which still gives back and reads), and calls that their caller has given up.
//
// On a *redis.ClusterClient each master has a breaker of its own, on a *redis.Ring each shard: the keys of the others go on being
// decided. Other clients have one for all. All calls count, those in the background as well.
//
// While a breaker is open, calls return an ErrBreakerOpen at once. Opening and closing are events for the observer, and a line each
// in the log (slog), whatever the observer is.
func WithBreaker(o BreakerOptions) Option {
	if o.Failures < 0 || o.Pause < 0 || o.Pause > time.Minute {
		panic(fmt.Sprintf("core: WithBreaker(%+v): give Failures and a Pause of a minute at most, zero for the defaults, "+
			"or use WithoutBreaker", o))
	}
	return func(e *Engine) { e.breakers = newBreakers(o) }
}

// WithoutBreaker has every call sent, whatever became of those before: in an outage each costs a time-out.
func WithoutBreaker() Option { return func(e *Engine) { e.breakers = nil } }

// BreakerChange is what an Event says of a breaker that has opened or closed. One that lets a single call through to see is still
// open.
type BreakerChange struct {
	// Open reports whether it has opened; else it has closed.
	Open bool
	// Node is the address of the server of a cluster or ring that it stands before; empty where the engine has one breaker.
	Node string
	// NotSent is how many calls were not sent while it was open; zero when it has opened.
	NotSent int64
}

// breakers are an engine's breakers, one a server.
type breakers struct {
	options BreakerOptions
	nodeOf  func(ctx context.Context, key string) (string, error) // nil: one breaker for all
	changed func(context.Context, Event)

	open  atomic.Int64 // how many are
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

// nodesOf returns what finds the address of the server that a key is on, nil where there is but one.
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

// of returns the server's breaker.
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

// forget drops the open breakers that nobody asks any more. Their servers are gone, and nobody would ever find out whether they
// answer.
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

// breaker stands before one server.
type breaker struct {
	all   *breakers
	node  string
	state *gobreaker.TwoStepCircuitBreaker[struct{}]

	open    atomic.Bool
	asked   atomic.Int64 // when a call last wanted to go to the server while this was open, in Unix nanoseconds
	notSent atomic.Int64
	cause   atomic.Pointer[error]
	opened  time.Time // under mu

	untold  atomic.Bool // whether there are changes to tell
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
		ReadyToTrip: func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(all.options.Failures) },
		IsExcluded:  func(err error) bool { return errors.Is(err, errNeither) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch { // from open to half open and back is nobody's concern
			case from == gobreaker.StateClosed:
				b.turn(true)
			case to == gobreaker.StateClosed:
				b.turn(false)
			}
		},
	})
	return b
}

// turn notes that the breaker has opened or closed. It may be called under gobreaker's lock, so it tells nobody: tell does.
func (b *breaker) turn(open bool) {
	if !b.open.CompareAndSwap(!open, open) {
		return // forgotten meanwhile
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

// tell tells of the changes, in their order, outside of all locks.
func (b *breaker) tell(ctx context.Context) {
	if !b.untold.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.telling {
		return // who does it now will tell of these, too
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
	message, level := "gatehouse: Redis is asked again", slog.LevelInfo
	if event.Breaker.Open {
		message, level = "gatehouse: Redis does not answer and is not asked until it does", slog.LevelWarn
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
	caller  context.Context // tells calls that the caller has given up from those that have failed
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
		limit = deadline // whoever it is that sees whether Redis is back: a short wait, so that the next one is soon
	}
	return &entry{breaker: b, caller: caller, begun: begun, limit: limit, done: done, outcome: errNeither}, nil
}

// ended notes what the end of the call says about the server.
func (t *entry) ended(err error, heard func() bool) {
	if t.outcome = outcomeOf(t.caller, err, time.Since(t.begun) < t.limit/2); heard != nil && heard() {
		t.outcome = nil
	}
	if t.outcome != nil && !errors.Is(t.outcome, errNeither) {
		t.breaker.cause.Store(&t.outcome)
	}
}

// leave tells the breaker how the call has ended.
func (t *entry) leave() {
	t.done(t.outcome)
	t.breaker.tell(t.caller)
}

// outcomeOf returns what an error says about the server: nil that it works, errNeither nothing, else that it does not.
func outcomeOf(caller context.Context, err error, early bool) error {
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer) && !isUnready(err):
		return nil
	case errors.As(err, &answer) && strings.Contains(err.Error(), "Hash slot not served"):
		return errNeither // a slot that no server has says nothing about the one that said so
	case errors.As(err, &answer):
		return err
	case errors.Is(err, context.Canceled), errors.Is(caller.Err(), context.Canceled), caller.Err() != nil && early:
		return errNeither // given up by the caller, or before Redis had time enough to be blamed
	case errors.Is(err, redis.ErrClosed), strings.HasPrefix(err.Error(), "redis: can't marshal"):
		return errNeither // the application's own doing
	}
	return err
}

// unready are the beginnings of answers by which a server says that it can not work now, whatever the call.
var unready = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY ", "max number of clients reached"}

func isUnready(err error) bool {
	return slices.ContainsFunc(unready, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}
