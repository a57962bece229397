package pipeline

import (
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
)

// StatusClientGone is the status that Rule.Failed gets when nobody answered: the handler returned without
// writing anything and the request's context was over. It also gets it when a handler around the rules,
// such as http.TimeoutHandler, has answered instead. A client that is still connected gets 503 with
// ReasonUnavailable.
const StatusClientGone = 499

// begin is called when the final status is about to be sent. It reports whether the handler's response goes
// on to the base.
func (p *Passage) begin(status int) bool {
	switch {
	case p.left || p.phase == phaseSent:
		return true
	case p.phase != phaseOpen:
		return false
	case p.response.buffer:
		p.phase = phaseHeld
		p.response.held = held{status: status, header: p.response.header.Clone()}
		p.recordHeader()
		return false
	}
	return p.decide(status, false)
}

// decide judges the claims by the status, and confirms those that need it. It reports whether the handler's
// response is sent. If not, decide has written a refusal. over means that the response is complete.
func (p *Passage) decide(status int, over bool) bool {
	if p.nobody {
		p.nobody = false
		p.judge(StatusClientGone)
		p.fields.KeepTokens(p.response.header)
		p.phase = phaseSent
		return true
	}
	p.judge(status)
	if p.phase != phaseHeld {
		p.recordHeader()
	}
	failed, err := p.confirm(over)
	if failed == nil && p.isLost() {
		for c := range p.all {
			c.on(eventLose)
		}
		p.unanswered()
		return false
	}
	if failed == nil {
		p.restate()
		p.phase = phaseSent
		return true
	}
	p.phase = phaseRefused
	for c := range p.all {
		if failed.state() != stateUnsure { // else the outcome that is kept stands for the other claims
			c.on(eventFail)
		}
		c.on(eventClose)
	}
	p.refuse(failed, reasonOf(err))
	return false
}

// isLost reports whether the context ended while a response was confirmed that is sent only after the
// handler has returned. Within http.TimeoutHandler the client then gets 503, so the confirmed claims are
// taken back. A response is not lost if its client named the operation, and so may ask again, or if an
// outcome is kept.
func (p *Passage) isLost() bool {
	return p.response.buffer && p.scope.Err() != nil && !p.anyClaim(func(c *claim) bool {
		return c.isConfirmed() && (c.rule.Traits.KeepsOutcome || !c.decision.Attempt.MadeID())
	})
}

// judge decides for each claim whether it is kept. If a Rule.Failed panics, its rule and the later ones have
// failed.
func (p *Passage) judge(status int) {
	if p.deferred {
		status = deferredStatus
	}
	p.status, p.judging = uint16(status), true
	for c := range p.all {
		c.on(eventFail)
	}
	// If nobody was answered, or the request runs later, there is no outcome to keep.
	none := status == StatusClientGone || p.deferred
	for c := range p.all {
		if (!none || !c.rule.Traits.KeepsOutcome) && c.rule.KeepsOn(status) {
			c.on(eventSucceed)
		}
	}
	p.judging = false
}

// confirm confirms the claims that are kept and need it. It stops at the first failure. Outcomes go last:
// after a crash in between, a repetition must not get the answer of a purchase that was not confirmed.
func (p *Passage) confirm(over bool) (failed *claim, err error) {
	for _, outcomes := range []bool{false, true} {
		if outcomes && p.isLost() {
			break
		}
		for c := range p.all {
			traits := &c.rule.Traits
			if !traits.Confirms || c.rule.Traits.KeepsOutcome != outcomes || !c.isKept() ||
				c.on(eventClose) != stateKeeping {
				continue
			}
			end, done := core.Commit, eventCommit
			if outcomes {
				outcome := p.recording.outcome(int(p.status), traits.MaxBody, over)
				if end = core.CommitWith(outcome); outcome.Pending {
					done = eventBegin
				}
			}
			if err := c.rule.Guard.Settle(&p.settling, c.decision, end); err != nil {
				if outcomes && !errors.Is(err, core.ErrGone) && !errors.Is(err, core.ErrInvalid) {
					c.on(eventMiss)
				}
				return c, err
			}
			c.on(done)
		}
	}
	return nil, nil
}

// reasonOf returns the reason for which a client whose claim could not be confirmed is refused.
func reasonOf(err error) core.Reason {
	switch {
	case errors.Is(err, core.ErrGone):
		return core.ReasonGone
	case errors.Is(err, core.ErrUnconfirmed):
		return core.ReasonUnconfirmed
	}
	return answers.ReasonUnavailable
}

// refuse answers in the handler's place. by is the claim whose rule refuses; nil if no rule does.
func (p *Passage) refuse(by *claim, reason core.Reason) {
	if p.response.base == nil {
		return
	}
	rule, d := p.refusing(by)
	d.Allowed, d.Reason, d.Replayed = false, reason, false
	if d.RetryAfter = 0; reason == core.ReasonUnconfirmed {
		d.RetryAfter = unconfirmedRetry
	}
	f := rule.Refuse(reason, d)
	fields := p.figures(by, &answers.Figure{Source: &rule.Source, Decision: &core.Decision{}})
	if by == nil {
		f.By(nil, p.from.Request, fields)
	} else {
		f.By(&by.rule.Source, p.from.Request, fields)
	}
	p.setHeader(p.response.before)
	p.response.heard = f.Status
	hears := &beginning{tell: func(status int) { p.response.heard = status }}
	f.Answer(watched(p.response.base, hears), p.from.Request)
}

// refusing returns the rule whose texts a refusal has, and its decision: those of the claim, or of the last
// one.
func (p *Passage) refusing(by *claim) (rule *mounted.Rule, d core.Decision) {
	rule = p.pipeline.rules[len(p.pipeline.rules)-1] // if all of them let the request pass undecided
	for c := range p.all {
		rule, d = c.rule, c.decision
		if c == by {
			break
		}
	}
	return rule, d
}

// setHeader replaces the header of the response.
func (p *Passage) setHeader(h http.Header) {
	clear(p.response.header)
	maps.Copy(p.response.header, h.Clone())
}

// reopen is called when the response did not begin after all, because hijacking the connection failed.
// Claims that were confirmed stay confirmed.
func (p *Passage) reopen() {
	if p.phase == phaseSent {
		p.phase = phaseOpen
	}
}

// Leave settles the rules. Call it when the handler has returned. If nothing has been written, status is
// the status that the response will have, or 200 if the framework knows of none. The response is then
// confirmed or refused like any other. If the request's context is over as well and status is 200, nobody
// has answered, so Rule.Failed gets StatusClientGone. A client that closed only its side of the connection
// gets 503.
//
// Only the first call of Leave or Abort has an effect. Leave waits for Redis for at most ten times the
// engine's deadline per rule. What cannot be settled in that time is retried in the background: see
// core.Place and core.Drain. Errors go to the engine's observer.
func (p *Passage) Leave(status int) {
	if p.left {
		return
	}
	if exposing := p.response.exposing; exposing != nil {
		exposing.begin(http.StatusOK) // nothing was sent
	}
	if !p.pipeline.hears && !p.pipeline.settles && p.nothingSpent() {
		p.left = true
		return
	}
	over := p.scope.Err() != nil
	switch {
	case p.phase == phaseOpen && over && status == http.StatusOK, p.phase == phaseHeld && over:
		p.unanswered()
	case p.phase == phaseOpen:
		p.decide(status, true)
	case p.phase == phaseHeld:
		p.release(true)
	}
	p.left = true
	p.settle()
}

// nothingSpent ends the claims of a passage that has nothing to tell its guards. It reports false if a
// handler has said what the request has cost.
func (p *Passage) nothingSpent() bool {
	for c := range p.all {
		if !c.spending.sum.CompareAndSwap(0, -1) {
			return false
		}
		c.on(eventSettle)
	}
	return true
}

// Abort is called when the handler does not return: it panics, or its goroutine exits. If nothing has been
// sent, the request counts as 500, or as StatusClientGone if its context is over. Abort does not recover the
// panic. What has been sent stays decided.
func (p *Passage) Abort() {
	if p.left {
		return
	}
	if exposing := p.response.exposing; exposing != nil {
		exposing.begin(http.StatusOK) // nothing was sent
	}
	p.left, p.aborted = true, true
	defer p.settle() // also if a Rule.Failed panics
	if p.phase != phaseOpen && p.phase != phaseHeld || p.judging {
		return
	}
	status := http.StatusInternalServerError
	if p.scope.Err() != nil {
		status = StatusClientGone
	}
	p.judge(status)
	if p.phase == phaseOpen {
		p.restate() // a recoverer around the rules may answer
	}
}

// unanswered handles a request that nobody has answered, or that a handler around the rules has answered in
// the handler's place.
func (p *Passage) unanswered() {
	p.judge(StatusClientGone)
	p.phase = phaseRefused
	for l := p.outer; l != nil; l = l.outer {
		if l.scope.Err() != nil {
			l.nobody = true
		}
	}
	p.refuse(nil, answers.ReasonUnavailable)
}

// release decides about a response that was held back, and reports whether it is sent. If not, release has
// written a refusal. over means that the response is complete.
func (p *Passage) release(over bool) bool {
	p.setHeader(p.response.held.header)
	if p.recording != nil {
		p.recording.wrote(p.response.held.body, nil)
	}
	if !p.decide(p.response.held.status, over) {
		return false
	}
	p.response.base.WriteHeader(p.response.held.status)
	if len(p.response.held.body) > 0 {
		_, _ = p.response.base.Write(p.response.held.body) // the client may have disconnected
	}
	p.response.held.body = nil
	return true
}

// Refused returns the status of the refusal that replaced the handler's response. It is for frameworks that
// keep the status themselves. ok is false if there was no such refusal.
func (p *Passage) Refused() (status int, ok bool) { return p.response.heard, p.response.heard != 0 }

// Held reports whether the handler's response is held back until Leave: see Watch.
func (p *Passage) Held() bool { return p.phase == phaseHeld }

// deferredStatus is the status that rules around the one that has deferred a request get in place of 202.
const deferredStatus = http.StatusTooManyRequests

// unconfirmedRetry is the Retry-After of a claim that too few replicas have, the same as that of the guards.
const unconfirmedRetry = time.Second
