package limit

import (
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/bounded"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// refusals is what this process remembers of the refusals of one limiter, so that who goes on after a refusal is answered
// without asking Redis.
//
// A refusal is certain for the retry-after that came with it, counted from when its call was sent, since the script ran
// later than that. For no algorithm anything that happens meanwhile makes room earlier: units that are taken, also by limits
// with another Max, only make the wait longer, and a clock that is set back makes everybody wait. Room is made by a refund,
// by a reset, by lost data, and by a server's clock that is set forward. The refunds and resets of this process drop what it
// remembers; of all else it hears when the memory of the refusal is over.
//
// A refusal answers attempts of the same cost under the same limits. A smaller cost may fit. A larger one does not, but it
// waits for longer, nobody here knows how long, and a RetryAfter has to be exact. For its sake an attempt that is allowed
// drops the refusals too: they last, but what waits for several units waits for longer now.
type refusals struct {
	most time.Duration // how long one is remembered at most; 0: not at all
	keys *bounded.Map[string, []refusal]
	// drops counts, for each hash of keys, what has made refusals void, so that one that was under way meanwhile is not kept.
	drops [1 << 10]atomic.Uint32
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

// asking is a call that is sent to Redis: what has to be known from before.
type asking struct {
	key   string
	sent  time.Time
	drops uint32
}

func newRefusals(most time.Duration) *refusals {
	return &refusals{most: most, keys: bounded.New[string, []refusal](refusalKeys)}
}

// find returns the refusal that answers an attempt now.
func (r *refusals) find(key string, limits []Limit, cost int64, now time.Time) (refusal, bool) {
	if r.most == 0 {
		return refusal{}, false
	}
	s := r.keys.Of(key)
	s.Lock()
	defer s.Unlock()
	known, _ := s.Get(key)
	for _, one := range known {
		if one.is(limits, cost) && !one.over(now) {
			return one, true
		}
	}
	return refusal{}, false
}

// ask has to be called before a call is sent.
func (r *refusals) ask(key string, now time.Time) asking {
	return asking{key: key, sent: now, drops: r.dropsOf(key).Load()}
}

// hear takes note of what a call has answered.
func (r *refusals) hear(call asking, limits []Limit, d core.Decision, now time.Time) {
	if r.most == 0 {
		return
	}
	if d.Allowed {
		r.drop(call.key)
		return
	}
	heard := refusal{
		limits: limits, cost: d.Attempt.Cost, max: d.Limit, window: d.Window, retry: d.RetryAfter, remaining: d.Remaining,
		sent: call.sent, heard: now, until: call.sent.Add(min(d.RetryAfter, r.most)),
	}
	if heard.over(now) {
		return
	}

	s := r.keys.Of(call.key)
	s.Lock()
	defer s.Unlock()
	if r.dropsOf(call.key).Load() != call.drops {
		return
	}
	known, ok := s.Get(call.key)
	if !ok {
		call.key = strings.Clone(call.key) // it may be a piece of a long text, which would be kept with it
	}
	known = slices.DeleteFunc(known, func(one refusal) bool { return one.over(now) || one.is(limits, heard.cost) })
	if len(known) < refusalCosts { // to make place would be no help: who takes turns at five costs would never find one
		known = append(known, heard)
	}
	s.Add(call.key, known)
}

// drop forgets the refusals of a key, and those that are under way.
func (r *refusals) drop(key string) {
	if r.most == 0 {
		return
	}
	s := r.keys.Of(key)
	s.Lock()
	defer s.Unlock()
	r.dropsOf(key).Add(1)
	s.Remove(key)
}

func (r *refusals) dropsOf(key string) *atomic.Uint32 {
	return &r.drops[r.keys.Hash(key)%uint64(len(r.drops))]
}

// is reports whether the refusal is of such an attempt.
func (r refusal) is(limits []Limit, cost int64) bool {
	return r.cost == cost && slices.Equal(r.limits, limits)
}

// over reports whether the refusal is not to be answered with now. A clock that was set back says nothing of how long it
// lasts.
func (r refusal) over(now time.Time) bool { return now.Before(r.sent) || !now.Before(r.until) }

// answer fills in the decision. It counts down from when the refusal came, as who heard it first does: after that time the
// attempt is not too early.
func (r refusal) answer(d *core.Decision, now time.Time) {
	d.Source, d.Reason = core.SourceRemembered, core.ReasonLimited
	d.Limit, d.Window, d.Remaining = r.max, r.window, r.remaining
	d.RetryAfter = r.retry - max(now.Sub(r.heard), 0)
	d.ResetAfter = d.RetryAfter
}
