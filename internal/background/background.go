// Package background counts the work that no request waits for, so that a process can wait for it before it
// ends.
package background

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

var running atomic.Int64

// Begin counts one piece of work, which Wait waits for until End is called.
func Begin() { running.Add(1) }

// End says that one piece of work has ended.
func End() { running.Add(-1) }

// Wait waits until no work is running or the context ends; its error says how much is left. It calls hurry
// each time before it looks, for work that would begin later.
func Wait(ctx context.Context, hurry func()) error {
	return WaitFor(ctx, func() int { hurry(); return int(running.Load()) })
}

// WaitFor is [Wait] for the part of the work that left counts.
//
// It polls: a process calls it once in its life, and polling costs the work itself nothing.
func WaitFor(ctx context.Context, left func() int) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		n := left()
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
