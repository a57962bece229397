package pipeline

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
)

// Spend adds n to the real cost of the request under the named rate limit, in the units of Rule.Cost, which
// is then an estimate. Units may be tokens of a language model, bytes that were sent, or rows that were
// exported. Call it as often as the cost becomes known, as while a response is streamed. The calls add up.
//
// When the handler has returned, the sum is reported to the limit once. Unused units go back, and units
// beyond the estimate are charged, so that later requests wait. See limit.SlidingWindow.Spend. This takes a
// call to Redis if the sum is not the estimate. A failed call is retried in the background, and the
// engine's observer is told when the retries are given up. A request for which Spend was never called has
// cost its estimate.
//
// Spent units stay spent, also if the handler fails, panics, or its client disconnects. If the request has
// failed by Rule.Failed, only the rest of the estimate goes back. The RateLimit fields of the response are
// those of the estimate, since the header is sent before the cost is known. No trailer corrects them. The
// next response has the true figures.
//
// The error is a core.ErrInvalid if n is below 0, if the guard takes no actual costs (core.Traits.Spends),
// or if its decision was taken with [Take]. It is a core.ErrGone once the request has been settled, as in a
// goroutine that outlives the handler. In both cases nothing was added. A sum beyond core.MaxAmount counts
// as core.MaxAmount. If the rule let the request pass undecided, there is nothing to count, and the error
// is nil. A name that no rule around the handler has is a mistake in the program: see [Take].
//
// Spend is safe for concurrent use.
func Spend(ctx context.Context, guard string, n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: Spend(%q): %d is negative", core.ErrInvalid, guard, n)
	}
	p, _ := ctx.Value(passageKey{}).(*Passage)
	c := findIn(p, guard)
	switch {
	case c == nil:
		wantRule(ctx, p, "Spend", guard)
	case !c.rule.Traits.Spends || c.rule.Traits.Confirms: // after the header, it is too late to correct
		return fmt.Errorf("%w: Spend(%q): the cost of this guard is no estimate", core.ErrInvalid, guard)
	case c.state() == stateTaken:
		return fmt.Errorf("%w: Spend(%q): the decision was taken: tell its guard", core.ErrInvalid, guard)
	case !c.spending.add(n):
		return fmt.Errorf("%w: Spend(%q): the request has been settled", core.ErrGone, guard)
	}
	return nil
}
