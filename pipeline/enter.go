package pipeline

import (
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// Enter checks the rules in order. First it looks at what the process remembers of them, without a call to
// Redis: if a later rule would refuse the request, the earlier rules take nothing. A rule that reads the
// request's body is looked at, and asked, only when the rules in front have allowed the request. Enter
// returns either a passage, which the adapter must leave, or a refusal, which the adapter must answer with.
// Before it returns a refusal, it gives back what the earlier rules took. Limits may be asked together: see
// Rule.Guard.
//
// The checks go on when the client disconnects: a check that is interrupted might have taken something.
func (p *Pipeline) Enter(r *keyfuncs.Request) (*Passage, *answers.Refusal) {
	passage := newPassage(p, r)
	var few [2]turn // without an allocation
	turns := few[:min(len(p.rules), len(few))]
	if len(p.rules) > len(few) {
		turns = make([]turn, len(p.rules))
	}
	for i, rule := range p.rules {
		turns[i].rule = rule
	}
	entered := false
	defer func() {
		if !entered { // refused, or a key function of the application panics
			passage.giveBack(turns)
		}
	}()
	if p.defers {
		if rule, refusal := passage.deferredBefore(); refusal != nil {
			return nil, passage.refusedBy(refusal, rule)
		}
	}
	if rule, refusal := passage.ask(turns); refusal != nil {
		return nil, passage.refused(rule, refusal)
	}
	if p.replays {
		if replay := passage.replay(); replay != nil {
			return nil, replay
		}
	}
	passage.fields = passage.figures(nil, nil)
	if p.holds {
		passage.hold()
	}
	if p.defers {
		passage.tellRerun()
	}
	entered = true
	return passage, nil
}

// hold makes the handler's context end when a claim of the request is lost. Nobody stops it: it ends with the
// request, and middlewares around the rules may use it until then.
func (p *Passage) hold() {
	for c := range p.all {
		if c.rule.Holder != nil && !c.decision.Attempt.Shadow {
			p.scope.Context, _ = c.rule.Holder.Hold(p.scope.Context, c.decision)
		}
	}
}

// giveBack ends the turns of a request that is refused, and rolls back what its guards took, the latest
// first. Observers are told only of the endings of guards that had their turn.
func (p *Passage) giveBack(turns []turn) {
	for i := range turns {
		turns[i].drop(p)
	}
	var back []settlement
	for i := len(p.claims) - 1; i >= 0; i-- {
		back = p.claims[i].undone(back)
	}
	if len(back) > 0 { // else this is most refusals
		p.settleAll(back)
	}
}
