package pipeline

import (
	"slices"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// restate is called when the header is about to be sent. It corrects the figures of entries that have failed,
// and lets pages of other origins read what is there.
func (p *Passage) restate() {
	h := p.response.header
	if h == nil {
		return
	}
	if p.response.hinted {
		p.fields.Set(h)
	}
	if slices.ContainsFunc(p.entries, func(e *entry) bool { return e.judged && e.goesBack() }) {
		now := p.figures(p.entries, nil)
		now.Correct(&p.response.fields, h)
		p.response.fields = now
	}
	p.fields.KeepTokens(h)
	answers.Expose(h)
}

// goesBack reports whether all that the entry took, which is judged, will be given back when the handler has
// returned.
func (e *entry) goesBack() bool {
	return !e.kept && !e.spending.told() && e.owner.Load() != ownerTaker &&
		e.decision.Reason == core.ReasonOK && !e.decision.Replayed
}
