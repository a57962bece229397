package limit

import (
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
)

// refusals is what this process remembers of the refusals of one limiter, so that clients that go on after a
// refusal are answered without asking Redis.
//
// A refusal is certain for the retry-after that came with it, counted from when its call was sent, since the
// script ran later than that. For no algorithm anything that happens meanwhile makes room earlier: units that
// are taken, also by limits with another Max, only make the wait longer, and a clock that is set back makes
// everybody wait. Room is made by a refund, by a reset, by lost data, and by a server's clock that is set
// forward. The refunds and resets of this process drop what it remembers; of all else it learns when the time
// of the refusal is over.
//
// A refusal answers attempts of the same cost under the same limits. A smaller cost may fit. A larger one
// does not, but it waits longer, nobody here knows how long, and a RetryAfter has to be exact. For its sake
// an attempt that is allowed drops the refusals too: they last, but what waits for several units waits longer
// now.
type refusals struct {
	keys *core.Recall[string, []refusal] // each refusal has a time of its own, so they are looked up with Last
}

const (
	// refusalKeys is for how many keys refusals are remembered.
	refusalKeys = 1 << 16
	// refusalCosts is for how many different costs of one key refusals are remembered.
	refusalCosts = 4
)

// refusal is what Redis has answered to an attempt of this cost under these limits.
type refusal struct {
	limits        []Limit
	cost          int64
	max           int64
	window, retry time.Duration
	remaining     int64
	sent, heard   time.Time // when its call was sent, and when it came
	until         time.Time // when it is forgotten
}

// newRefusals makes a memory of refusals, each of which is remembered for at most so long.
func newRefusals(most time.Duration) *refusals {
	return &refusals{core.NewRecall[string, []refusal](refusalKeys, most)}
}

// find returns the refusal that answers an attempt now.
func (r *refusals) find(key string, limits []Limit, cost int64, now time.Time) (refusal, bool) {
	known, _ := r.keys.Last(key)
	for i := range known {
		if one := &known[i]; one.is(limits, cost) && !one.over(now) {
			return *one, true
		}
	}
	return refusal{}, false
}

// ask has to be called before a call is sent.
func (r *refusals) ask(key string, now time.Time) core.Asked[string] { return r.keys.Ask(key, now) }

// hear takes note of what a call has answered.
func (r *refusals) hear(call core.Asked[string], limits []Limit, d core.Decision, now time.Time) {
	if d.Allowed {
		r.drop(call.Key)
		return
	}
	lasts := min(d.RetryAfter, r.keys.Longest())
	heard := refusal{
		cost: d.Attempt.Cost, max: d.Limit, window: d.Window, retry: d.RetryAfter, remaining: d.Remaining,
		sent: call.At, heard: now, until: call.At.Add(lasts),
	}
	if heard.over(now) {
		return
	}
	heard.limits = slices.Clone(limits) // the caller may change its own in place
	r.keys.Merge(call, lasts, func(known []refusal, _ bool) []refusal {
		kept := make([]refusal, 0, min(len(known)+1, refusalCosts))
		for _, one := range known {
			if !one.over(now) && !one.is(limits, heard.cost) {
				kept = append(kept, one)
			}
		}
		if len(kept) < refusalCosts { // eviction is no help to a client that cycles through five costs
			kept = append(kept, heard)
		}
		return kept
	})
}

// drop forgets the refusals of a key, and those that are under way.
func (r *refusals) drop(key string) { r.keys.Drop(key) }

// is reports whether the refusal is of such an attempt.
func (r *refusal) is(limits []Limit, cost int64) bool {
	return r.cost == cost && slices.Equal(r.limits, limits)
}

// over reports whether the refusal no longer answers attempts now. After a clock is set back it is not known
// how long the refusal lasts.
func (r *refusal) over(now time.Time) bool { return now.Before(r.sent) || !now.Before(r.until) }

// answer fills in the decision. It counts down from when the refusal came, as the client that heard it first
// does: an attempt after that time is not too early.
func (r refusal) answer(d *core.Decision, now time.Time) {
	d.Source, d.Reason = core.SourceRemembered, core.ReasonLimited
	d.Limit, d.Window, d.Remaining = r.max, r.window, r.remaining
	d.RetryAfter = r.retry - max(now.Sub(r.heard), 0)
	d.ResetAfter = d.RetryAfter
}
