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

// This file is the kit for guards: for those in the packages below core, and for an application's own. See
// docs/new-guard.md for an example.

// MaxAmount is the largest amount that a script counts exactly: Lua numbers are doubles.
const MaxAmount = 1<<53 - 1

// MaxTTL is the longest retention that the options of a guard can set: 366 days.
const MaxTTL = 366 * 24 * time.Hour

// TombstoneTTL is how long a tombstone lasts: the mark that forbids a late attempt. When a call is undone
// before it is known to have run, and it reaches Redis within this time after its undo, it changes nothing.
const TombstoneTTL = time.Minute

// Base is what every guard has: its engine, its name and its keys. [Engine.Register] makes a Base, and a
// guard embeds it. It is safe for concurrent use.
type Base struct {
	engine *Engine
	name   string
	keys   keyspace
}

var deleteScript = NewScript("delete", lua.Source("core/delete"), Idempotent)

// Register registers a guard: its kind, such as "votes", its name, and the scripts that it runs, which
// [Engine.Preload] loads. The kind and the name are part of the guard's keys. Register panics when the kind
// or the name is malformed (letters, digits, '.', '_' and '-', at most 64 bytes), or when the engine already
// has a guard of that name.
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
		panic(fmt.Sprintf("core: two guards are named %q: give each guard its own name, "+
			"or use one guard in both places", name))
	}
	e.names[name] = true
	for _, s := range append(scripts, deleteScript) {
		e.scripts[s.sha] = s
	}
	return Base{engine: e, name: name, keys: keyspace{e.prefix + ":" + kind + ":" + name + ":"}}
}

// Release gives up the name of a guard, so that a guard with other options can be made under it while the
// process runs, as package config does when its file changes. The former guard still works: requests that it
// allowed settle with it. Both have the same keys if they are of one kind. What the former one knows inside
// the process, such as what it remembers of refusals, is its own. Release does nothing for a name that is not
// in use.
func (e *Engine) Release(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.names, name)
}

// Name returns the guard's name.
func (b *Base) Name() string { return b.name }

// Engine returns the engine that the guard was made on.
func (b *Base) Engine() *Engine { return b.engine }

// Logger returns the logger of the guard's engine: see [WithLogger]. Adapters use it for messages about the
// guard.
func (b *Base) Logger() *slog.Logger { return b.engine.Logger() }

// Key returns a key of the guard: the engine's prefix, the guard's kind and name, the tag in braces, and the
// fields. The keys of one script call must share a tag. Key does not encode the tag and the fields: pass
// users' text through [Encode] first, and join several texts for one tag with [JoinTag].
func (b *Base) Key(tag string, fields ...string) string { return b.keys.key(tag, fields...) }

// Delete deletes keys that share a tag, within [Engine.SettleTimeout]. Deleting twice has the effect of
// deleting once.
func (b *Base) Delete(ctx context.Context, keys ...string) error {
	_, err := b.engine.RunWithin(ctx, b.engine.SettleTimeout(), deleteScript, keys)
	return err
}

// Decide calls f, which decides an attempt, and observes the result: see [Base.Observe].
func (b *Base) Decide(ctx context.Context, op string, f func() (Decision, error)) (Decision, error) {
	begun := time.Now()
	d, err := f()
	return d, b.Observe(ctx, op, begun, d, err)
}

// Call is [Base.Decide] for calls that do not decide. The attempt a is what the call is about; it may be the
// zero Attempt.
func (b *Base) Call(ctx context.Context, op string, a Attempt, f func() error) error {
	begun := time.Now()
	return b.Observe(ctx, op, begun, Decision{Guard: b.name, Attempt: a}, f())
}

// Look is [Base.Call] for calls that return a value.
func Look[T any](ctx context.Context, b *Base, op string, a Attempt, f func() (T, error)) (T, error) {
	begun := time.Now()
	value, err := f()
	return value, b.Observe(ctx, op, begun, Decision{Guard: b.name, Attempt: a}, err)
}

// Observe tells the engine's observer of one call of the guard that has ended. The op is that of [Event].Op,
// and begun is when the call began. Observe returns the error with the guard and the call named; an
// [ErrInvalid] is returned unchanged, because its text is complete. Most guards use [Base.Decide],
// [Base.Call] and [Look] instead.
func (b *Base) Observe(ctx context.Context, op string, begun time.Time, d Decision, err error) error {
	if err == nil && b.engine.onlyErrors {
		return nil // else a success would cost copies of the decision, and the time
	}
	return b.observe(ctx, op, begun, d, err)
}

func (b *Base) observe(ctx context.Context, op string, begun time.Time, d Decision, err error) error {
	if err != nil && !errors.Is(err, ErrInvalid) {
		err = fmt.Errorf("core: %s %q: %w", op, b.name, err)
	}
	b.engine.observer.Observe(ctx, Event{Guard: b.name, Op: op, Decision: d, Err: err, Took: time.Since(begun)})
	return err
}

// Deadline returns how long one check may take: see [WithDeadline].
func (e *Engine) Deadline() time.Duration { return e.deadline }

// SettleTimeout returns how long a call may take that no request waits for, and a call by name: ten times the
// deadline.
func (e *Engine) SettleTimeout() time.Duration { return 10 * e.deadline }

// SharesCalls reports whether calls of the engine may share a pipeline: see [WithoutSharedCalls].
func (e *Engine) SharesCalls() bool { return e.shared != nil }

// RetryHorizon returns how long a guard stores the answer to an operation whose ID it made: see
// [WithRetryHorizon].
func (e *Engine) RetryHorizon() time.Duration { return e.retryHorizon }

// RefusalMemory returns for how long a process at most remembers a denial: see [WithRefusalMemory].
func (e *Engine) RefusalMemory() time.Duration { return e.refusalMemory }

// MemoryKeys returns how many budgets a guard keeps inside the process: see [WithMemoryKeys].
func (e *Engine) MemoryKeys() int { return e.memoryKeys }

// Client returns the application's client, or nil for an engine without Redis. Calls made directly on the
// client bypass the engine's deadline and breaker.
func (e *Engine) Client() Client { return e.rdb }

// Pending returns how many background jobs of the engine are running or waiting, such as undos: see
// [Engine.UndoLater].
func (e *Engine) Pending() int { return pending.size(e) }

// HasRedis reports whether the engine has a Redis: true for [New], false for [NewMemory].
func (e *Engine) HasRedis() bool { return e.rdb != nil }

// NeedRedis panics when the engine has no Redis. It is for the constructors of guards whose state must
// outlive a process. The kind is that of [Engine.Register]; the text of the panic begins with it.
func (e *Engine) NeedRedis(kind, name string) {
	if e.rdb == nil {
		panic(fmt.Sprintf("%s: the guard %q needs Redis, because its state must outlive the process: "+
			"make its engine with core.New", kind, name))
	}
}

// CanWait reports whether the client can run a script and wait for replicas on the same connection, as
// [Engine.RunAcked] does.
func (e *Engine) CanWait() bool { return nodes(e.rdb) != nil }

// Now returns the time by the clock of the process, for what a guard remembers inside the process. Decisions
// that several processes share use the server's clock.
func (e *Engine) Now() time.Time {
	if e.clock == nil {
		return time.Now() // with a monotonic reading, by which ages are measured
	}
	return e.clock()
}

// HasClock reports whether [WithClock] set the clock.
func (e *Engine) HasClock() bool { return e.clock != nil }

// ScriptNow returns the argument now of scripts, in the given unit. It is empty in production, so that
// scripts read the server's clock. With [WithClock] it is the time of that clock.
func (e *Engine) ScriptNow(unit time.Duration) string {
	if e.clock == nil {
		return ""
	}
	return strconv.FormatInt(e.clock().UnixNano()/int64(unit), 10)
}

// WithClock replaces the clocks of the server and the process with now, for scripts and for the process. It
// is for tests: in production the clocks of several processes differ.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("core: WithClock(nil): leave the option out to have the server's clock")
	}
	return func(e *Engine) { e.clock = now }
}

// FlagOf returns 1 for true and 0 for false, as scripts take their flags.
func FlagOf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
