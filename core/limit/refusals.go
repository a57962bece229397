package limit

import (
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// refusals remembers the refusals of one limiter in this process, so that clients that continue after a
// refusal are answered without asking Redis.
//
// A refusal is certain for its retry-after, counted from when its call was sent, because the script ran later
// than that. In every algorithm, units that are taken meanwhile, even under limits with another Max, only
// make the wait longer, and so does a clock that is set back. Room is made only by a refund, a reset, lost
// data, or a server's clock that is set forward. The refunds and resets of this process drop the remembered
// refusals. All other events take effect here when the time of the refusal is over.
//
// A refusal answers attempts of the same cost under the same limits. A smaller cost may fit. A larger cost
// does not fit, but its wait is longer and unknown here, and a RetryAfter has to be exact. For the same
// reason an allowed attempt drops the refusals of its key: they still hold, but the wait for several units is
// now longer.
type refusals struct {
	keys *kit.Recall[string, []refusal] // each refusal has its own end, so find uses Last and checks it
	// part says that a refusal is forgotten after a part of its window: see [SlidingWindow.Ahead].
	part bool
}

const (
	// refusalKeys is the number of keys whose refusals are remembered.
	refusalKeys = 1 << 16
	// refusalCosts is the number of different costs per key whose refusals are remembered.
	refusalCosts = 4
)

// refusal is the answer of Redis to an attempt of this cost under these limits.
type refusal struct {
	limits        []Limit
	cost          int64
	max           int64
	window, retry time.Duration
	remaining     int64
	sent, heard   time.Time // when the call was sent, and when the reply arrived
	until         time.Time // when the refusal is forgotten
}

// newRefusals returns a memory that holds each refusal for longest at most.
func newRefusals(longest time.Duration) *refusals {
	return &refusals{keys: kit.NewRecall[string, []refusal](refusalKeys, longest)}
}

// knows reports whether any refusal of the key is held, current or not.
func (r *refusals) knows(key string) bool {
	_, ok := r.keys.Last(key)
	return ok
}

// find returns the refusal that answers an attempt at now.
func (r *refusals) find(key string, limits []Limit, cost int64, now time.Time) (refusal, bool) {
	known, _ := r.keys.Last(key)
	for i := range known {
		if one := &known[i]; one.is(limits, cost) && !one.over(now) {
			return *one, true
		}
	}
	return refusal{}, false
}

// ask notes that a call is about to be sent. hear needs what it returns.
func (r *refusals) ask(key string, now time.Time) kit.Asked[string] { return r.keys.Ask(key, now) }

// hear remembers what a call has answered.
func (r *refusals) hear(call kit.Asked[string], limits []Limit, d core.Decision, now time.Time) {
	if d.Allowed {
		r.drop(call.Key)
		return
	}
	lasts := r.certain(limits, min(d.RetryAfter, r.keys.Longest()))
	heard := refusal{
		limits: limits, cost: d.Attempt.Cost, max: d.Limit, window: d.Window,
		retry: d.RetryAfter, remaining: d.Remaining,
		sent: call.At, heard: now, until: call.At.Add(lasts),
	}
	if heard.over(now) {
		return
	}
	r.keys.Merge(call, lasts, func(known []refusal, _ bool) []refusal {
		kept := make([]refusal, 0, min(len(known)+1, refusalCosts))
		for _, one := range known {
			if !one.over(now) && !one.is(limits, heard.cost) {
				kept = append(kept, one)
			}
		}
		if len(kept) < refusalCosts { // eviction would not help a client that cycles through five costs
			kept = append(kept, heard)
		}
		return kept
	})
}

// certain returns for how long of that time a refusal under the limits holds.
func (r *refusals) certain(limits []Limit, lasts time.Duration) time.Duration {
	if r.part && limits[0].Resolution > 0 { // other processes give back what they have in hand
		return min(lasts, script.DurationOf(limits[0].grain(), time.Microsecond))
	}
	return lasts
}

// drop forgets the refusals of a key, and voids those whose replies are still on their way.
func (r *refusals) drop(key string) { r.keys.Drop(key) }

// is reports whether the refusal answers attempts of this cost under these limits.
func (r *refusal) is(limits []Limit, cost int64) bool {
	return r.cost == cost && slices.Equal(r.limits, limits)
}

// over reports whether the refusal no longer answers attempts at now. It does not after the clock was set
// back past its begin, because nobody knows how long it lasts then.
func (r *refusal) over(now time.Time) bool { return now.Before(r.sent) || !now.Before(r.until) }

// answer writes the refusal into d. RetryAfter counts down from when the reply arrived, as it does for the
// client that received it: an attempt at its end is not too early.
func (r refusal) answer(d *core.Decision, now time.Time) {
	d.Source, d.Reason = core.SourceRemembered, core.ReasonLimited
	d.Limit, d.Window, d.Remaining = r.max, r.window, r.remaining
	d.RetryAfter = r.retry - max(now.Sub(r.heard), 0)
	d.ResetAfter = d.RetryAfter
}
