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

// Delivery says how often a script may be sent for one call. A client that hears no reply can not know whether the script
// ran. go-redis sends such a command again by default, and a script that counts would count twice.
type Delivery int

const (
	// Once means that the script is sent at most once. Where the reply is lost the call returns an error.
	AtMostOnce Delivery = iota
	// Replayable means that running the script again for the same call changes nothing and gives the same answer, because it keeps
	// its answer by an operation ID, or only reads. The client may send it again as its options say.
	Idempotent
)

// Script is a Lua script that an Engine can run. See Engine.Run.
type Script struct {
	name     string
	source   string
	sha      string
	delivery Delivery
}

// NewScript makes a script. The name is for error messages. All keys that the source touches have to come in KEYS.
func NewScript(name, source string, delivery Delivery) *Script {
	if err := checkName("script's name", name); err != nil {
		panic(err)
	}
	if strings.TrimSpace(source) == "" {
		panic(fmt.Sprintf("core: script %q has no source", name))
	}
	sum := sha1.Sum([]byte(source)) // what Redis names scripts by; not a matter of security
	return &Script{name: name, source: source, sha: hex.EncodeToString(sum[:]), delivery: delivery}
}

// Name returns the script's name.
func (s *Script) Name() string { return s.name }

// Source returns the script's text.
func (s *Script) Source() string { return s.source }

// SHA returns what Redis knows the script by: the SHA-1 of its source in hex.
func (s *Script) SHA() string { return s.sha }

// Run runs a script: EVALSHA first, EVAL where the server does not know it, within the engine's deadline. It returns the
// reply as go-redis decodes it: int64, string, []any, nil.
//
// The keys need one and the same {tag}: make them with Engine.Key. That holds on a single server too, so that a program
// does not meet it on the day that it moves to a cluster. An engine without Redis runs nothing and returns an error.
func (e *Engine) Run(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	if err := checkTag(keys); err != nil {
		return nil, fmt.Errorf("core: script %s: %w", s.name, err)
	}
	return e.RunWithin(ctx, e.deadline, s, keys, args...)
}

// RunWithin is [Engine.Run] with a time limit of the caller's, such as [Engine.SettleTimeout]. It leaves it to the caller that the keys have one
// and the same tag, as those of [Base.Key] with one tag have.
func (e *Engine) RunWithin(ctx context.Context, limit time.Duration, s *Script, keys []string, args ...any) (any, error) {
	if e.rdb == nil {
		return nil, fmt.Errorf("script %s: %w", s.name, ErrNoRedis)
	}
	var key string
	if len(keys) > 0 {
		key = keys[0]
	}
	reply, err := call(ctx, e, limit, key, e.sender(s, keys, args), nil)
	return reply, e.failed(ctx, s, err)
}

// failed names the script in an error, and sees to it that the next call does not meet the same.
func (e *Engine) failed(ctx context.Context, s *Script, err error) error {
	if err == nil {
		return nil
	}
	e.suspectTopology(ctx, err)
	return fmt.Errorf("script %s: %w", s.name, err)
}

// suspectTopology asks a cluster client to look where the slots are now, when a server can not be reached. go-redis does so
// on MOVED, but not when the master of a slot is gone: it would ask the dead one for up to a minute after its replica has
// taken over (go-redis issue 3979). The client does it in the background, one at a time.
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

// query runs a command that only reads, for a call that no request waits for.
func Query[T any](ctx context.Context, e *Engine, cmd interface {
	redis.Cmder
	Result() (T, error)
}) (T, error) {
	key, _ := cmd.Args()[1].(string) // what is read here has its key there
	return call(ctx, e, e.SettleTimeout(), key, func(ctx context.Context) (T, error) {
		_ = e.rdb.Process(ctx, cmd)
		return cmd.Result()
	}, nil)
}

// sender returns what runs the script, again where the server has refused to run it at all: that is no second run. It ends before the
// time does, so that the error is what the server has said, and the breaker can tell a slot on the move from a server that is gone.
func (e *Engine) sender(s *Script, keys []string, args []any) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		end, _ := ctx.Deadline() // there is one: the limit's
		longest := time.Until(end) / 8
		for pause := 2 * time.Millisecond; ; pause = min(2*pause, longest) {
			reply, err := eval(ctx, e.rdb, s, s.delivery, keys, args)
			if !refusedForNow(err) || time.Until(end) < 2*pause {
				return reply, err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil, err
			}
		}
	}
}

// refusedForNow reports whether a cluster has refused a call because its slots are on the move: before it ran anything,
// and for a moment only. MOVED and ASK get here when go-redis has followed as many as it follows.
func refusedForNow(err error) bool {
	if err == nil {
		return false
	}
	for _, prefix := range []string{"TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// eval runs the script once, whether the server knows it or not: by its hash and, where that is not known, by its source.
func eval(ctx context.Context, rdb Client, s *Script, d Delivery, keys []string, args []any) (any, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", s.sha, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, args...)
	for {
		cmd := redis.NewCmd(ctx, words...)
		if len(keys) > 0 {
			cmd.SetFirstKeyPos(3)
		}
		// Process returns the command's error; an AutoPipeliner returns before there is one, and Result waits for it.
		if d == AtMostOnce {
			_ = rdb.Process(ctx, onceCmd{cmd})
		} else {
			_ = rdb.Process(ctx, cmd)
		}
		reply, err := cmd.Result()
		switch {
		case err == nil:
			return reply, nil
		case errors.Is(err, redis.Nil):
			return nil, nil
		case words[0] == "eval" || !errors.Is(err, redis.ErrNoScript) && !redis.HasErrorPrefix(err, "NOSCRIPT"):
			return reply, err
		}
		words = append([]any{"eval", s.source}, words[2:]...) // not in place: the first command may still be looked at
	}
}

// onceCmd is a command that go-redis does not send again when its reply is lost.
type onceCmd struct{ *redis.Cmd }

// NoRetry is asked by go-redis, from v9.19 on.
func (onceCmd) NoRetry() bool { return true }
