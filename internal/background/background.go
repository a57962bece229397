// Package background knows how much is being done that no request waits for, so that a process can wait for it before it ends.
package background

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

var running atomic.Int64

// Begin says that something has begun that Wait waits for, until End is called.
func Begin() { running.Add(1) }

// End says that it has ended.
func End() { running.Add(-1) }

// Wait waits until nothing that has begun is running, or the context is over; its error says how much is.
//
// It looks now and then: it is called once in the life of a process, and costs those nothing that it waits for.
func Wait(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		n := running.Load()
		if n == 0 {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%d attempts are not settled: %w", n, context.Cause(ctx))
		}
	}
}
