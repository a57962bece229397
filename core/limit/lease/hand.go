package lease

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// margin is the part of the time that the process does not use, so that its clock may run a 32nd slower than
// the server's.
const margin = 32

// hand is what the process has in hand for one actor and resource, and what it has learned for the next call.
type hand struct {
	mu    sync.Mutex
	lot   limit.Lot
	all   int64     // units in the lot when the last call had ended
	sent  time.Time // when the call that fetched the lot was sent
	over  time.Time // when the part of the lot has ended, by clocks of one speed
	drops int       // how often the lot was dropped
	gone  bool      // from the map: nobody would give back what it gets

	asking chan struct{} // closed when the call that is under way has ended; nil without one
	part   time.Duration // of its limit
	last   time.Time     // when the last check came
	gap    time.Duration // between checks, on average
	spared bool          // the last call has lent some

	ahead       int64     // units to fetch for a whole part
	probes      bool      // the last call has asked for one, whatever ahead is
	took        int64     // units that the last call has taken
	remaining   int64     // units left in Redis, as it has said
	others, own float64   // units that others and this one have taken of late
	share       float64   // processes that take part, as far as they take as much as this one
	resets      time.Time // when the next unit leaves the window
}

// current reports whether units may be handed out at now. The script ran after the call was sent, so the part
// ends later than by this count. The monotonic clock does not count while the machine is suspended, so the
// wall clock must not say that more has passed either.
func (h *hand) current(now time.Time) bool {
	passed, lasts := now.Sub(h.sent), h.lot.Rest-h.lot.Rest/margin
	return passed >= 0 && passed < lasts && now.Round(0).Sub(h.sent.Round(0)) < lasts
}

func (h *hand) enough(cost int64, of limit.Limit, now time.Time) bool {
	return h.lot.Units >= cost && h.lot.Limit() == of && h.current(now)
}

// has reports whether the units in hand are enough for an attempt.
func (h *hand) has(cost int64, of limit.Limit, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.enough(cost, of, now)
}

// join makes the caller the one that fetches units, or waits for the one that does. It reports whether the
// caller fetches; then it has to call asked.
func (h *hand) join(ctx context.Context, wait time.Duration) (fetches bool) {
	h.mu.Lock()
	asking, spared := h.asking, h.spared
	if asking == nil {
		h.asking = make(chan struct{})
	}
	h.mu.Unlock()
	if asking == nil || !spared {
		return asking == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-asking:
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// asked lets those go on who wait for the call that has ended.
func (h *hand) asked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.asking)
	h.asking = nil
}

// next returns units to give back, since they are over, and how many to ask for: twice as many as before when
// they were used up, half when most of them were not, less in proportion for what is left of the part, and
// one where nobody knows when that ends.
func (h *hand) next(cost int64, of limit.Limit, now time.Time) (over limit.Lot, ahead int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.part = part(of)
	h.came(now)
	var rest time.Duration // of the part
	switch since := now.Sub(h.over); {
	case h.lot.Limit() == of && h.current(now):
		rest = h.lot.Rest - now.Sub(h.sent)
		if h.all > 0 && h.lot.Units < cost {
			h.ahead = min(2*h.ahead, of.Max)
		}
	case since <= 0: // most probably in the same part
		over, rest = h.takeOut(), -since
	case since < h.part/2:
		over, rest = h.takeOut(), h.part-since
	default:
		over = h.takeOut()
	}
	if h.lot.Limit() != of || h.gap > h.part/2 {
		return over, 0
	}
	h.probes = rest == 0
	ahead = int64(float64(h.ahead)*float64(rest)/float64(h.part)) + 1
	return over, min(ahead, h.ahead, int64(float64(h.remaining)/(2*h.share)), of.Max-cost)
}

// came notes a check. Where there are fewer than two in a part, what is fetched ahead costs more calls than
// it spares: it goes back.
func (h *hand) came(now time.Time) {
	passed := min(max(now.Sub(h.last), 0), 4*h.part)
	h.gap += (passed - h.gap) / 8
	h.last = now
}

// takeOut takes the units out of the hand, which keeps the rest of what it knows. The caller holds the lock.
func (h *hand) takeOut() (out limit.Lot) {
	if out = h.lot; h.all > 0 && out.Units > h.all/2 && out.Rest > h.part/8 { // else there was little time
		h.ahead = max(h.ahead/2, 1)
	}
	h.lot.Units, h.all = 0, 0
	return out
}

// dropped returns how often the lot was dropped.
func (h *hand) dropped() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.drops
}

// hear takes what a call has fetched, unless the lot was dropped since it was sent. It returns units to give
// back, which cannot be handed out.
func (h *hand) hear(
	fetched limit.Lot, of limit.Limit, sent, now time.Time, drops int, d *core.Decision,
) (over limit.Lot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.learn(d.Attempt.Cost+fetched.Units, d.Remaining)
	h.spared, h.resets = fetched.Units > 0, now.Add(d.ResetAfter)
	switch {
	case h.drops != drops:
		return over
	case fetched.Rest == 0 || h.gone:
		h.ahead, h.spared = 0, false
		return fetched
	}
	h.ahead = max(h.ahead, 1)
	if h.lot.Limit() == of && samePart(of, h.lot.Stamp, fetched.Stamp) {
		fetched.Units += h.lot.Units
		fetched.Stamp = min(fetched.Stamp, h.lot.Stamp)
	} else {
		over = h.takeOut()
	}
	h.remaining += over.Units
	h.lot, h.all = fetched, fetched.Units
	h.sent, h.over = sent, now.Add(fetched.Rest)
	if h.probes {
		h.all = 0 // nothing to learn from
	}
	return over
}

// learn notes what a call has taken and left. What is missing besides, others have taken.
func (h *hand) learn(took, remaining int64) {
	if others := h.remaining - took - remaining; h.took > 0 && others >= 0 {
		h.others, h.own = 0.8*h.others+float64(others), 0.8*h.own+float64(h.took)
		h.share = 1 + h.others/h.own
	}
	h.took, h.remaining = took, remaining
}

// refused notes that a call has got nothing.
func (h *hand) refused(d core.Decision, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.spared = false; err == nil {
		h.remaining = d.Remaining
	}
}

// count adds what is in hand to what a call has said is left.
func (h *hand) count(d *core.Decision, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.lot.Limit(); h.lot.Units == 0 || of.Max != d.Limit || of.Window != d.Window || !h.current(now) {
		return
	}
	if !d.Allowed {
		d.Allowed, d.Reason, d.Remaining = true, core.ReasonOK, 0
		d.RetryAfter, d.ResetAfter = 0, max(h.resets.Sub(now), 0)
	}
	d.Remaining += h.lot.Units
}

// settle takes units that come back into the hand, if that has others of the same part, which were taken
// before. Those to be charged (units below 0) it takes from the hand, as far as that has them. It returns
// what is left to do in Redis.
func (h *hand) settle(of limit.Limit, stamp, units int64, now time.Time) (rest int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.gone || h.lot.Limit() != of || !h.current(now):
	case units < 0:
		n := min(-units, h.lot.Units)
		h.lot.Units -= n
		return units + n
	case stamp >= h.lot.Stamp && samePart(of, h.lot.Stamp, stamp):
		h.lot.Units += units
		return 0
	}
	return units
}

// samePart reports whether units of the two moments count as taken at the same one.
func samePart(of limit.Limit, one, other int64) bool {
	whole := part(of).Microseconds()
	return (one+whole-1)/whole == (other+whole-1)/whole
}
