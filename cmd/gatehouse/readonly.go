package main

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// readOnly makes Redis refuse whatever a command that only looks would write: it sends scripts as EVALSHA_RO
// and EVAL_RO, which Redis has since 7.0. A limit that is looked at would otherwise tell the processes of the
// application by which windows it counts, which may be wrong if the flags are.
type readOnly struct{}

// DialHook implements redis.Hook.
func (readOnly) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (readOnly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		onlyRead(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (readOnly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			onlyRead(cmd)
		}
		return next(ctx, cmds)
	}
}

func onlyRead(cmd redis.Cmder) {
	switch args := cmd.Args(); cmd.Name() {
	case "eval", "evalsha":
		args[0] = cmd.Name() + "_ro"
	}
}
