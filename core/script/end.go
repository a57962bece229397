package script

import (
	"context"
	"time"
)

// This file has one timer for the deadlines of calls that begin at about the same moment. A context with a
// deadline for each would cost more than all else that a check does in the process.

// end is when the time of calls is over. It is shared by those whose limit ends then or a moment later.
type end struct {
	at   time.Time
	over chan struct{} // closed then
}

// timed is a context of a caller who cannot cancel, until the end.
type timed struct {
	context.Context
	*end
}

func (t timed) Deadline() (time.Time, bool) { return t.at, true }
func (t timed) Done() <-chan struct{}       { return t.over }

func (t timed) Err() error {
	select {
	case <-t.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// within returns a context for a call of the caller that begins now: it lasts for the limit. For a check it
// may end earlier, by up to a 16th.
func (r *Runner) within(
	caller context.Context, now time.Time, limit time.Duration,
) (context.Context, context.CancelFunc) {
	at := now.Add(limit)
	if caller.Done() != nil || limit > r.deadline || limit < r.deadline/2 {
		return context.WithDeadline(caller, at)
	}
	e := r.latest.Load()
	if e == nil || e.at.After(at) || at.Sub(e.at) > limit/16 {
		e = &end{at: at.Add(-limit / 32), over: make(chan struct{})} // also for one that came a moment earlier
		time.AfterFunc(time.Until(e.at), func() { close(e.over) })
		r.latest.Store(e)
	}
	return timed{caller, e}, func() {}
}
