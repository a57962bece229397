package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is the part of a go-redis client that an Engine needs: *redis.Client (sentinel-backed ones too),
// *redis.ClusterClient, *redis.Ring and *redis.AutoPipeliner all have it. The client stays the caller's: the engine
// never dials, closes or reconfigures it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Engine makes guards over one Redis. A process has one, or one for each Redis that it uses.
type Engine struct {
	rdb           Client // nil: none, everything is inside the process
	obeysDeadline bool
	prefix        string
	deadline      time.Duration
	retryHorizon  time.Duration
	refusalMemory time.Duration
	observer      Observer
	log           *slog.Logger     // nil: slog.Default() of the moment
	clock         func() time.Time // nil: the server's clock, and the process's own; tests set it
	memoryKeys    int              // budgets that each limit keeps inside the process
	breakers      *breakers        // nil: none

	mu      sync.Mutex
	names   map[string]bool
	scripts map[string]*Script
}

// Option changes an Engine that New or NewMemory makes. One that has no meaning for it does nothing.
type Option func(*Engine)

// WithPrefix sets what every key begins with, in place of "gatehouse". Engines with different prefixes share nothing. It is
// made of letters, digits, '.', '_' and '-'.
func WithPrefix(prefix string) Option {
	if err := checkName("prefix", prefix); err != nil {
		panic(err)
	}
	return func(e *Engine) { e.prefix = prefix }
}

// WithDeadline sets how long one check may take, in place of 100 ms. A check that takes longer returns an error that is
// context.DeadlineExceeded, whatever the client's own time-outs are. Settling, and calls by name such as Seckill.Open,
// may take ten times as long.
func WithDeadline(d time.Duration) Option {
	if d <= 0 || d > time.Minute {
		panic(fmt.Sprintf("core: WithDeadline(%v): a check needs time, and a request can not wait for long: "+
			"give it more than 0, and a minute at most", d))
	}
	return func(e *Engine) { e.deadline = d }
}

// WithRetryHorizon sets how long the answer to an operation is remembered when its ID was made by the guard, in place of
// ten minutes. It has to cover the time in which a client may send a command again whose reply was lost, and the
// longest time that a handler runs. Answers to IDs from outside are kept as long as the poll or sale that they belong to.
func WithRetryHorizon(d time.Duration) Option {
	if d < time.Second {
		panic(fmt.Sprintf("core: WithRetryHorizon(%v): less than a second does not cover a retry", d))
	}
	return func(e *Engine) { e.retryHorizon = d }
}

// WithRefusalMemory sets for how long at most a process remembers that a rate limit has refused, in place of a second; 0
// turns it off. Meanwhile it answers the same attempt (actor, resource and cost, under the same limits) itself, with a
// RetryAfter that counts down, so that a flood of refused requests does not reach Redis. Such a Decision has
// SourceRemembered.
//
// No refusal is remembered for longer than it is certain to last, so nobody waits for longer than the limit says, but for
// this: a Refund or Reset by another process is seen when the time is over. (By the same process it is seen at once.) The
// answer is otherwise the one that Redis gave: what other processes took or gave back since is in neither Remaining nor
// RetryAfter.
//
// Votes remembers duplicates for as long; Seckill what is sold out and who has bought, 250 ms at most.
//
// Each guard remembers the 65,536 actors seen last, for each up to four different costs. The time is by the process's clock:
// tests that move only the clock of a miniredis turn it off.
func WithRefusalMemory(d time.Duration) Option {
	if d < 0 || d > time.Second {
		panic(fmt.Sprintf("core: WithRefusalMemory(%v): for so long a refund or reset by another process would not be seen: "+
			"give it a second at most, or 0 to ask Redis always", d))
	}
	return func(e *Engine) { e.refusalMemory = d }
}

// WithObserver sets who hears of every decision and error, in place of LogErrors. Observers makes one of several.
func WithObserver(o Observer) Option {
	if o == nil {
		panic("core: WithObserver(nil): leave the option out to have errors logged")
	}
	return func(e *Engine) { e.observer = o }
}

// WithLogger sets where the engine and its guards log: errors, if LogErrors is its observer or one of them,
// what becomes of breakers, and what the rules of its guards warn of. Without it they log to what
// slog.Default returns at that moment.
func WithLogger(logger *slog.Logger) Option {
	if logger == nil {
		panic("core: WithLogger(nil): leave the option out to have slog.Default")
	}
	return func(e *Engine) { e.log = logger }
}

// Logger returns where the engine logs: see WithLogger. It is never nil.
func (e *Engine) Logger() *slog.Logger {
	if e.log != nil {
		return e.log
	}
	return slog.Default()
}

// LoggerOf returns where to log what concerns a guard: what its method Logger returns, as [Base] has one,
// else slog.Default.
func LoggerOf(guard any) *slog.Logger {
	if own, ok := guard.(interface{ Logger() *slog.Logger }); ok {
		if logger := own.Logger(); logger != nil {
			return logger
		}
	}
	return slog.Default()
}

// New makes an engine over the application's Redis client. It does not talk to Redis: an application starts, and its
// guards answer by their outage policy, also while Redis is down.
//
// The client should know cluster, sentinel and time-outs as the application needs them. With ContextTimeoutEnabled in its
// options the engine's deadline costs nothing; without, each call needs a goroutine to enforce it. The deadline includes the
// time to connect, so MinIdleConns, and Preload at the start, help the first requests; with DialerRetries of 1 an error
// names the server that can not be reached, rather than the deadline.
func New(rdb Client, options ...Option) *Engine {
	if rdb == nil {
		panic("core: New(nil): pass the application's go-redis client, or take NewMemory for rate limits inside the process")
	}
	return makeEngine(rdb, options)
}

// NewMemory makes an engine without Redis: its rate limits decide inside the process, exactly as they do on Redis, by the
// process's clock. It is for applications of one process, and for tests. Several processes count separately, and what was used
// is forgotten when the process ends.
//
// Rate limits do all that they do elsewhere. All other guards panic, because what is promised once must outlive a process. Preload
// has nothing to do, and Run returns an error. Of the options WithMemoryKeys and WithObserver matter, and WithDeadline to
// functions for limits by attempt.
func NewMemory(options ...Option) *Engine { return makeEngine(nil, options) }

// WithMemoryKeys sets how many budgets each rate limit keeps inside the process, in place of 65,536: one for each actor and
// resource. That is for an engine without Redis, and for limits that go on while Redis is away. Beyond it, the budget that was not
// asked for the longest is forgotten, and is full again. So whoever has more addresses than that can push others out, and
// themselves: give as many as there may be actors within the longest window. The number is rounded up to a multiple of 64, and as
// keys spread over 64 parts by chance, a part may be full a little before all are.
//
// A budget takes 300 to 400 bytes, and a sliding window 12 to 16 bytes more for each moment in a window at which units were
// taken.
func WithMemoryKeys(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("core: WithMemoryKeys(%d): give at least as many as there may be actors at a time", n))
	}
	return func(e *Engine) { e.memoryKeys = n }
}

const defaultMemoryKeys = 1 << 16

// ErrNoRedis is returned where a script is to run in an engine without Redis.
var ErrNoRedis = errors.New("core: an engine without Redis runs no scripts: make the engine with core.New")

func makeEngine(rdb Client, options []Option) *Engine {
	e := &Engine{
		rdb:           rdb,
		obeysDeadline: obeysDeadline(rdb),
		prefix:        "gatehouse",
		deadline:      100 * time.Millisecond,
		retryHorizon:  10 * time.Minute,
		refusalMemory: time.Second,
		observer:      &logErrors{},
		memoryKeys:    defaultMemoryKeys,
		breakers:      newBreakers(BreakerOptions{}),
		names:         map[string]bool{},
		scripts:       map[string]*Script{},
	}
	for _, option := range options {
		option(e)
	}
	logBy(e.observer, e.log)
	if e.breakers != nil {
		e.breakers.nodeOf, e.breakers.changed = nodesOf(rdb), e.breakerChanged
	}
	return e
}

// obeysDeadline reports whether the client ends a call when its context is over. go-redis does so by option only.
func obeysDeadline(rdb Client) bool {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return c.Options().ContextTimeoutEnabled
	case interface{ Options() *redis.ClusterOptions }:
		return c.Options().ContextTimeoutEnabled
	case interface{ Options() *redis.RingOptions }:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// later runs f once without making anybody wait, unless too much is under way.
func (e *Engine) Later(f func(ctx context.Context)) {
	if !pending.take() {
		return // nobody misses it
	}
	now := time.Now()
	pending.add(e, &job{
		try:         func(ctx context.Context) error { f(ctx); return nil },
		due:         now,
		until:       now.Add(settleShortest),
		unimportant: true,
		lost:        func(error) {},
	})
}

// undoLater runs f without making anybody wait, to undo what a call may have done that ended with err: again and again, until Redis
// has answered or 10 minutes are over, which the observer hears of as ErrUnsettled. None is turned away: where too many wait, new
// claims are (see PendingMost). A call that was never sent has nothing to undo.
func (e *Engine) UndoLater(err error, f func(ctx context.Context) error) {
	if errors.Is(err, ErrBreakerOpen) {
		return
	}
	pending.places.Add(1)
	now := time.Now()
	pending.add(e, &job{
		try:   f,
		due:   now,
		until: now.Add(settleLongest),
		lost: func(err error) {
			e.observer.Observe(context.Background(), Event{Op: "settle", Err: fmt.Errorf("%w: %w", ErrUnsettled, err)})
		},
	})
}

// Preload loads the scripts of all guards made so far into every master that the client knows. It is never needed: a
// script that a server does not know is sent along with the call. It spares the first calls after a start that, and
// shows early when Redis can not be reached. An engine without Redis has nothing to load.
func (e *Engine) Preload(ctx context.Context) error {
	if e.rdb == nil {
		return nil
	}
	e.mu.Lock()
	scripts := make([]*Script, 0, len(e.scripts))
	for _, s := range e.scripts {
		scripts = append(scripts, s)
	}
	e.mu.Unlock()

	load := func(ctx context.Context, rdb Client) error {
		for _, s := range scripts {
			cmd := redis.NewCmd(ctx, "script", "load", s.source)
			_ = rdb.Process(ctx, cmd)
			if err := cmd.Err(); err != nil {
				return fmt.Errorf("core: preload script %s: %w", s.name, err)
			}
		}
		return nil
	}
	onNode := func(ctx context.Context, c *redis.Client) error { return load(ctx, c) }
	switch c := e.rdb.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, onNode)
	case *redis.Ring:
		return c.ForEachShard(ctx, onNode)
	}
	return load(ctx, e.rdb)
}
