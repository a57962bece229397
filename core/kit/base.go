package kit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/lua"
)

// MaxTTL is the longest retention that the options of a guard can set: 366 days.
const MaxTTL = 366 * 24 * time.Hour

// TombstoneTTL is how long a tombstone lasts: the mark that forbids a late attempt. When a call is undone
// before it is known to have run, and it reaches Redis within this time after its undo, it changes nothing.
const TombstoneTTL = time.Minute

// Base is what every guard has: its engine, its name and its keys. [Register] makes a Base, and a guard
// embeds it. It is safe for concurrent use.
type Base struct {
	engine *core.Engine
	name   string
	keys   script.Keyspace
	within bool
}

var deleteScript = script.New("delete", lua.Source("core/delete"), script.Idempotent)

// Register registers a guard: its kind, such as "votes", its name, and the scripts that it runs, which
// [core.Engine.Preload] loads. The kind and the name are part of the guard's keys. Register panics when the
// kind or the name is malformed (letters, digits, '.', '_' and '-', at most 64 bytes), or when the engine
// already has a guard of that name.
func Register(e *core.Engine, kind, name string, scripts ...*script.Script) Base {
	if err := script.CheckName("guard's kind", kind); err != nil {
		panic(err)
	}
	e.Register(name, append(scripts, deleteScript)...)
	return Base{engine: e, name: name, keys: e.Keyspace(kind, name)}
}

// Within returns the Base for a guard that works within another one, of the same name and keys. Its calls are
// not observed, and their errors do not name it, since the other guard sees to both.
func (b Base) Within() Base {
	b.within = true
	return b
}

// NeedRedis panics when the engine has no Redis. It is for the constructors of guards whose state must
// outlive a process. The text of the panic begins with the kind, as given to [Register].
func NeedRedis(e *core.Engine, kind, name string) {
	if !e.HasRedis() {
		panic(fmt.Sprintf("%s: the guard %q needs Redis, because its state must outlive the process: "+
			"make its engine with core.New", kind, name))
	}
}

// Name returns the guard's name.
func (b *Base) Name() string { return b.name }

// Engine returns the engine that the guard was made on.
func (b *Base) Engine() *core.Engine { return b.engine }

// Logger returns the logger of the guard's engine: see [core.WithLogger]. Adapters use it for messages about
// the guard.
func (b *Base) Logger() *slog.Logger { return b.engine.Logger() }

// Key returns a key of the guard: the engine's prefix, the guard's kind and name, the tag in braces, and the
// fields. The keys of one script call must share a tag. Key does not encode the tag and the fields: pass
// users' text through [script.Encode] first, and join several texts for one tag with [script.JoinTag].
func (b *Base) Key(tag string, fields ...string) string { return b.keys.Key(tag, fields...) }

// Delete deletes keys that share a tag, within [script.Runner.SettleTimeout]. Deleting twice has the effect
// of deleting once.
func (b *Base) Delete(ctx context.Context, keys ...string) error {
	_, err := b.engine.RunWithin(ctx, b.engine.SettleTimeout(), deleteScript, keys)
	return err
}

// Decide calls f, which decides an attempt, and observes the result: see [Base.Observe].
func (b *Base) Decide(
	ctx context.Context, op string, f func() (core.Decision, error),
) (core.Decision, error) {
	begun := time.Now()
	d, err := f()
	return d, b.Observe(ctx, op, begun, d, err)
}

// Call is [Base.Decide] for calls that do not decide. The attempt a is the subject of the call, and may be
// the zero Attempt.
func (b *Base) Call(ctx context.Context, op string, a core.Attempt, f func() error) error {
	begun := time.Now()
	return b.Observe(ctx, op, begun, core.Decision{Guard: b.name, Attempt: a}, f())
}

// Look is [Base.Call] for calls that return a value.
func Look[T any](ctx context.Context, b *Base, op string, a core.Attempt, f func() (T, error)) (T, error) {
	begun := time.Now()
	value, err := f()
	return value, b.Observe(ctx, op, begun, core.Decision{Guard: b.name, Attempt: a}, err)
}

// Observe tells the engine's observer of one call of the guard that has ended. The op becomes
// [core.Event].Op, and the call began at begun. Observe returns the error with the guard and the call
// named. It returns an [core.ErrInvalid] unchanged, because its text is complete. Most guards use
// [Base.Decide], [Base.Call] and [Look] instead.
func (b *Base) Observe(ctx context.Context, op string, begun time.Time, d core.Decision, err error) error {
	if b.within {
		return err
	}
	if err == nil && b.engine.OnlyErrors() {
		return nil // else a success would cost copies of the decision, and the time
	}
	return b.observe(ctx, op, begun, d, err)
}

func (b *Base) observe(ctx context.Context, op string, begun time.Time, d core.Decision, err error) error {
	if err != nil && !errors.Is(err, core.ErrInvalid) {
		err = fmt.Errorf("core: %s %q: %w", op, b.name, err)
	}
	b.engine.Observe(ctx, core.Event{Guard: b.name, Op: op, Decision: d, Err: err, Took: time.Since(begun)})
	return err
}

// FlagOf returns 1 for true and 0 for false, as scripts take their flags.
func FlagOf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
