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
)

// Client is the part of a go-redis client that an [Engine] needs. *redis.Client (with Sentinel too),
// *redis.ClusterClient, *redis.Ring and *redis.AutoPipeliner implement it. The caller owns the client: the
// engine never dials, closes or reconfigures it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Engine makes guards over one Redis. A process has one engine for each Redis that it uses. An Engine is safe
// for concurrent use.
type Engine struct {
	rdb           Client // nil: no Redis, everything stays inside the process
	address       string // of the server or servers, for errors; "" where the client does not say
	obeysDeadline bool
	resends       bool // the client is known to resend commands whose reply was lost
	sendsOnce     bool // the client is known not to
	prefix        string
	deadline      time.Duration
	retryHorizon  time.Duration
	refusalMemory time.Duration
	observer      Observer
	onlyErrors    bool             // the observer is that of LogErrors, which ignores successes
	log           *slog.Logger     // nil: slog.Default() of the moment
	clock         func() time.Time // nil: the server's clock and the process's own; tests set it
	memoryKeys    int              // budgets that each rate limit keeps inside the process
	breakers      *breakers        // nil: none
	shared        *sharing         // nil: each call is sent by itself
	joins         *joins           // nil: no call is decided with others
	alone         bool             // WithoutSharedCalls
	warned        atomic.Bool      // of connections that the server had closed

	mu      sync.Mutex
	names   map[string]bool
	scripts map[string]*Script
}

// Option configures an [Engine] that New or NewMemory makes. An option that does not apply to an engine has
// no effect.
type Option func(*Engine)

// WithPrefix sets the prefix of every key. The default is "gatehouse". Engines with different prefixes share
// nothing. A prefix consists of letters, digits, '.', '_' and '-'; WithPrefix panics on any other.
func WithPrefix(prefix string) Option {
	if err := checkName("prefix", prefix); err != nil {
		panic(err)
	}
	return func(e *Engine) { e.prefix = prefix }
}

// WithDeadline sets how long one check may take. The default is 100 ms. A check that takes longer returns an
// error that wraps context.DeadlineExceeded, whatever the timeouts of the client are. Settling, calls by name
// such as seckill.Guard.Open, and claims whose slot a cluster moves may take ten times as long. WithDeadline
// panics unless d is positive and at most a minute.
func WithDeadline(d time.Duration) Option {
	if d <= 0 || d > time.Minute {
		panic(fmt.Sprintf("core: WithDeadline(%v): a check takes time, and a request cannot wait long: "+
			"set more than 0 and a minute at most", d))
	}
	return func(e *Engine) { e.deadline = d }
}

// WithRetryHorizon sets how long a guard stores the answer to an operation whose ID the guard made. The
// default is ten minutes. It must cover the time within which a client may resend a command whose reply was
// lost, and the longest run of a handler. Answers to IDs that the caller gives are stored as long as the poll
// or sale that they belong to. WithRetryHorizon panics when d is less than a second.
func WithRetryHorizon(d time.Duration) Option {
	if d < time.Second {
		panic(fmt.Sprintf("core: WithRetryHorizon(%v): less than a second does not cover a retry: "+
			"set a second or more", d))
	}
	return func(e *Engine) { e.retryHorizon = d }
}

// WithRefusalMemory sets for how long a process at most remembers that a rate limit denied an attempt. The
// default, and the longest, is one second; 0 turns the memory off. WithRefusalMemory panics on other values.
//
// While it remembers a denial, the process itself answers the same attempt (actor, resource and cost, under
// the same limits), with a RetryAfter that counts down. Thus a flood of denied requests does not reach Redis.
// Such a [Decision] has [SourceRemembered].
//
// No denial is remembered for longer than it is certain to last, so nobody waits longer than the limit says,
// with one exception: a Refund or Reset by another process takes effect when the memory expires. A Refund or
// Reset by the same process takes effect at once. In other respects the answer is the one that Redis gave:
// Remaining and RetryAfter do not show what other processes have taken or given back since.
//
// Votes remember duplicates for the same time. Sales remember for at most 250 ms what is sold out and who has
// bought.
//
// Each guard remembers the 65,536 actors seen last, and up to four different costs for each. The memory uses
// the clock of the process: tests that move only the clock of a miniredis must turn it off.
func WithRefusalMemory(d time.Duration) Option {
	if d < 0 || d > time.Second {
		panic(fmt.Sprintf("core: WithRefusalMemory(%v): a refund or reset by another process would go unseen "+
			"for that long: set a second at most, or 0 to ask Redis always", d))
	}
	return func(e *Engine) { e.refusalMemory = d }
}

// WithObserver sets the observer, which sees every decision and error. The default is [LogErrors].
// [Observers] combines several.
func WithObserver(o Observer) Option {
	if o == nil {
		panic("core: WithObserver(nil): leave the option out to have errors logged")
	}
	_, onlyErrors := o.(*logErrors)
	return func(e *Engine) { e.observer, e.onlyErrors = o, onlyErrors }
}

// WithLogger sets where the engine and its guards log: errors, if LogErrors is the engine's observer or one
// of them, changes of breakers, and warnings about the rules of its guards. By default they log to what
// slog.Default returns at that moment.
func WithLogger(logger *slog.Logger) Option {
	if logger == nil {
		panic("core: WithLogger(nil): leave the option out to have slog.Default")
	}
	return func(e *Engine) { e.log = logger }
}

// Logger returns where the engine logs: see [WithLogger]. It is never nil.
func (e *Engine) Logger() *slog.Logger {
	if e.log != nil {
		return e.log
	}
	return slog.Default()
}

// LoggerOf returns the logger for messages about a guard: the result of its method Logger, which [Base] has,
// or slog.Default.
func LoggerOf(guard any) *slog.Logger {
	if own, ok := guard.(interface{ Logger() *slog.Logger }); ok {
		if logger := own.Logger(); logger != nil {
			return logger
		}
	}
	return slog.Default()
}

// New makes an engine over the application's Redis client. New does not contact Redis: an application starts
// even while Redis is down, and its guards then answer by their [Outage] policy.
//
// The application configures its client for clusters, Sentinel and timeouts. With ContextTimeoutEnabled in
// the client's options the engine's deadline costs nothing; without it, each call needs a goroutine to
// enforce the deadline. The deadline includes the time to connect, so MinIdleConns, and [Engine.Preload] at
// startup, help the first requests.
//
// Over TLS go-redis does not notice that a server, or a proxy in between, has closed an idle connection. A
// check of a rate limit on such a connection fails: the server may have run it, so it is not sent again. The
// engine then probes all idle connections at once, so only one call fails, and logs a warning once. To avoid
// that failure, set ConnMaxIdleTime in the client's options to less than the server's timeout.
func New(rdb Client, options ...Option) *Engine {
	if rdb == nil {
		panic("core: New(nil): pass the application's go-redis client, or use NewMemory for rate limits inside " +
			"the process")
	}
	return makeEngine(rdb, options)
}

// NewMemory makes an engine without Redis. Its rate limits decide inside the process, exactly as they do on
// Redis, by the monotonic clock of the process: a wall clock that is set changes nothing. It is for
// applications of one process, and for tests. Several processes count separately, and all counts are lost
// when the process ends.
//
// Rate limits, semaphores and locks have all their functions. All other guards panic when they are made,
// because their promises must outlive a process. Preload does nothing, and Run returns [ErrNoRedis]. The
// options that matter are WithMemoryKeys, WithObserver, WithLogger, for functions that return limits by
// attempt WithDeadline, and in tests WithClock.
func NewMemory(options ...Option) *Engine { return makeEngine(nil, options) }

// WithMemoryKeys sets how many budgets each rate limit keeps inside the process, one for each actor and
// resource. The default is 65,536. The budgets serve an engine without Redis, and rate limits that continue
// while Redis is away: each answer of Redis notes what is left in the budget of its actor.
//
// Up to n budgets are exact: set n to the number of actors to expect within the longest window. Beyond that,
// each new actor evicts the budget that is full again first. If that one is full already, nothing is lost.
// Otherwise its actor has the whole limit again before the window is over. A client with more than n
// addresses can evict the budgets of others, and its own.
//
// A budget with one limit takes 180 to 300 bytes, with addresses as actors. A sliding window takes 12 to 16
// bytes more for each further moment in a window at which units were taken. WithMemoryKeys panics when n is
// less than 1.
func WithMemoryKeys(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("core: WithMemoryKeys(%d): set at least the number of actors that are active at a time",
			n))
	}
	return func(e *Engine) { e.memoryKeys = n }
}

const defaultMemoryKeys = 1 << 16

// ErrNoRedis is wrapped by the errors of scripts that an engine without Redis was asked to run.
var ErrNoRedis = errors.New("core: an engine without Redis runs no scripts: make the engine with core.New")

func makeEngine(rdb Client, options []Option) *Engine {
	e := &Engine{
		rdb:           rdb,
		address:       addressOf(rdb),
		obeysDeadline: obeysDeadline(rdb),
		prefix:        "gatehouse",
		deadline:      100 * time.Millisecond,
		retryHorizon:  10 * time.Minute,
		refusalMemory: time.Second,
		observer:      &logErrors{},
		onlyErrors:    true,
		memoryKeys:    defaultMemoryKeys,
		breakers:      newBreakers(BreakerOptions{}),
		names:         map[string]bool{},
		scripts:       map[string]*Script{},
	}
	does, known := resends(rdb)
	e.resends, e.sendsOnce = does, known && !does
	for _, option := range options {
		option(e)
	}
	logBy(e.observer, e.log)
	if !e.alone && rdb != nil {
		e.shared = newSharing(e)
		e.joins = &joins{engine: e, longest: min(sharedWait, e.deadline/4), lines: map[string]*line[Joint]{}}
	}
	if e.breakers != nil {
		e.breakers.nodeOf, e.breakers.changed = nodesOf(rdb), e.breakerChanged
		e.breakers.probe, e.breakers.learned = e.prober(), e.probeLearned
	}
	return e
}

// addressOf returns where the servers of a client are.
func addressOf(rdb Client) string {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return c.Options().Addr
	case interface{ Options() *redis.ClusterOptions }:
		return strings.Join(c.Options().Addrs, ",")
	case interface{ Options() *redis.RingOptions }:
		return strings.Join(slices.Sorted(maps.Values(c.Options().Addrs)), ",")
	}
	return ""
}

// resends reports whether the client is known to resend commands. A client that does not say may do so too.
func resends(rdb Client) (does, known bool) {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return c.Options().MaxRetries > 0, true
	case interface{ Options() *redis.ClusterOptions }:
		return c.Options().MaxRedirects > 0, true
	case interface{ Options() *redis.RingOptions }:
		return c.Options().MaxRetries > 0, true
	}
	return false, false
}

// obeysDeadline reports whether the client ends a call when its context ends. go-redis does so only by
// option.
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

// Later runs f once in the background. When [PendingMost] jobs are pending, f does not run.
func (e *Engine) Later(f func(ctx context.Context)) {
	if !pending.take() {
		return // f is optional work
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

// After runs f once in the background when the time has passed, or when [Drain] or [Engine.Drain] is called.
// It is for what the process has to return to Redis at some time, such as units that it holds. It takes no
// place among [PendingMost].
func (e *Engine) After(wait time.Duration, f func(ctx context.Context)) {
	due := time.Now().Add(wait)
	pending.add(e, &job{
		try:         func(ctx context.Context) error { f(ctx); return nil },
		due:         due,
		until:       due.Add(settleShortest),
		unimportant: true,
		early:       true,
		lost:        func(error) {},
	})
}

// NotRun reports whether a call that ended with err has certainly changed nothing, as when the breaker did
// not send it, or Redis refused it before it ran.
func NotRun(err error) bool {
	return errors.Is(err, ErrBreakerOpen) || errors.As(err, new(notRunError))
}

// UndoLater runs f in the background to undo what a call that ended with err may have done. It repeats f
// until Redis has answered or 10 minutes have passed; then the observer gets an [ErrUnsettled]. No undo
// is rejected: when too many are pending, new claims are rejected instead (see [PendingMost]). A call that
// the breaker did not send has nothing to undo, nor has one that Redis refused before it changed anything,
// such as with OOM or NOPERM.
func (e *Engine) UndoLater(err error, f func(ctx context.Context) error) {
	if NotRun(err) {
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

// Preload loads the scripts of all guards made so far into every primary that the client knows. It is
// optional: a call sends along a script that the server does not know. Preload spares the first calls after a
// start this cost, and shows early when Redis is unreachable. An engine without Redis has nothing to load.
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
