package core

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/internal/background"
)

// Drain waits until nothing is settled in the background any more, by any engine or adapter of the process: claims that are taken
// back because their answer came too late, and what could not be settled when its request ended and is tried again. It is for the
// end of a process, behind http.Server.Shutdown and before the Redis client is closed:
//
//	err := errors.Join(server.Shutdown(ctx), core.Drain(ctx), rdb.Close())
//
// When the context is over first, it returns an error that says how many attempts are left; those that hold units or permits lose
// them when their time is over. It can be called at any time and from many goroutines; what begins later is not waited for.
//
// Requests that Shutdown does not wait for, such as those with a connection that was taken over, Drain does not know of either: what
// they took is settled when they end.
func Drain(ctx context.Context) error {
	if err := background.Wait(ctx); err != nil {
		return fmt.Errorf("core: drain: %w", err)
	}
	return nil
}
