package kit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/backlog"
)

// This file undoes in the background what a call may have done.

const (
	// once is for how long a job that is not repeated may run.
	once = 30 * time.Second
	// undoLongest is for how long undos are repeated: longer than a failover takes, but not for hours.
	undoLongest = 10 * time.Minute
)

// unlessFinal returns the error if a retry may get another answer.
func unlessFinal(err error) error {
	if errors.Is(err, core.ErrGone) || errors.Is(err, core.ErrInvalid) {
		return nil
	}
	return err
}

// UndoLater runs f in the background to undo the possible effects of a call that ended with err. It repeats
// f until Redis has answered or 10 minutes have passed. In the latter case the observer gets a
// [core.ErrUnsettled]. No undo is rejected: when too many are pending, new claims are rejected instead (see
// [RoomToUndo]). A call has nothing to undo if the breaker did not send it, or if Redis refused it before
// it changed anything, such as with OOM or NOPERM.
func (b *Base) UndoLater(err error, f func(ctx context.Context) error) {
	if script.NotRun(err) {
		return
	}
	backlog.Force()
	now := time.Now()
	backlog.Add(b.engine, &backlog.Job{
		Try: func(ctx context.Context) error { return unlessFinal(f(ctx)) },
		Due: now, Until: now.Add(undoLongest),
		Lost: func(err error) {
			b.engine.Observe(context.Background(),
				core.Event{Op: "settle", Err: fmt.Errorf("%w: %w", core.ErrUnsettled, err)})
		},
	})
}

// Later runs f once in the background. When [core.PendingMost] jobs are pending, f does not run.
func (b *Base) Later(f func(ctx context.Context)) {
	if backlog.Take() { // else f, which is optional work, is left out
		b.runOnce(0, false, f)
	}
}

// After runs f once in the background when the time has passed, or when [core.Drain] or [core.Engine.Drain]
// is called. It is for things that the process has to return to Redis at some time, such as units. It takes
// no place among [core.PendingMost].
func (b *Base) After(wait time.Duration, f func(ctx context.Context)) { b.runOnce(wait, true, f) }

func (b *Base) runOnce(wait time.Duration, early bool, f func(ctx context.Context)) {
	due := time.Now().Add(wait)
	backlog.Add(b.engine, &backlog.Job{
		Try: func(ctx context.Context) error { f(ctx); return nil },
		Due: due, Until: due.Add(once), Once: true, Early: early,
		Lost: func(error) {},
	})
}

// RoomToUndo returns [core.ErrTooManyPending] when more than [core.PendingMost] claims and jobs are pending.
// A guard calls it before a claim that it may have to undo. Undos themselves are never rejected.
func RoomToUndo() error {
	if backlog.Full() {
		return core.ErrTooManyPending
	}
	return nil
}
