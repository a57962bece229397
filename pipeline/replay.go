package pipeline

import (
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// underWayRetry is the Retry-After of a replay whose first attempt has not ended, the same as that of
// operations that are in progress.
const underWayRetry = time.Second

// claims reports whether the pipeline may answer replays of the rule's guard: the guard keeps no outcomes,
// and the rule does not run the handler for replays.
func (r *mounted) claims() bool { return !r.traits.KeepsOutcome && !r.RunReplays }

// underWay reports whether the decision repeats an attempt that still has to be confirmed: the first request
// runs, its process has died, or its handler has taken the decision. The handler would do the work again.
func (r *mounted) underWay(d *core.Decision) bool {
	return d.Replayed && !d.Kept && r.traits.Confirms && r.claims() && !d.Attempt.Shadow
}

// doneBefore reports whether the decision repeats an attempt that is done.
func (r *mounted) doneBefore(d *core.Decision) bool {
	return d.Replayed && d.Kept && r.claims() && !d.Attempt.Shadow
}

// allDone reports whether the request claims nothing that is new or has to be confirmed. It is false if the
// operation ended between two claims, such as when its process died: then the handler has to run.
func (p *Passage) allDone() bool {
	return !p.anyClaim(func(c *claim) bool {
		if c.rule.keepsOutcome() || c.rule.traits.KeepsOnFailure {
			return false // no claim
		}
		return !c.decision.Kept && (!c.decision.Replayed || c.rule.traits.Confirms)
	})
}
