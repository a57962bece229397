package script

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Run runs a script within the runner's deadline: by EVALSHA, and by EVAL when the server does not know the
// script. It returns the reply as go-redis decodes it: int64, string, []any or nil.
//
// All keys must have the same {tag}: make them with [Runner.Key]. The rule applies to a single server too, so
// that a program still works when it moves to a cluster. On a runner without Redis, Run returns
// [ErrNoRedis].
func (r *Runner) Run(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	if err := checkTag(keys); err != nil {
		return nil, fmt.Errorf("core: script %s: %w", s.name, err)
	}
	return r.RunWithin(ctx, r.deadline, s, keys, args...)
}

// RunWithin is [Runner.Run] with a time limit given by the caller, such as [Runner.SettleTimeout]. It does
// not check that the keys share a tag. Keys of [Base.Key] with the same tag do.
//
// While a cluster moves the slot of the keys, it refuses to run scripts with several keys. An [Idempotent]
// script is sent again until the slot has moved, for SettleTimeout in all, whatever the limit is.
func (r *Runner) RunWithin(
	ctx context.Context, limit time.Duration, s *Script, keys []string, args ...any,
) (any, error) {
	c := Call{Runner: r, Script: s, Keys: keys, Args: args, Limit: limit}
	return c.deliver(ctx, time.Now())
}

// Query runs a command that only reads, within [Runner.SettleTimeout] and through the runner's breaker. The
// key must be the first argument of the command. The primary answers it, also where the options of a
// *redis.ClusterClient send reads to replicas: a replica may not know yet what has just been written, and its
// silence says nothing about its primary.
func Query[T any](ctx context.Context, r *Runner, cmd interface {
	redis.Cmder
	Result() (T, error)
}) (T, error) {
	key, _ := cmd.Args()[1].(string)
	return call(ctx, r, r.SettleTimeout(), key, obeying(r.connection, func(ctx context.Context) (T, error) {
		if primary, ok := r.rdb.(readsFromReplicas); ok && primary.Options().ReadOnly {
			// go-redis sends a transaction to the primary, whatever is in it, and follows redirects.
			_, _ = primary.TxPipelined(ctx, func(tx redis.Pipeliner) error { return tx.Process(ctx, cmd) })
		} else {
			_ = r.rdb.Process(ctx, cmd)
		}
		return cmd.Result() // the error of the command
	}), nil)
}

// RunJoined is [Runner.RunWithin] for calls that a script can decide several at a time, such as calls of
// many callers about one key. While two calls of the group are under way, new calls wait, up to 25 ms or a
// quarter of [WithDeadline]. Then one run of j.Script decides them, up to 128 at a time. A call that finds
// fewer than two under way runs s at once, in its own goroutine. Each call has its own reply, deadline and
// cancellation. A call that ends before the script is sent is not decided. j.Script must answer as s does
// to one call after the other at one moment.
//
// When the reply is lost, or the run is refused, all its calls return an error if s is AtMostOnce. If s is
// [Idempotent], each call then runs s, as a single call is sent again. So neither script may change
// anything for a call that the other one has decided. With [WithoutSharedCalls] each call runs s.
func (r *Runner) RunJoined(
	ctx context.Context, limit time.Duration, j Join, s *Script, keys []string, args ...any,
) (any, error) {
	c := Call{Runner: r, Script: s, Keys: keys, Args: args, Limit: limit, Join: j}
	c.send(ctx)
	return c.Reply, c.Err
}
