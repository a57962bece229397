package core

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

// Script is a Lua script that an [Engine] can run: see [Engine.Run].
type Script struct {
	name     string
	source   string
	sha      string
	hash     any // the sha as an argument, so that no call has to make it one
	delivery Delivery
	shares   bool // see Shared
}

// NewScript makes a script. The name appears in errors. The source must get all keys that it touches in KEYS.
// NewScript panics on a malformed name or an empty source.
func NewScript(name, source string, delivery Delivery) *Script {
	if err := checkName("script's name", name); err != nil {
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

// Run runs a script within the engine's deadline: by EVALSHA, and by EVAL when the server does not know the
// script. It returns the reply as go-redis decodes it: int64, string, []any or nil.
//
// All keys must have the same {tag}: make them with [Engine.Key]. The rule applies to a single server too, so
// that a program still works when it moves to a cluster. On an engine without Redis, Run returns
// [ErrNoRedis].
func (e *Engine) Run(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	if err := checkTag(keys); err != nil {
		return nil, fmt.Errorf("core: script %s: %w", s.name, err)
	}
	return e.RunWithin(ctx, e.deadline, s, keys, args...)
}

// RunWithin is [Engine.Run] with a time limit given by the caller, such as [Engine.SettleTimeout]. It does
// not check that the keys share a tag. Keys of [Base.Key] with the same tag do.
//
// While a cluster moves the slot of the keys, it refuses to run scripts with several keys. An [Idempotent]
// script is sent again until the slot has moved, for SettleTimeout in all, whatever the limit is.
func (e *Engine) RunWithin(
	ctx context.Context, limit time.Duration, s *Script, keys []string, args ...any,
) (any, error) {
	if e.rdb == nil {
		return nil, fmt.Errorf("script %s: %w", s.name, ErrNoRedis)
	}
	return e.run(ctx, limit, s, keys, args, false)
}

// run runs a script. sent says that another sending of the call may have run.
func (e *Engine) run(
	ctx context.Context, limit time.Duration, s *Script, keys []string, args []any, sent bool,
) (any, error) {
	var key string
	if len(keys) > 0 {
		key = keys[0]
	}
	send := e.sender(s, keys, args, sent) // one for all calls: it knows what may have run
	reply, err := e.outlastMove(ctx, s, limit, func() (any, error) {
		return call(ctx, e, limit, key, send, nil)
	})
	return reply, e.failed(ctx, s, err)
}

// failed names the script in an error, and reloads the topology if the error suggests that it has changed.
func (e *Engine) failed(ctx context.Context, s *Script, err error) error {
	if err == nil {
		return nil
	}
	e.suspectTopology(ctx, err)
	return fmt.Errorf("script %s: %w", s.name, err)
}

// suspectTopology makes a cluster client reload its slots when a server is unreachable. go-redis does so on
// MOVED, but not when the primary of a slot is gone: it would ask the dead one for up to a minute after the
// replica has taken over (go-redis issue 3979). The client reloads in the background, one load at a time.
func (e *Engine) suspectTopology(ctx context.Context, err error) {
	var answered redis.Error
	if !errors.As(err, &answered) {
		e.reloadTopology(ctx)
	}
}

func (e *Engine) reloadTopology(ctx context.Context) {
	if cluster, ok := e.rdb.(interface{ ReloadState(context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}

// Query runs a command that only reads, within [Engine.SettleTimeout] and through the engine's breaker. The
// key must be the first argument of the command. The primary answers it, also where the options of a
// *redis.ClusterClient send reads to replicas: a replica may not know yet what has just been written, and its
// silence says nothing about its primary.
func Query[T any](ctx context.Context, e *Engine, cmd interface {
	redis.Cmder
	Result() (T, error)
}) (T, error) {
	key, _ := cmd.Args()[1].(string)
	return call(ctx, e, e.SettleTimeout(), key, obeying(e, func(ctx context.Context) (T, error) {
		if primary, ok := e.rdb.(readsFromReplicas); ok && primary.Options().ReadOnly {
			// go-redis sends a transaction to the primary, whatever is in it, and follows redirects.
			_, _ = primary.TxPipelined(ctx, func(tx redis.Pipeliner) error { return tx.Process(ctx, cmd) })
		} else {
			_ = e.rdb.Process(ctx, cmd)
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

// sender returns a function that runs the script, and runs it again when the server refused to run it at all:
// that is no second run. It stops retrying before the deadline, so that the error is the server's, and the
// breaker can tell a moving slot from a dead server. sent says that an earlier sending may have run.
func (e *Engine) sender(
	s *Script, keys []string, args []any, sent bool,
) func(context.Context) (any, error) {
	maybe := sent
	return func(ctx context.Context) (any, error) {
		var longest time.Duration
		for pause := 2 * time.Millisecond; ; pause = min(2*pause, longest) {
			reply, unsure, err := e.send(ctx, s, keys, args)
			if err == nil {
				return reply, nil
			}
			maybe = maybe || unsure
			end, _ := ctx.Deadline() // call sets one
			rest := time.Until(end)
			if !refusedForNow(err) || rest < 2*pause {
				return reply, notRun(err, maybe)
			}
			if longest == 0 {
				longest = rest / 8
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil, notRun(err, maybe)
			}
		}
	}
}

// send runs the script once, or as often as go-redis may resend it. The first sending is one of its own, so
// that the answer to it is known to be the answer to the only one. unsure reports that there were others.
func (e *Engine) send(
	ctx context.Context, s *Script, keys []string, args []any,
) (reply any, unsure bool, err error) {
	first := e.first(s, keys)
	if s.delivery == AtMostOnce || e.resends || e.sendsOnce || first != processor(e) {
		reply, err = eval(ctx, first, s, AtMostOnce, keys, args)
		if err == nil || s.delivery == AtMostOnce || !e.resends || ctx.Err() != nil || !worthAnotherTry(err) {
			return reply, false, err
		}
		sentAgain(ctx)
	}
	reply, err = eval(ctx, e, s, s.delivery, keys, args)
	return reply, true, err
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

// first returns what sends a script of a call for the first time.
func (e *Engine) first(s *Script, keys []string) processor {
	if e.shared == nil || !s.shares || len(keys) == 0 {
		return e
	}
	return e.shared
}

// process implements processor: each command goes out by itself.
func (e *Engine) process(ctx context.Context, cmd *redis.Cmd, d Delivery) (any, error) {
	if e.obeysDeadline {
		return onClient{e.rdb}.process(ctx, cmd, d)
	}
	return detached(ctx, func(ctx context.Context) (any, error) { return onClient{e.rdb}.process(ctx, cmd, d) })
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
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", s.hash, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, args...)
	for {
		cmd := redis.NewCmd(ctx, words...)
		if len(keys) > 0 {
			cmd.SetFirstKeyPos(3)
		}
		reply, err := p.process(ctx, cmd, d)
		switch {
		case err == nil:
			return reply, nil
		case errors.Is(err, redis.Nil):
			return nil, nil
		case words[0] == "eval" || !errors.Is(err, redis.ErrNoScript) && !redis.HasErrorPrefix(err, "NOSCRIPT"):
			return reply, err
		}
		words = append([]any{"eval", s.source}, words[2:]...) // not in place: the first command may still be read
	}
}

// onceCmd is a command that go-redis does not resend when its reply is lost.
type onceCmd struct{ *redis.Cmd }

// NoRetry is part of go-redis's command interface from v9.19 on.
func (onceCmd) NoRetry() bool { return true }
