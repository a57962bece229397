package pipeline

import (
	"slices"
	"strconv"

	"github.com/gatehouse-go/gatehouse/core"
)

// restate is called when the header is about to be sent. It corrects the figures of entries that have failed,
// and lets pages of other origins read what is there.
func (p *Passage) restate() {
	h := p.response.header
	if h == nil {
		return
	}
	if p.response.hinted {
		p.setHeaders(h)
	}
	if slices.ContainsFunc(p.entries, func(e *entry) bool { return e.judged && e.goesBack() }) {
		before := p.response.fields
		now := figures(&p.from, p.entries, nil)
		p.response.fields = now
		if i := slices.Index(h[fieldLimit], before.values[1]); i >= 0 && before.values[1] != "" {
			h[fieldLimit] = slices.Clone(h[fieldLimit]) // other headers may have the same values
			h[fieldLimit][i] = now.values[1]
		}
		if l := now.legacy(); l != nil &&
			h.Get(fieldRemaining) == strconv.FormatInt(before.legacy().remaining, 10) {
			h.Del(fieldRemaining) // put keeps the figures of who has less left
			l.put(h)
		}
	}
	p.keepTokens(h)
	expose(h)
}

// goesBack reports whether all that the entry took, which is judged, will be given back when the handler has
// returned.
func (e *entry) goesBack() bool {
	return !e.kept && !e.spending.told() && e.owner.Load() != ownerTaker &&
		e.decision.Reason == core.ReasonOK && !e.decision.Replayed
}

// left returns what is left of a limit of the entry, and whether that is all of it.
func (e *entry) left(limit, remaining int64) (left int64, all bool) {
	if left = max(remaining, 0); !e.judged || !e.goesBack() {
		return left, false
	}
	left = min(left+max(e.decision.Attempt.Cost, 1), limit)
	return left, left == limit
}
