package pipeline

import (
	"net/http"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

// ask asks the rules in order, and returns the one that refuses the request, if one does.
//
// Rules whose guards are kit.Phased are asked together. Conclusions are drawn in the order of the rules. So a
// rule behind one that refuses has no effect: its bans count no strike, its Rollout counts nothing, observers
// are not told of it, and giveBack returns at once what its guard took.
func (p *Passage) ask(turns []turn) (*mounted.Rule, *answers.Refusal) {
	several := len(turns) > 1
	bodied := several && bodied(&p.from)
	for i := 0; i < len(turns); {
		next := turns[i : i+1]
		if several {
			if rule, refusal := p.lookAhead(i, turns[i:], bodied); refusal != nil {
				return rule, refusal
			}
			next = turns[i : i+max(1, p.pipeline.together(i, bodied))]
		}
		for range p.askSome(next) {
			i++
			if refusal := turns[i-1].conclude(p); refusal != nil {
				return turns[i-1].rule, refusal
			}
		}
	}
	return nil, nil
}

// together returns how many rules from the one at i on may be asked together: none in front of which the
// request's body has to be waited for.
func (p *Pipeline) together(i int, bodied bool) int {
	n := p.rules[i].Together
	for k := 1; bodied && k < n; k++ {
		if p.rules[i+k].ReadsBody {
			return k
		}
	}
	return n
}

// askSome asks the first of the rules, and those behind it that go along, and returns how many these are. A
// guard that is not kit.Phased is asked when its conclusion is drawn.
func (p *Passage) askSome(turns []turn) (asked int) {
	for asked < len(turns) {
		goesAlong := turns[asked].begin(p, asked > 0, asked+1 < len(turns))
		if !goesAlong && asked > 0 {
			break // its turn comes when those in front have answered
		}
		if asked++; !goesAlong {
			break
		}
	}
	var calls []*script.Call
	for i := range turns[:asked] {
		if t := &turns[i]; t.begun.Call != nil {
			t.claim.run = t.rule.Begin(&t.view.Attempt)
			if calls == nil {
				calls = make([]*script.Call, 0, asked-i)
			}
			calls = append(calls, t.begun.Call)
		}
	}
	if len(calls) == 0 {
		return asked
	}
	script.Send(&p.settling, calls...)
	for i := range turns[:asked] {
		if t := &turns[i]; t.begun.Call != nil {
			t.end(p)
		}
	}
	return asked
}

// lookAhead asks what the process remembers of the rules from the one at the given place on, before the first
// of them takes anything. Else a flood that a later rule refuses would cost two calls per request: the
// earlier rules take, and give back.
//
// It stops before a rule that keeps outcomes, since that rule may have a stored answer for the request. It
// stops before a rule that waits for the request's body, since the rules in front may refuse without the
// body. It stops before a rule in the shadow of a Rollout, which has to be asked about each request. It
// also stops at a refusal that needs no memory: its rule refuses when its turn comes.
func (p *Passage) lookAhead(at int, turns []turn, bodied bool) (*mounted.Rule, *answers.Refusal) {
	if !p.pipeline.looksAhead(at, bodied) {
		return nil, nil
	}
	for i := range turns {
		t := &turns[i]
		if t.rule.Traits.KeepsOutcome || i > 0 && bodied && t.rule.ReadsBody {
			break
		}
		if !recalls(t.rule) && t.rule.Rollout == nil {
			continue
		}
		t.rule.Look(&p.settling, &p.from, &t.view)
		if t.view.Verdict == mounted.Refuses || t.view.Cohort == rule.CohortShadowed {
			break
		}
		if t.view.Verdict == mounted.Passes {
			continue
		}
		if refusal := t.remembered(&p.settling); refusal != nil {
			if t.rule.Rollout != nil {
				refusal = t.noted(refusal)
			}
			return t.rule, refusal
		}
	}
	return nil, nil
}

// looksAhead reports whether to look ahead before the rule at i is asked. It does at the first rule, and
// after each rule that keeps outcomes. It also does where the look-ahead has stopped for the request's
// body, if another rule follows.
func (p *Pipeline) looksAhead(i int, bodied bool) bool {
	return i+1 < len(p.rules) && !p.rules[i].Traits.KeepsOutcome &&
		(i == 0 || p.rules[i-1].Traits.KeepsOutcome || bodied && p.rules[i].ReadsBody)
}

// bodied reports whether the request may have a body.
func bodied(req *keyfuncs.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// recalls reports whether the rule's bans or its guard remember anything.
func recalls(r *mounted.Rule) bool {
	_, guard := r.Guard.(kit.Recaller)
	_, bans := r.Bans.(kit.Recaller)
	return guard || bans
}
