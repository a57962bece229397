package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is the part of a go-redis client that a [Runner] needs. *redis.Client (with Sentinel too),
// *redis.ClusterClient, *redis.Ring and *redis.AutoPipeliner implement it. The caller owns the client: a
// Runner never dials, closes or reconfigures it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Runner runs scripts over one client: within a deadline, through the breaker of the server, and together
// with others of the same moment. core.New makes one for each engine. It is safe for concurrent use.
type Runner struct {
	rdb           Client // nil: no Redis, nothing runs
	address       string // of the server or servers, for errors; "" where the client does not say
	prefix        string
	deadline      time.Duration
	obeysDeadline bool
	resends       bool      // the client is known to resend commands whose reply was lost
	sendsOnce     bool      // the client is known not to
	breakers      *breakers // nil: none
	shared        *sharing  // nil: each call is sent by itself
	joins         *joins    // nil: no call is decided with others
	log           func() *slog.Logger
	warned        atomic.Bool // of connections that the server had closed
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
	r := &Runner{
		rdb: rdb, address: addressOf(rdb), prefix: o.Prefix, deadline: o.Deadline,
		obeysDeadline: obeysDeadline(rdb), log: o.Logger,
	}
	does, known := resends(rdb)
	r.resends, r.sendsOnce = does, known && !does
	if !o.Unshared && rdb != nil {
		r.shared = newSharing(r)
		r.joins = &joins{runner: r, longest: min(sharedWait, r.deadline/4), lines: map[string]*line[Joint]{}}
	}
	if !o.NoBreaker {
		r.breakers = newBreakers(o)
		r.breakers.nodeOf = nodesOf(rdb)
		r.breakers.probe, r.breakers.learned = r.prober(), r.probeLearned
	}
	return r
}

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
func (r *Runner) SharesCalls() bool { return r.shared != nil }

// CanWait reports whether the client can run a script and wait for replicas on the same connection, as
// [Runner.RunAcked] does.
func (r *Runner) CanWait() bool { return nodes(r.rdb) != nil }

// Preload loads scripts into every primary that the client knows.
func (r *Runner) Preload(ctx context.Context, scripts ...*Script) error {
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
