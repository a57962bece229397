package script

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// This file sends one script once.

// processor sends a command, and returns what came back, or an error when the context ends.
type processor interface {
	process(ctx context.Context, cmd *redis.Cmd, d Delivery) (any, error)
}

// process implements processor: each command goes out by itself.
func (c *connection) process(ctx context.Context, cmd *redis.Cmd, d Delivery) (any, error) {
	if c.obeysDeadline {
		return onClient{c.rdb}.process(ctx, cmd, d)
	}
	return detached(ctx, func(ctx context.Context) (any, error) { return onClient{c.rdb}.process(ctx, cmd, d) })
}

// onClient is the processor of a client. It returns when the client does.
type onClient struct{ rdb Client }

func (c onClient) process(ctx context.Context, cmd *redis.Cmd, d Delivery) (reply any, err error) {
	defer rescue(&err)
	// Process returns the command's error. An AutoPipeliner returns before there is an error, and Result waits
	// for it.
	if d == AtMostOnce {
		_ = c.rdb.Process(ctx, onceCmd{cmd})
	} else {
		_ = c.rdb.Process(ctx, cmd)
	}
	return cmd.Result()
}

// rescue makes a panic of a hook of the application the error of a call. Many calls are made in goroutines
// without a caller, where it would end the process.
func rescue(err *error) {
	if value := recover(); value != nil {
		*err = fmt.Errorf("panic: %v", value)
	}
}

// manner is how a script is sent.
type manner struct {
	by     processor
	script *Script
	how    Delivery
}

// eval runs the script once: by its hash, or by its source when the server does not know the hash.
func (s manner) eval(ctx context.Context, keys []string, args []any) (any, error) {
	cmd := evalsha(ctx, s.script, keys, args)
	reply, err := s.by.process(ctx, cmd, s.how)
	return s.known(ctx, cmd, reply, err)
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
func (s manner) known(ctx context.Context, cmd *redis.Cmd, reply any, err error) (any, error) {
	if err != nil && (errors.Is(err, redis.ErrNoScript) || redis.HasErrorPrefix(err, "NOSCRIPT")) {
		source := redis.NewCmd(ctx, append([]any{"eval", s.script.source}, cmd.Args()[2:]...)...)
		if cmd.Args()[2] != 0 {
			source.SetFirstKeyPos(3)
		}
		reply, err = s.by.process(ctx, source, s.how)
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

// onceInt is a command that go-redis does not resend: see onceCmd.
type onceInt struct{ *redis.IntCmd }

// NoRetry is part of go-redis's command interface.
func (onceInt) NoRetry() bool { return true }
