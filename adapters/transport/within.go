package transport

import (
	"context"
	"time"
)

// within is a context that ends after a time, as context.WithTimeout makes it. It takes a timer only when
// somebody waits for its end, which most requests need not. One goroutine uses it.
type within struct {
	context.Context
	until  time.Time
	timed  context.Context // nil until somebody waits
	cancel context.CancelFunc
}

func newWithin(ctx context.Context, most time.Duration) *within {
	w := &within{Context: ctx, until: time.Now().Add(most)}
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(w.until) {
		w.until = earlier
	}
	return w
}

// Deadline implements context.Context.
func (w *within) Deadline() (time.Time, bool) { return w.until, true }

// Done implements context.Context.
func (w *within) Done() <-chan struct{} {
	if w.timed == nil {
		w.timed, w.cancel = context.WithDeadline(w.Context, w.until)
	}
	return w.timed.Done()
}

// Err implements context.Context.
func (w *within) Err() error {
	switch {
	case w.timed != nil:
		return w.timed.Err()
	case w.Context.Err() == nil && !time.Now().Before(w.until):
		return context.DeadlineExceeded
	}
	return w.Context.Err()
}

func (w *within) stop() {
	if w.cancel != nil {
		w.cancel()
	}
}
