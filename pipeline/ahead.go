package pipeline

import (
	"context"
	"net/http"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
)

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

// remembered returns the refusal that the rule's bans or its guard remember for the attempt, or nil.
func (t *turn) remembered(ctx context.Context) *answers.Refusal {
	r := t.rule
	if bans, ok := r.Bans.(kit.Recaller); ok {
		if d, ok := bans.Recall(ctx, t.view.Attempt); ok {
			return r.RefuseBanned(d)
		}
	}
	guard, ok := r.Guard.(kit.Recaller)
	if !ok || t.view.Verdict == mounted.Preflight {
		return nil
	}
	d, ok := guard.Recall(ctx, t.view.Attempt)
	if !ok {
		return nil
	}
	d.Guard = r.Name // a guard of the application may set another name
	if r.OthersOf(&t.view.Attempt) {
		mounted.Soon(&d)
	} else {
		t.strike(ctx, d.Reason)
	}
	return r.Refuse(d.Reason, d)
}

// strike counts a refusal by the guard against the actor. The refusals of a request that was deferred are no
// strikes.
func (t *turn) strike(ctx context.Context, reason core.Reason) {
	if rerunOf(ctx) == nil {
		t.rule.Strike(ctx, t.view.Attempt, reason)
	}
}
