package script

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Delivery says how often a script may be sent for one call. A client that gets no reply cannot know whether
// the script ran. By default go-redis then resends the command, and a script that counts would count twice.
type Delivery int

const (
	// AtMostOnce means that the script is sent at most once. When the reply is lost, the call returns an error.
	AtMostOnce Delivery = iota
	// Idempotent means that running the script again for the same call changes nothing and gives the same
	// answer, because the script stores its answer under an operation ID or only reads. The client may resend it
	// as its options say.
	Idempotent
)

// Script is a Lua script that an [Runner] can run: see [Runner.Run].
type Script struct {
	name     string
	source   string
	sha      string
	hash     any // the sha as an argument, so that no call has to make it one
	delivery Delivery
	shares   bool // see Shared
}

// New makes a script. The name appears in errors. The source must get all keys that it touches in KEYS.
// New panics on a malformed name or an empty source.
func New(name, source string, delivery Delivery) *Script {
	if err := CheckName("script's name", name); err != nil {
		panic(err)
	}
	if strings.TrimSpace(source) == "" {
		panic(fmt.Sprintf("core: script %q has no source", name))
	}
	sum := sha1.Sum([]byte(source)) // the name that Redis gives scripts; not for security
	sha := hex.EncodeToString(sum[:])
	return &Script{name: name, source: source, sha: sha, hash: sha, delivery: delivery}
}

// Shared returns the script with leave to share a pipeline with other calls of the same moment: see
// [WithoutSharedCalls]. A connection that is lost takes the replies of all calls of its pipeline with it,
// also of those that the server runs a moment later, when their callers have gone on. So give this leave to a
// script if it does not matter when a call runs that has ended with an error, as in checks of limits; or to a
// script of claims whose undo leaves a tombstone where the call may still arrive: after an error, and where
// [WatchSendings] says so. Only the first sending of a call shares a pipeline.
func (s *Script) Shared() *Script {
	shared := *s
	shared.shares = true
	return &shared
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Source returns the script's Lua source.
func (s *Script) Source() string { return s.source }

// SHA returns the hash by which Redis identifies the script: the SHA-1 of its source, in hex.
func (s *Script) SHA() string { return s.sha }

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
	return c.deliver(ctx)
}

// failed names the script in an error, and reloads the topology if the error suggests that it has changed.
func (r *Runner) failed(ctx context.Context, s *Script, err error) error {
	if err == nil {
		return nil
	}
	r.suspectTopology(ctx, err)
	return fmt.Errorf("script %s: %w", s.name, err)
}

// suspectTopology makes a cluster client reload its slots when a server is unreachable. go-redis does so on
// MOVED, but not when the primary of a slot is gone: it would ask the dead one for up to a minute after the
// replica has taken over (go-redis issue 3979). The client reloads in the background, one load at a time.
func (r *Runner) suspectTopology(ctx context.Context, err error) {
	var answered redis.Error
	if !errors.As(err, &answered) {
		r.reloadTopology(ctx)
	}
}

func (r *Runner) reloadTopology(ctx context.Context) {
	if cluster, ok := r.rdb.(interface{ ReloadState(context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
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
	return call(ctx, r, r.SettleTimeout(), key, obeying(r, func(ctx context.Context) (T, error) {
		if primary, ok := r.rdb.(readsFromReplicas); ok && primary.Options().ReadOnly {
			// go-redis sends a transaction to the primary, whatever is in it, and follows redirects.
			_, _ = primary.TxPipelined(ctx, func(tx redis.Pipeliner) error { return tx.Process(ctx, cmd) })
		} else {
			_ = r.rdb.Process(ctx, cmd)
		}
		return cmd.Result() // the error of the command
	}), nil)
}

// readsFromReplicas is a client that may send commands which only read to replicas: *redis.ClusterClient.
// Scripts it sends to primaries.
type readsFromReplicas interface {
	Options() *redis.ClusterOptions
	TxPipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// notRun marks an error of a call that has certainly changed nothing.
func notRun(err error, maybe bool) error {
	if err == nil || maybe || !isRefusal(err) {
		return err
	}
	return notRunError{err}
}

// processor sends a command, and returns what came back, or an error when the context ends.
type processor interface {
	process(ctx context.Context, cmd *redis.Cmd, d Delivery) (any, error)
}

// process implements processor: each command goes out by itself.
func (r *Runner) process(ctx context.Context, cmd *redis.Cmd, d Delivery) (any, error) {
	if r.obeysDeadline {
		return onClient{r.rdb}.process(ctx, cmd, d)
	}
	return detached(ctx, func(ctx context.Context) (any, error) { return onClient{r.rdb}.process(ctx, cmd, d) })
}

// onClient is the processor of a client. It returns when the client does.
type onClient struct{ rdb Client }

func (c onClient) process(ctx context.Context, cmd *redis.Cmd, d Delivery) (any, error) {
	// The error of Process is the command's. An AutoPipeliner returns before there is one; Result waits for it.
	if d == AtMostOnce {
		_ = c.rdb.Process(ctx, onceCmd{cmd})
	} else {
		_ = c.rdb.Process(ctx, cmd)
	}
	return cmd.Result()
}

// eval runs the script once: by its hash, or by its source when the server does not know the hash.
func eval(ctx context.Context, p processor, s *Script, d Delivery, keys []string, args []any) (any, error) {
	cmd := evalsha(ctx, s, keys, args)
	reply, err := p.process(ctx, cmd, d)
	return known(ctx, p, s, d, cmd, reply, err)
}

// evalsha returns the command that runs a script by its hash.
func evalsha(ctx context.Context, s *Script, keys []string, args []any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", s.hash, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// known returns what came back for a command of evalsha. To a server that does not know the script it sends
// the source.
func known(
	ctx context.Context, p processor, s *Script, d Delivery, cmd *redis.Cmd, reply any, err error,
) (any, error) {
	if err != nil && (errors.Is(err, redis.ErrNoScript) || redis.HasErrorPrefix(err, "NOSCRIPT")) {
		source := redis.NewCmd(ctx, append([]any{"eval", s.source}, cmd.Args()[2:]...)...)
		if cmd.Args()[2] != 0 {
			source.SetFirstKeyPos(3)
		}
		reply, err = p.process(ctx, source, d)
	}
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

// onceCmd is a command that go-redis does not resend when its reply is lost.
type onceCmd struct{ *redis.Cmd }

// NoRetry is part of go-redis's command interface from v9.19 on.
func (onceCmd) NoRetry() bool { return true }

// NotRun reports whether a call that ended with err has certainly changed nothing, as when the breaker did
// not send it, or Redis refused it before it ran.
func NotRun(err error) bool {
	return errors.Is(err, ErrBreakerOpen) || errors.As(err, new(notRunError))
}
