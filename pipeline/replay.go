package pipeline

import "github.com/gatehouse-go/gatehouse/pipeline/answers"

// replay returns the answer to a request that repeats an operation which is done, or nil for any other
// request.
func (p *Passage) replay() *answers.Refusal {
	done := p.done()
	if done == nil {
		return nil
	}
	replay := p.refusedBy(answers.Replay(done.rule.Table, done.decision), done.rule)
	if rerun := rerunOf(&p.settling); rerun != nil {
		rerun.decided.Store(true) // its handler ran before
	}
	return replay
}

// done returns the first claim that repeats an attempt which is done, if the request claims nothing else.
func (p *Passage) done() *claim {
	for c := range p.all {
		if c.rule.DoneBefore(&c.decision) {
			if p.allDone() {
				return c
			}
			break
		}
	}
	return nil
}

// allDone reports whether the request claims nothing that is new or has to be confirmed. It is false if the
// operation ended between two claims, such as when its process died: then the handler has to run.
func (p *Passage) allDone() bool {
	return !p.anyClaim(func(c *claim) bool {
		if c.rule.Traits.KeepsOutcome || c.rule.Traits.KeepsOnFailure {
			return false // no claim
		}
		return !c.decision.Kept && (!c.decision.Replayed || c.rule.Traits.Confirms)
	})
}
