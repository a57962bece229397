package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// turn is the turn of a rule in a request: what the rule makes of the request, and what its bans and its
// guard say. It ends when the next rule has its turn. What the guard took is a claim.
type turn struct {
	rule    *mounted
	step    step
	barred  bool // its bans were asked
	cohort  cohort
	attempt core.Attempt
	refusal *answers.Refusal // by a list, or because no attempt could be made
	err     error            // why no attempt could be made, or the guard's
	claim   *claim           // nil: the guard is not asked
	since   time.Time        // the check began then
	begun   kit.Prepared     // of a guard that is kit.Phased
}

// step is how far a turn has come.
type step uint8

const (
	stepNew       step = iota // the rule has not seen the request
	stepReady                 // its bans and its guard have to be asked
	stepPreflight             // a preflight passes unless the bans refuse it
	stepPasses                // undecided: by a list or a Rollout, or because there is nobody to count
	stepRefused               // by a list, or because no attempt could be made
	stepBanned                // the bans refuse
	stepBegun                 // the guard's check has begun
	stepEnded                 // it has ended, and the guard's observer is not told yet
	stepAnswered              // the guard has answered
	stepOver                  // the conclusion is drawn
)

// ask asks the rules in order, and returns the one that refuses the request, if one does.
//
// Rules whose guards are kit.Phased are asked together. Conclusions are drawn in the order of the rules. So a
// rule behind one that refuses has no effect: its bans count no strike, its Rollout counts nothing, observers
// are not told of it, and giveBack returns at once what its guard took.
func (p *Passage) ask(turns []turn) (*mounted, *answers.Refusal) {
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
	n := p.rules[i].together
	for k := 1; bodied && k < n; k++ {
		if p.rules[i+k].readsBody {
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
			t.claim.run = t.rule.begin(&t.attempt)
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

// begin begins the check of the rule's guard, unless that was done, and reports whether the rules behind it
// may go along. A rule that goes along with others (notFirst) asks its bans in its turn, since observers are
// told of that.
func (t *turn) begin(p *Passage, notFirst, notLast bool) (goesAlong bool) {
	t.look(p)
	if t.rule.Bans != nil && !notFirst {
		t.askBans(p)
	}
	switch t.step {
	case stepPasses, stepPreflight:
		return true
	case stepReady:
		t.claim = p.newClaim(t.rule)
		if t.rule.places { // so that what it takes can be settled however long Redis is unavailable
			if t.err = t.claim.place.Take(); t.err != nil {
				t.step = stepAnswered
				return t.attempt.Shadow
			}
		}
		if t.rule.phases == nil {
			return false
		}
		t.since = time.Now()
		t.begun = t.rule.phases.Begin(&p.settling, t.attempt, notFirst, notLast)
		t.step = stepBegun
	default: // refused, banned, or begun before
	}
	return t.begun.Batchable || t.attempt.Shadow && t.step != stepRefused && t.begun.Call == nil
}

// askBans asks the rule's bans, unless that was done. If they refuse, the guard is not asked, and what it
// took goes back.
func (t *turn) askBans(p *Passage) {
	if t.barred || t.step == stepPasses || t.step == stepRefused {
		return
	}
	t.barred = true
	d, banned := t.rule.banned(&p.settling, t.attempt)
	if !banned {
		return
	}
	t.drop(p)
	if t.claim != nil {
		p.settleAll(t.claim.undone(nil))
		t.claim.decision = core.Decision{}
		t.claim.free()
	}
	t.step, t.err, t.begun = stepBanned, nil, kit.Prepared{}
	t.refusal = t.rule.refuseBanned(d)
}

// drop ends a check that was begun and does not count. Observers are told of errors all the same.
func (t *turn) drop(p *Passage) {
	switch {
	case t.step == stepBegun:
		t.begun.Drop()
	case t.step == stepEnded && t.err != nil:
		t.tell(p)
	}
}

// end hears what a guard says whose check has begun.
func (t *turn) end(p *Passage) {
	t.step = stepEnded
	t.claim.decision, t.err = t.begun.End(&p.settling)
}

// tell tells the guard's observer of the check.
func (t *turn) tell(p *Passage) {
	t.step = stepAnswered
	t.err = t.rule.phases.Observe(&p.settling, "check", t.since, t.claim.decision, t.err)
}

// hear asks the guard, unless that was done.
func (t *turn) hear(p *Passage) {
	switch t.step {
	case stepReady:
		t.claim.run = t.rule.begin(&t.attempt)
		t.step = stepAnswered
		t.claim.decision, t.err = t.rule.Guard.Check(&p.settling, t.attempt)
	case stepBegun:
		t.claim.run = t.rule.begin(&t.attempt)
		t.end(p)
		t.tell(p)
	case stepEnded:
		t.tell(p)
	default: // the guard is not asked, or has no place
	}
}

// conclude draws the conclusion from what a rule was asked, and keeps what its guard took. The claim of a
// rule that did not decide is not allowed.
func (t *turn) conclude(p *Passage) (refusal *answers.Refusal) {
	r := t.rule
	if r.Bans != nil {
		t.askBans(p)
	}
	switch t.hear(p); t.step {
	case stepRefused:
		r.traceRefusal(&p.settling, t.refusal.Reason, t.err, t.cohort == cohortShadowed)
		refusal = t.refusal
	case stepBanned:
		refusal = t.refusal
	case stepAnswered:
		refusal = t.answer(&p.settling)
	default: // undecided
	}
	if r.Rollout != nil {
		refusal = r.Rollout.note(t.cohort, refusal)
	}
	t.step = stepOver
	if t.claim != nil {
		t.keep(p, refusal == nil)
	}
	return refusal
}

// keep keeps what the guard took, or frees the claim if it took nothing.
func (t *turn) keep(p *Passage, passes bool) {
	c := t.claim
	if passes && p.outer != nil {
		warnOfTwice(p.outer, t.rule, &c.decision)
	}
	if !c.decision.Allowed {
		c.free()
		return
	}
	c.on(eventAllow)
	if t.rule.traits.KeepsOutcome {
		p.record(&t.rule.traits)
	}
}

// answer makes an answer of the guard's decision. If the guard returned an error, it applies the rule's
// outage policy. A refusal in the shadow has no effect, so it is no strike.
func (t *turn) answer(ctx context.Context) *answers.Refusal {
	r, d, err := t.rule, &t.claim.decision, t.err
	local := err != nil && !errors.Is(err, core.ErrInvalid) && r.outage() == core.FailLocal
	if local { // the guard decides inside the process, because Redis is unavailable
		*d, err = r.local.CheckLocal(ctx, t.attempt) // mount has checked that it exists
	}
	d.Guard = r.name // a guard of the application may set another name
	if err != nil {
		return t.answerError(ctx, err)
	}
	switch {
	case d.Allowed && (!d.Replayed || !r.underWay(d)):
		return nil
	case d.Allowed:
		t.claim.place.Settle(ctx, r.Guard, *d, core.Rollback)
		d.Allowed, d.Reason, d.RetryAfter = false, core.ReasonInProgress, underWayRetry
	case t.claim.run.refused():
		soon(d)
	case !local && !t.attempt.Shadow: // without Redis, a strike would only wait for it again
		r.strike(ctx, t.attempt, d.Reason)
	}
	return r.refuse(d.Reason, *d)
}

// answerError makes an answer of an error of the rule's guard.
func (t *turn) answerError(ctx context.Context, err error) *answers.Refusal {
	r, d := t.rule, &t.claim.decision
	switch {
	case errors.Is(err, core.ErrInvalid):
		r.traceRefusal(ctx, answers.ReasonInvalid, &keyError{field: "guard"}, t.attempt.Shadow)
		return r.refuse(answers.ReasonInvalid, *d)
	case r.outage() == core.FailOpen:
		*d = core.Decision{}
		return nil
	}
	return r.refuse(answers.ReasonUnavailable, *d)
}
