// Package background knows how much is being done that no request waits for, so that a process can wait for it before it ends.
package background

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

var running atomic.Int64

// Go runs f in a goroutine that Wait waits for.
func Go(f func()) {
	running.Add(1)
	go func() {
		defer running.Add(-1)
		f()
	}()
}

// Wait waits until nothing that Go has begun is running, or the context is over; its error says how much is.
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
