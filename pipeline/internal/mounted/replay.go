package mounted

import (
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// UnderWayRetry is the Retry-After of a replay whose first attempt has not ended, the same as that of
// operations that are in progress.
const UnderWayRetry = time.Second

// Replays reports whether the pipeline may answer replays of the rule's guard: the guard keeps no outcomes,
// and the rule does not run the handler for replays.
func (r *Rule) Replays() bool { return !r.Traits.KeepsOutcome && !r.RunReplays }

// UnderWay reports whether the decision repeats an attempt that still has to be confirmed: the first request
// runs, its process has died, or its handler has taken the decision. The handler would do the work again.
func (r *Rule) UnderWay(d *core.Decision) bool {
	return d.Replayed && !d.Kept && r.Traits.Confirms && r.Replays() && !d.Attempt.Shadow
}

// DoneBefore reports whether the decision repeats an attempt that is done.
func (r *Rule) DoneBefore(d *core.Decision) bool {
	return d.Replayed && d.Kept && r.Replays() && !d.Attempt.Shadow
}
