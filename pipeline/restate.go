package pipeline

import "github.com/gatehouse-go/gatehouse/pipeline/answers"

// restate is called when the header is about to be sent. It corrects the figures of claims that go back,
// and lets pages of other origins read what is there.
func (p *Passage) restate() {
	h := p.response.header
	if h == nil {
		return
	}
	if p.response.hinted {
		p.fields.Set(h)
	}
	if p.anyClaim((*claim).goesBack) {
		now := p.figures(nil, nil)
		now.Correct(&p.response.fields, h)
		p.response.fields = now
	}
	p.fields.KeepTokens(h)
	answers.Expose(h)
}
