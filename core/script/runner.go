package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Runner runs scripts over one client: within a deadline, through the breaker of the server, and together
// with others of the same moment. core.New makes one for each engine. It is safe for concurrent use.
type Runner struct {
	*connection
	prefix    string
	deadline  time.Duration
	breakers  *breakers  // nil: none
	pipelines *pipelines // nil: each call is sent by itself
	joins     *joins     // nil: no call is decided with others
	log       func() *slog.Logger
	warned    atomic.Bool         // of connections that the server had closed
	latest    atomic.Pointer[end] // of the time of calls
}

// Options configure a [Runner]. Package core has an option for each of them, with the details.
type Options struct {
	// Prefix begins every key.
	Prefix string
	// Deadline is how long a call may take whose limit is [Runner.Deadline].
	Deadline time.Duration
	// Unshared has each call sent by itself.
	Unshared bool
	// NoBreaker has each call sent, whatever became of earlier ones.
	NoBreaker bool
	// Failures and Pause are those of the breaker. Zero means 5, and half a second.
	Failures int
	Pause    time.Duration
	// Changed is told of each breaker that has opened, because of err, or closed, and how long it was open.
	Changed func(ctx context.Context, change BreakerChange, took time.Duration, err error)
	// Logger returns where to log what probes find.
	Logger func() *slog.Logger
}

// ErrNoRedis is wrapped by the errors of scripts that an engine without Redis was asked to run.
var ErrNoRedis = errors.New("core: an engine without Redis runs no scripts: make the engine with core.New")

// NewRunner makes a runner over the client, which may be nil: then all calls return [ErrNoRedis].
func NewRunner(rdb Client, o Options) *Runner {
	r := &Runner{connection: connectionOf(rdb), prefix: o.Prefix, deadline: o.Deadline, log: o.Logger}
	if !o.Unshared && rdb != nil {
		longest := min(longestWait, r.deadline/4)
		r.pipelines = newPipelines(r.connection, longest)
		r.joins = &joins{run: r.RunWithin, longestWait: longest, queues: map[string]*queue[Join]{}}
	}
	if !o.NoBreaker {
		r.breakers = newBreakers(o.Failures, o.Pause, o.Changed)
		r.breakers.nodeOf = nodesOf(rdb)
		p := prober{r.connection, r.deadline, r.probeKey}
		r.breakers.probe, r.breakers.learned = p.ofServers(), r.probeLearned
	}
	return r
}

// probeKey returns a key with the tag that never exists.
func (r *Runner) probeKey(tag string) string { return Keyspace{r.prefix + ":probe:"}.Key(tag) }

// HasRedis reports whether the runner has a client.
func (r *Runner) HasRedis() bool { return r.rdb != nil }

// Client returns the application's client, or nil if there is none. Calls made directly on the client bypass
// the deadline and the breaker.
func (r *Runner) Client() Client { return r.rdb }

// Deadline returns how long one check may take: see core.WithDeadline.
func (r *Runner) Deadline() time.Duration { return r.deadline }

// SettleTimeout returns how long a call may take that no request waits for, and a call by name: ten times the
// deadline.
func (r *Runner) SettleTimeout() time.Duration { return 10 * r.deadline }

// SharesCalls reports whether calls may share a pipeline: see core.WithoutSharedCalls.
func (r *Runner) SharesCalls() bool { return r.pipelines != nil }

// CanWait reports whether the client can run a script and wait for replicas on the same connection, as
// [Runner.RunAcked] does.
func (r *Runner) CanWait() bool { return nodes(r.rdb) != nil }

// Preload loads scripts into every primary that the client knows. It sends each once: to a server that is not
// there go-redis would send it again until the context ends, and then not say why.
func (r *Runner) Preload(ctx context.Context, scripts ...*Script) error {
	load := func(ctx context.Context, rdb Client) error {
		for _, s := range scripts {
			cmd := redis.NewCmd(ctx, "script", "load", s.source)
			_ = rdb.Process(ctx, onceCmd{cmd})
			if err := cmd.Err(); err != nil {
				return fmt.Errorf("core: preload script %s: %w", s.name, r.named(addressOf(rdb), err))
			}
		}
		return nil
	}
	onNode := func(ctx context.Context, c *redis.Client) error { return load(ctx, c) }
	switch c := r.rdb.(type) {
	case nil:
		return nil
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, onNode)
	case *redis.Ring:
		return c.ForEachShard(ctx, onNode)
	}
	return load(ctx, r.rdb)
}

// probeLearned logs what a probe found: why Redis cannot be reached, at most once per outage, and once that
// it closes connections which the client keeps.
func (r *Runner) probeLearned(found probed) {
	switch {
	case found.err != nil:
		r.log().Warn("gatehouse: Redis cannot be used", "err", found.err)
	case r.warned.CompareAndSwap(false, true):
		r.log().Warn("gatehouse: Redis works, but had closed connections that the client kept, which cost a "+
			"call; if it closes idle ones, set ConnMaxIdleTime of the client to less than its timeout",
			"redis", found.addr, "connections", found.closed)
	}
}

// OpenBreakers returns the breakers of this process that are open now, sorted by their Node. It asks nobody.
func (r *Runner) OpenBreakers() []OpenBreaker {
	if r.breakers == nil {
		return nil
	}
	return r.breakers.openNow()
}

// Keyspace returns the keyspace of a kind and a name, which [CheckName] has passed.
func (r *Runner) Keyspace(kind, name string) Keyspace {
	return Keyspace{r.prefix + ":" + kind + ":" + name + ":"}
}

// Key returns a key for an application's own script: the prefix, the kind, the tag in braces, and the fields.
// The tag and the fields may be any text; Key encodes them. Keys with the same tag live in the same slot of a
// Redis Cluster, so all keys of one call must have the same tag. Key panics when the kind is malformed or the
// tag is empty.
func (r *Runner) Key(kind, tag string, fields ...string) string {
	if err := CheckName("kind", kind); err != nil {
		panic(err)
	}
	if tag == "" {
		panic("core: Key needs a tag: the text that decides the slot, such as a user's ID")
	}
	encoded := make([]string, len(fields))
	for i, field := range fields {
		encoded[i] = Encode(field)
	}
	return r.Keyspace("own", kind).Key(Encode(tag), encoded...)
}
