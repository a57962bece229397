package core

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/internal/background"
	"github.com/gatehouse-go/gatehouse/internal/backlog"
)

// Drain waits until no engine or adapter of the process is settling anything in the background: undos of
// claims whose answers came too late, and retries of settlements that failed when their request ended. Units
// that limits have fetched ahead go back to Redis at once: see package lease. Call Drain at the end
// of a process, after http.Server.Shutdown and before the Redis client is closed:
//
//	err := errors.Join(server.Shutdown(ctx), core.Drain(ctx), rdb.Close())
//
// When the context ends first, Drain returns an error that says how many attempts are left. Units and permits
// that these attempts hold are released when their lease ends.
//
// Drain may be called at any time and from many goroutines. It may return while work that began after the
// call is still running. It does not wait for requests that Shutdown does not wait for, such as those on
// hijacked connections: their claims are settled when they end.
func Drain(ctx context.Context) error {
	if err := background.Wait(ctx, func() { backlog.Hurry(nil) }); err != nil {
		return fmt.Errorf("core: drain: %w", err)
	}
	return nil
}

// Drain waits until nothing of this engine is being settled in the background, as the function Drain does for
// the whole process. It is for a process that ends one of several engines, before the engine's client is
// closed. It does not wait for guards of an application that have no engine.
func (e *Engine) Drain(ctx context.Context) error {
	if err := background.WaitFor(ctx, func() int { backlog.Hurry(e); return e.Pending() }); err != nil {
		return fmt.Errorf("core: drain: %w", err)
	}
	return nil
}
