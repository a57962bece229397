package nethttpmw

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/background"
)

const (
	// settleAgain is how long settling is tried again at least after Redis could not be asked: longer than a failover takes.
	settleAgain = 30 * time.Second
	// settleLongest is how long it is tried at most, however long what was taken is held: a process does not remember for hours what
	// ends by itself.
	settleLongest = 10 * time.Minute
	// settlersMost is how many decisions are tried again at the same time. Beyond that an outage is too long to be bridged, and
	// holds end by themselves.
	settlersMost = 1024
)

// settlers holds a token for each decision that is being tried again.
var settlers = make(chan struct{}, settlersMost)

// settle tells the guard how an attempt ended. A client who has been told that he has bought must have bought, also when Redis is
// away for a moment just then; so where the guard could not be asked it is asked again in the background. Settling twice
// is settling once, so that is safe. It goes on for as long as what was taken is held, 30 seconds at least and 10 minutes at most;
// core.Drain waits for it. Errors have been observed by the guard.
func settle(ctx context.Context, g core.Guard, d core.Decision, ok bool) {
	if final(g.Settle(ctx, d, ok)) {
		return
	}
	select {
	case settlers <- struct{}{}:
	default:
		return
	}
	background.Go(func() {
		defer func() { <-settlers }()
		ctx, cancel := context.WithTimeout(ctx, patience(g, d))
		defer cancel()
		for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			if final(g.Settle(ctx, d, ok)) {
				return
			}
		}
	})
}

// patience is how long settling is tried again. A rate limit is not waited for: its ResetAfter is a window, and units come back by
// themselves.
func patience(g core.Guard, d core.Decision) time.Duration {
	if g.Traits().KeepsOnFailure {
		return settleAgain
	}
	return min(max(d.ResetAfter, settleAgain), settleLongest)
}

// final reports whether asking again would give the same answer.
func final(err error) bool {
	return err == nil || errors.Is(err, core.ErrGone) || errors.Is(err, core.ErrInvalidAttempt)
}
