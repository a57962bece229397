package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// errRecorded is the answer to every command: nothing was sent.
var errRecorded = errors.New("not sent: only its keys are wanted")

// recorder is a hook of a client that sends nothing. It notes the keys of the scripts that are to run.
type recorder struct {
	mu   sync.Mutex
	keys []string
}

// noted returns the keys so far, each once.
func (r *recorder) noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys)
}

func (r *recorder) note(cmd redis.Cmder) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	args := cmd.Args()
	if name := cmd.Name(); (name == "evalsha" || name == "eval") && len(args) > 2 {
		n, _ := strconv.Atoi(textOf(args[2]))
		for _, key := range args[3:min(3+n, len(args))] {
			if key := textOf(key); !slices.Contains(r.keys, key) {
				r.keys = append(r.keys, key)
			}
		}
	}
	cmd.SetErr(errRecorded)
	return errRecorded
}

func textOf(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case int:
		return strconv.Itoa(arg)
	}
	return ""
}

// DialHook implements redis.Hook.
func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (r *recorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return r.note(cmd) }
}

// ProcessPipelineHook implements redis.Hook.
func (r *recorder) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = r.note(cmd)
		}
		return errRecorded
	}
}
