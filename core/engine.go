package core

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/backlog"
	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// Engine makes guards over one Redis. A process has one engine for each Redis that it uses. An Engine is safe
// for concurrent use.
//
// It embeds the [script.Runner] by which its guards call Redis. Applications run scripts of their own by it:
// see [script.Runner.Run] and [script.Runner.Key].
type Engine struct {
	*script.Runner
	options options

	mu      sync.Mutex
	names   map[string]bool
	scripts map[string]*script.Script

	unobserved warn.Sample[string] // operations at which the observer panicked
}

// options are what the options of an engine set.
type options struct {
	run           script.Options
	retryHorizon  time.Duration
	refusalMemory time.Duration
	observer      Observer
	onlyErrors    bool             // the observer is that of LogErrors, which ignores successes
	log           *slog.Logger     // nil: slog.Default() of the moment
	clock         func() time.Time // nil: the server's clock and the process's own; tests set it
	memoryKeys    int              // keys that each rate limit counts inside the process
}

// Option configures an [Engine] that New or NewMemory makes. An option that does not apply to an engine has
// no effect.
type Option func(*Engine)

// WithPrefix sets the prefix of every key. The default is "gatehouse". Engines with different prefixes
// share nothing. A prefix consists of letters, digits, '.', '_' and '-'. WithPrefix panics on any other.
func WithPrefix(prefix string) Option {
	if err := script.CheckName("prefix", prefix); err != nil {
		panic(err)
	}
	return func(e *Engine) { e.options.run.Prefix = prefix }
}

// WithDeadline sets how long one check may take. The default is 100 ms. A check that takes longer returns an
// error that wraps context.DeadlineExceeded, whatever the timeouts of the client are. Checks that begin at
// about the same moment share a timer, so some have up to a 16th less. Settling, calls by name such as
// seckill.Guard.Open, and claims whose slot a cluster moves may take ten times as long. WithDeadline panics
// unless d is positive and at most a minute.
func WithDeadline(d time.Duration) Option {
	if d <= 0 || d > time.Minute {
		panic(fmt.Sprintf("core: WithDeadline(%v): a check takes time, and a request cannot wait long: "+
			"set more than 0 and a minute at most", d))
	}
	return func(e *Engine) { e.options.run.Deadline = d }
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
	return func(e *Engine) { e.options.retryHorizon = d }
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
// Votes remember duplicates for the same time. Sales remember sold-out items and their buyers for at most
// 250 ms.
//
// Each guard remembers the 65,536 actors seen last, and up to four different costs for each. The memory uses
// the clock of the process: tests that move only the clock of a miniredis must turn it off.
func WithRefusalMemory(d time.Duration) Option {
	if d < 0 || d > time.Second {
		panic(fmt.Sprintf("core: WithRefusalMemory(%v): a refund or reset by another process would go unseen "+
			"for that long: set a second at most, or 0 to ask Redis always", d))
	}
	return func(e *Engine) { e.options.refusalMemory = d }
}

// WithObserver sets the observer, which sees every decision and error. The default is [LogErrors].
// [Observers] combines several.
func WithObserver(observer Observer) Option {
	if observer == nil {
		panic("core: WithObserver(nil): leave the option out to have errors logged")
	}
	_, onlyErrors := observer.(*logErrors)
	return func(e *Engine) { e.options.observer, e.options.onlyErrors = observer, onlyErrors }
}

// WithLogger sets where the engine and its guards log: errors, if LogErrors is the engine's observer or one
// of them, changes of breakers, and warnings about the rules of its guards. By default they log to the
// slog.Default of that moment.
func WithLogger(logger *slog.Logger) Option {
	if logger == nil {
		panic("core: WithLogger(nil): leave the option out to have slog.Default")
	}
	return func(e *Engine) { e.options.log = logger }
}

// Logger returns where the engine logs: see [WithLogger]. It is never nil.
func (e *Engine) Logger() *slog.Logger {
	if e.options.log != nil {
		return e.options.log
	}
	return slog.Default()
}

// WithBreaker sets when an engine stops sending calls to a Redis that does not answer, so that an outage
// costs a few timeouts instead of one per request. The breaker opens when that many calls have failed in a
// row, with no answered call between them. 0 means 5, the default. Then it waits for the pause. 0 means
// half a second, the default. The next call starts a probe and waits for it, within its own deadline. Other
// calls still fail at once. When Redis answers the probe, the breaker closes. Otherwise the next pause
// begins. WithBreaker panics on negative values, and on a pause of more than a minute.
//
// # Failures
//
// These are failures: connections that cannot be made or are lost, timeouts, and answers by which a server
// says that it cannot work now (CLUSTERDOWN, too many clients). A proxy's answer that it has no server is a
// failure too.
//
// One of these answers opens the breaker, because all calls, or all that write, get it until somebody has
// changed something: LOADING, READONLY, MASTERDOWN, MISCONF, NOREPLICAS, BUSY; NOAUTH, WRONGPASS and other
// refused logins, which Redis tells long commands as a protocol error; NOPERM for EVAL and EVALSHA, and
// servers that do not know them.
//
// These are not failures: answers about a single call, such as an error of a script, NOPERM for a key, or a
// full memory (Redis then still reads and gives back), and calls that their caller cancelled.
//
// # Probes
//
// A probe is a small script that may write and changes nothing: it deletes the key PREFIX:probe:{tag},
// which never exists. It runs in the background on all idle connections of the client to the server at
// once, within the deadline. When none of them works, it runs on a new one, within half a second or the
// deadline if that is longer. The client drops the connections that fail, so after an outage the dead ones
// cost no calls. The first probe starts when the breaker opens. If it is answered, the breaker closes
// without a Pause, unless it has opened before within ten pauses. A connection that the server has closed
// starts a probe too. If this probe gets one of the answers above, the breaker opens.
//
// Clients that cannot reserve connections, such as *redis.AutoPipeliner, have no such probes: the first call
// after a Pause is sent, and its answer closes the breaker.
//
// # Scope
//
// On a *redis.ClusterClient each primary has a breaker of its own, and on a *redis.Ring each shard has: keys
// on other servers are still decided. Other clients have one breaker. All calls count, including those in the
// background.
//
// While a breaker is open, calls return an [ErrBreakerOpen] at once. Each opening and closing is an [Event]
// for the observer, and a line in the engine's log, whatever the observer is.
func WithBreaker(failures int, pause time.Duration) Option {
	if failures < 0 || pause < 0 || pause > time.Minute {
		panic(fmt.Sprintf("core: WithBreaker(%d, %v): set failures to 0 or more and pause to a minute at most, "+
			"0 for the defaults, or use WithoutBreaker", failures, pause))
	}
	return func(e *Engine) {
		e.options.run.NoBreaker, e.options.run.Failures, e.options.run.Pause = false, failures, pause
	}
}

// WithoutBreaker sends every call, whatever became of earlier calls. In an outage, each call then costs a
// timeout.
func WithoutBreaker() Option { return func(e *Engine) { e.options.run.NoBreaker = true } }

// WithoutSharedCalls makes the engine send each call by itself. By default, checks of rate limits and
// semaphores, reservations of sales and votes share calls, as follows.
//
// Checks of the same moment that go to the same server share a pipeline. While two calls are under way,
// further ones wait, and go out together when one of the two has come back, up to 128 at a time. A check that
// finds fewer than two under way is sent at once, by its own goroutine. In the same way, checks of a
// limit.SlidingWindow with one limit and the same actor and resource share a run of a script. So do
// reservations of one item, or of one bucket of it, at a seckill.Guard that is Fast, and votes in one part of
// a poll at a votes.Guard without an audit stream. Limits and semaphores of one request go out together as
// well: see kit.Phased.
//
// No answer depends on sharing. Checks of one actor or item are decided as they would be one after the other,
// and each has its own decision, deadline, cancellation and undo. No pipeline is sent again as a whole. A
// claim whose reply was lost is sent again by itself.
//
// With many callers, shared calls take load from Redis and from the process. Their price is time: with more
// than two callers at a time, a check waits for up to one round trip more, for 25 ms or a quarter of the
// deadline at most. A lost connection loses the replies of all checks that share it, which is one failure
// for the breaker. The hooks of a client see pipelines in ProcessPipelineHook. A cluster or ring client
// sees them in the hooks of the node.
//
// A connection has to buffer some kilobytes, as TCP and TLS do. Over a net.Pipe, such as Dial of miniredis
// returns, client and server may both wait until the other one reads.
//
// Pipelines are for *redis.Client, *redis.ClusterClient and *redis.Ring. Other clients get each command by
// itself. Settling, other claims, calls by name, and the calls of a guard that is seckill.Acked share
// nothing: see [script.Script.Shared].
func WithoutSharedCalls() Option { return func(e *Engine) { e.options.run.Unshared = true } }

// WithClock replaces the clocks of the server and the process with now, for scripts and for the process. It
// is for tests: in production the clocks of several processes differ.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("core: WithClock(nil): leave the option out to have the server's clock")
	}
	return func(e *Engine) { e.options.clock = now }
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
func New(rdb script.Client, options ...Option) *Engine {
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

// WithMemoryKeys sets how many keys each rate limit counts inside the process, one for each actor and
// resource. The default is 65,536. The counters serve an engine without Redis, and rate limits that
// continue while Redis is away. These go on from the last answer of Redis about their actor. The process
// keeps at least as many answers, and twice as many at most. An answer takes 200 bytes.
//
// Up to n keys are counted exactly: set n to the number of actors to expect within the longest window. Beyond
// that, each new actor evicts the one whose units are all there again first. If they are there already,
// nothing is lost. Otherwise that actor has the whole limit again before the window is over. A client with
// more than n addresses can evict others, and itself.
//
// A key with one limit takes 200 to 350 bytes, with addresses as actors. A sliding window takes 12 to 16
// bytes more for each further moment in a window at which units were taken. WithMemoryKeys panics when n is
// less than 1.
func WithMemoryKeys(n int) Option {
	if n < 1 {
		panic(fmt.Sprintf("core: WithMemoryKeys(%d): set at least the number of actors that are active at a time",
			n))
	}
	return func(e *Engine) { e.options.memoryKeys = n }
}

func makeEngine(rdb script.Client, all []Option) *Engine {
	e := &Engine{
		options: options{
			run:          script.Options{Prefix: "gatehouse", Deadline: 100 * time.Millisecond},
			retryHorizon: 10 * time.Minute, refusalMemory: time.Second,
			observer: &logErrors{}, onlyErrors: true,
			memoryKeys: 1 << 16,
		},
		names: map[string]bool{}, scripts: map[string]*script.Script{},
	}
	e.options.run.Changed, e.options.run.Logger = e.breakerChanged, e.Logger
	for _, option := range all {
		option(e)
	}
	logBy(e.options.observer, e.options.log)
	e.Runner = script.NewRunner(rdb, e.options.run)
	return e
}

// Preload loads the scripts of all guards made so far into every primary that the client knows. It is
// optional: a call sends along a script that the server does not know. Preload spares the first calls after a
// start this cost, and shows early when Redis is unreachable. An engine without Redis has nothing to load.
func (e *Engine) Preload(ctx context.Context) error {
	e.mu.Lock()
	scripts := slices.Collect(maps.Values(e.scripts))
	e.mu.Unlock()
	return e.Runner.Preload(ctx, scripts...)
}

// breakerChanged logs and observes a change.
func (e *Engine) breakerChanged(
	ctx context.Context, change script.BreakerChange, took time.Duration, err error,
) {
	attributes := []any{"took", took, "not_sent", change.NotSent}
	message, level := "gatehouse: breaker closed: Redis is called again", slog.LevelInfo
	if change.Open {
		message, level = "gatehouse: breaker opened: Redis does not answer", slog.LevelWarn
		attributes = []any{"err", err}
	}
	if change.Node != "" {
		attributes = append(attributes, "node", change.Node)
	}
	e.Logger().Log(ctx, level, message, attributes...)
	e.Observe(ctx, Event{Op: "breaker", Err: err, Took: took, Breaker: &change})
}

// The rest is for package kit, and for the guards that are made with it.

// Register takes a name for a guard, which no other guard of the engine has, and the scripts that the guard
// runs. It panics on a malformed name, and on one that is taken. Guards call kit.Register.
func (e *Engine) Register(name string, scripts ...*script.Script) {
	if err := script.CheckName("guard's name", name); err != nil {
		panic(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names[name] {
		panic(fmt.Sprintf("core: two guards are named %q: give each guard its own name, "+
			"or use one guard in both places", name))
	}
	e.names[name] = true
	for _, s := range scripts {
		e.scripts[s.SHA()] = s
	}
}

// Release gives up the name of a guard, so that a guard with other options can be made under it while the
// process runs, as package config does when its file changes. The former guard still works: requests that
// it allowed settle with it. Both have the same keys if they are of one kind. They do not share state
// inside the process, such as remembered refusals. Release does nothing for a name that is not in use.
func (e *Engine) Release(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.names, name)
}

// Observe tells the engine's observer of an event. An observer that panics ends neither the process nor the
// request, which would not hear of what it was allowed: the logger is told, once a minute.
func (e *Engine) Observe(ctx context.Context, event Event) {
	defer func() {
		if value := recover(); value != nil {
			if skipped, due := e.unobserved.Due(event.Op); due {
				e.Logger().ErrorContext(ctx, "gatehouse: an observer panicked", "op", event.Op, "guard", event.Guard,
					"panic", value, "stack", string(debug.Stack()), "not_logged", skipped)
			}
		}
	}()
	e.options.observer.Observe(ctx, event)
}

// OnlyErrors reports whether the observer ignores events without an error, so that nobody has to make them.
func (e *Engine) OnlyErrors() bool { return e.options.onlyErrors }

// RetryHorizon returns how long a guard stores the answer to an operation whose ID it made: see
// [WithRetryHorizon].
func (e *Engine) RetryHorizon() time.Duration { return e.options.retryHorizon }

// RefusalMemory returns for how long a process at most remembers a denial: see [WithRefusalMemory].
func (e *Engine) RefusalMemory() time.Duration { return e.options.refusalMemory }

// MemoryKeys returns how many keys a rate limit counts inside the process: see [WithMemoryKeys].
func (e *Engine) MemoryKeys() int { return e.options.memoryKeys }

// Pending returns how many background jobs of the engine are running or waiting, such as undos: see
// kit.Base.UndoLater.
func (e *Engine) Pending() int { return backlog.Size(e) }

// Now returns the time by the clock of the process, for a guard's memory inside the process. Decisions that
// several processes share use the server's clock.
func (e *Engine) Now() time.Time {
	if e.options.clock == nil {
		return time.Now() // with a monotonic reading, by which ages are measured
	}
	return e.options.clock()
}

// HasClock reports whether [WithClock] set the clock.
func (e *Engine) HasClock() bool { return e.options.clock != nil }

// ScriptNow returns the argument now of scripts, in the given unit. It is empty in production, so that
// scripts read the server's clock. With [WithClock] it is the time of that clock.
func (e *Engine) ScriptNow(unit time.Duration) string {
	if e.options.clock == nil {
		return ""
	}
	return strconv.FormatInt(e.options.clock().UnixNano()/int64(unit), 10)
}
