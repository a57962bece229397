package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
)

// turn is the turn of a rule in a request: what the rule makes of the request, and what its bans and its
// guard say. It ends when the next rule has its turn. What the guard took is a claim.
type turn struct {
	rule   *mounted.Rule
	view   mounted.View
	step   step
	barred bool         // its bans were asked
	err    error        // the guard's
	claim  *claim       // nil: the guard is not asked
	since  time.Time    // the check began then
	begun  kit.Prepared // of a guard that is kit.Phased
}

// step is how far a turn has come.
type step uint8

const (
	stepNew      step = iota // neither the bans nor the guard have said anything
	stepBanned               // the bans refuse
	stepBegun                // the guard's check has begun
	stepEnded                // it has ended, and the guard's observer is not told yet
	stepAnswered             // the guard has answered
	stepOver                 // the conclusion is drawn
)

// begin begins the check of the rule's guard, unless that was done, and reports whether the rules behind it
// may go along. A rule that goes along with others (notFirst) asks its bans in its turn, since observers are
// told of that.
func (t *turn) begin(p *Passage, notFirst, notLast bool) (goesAlong bool) {
	t.rule.Look(&p.settling, &p.from, &t.view)
	if t.rule.Bans != nil && !notFirst {
		t.askBans(p)
	}
	switch {
	case t.step != stepNew: // banned, or begun before
	case t.view.Verdict == mounted.Passes, t.view.Verdict == mounted.Preflight:
		return true
	case t.view.Verdict == mounted.Asks:
		t.claim = p.newClaim(t.rule)
		if t.rule.Places { // so that what it takes can be settled however long Redis is unavailable
			if t.err = t.claim.place.Take(); t.err != nil {
				t.step = stepAnswered
				return t.view.Attempt.Shadow
			}
		}
		if t.rule.Phases == nil {
			return false
		}
		t.since = time.Now()
		t.begun = t.rule.Phases.Begin(&p.settling, t.view.Attempt, notFirst, notLast)
		t.step = stepBegun
	}
	return t.begun.Batchable ||
		t.view.Attempt.Shadow && t.view.Verdict != mounted.Refuses && t.begun.Call == nil
}

// askBans asks the rule's bans, unless that was done. If they refuse, the guard is not asked, and what it
// took goes back.
func (t *turn) askBans(p *Passage) {
	if t.barred || t.view.Verdict == mounted.Passes || t.view.Verdict == mounted.Refuses {
		return
	}
	t.barred = true
	d, banned := t.rule.Banned(&p.settling, t.view.Attempt)
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
	t.view.Refusal = t.rule.RefuseBanned(d)
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
	t.err = t.rule.Phases.Observe(&p.settling, "check", t.since, t.claim.decision, t.err)
}

// hear asks the guard, unless that was done.
func (t *turn) hear(p *Passage) {
	switch t.step {
	case stepNew:
		if t.view.Verdict == mounted.Asks {
			t.claim.run = t.rule.Begin(&t.view.Attempt)
			t.step = stepAnswered
			t.claim.decision, t.err = t.rule.Guard.Check(&p.settling, t.view.Attempt)
		}
	case stepBegun:
		t.claim.run = t.rule.Begin(&t.view.Attempt)
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
	switch t.hear(p); {
	case t.step == stepAnswered:
		refusal = t.answer(&p.settling)
	case t.view.Verdict == mounted.Refuses:
		r.Trace(&p.settling, &t.view)
		refusal = t.view.Refusal
	default: // banned, or undecided
		refusal = t.view.Refusal
	}
	if r.Rollout != nil {
		refusal = t.noted(refusal)
	}
	t.step = stepOver
	if t.claim != nil {
		t.keep(p, refusal == nil)
	}
	return refusal
}

// noted has the rule's Rollout count what the rule says, and returns the refusal that is in force.
func (t *turn) noted(refusal *answers.Refusal) *answers.Refusal {
	if !t.rule.Rollout.Note(t.view.Cohort, refusal != nil) {
		return nil
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
	if t.rule.Traits.KeepsOutcome {
		p.record(&t.rule.Traits)
	}
}

// answer makes an answer of the guard's decision. If the guard returned an error, it applies the rule's
// outage policy. A refusal in the shadow has no effect, so it is no strike.
func (t *turn) answer(ctx context.Context) *answers.Refusal {
	r, d, err := t.rule, &t.claim.decision, t.err
	local := err != nil && !errors.Is(err, core.ErrInvalid) && r.Outage() == core.FailLocal
	if local { // the guard decides inside the process, because Redis is unavailable
		*d, err = r.Local.CheckLocal(ctx, t.view.Attempt) // New has checked that it exists
	}
	d.Guard = r.Name // a guard of the application may set another name
	if err != nil {
		return t.answerError(ctx, err)
	}
	switch {
	case d.Allowed && (!d.Replayed || !r.UnderWay(d)):
		return nil
	case d.Allowed:
		t.claim.place.Settle(ctx, r.Guard, *d, core.Rollback)
		d.Allowed, d.Reason, d.RetryAfter = false, core.ReasonInProgress, mounted.UnderWayRetry
	case t.claim.run.Refused():
		mounted.Soon(d)
	case !local && !t.view.Attempt.Shadow: // without Redis, a strike would only wait for it again
		t.strike(ctx, d.Reason)
	}
	return r.Refuse(d.Reason, *d)
}

// answerError makes an answer of an error of the rule's guard.
func (t *turn) answerError(ctx context.Context, err error) *answers.Refusal {
	r, d := t.rule, &t.claim.decision
	switch {
	case errors.Is(err, core.ErrInvalid):
		refused := core.Decision{Guard: r.Name, Reason: answers.ReasonInvalid, Attempt: core.Attempt{
			Shadow: t.view.Attempt.Shadow}}
		kit.Refused(ctx, r.Guard, refused, "guard", "")
		return r.Refuse(answers.ReasonInvalid, *d)
	case r.Outage() == core.FailOpen:
		*d = core.Decision{}
		return nil
	}
	return r.Refuse(answers.ReasonUnavailable, *d)
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
