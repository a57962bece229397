package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/lua"
)

// This file is the kit that guards are made with: those of the packages below core, and an application's own. See
// docs/new-guard.md for a guard that is made with it.

// MaxAmount is the largest amount that a script counts without losing units: Lua numbers are doubles.
const MaxAmount = 1<<53 - 1

// MaxTTL is the longest time for which a guard keeps anything that its options give a time for: 366 days.
const MaxTTL = 366 * 24 * time.Hour

// TombstoneTTL is how long the mark of a call lasts that was given up before it was known to have run: a call that comes to Redis
// within this time after its undo changes nothing.
const TombstoneTTL = time.Minute

// Base is what every guard has: its engine, its name and its keys. [Engine.Register] makes one, and a guard embeds it. It is safe for
// concurrent use.
type Base struct {
	engine *Engine
	name   string
	keys   keyspace
}

var deleteScript = NewScript("delete", lua.Delete, Idempotent)

// Register takes a guard's kind, such as "votes", its name, and the scripts that it runs, which Preload loads. The kind and the name are
// part of the guard's keys. It panics when one of them is not a name (letters, digits, '.', '_' and '-', at most 64 bytes) or a
// guard of the engine has the name already.
func (e *Engine) Register(kind, name string, scripts ...*Script) Base {
	if err := checkName("guard's kind", kind); err != nil {
		panic(err)
	}
	if err := checkName("guard's name", name); err != nil {
		panic(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.names[name] {
		panic(fmt.Sprintf("core: two guards are named %q: give each a name of its own, "+
			"or use the one guard in both places", name))
	}
	e.names[name] = true
	for _, s := range append(scripts, deleteScript) {
		e.scripts[s.sha] = s
	}
	return Base{engine: e, name: name, keys: keyspace{e.prefix + ":" + kind + ":" + name + ":"}}
}

// Name returns the guard's name.
func (b *Base) Name() string { return b.name }

// Engine returns the engine that the guard was made on.
func (b *Base) Engine() *Engine { return b.engine }

// Logger returns where the guard logs, and the adapters for it: its engine's logger. See WithLogger.
func (b *Base) Logger() *slog.Logger { return b.engine.Logger() }

// Key returns a key of the guard: the engine's prefix, the guard's kind and name, the tag in braces, and the fields. The keys of one
// script call need the same tag. The tag and the fields are put in as they are: text of users goes through [Encode] first, several texts
// in one tag through [JoinTag].
func (b *Base) Key(tag string, fields ...string) string { return b.keys.key(tag, fields...) }

// Delete deletes keys of one tag, within [Engine.SettleTimeout]. Deleting twice is deleting once.
func (b *Base) Delete(ctx context.Context, keys ...string) error {
	_, err := b.engine.RunWithin(ctx, b.engine.SettleTimeout(), deleteScript, keys)
	return err
}

// Decide calls f, which decides an attempt, and observes what comes of it: see [Base.Observe].
func (b *Base) Decide(ctx context.Context, op string, f func() (Decision, error)) (Decision, error) {
	begun := time.Now()
	d, err := f()
	return d, b.Observe(ctx, op, begun, d, err)
}

// Call is [Base.Decide] for calls that decide nothing: a is the attempt that the call is about, the zero Attempt where there is none.
func (b *Base) Call(ctx context.Context, op string, a Attempt, f func() error) error {
	begun := time.Now()
	return b.Observe(ctx, op, begun, Decision{Guard: b.name, Attempt: a}, f())
}

// Look is [Base.Call] for calls that return something.
func Look[T any](ctx context.Context, b *Base, op string, a Attempt, f func() (T, error)) (T, error) {
	begun := time.Now()
	value, err := f()
	return value, b.Observe(ctx, op, begun, Decision{Guard: b.name, Attempt: a}, err)
}

// Observe tells the engine's observer of one call of the guard that has ended: op is Event.Op, begun when it was called. It returns the error
// with the guard and the call named, but for an ErrInvalidAttempt, which says all there is to say. Most guards leave it to Decide,
// Call and Look.
func (b *Base) Observe(ctx context.Context, op string, begun time.Time, d Decision, err error) error {
	if _, logs := b.engine.observer.(*logErrors); logs && err == nil {
		return nil // nobody hears of it, and inside the process telling would be a fifth of a check
	}
	if err != nil && !errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("core: %s %q: %w", op, b.name, err)
	}
	b.engine.observer.Observe(ctx, Event{Guard: b.name, Op: op, Decision: d, Err: err, Took: time.Since(begun)})
	return err
}

// Deadline returns how long one check may take: see WithDeadline.
func (e *Engine) Deadline() time.Duration { return e.deadline }

// SettleTimeout returns how long a call may take that no request waits for, and a call by name: ten times the deadline.
func (e *Engine) SettleTimeout() time.Duration { return 10 * e.deadline }

// RetryHorizon returns how long the answer to an operation is kept whose ID the guard has made: see WithRetryHorizon.
func (e *Engine) RetryHorizon() time.Duration { return e.retryHorizon }

// RefusalMemory returns for how long at most a process remembers that it was refused: see WithRefusalMemory.
func (e *Engine) RefusalMemory() time.Duration { return e.refusalMemory }

// MemoryKeys returns how many budgets a guard keeps inside the process: see WithMemoryKeys.
func (e *Engine) MemoryKeys() int { return e.memoryKeys }

// Client returns the application's client, nil in an engine without Redis. Calls past the engine know neither its deadline nor its breaker.
func (e *Engine) Client() Client { return e.rdb }

// Pending returns how many calls the engine is making that no request waits for, such as undos: see [Engine.UndoLater].
func (e *Engine) Pending() int { return pending.size(e) }

// HasRedis reports whether the engine has a Redis: New makes one that has, NewMemory one that has not.
func (e *Engine) HasRedis() bool { return e.rdb != nil }

// NeedRedis panics when the engine has no Redis. It is for the constructors of guards that keep what must outlive a process.
func (e *Engine) NeedRedis(kind, name string) {
	if e.rdb == nil {
		panic(fmt.Sprintf("core: %s (guard %q) needs Redis, because what it promises has to outlive the process: "+
			"make its engine with core.New", kind, name))
	}
}

// CanWait reports whether the client can run a script and wait for replicas on one connection, as [Engine.RunAcked] does.
func (e *Engine) CanWait() bool { return nodes(e.rdb) != nil }

// Now returns the moment by the process's clock, for what a guard remembers inside the process. What is decided for several processes is
// decided by the server's clock.
func (e *Engine) Now() time.Time {
	if e.clock == nil {
		return time.Now() // has a monotonic reading, which is what counts
	}
	return e.clock()
}

// HasClock reports whether WithClock was given.
func (e *Engine) HasClock() bool { return e.clock != nil }

// ScriptNow returns what scripts take as their argument now, in the given unit: empty in production, so that they read the server's clock,
// and the time of WithClock in tests.
func (e *Engine) ScriptNow(unit time.Duration) string {
	if e.clock == nil {
		return ""
	}
	return strconv.FormatInt(e.clock().UnixNano()/int64(unit), 10)
}

// WithClock sets the clock by which scripts and the process count time, in place of the server's and the process's own. It is for tests:
// in production the clocks of several processes differ.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("core: WithClock(nil): leave the option out to have the server's clock")
	}
	return func(e *Engine) { e.clock = now }
}

// oneIf is what scripts take for yes and no.
func FlagOf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
