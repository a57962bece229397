package core

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Observer hears of everything that the guards of an engine do: for metrics, traces and logs. Observe is called on the
// path of the request, so it must be quick, and from many goroutines at once.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is one call of a guard.
type Event struct {
	// Guard is the guard's name.
	Guard string
	// Op is what was called: "check", "settle", and by name what else the guard does, such as "open".
	Op string
	// Decision is the answer, where Op has one.
	Decision Decision
	// Err is what went wrong, nil when nothing did. It may name keys and addresses: not for clients.
	Err error
	// Took is how long the call took.
	Took time.Duration
}

// logErrors is the observer of an engine that was given none: errors go to slog, at most one a second, so that an outage
// does not drown the log.
type logErrors struct {
	mu      sync.Mutex
	last    time.Time
	skipped int
}

func (o *logErrors) Observe(ctx context.Context, e Event) {
	// A client's mistake is not the operator's: it must not take an outage's place in the log.
	if e.Err == nil || errors.Is(e.Err, ErrInvalidAttempt) {
		return
	}
	o.mu.Lock()
	now := time.Now()
	if now.Sub(o.last) < time.Second {
		o.skipped++
		o.mu.Unlock()
		return
	}
	skipped := o.skipped
	o.last, o.skipped = now, 0
	o.mu.Unlock()
	slog.WarnContext(ctx, "gatehouse: a guard could not decide",
		"guard", e.Guard, "op", e.Op, "err", e.Err, "took", e.Took, "errors_not_logged", skipped)
}
