package connect

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// Hook is a hook of a client, called with each command before it is sent. If it returns an error, that is the
// answer, and the command is not sent.
type Hook func(cmd redis.Cmder) error

// DialHook implements redis.Hook.
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		for _, cmd := range cmds {
			err = cmp.Or(err, h(cmd))
		}
		if err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// onlyRead makes Redis refuse whatever a command that only looks would write: it sends scripts as EVALSHA_RO
// and EVAL_RO, which Redis has since 7.0. Otherwise a limit that is looked at would tell the processes of the
// application by which windows it counts. If the flags are wrong, so are these windows.
func onlyRead(cmd redis.Cmder) error {
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		cmd.Args()[0] = name + "_ro"
	}
	return nil
}
