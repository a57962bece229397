package pipeline

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
)

// figures makes the fields of the passage's claims, or, after a refusal, those of the rule that refused,
// whose claim is left out.
func (p *Passage) figures(without *claim, refusing *answers.Figure) answers.Fields {
	var few [4]answers.Figure // more are rare
	decided := few[:0]
	for c := range p.all {
		if c != without {
			decided = append(decided,
				answers.Figure{Source: &c.rule.Source, Decision: &c.decision, GoesBack: c.goesBack()})
		}
	}
	var around *answers.Fields
	if p.outer != nil {
		around = &p.outer.fields
	}
	return answers.FieldsOf(&p.from, decided, refusing, around)
}

// refusedBy records in a refusal which rule made it, and the figures for its header.
func (p *Passage) refusedBy(f *answers.Refusal, rule *mounted.Rule) *answers.Refusal {
	d := &f.Decision
	if d.Reason != f.Reason {
		d = &core.Decision{} // the guard has not decided
	}
	refusing := answers.Figure{Source: &rule.Source, Decision: d}
	f.By(&rule.Source, p.from.Request, p.figures(nil, &refusing))
	return f
}

// SetHeaders adds the rules' figures to the header of a response before the handler runs: see
// [answers.Headers]. It keeps what other middlewares have set, and adds the fields of the middlewares around
// this one where they are missing.
func (p *Passage) SetHeaders(h http.Header) {
	p.fields.Set(h)
	answers.Expose(h)
}
