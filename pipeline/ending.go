package pipeline

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/pipeline/answers"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Passage is a request that all rules have let through, until it has been answered. Its methods are for
// adapters. They must not be called concurrently.
//
// The final status of the response, just before it is sent, alone decides whether an entry is kept or has
// failed: see Rule.Failed. An entry that is kept and needs a confirmation (core.Traits.Confirms) is
// confirmed before the header is sent. If that fails, the client gets a refusal instead of the handler's
// response: gone, unconfirmed or unavailable. After the first byte of the response nothing changes these
// decisions. Entries that failed are given back when the adapter leaves the passage.
type Passage struct {
	scope    scope
	settling detached         // the request's context without its cancellation
	from     keyfuncs.Request // a copy, so that the adapter's costs no allocation
	pipeline *Pipeline
	outer    *Passage       // the passage of the middleware around this one
	fields   answers.Fields // read also by a handler that outlasts its http.TimeoutHandler
	entries  []*entry
	few      [1]*entry // room for entries without an allocation
	first    entry

	response  *response // from Watch on, if it is watched; else unwatched
	recording *recording

	status  uint16 // decides about the entries; 16 bits, since each request has a passage
	phase   phase
	left    bool
	judging bool // a Rule.Failed is running
	aborted bool // the handler did not return
	nobody  bool // a passage inside this one has found that nobody answered

	deferred bool // a passage inside this one has deferred the request, so that the handler does not run
}

// response is what a passage has to know of a response that is watched. All but exposing is for rules that
// depend on how it ends.
type response struct {
	base   http.ResponseWriter // the writer behind the watched one; nil: Watch was not called
	header http.Header         // the header of the response
	before http.Header         // the header before the handler ran
	fields answers.Fields      // of the passage, as they are in the header
	buffer bool                // the base is a buffer: it sends the response after the handler has returned
	held   held                // the response that waits for that
	hinted bool                // an informational answer was sent, after which the header may have been emptied
	heard  int                 // the status of a refusal that replaced the handler's response

	exposing *beginning // exposes the fields to a page of another origin, if no rule settles
}

// unwatched is the response of passages that need not see it. It stays zero.
var unwatched response

// phase is the progress of the response.
type phase uint8

const (
	phaseOpen    phase = iota // nothing has been written
	phaseHeld                 // the handler has begun its response, which is held back
	phaseSent                 // the entries are decided, and the handler's response is sent
	phaseRefused              // a refusal has replaced the handler's response
)

// held is a response that is held back.
type held struct {
	status int
	header http.Header
	body   []byte
}

// entry is a decision that has to be settled, by the pipeline or by the caller of Take.
type entry struct {
	rule     *mounted
	decision core.Decision
	run      *run // nil: see runsOf
	place    kit.Place
	owner    atomic.Int32
	spending spending

	kept      bool // the request has not failed
	judged    bool // kept is known
	claimed   bool // Take cannot take it any more
	settled   bool
	confirmed bool // it was committed before the header was sent
	revoked   bool // and nobody heard of it
	rest      bool // the committed outcome was pending
	again     bool // the commit failed and must be repeated: the operation has been done
}

// The owner of an entry settles it.
const (
	ownerPipeline int32 = iota // the pipeline, when the request ends
	ownerTaker                 // the caller of Take
	ownerNobody                // nobody: it has been settled
)

// freeUnlessAllowed frees the place of an entry whose guard took nothing.
func (e *entry) freeUnlessAllowed() {
	if !e.decision.Allowed {
		e.free()
	}
}

// free is called when the entry has ended.
func (e *entry) free() {
	e.place.Free()
	e.run.end()
}

// takePlace reserves a place for a claim before its guard is asked, so that what it takes can be settled
// however long Redis is unavailable.
func (e *entry) takePlace() error {
	if e.rule.traits.KeepsOnFailure {
		return nil
	}
	return e.place.Take()
}

// claim reserves the entry for the pipeline, and reports whether the pipeline is to settle it.
func (e *entry) claim() bool {
	e.claimed = e.claimed || e.owner.CompareAndSwap(ownerPipeline, ownerNobody)
	return e.claimed
}

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

// decide judges the entries by the status, and confirms those that need it. It reports whether the handler's
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
		for _, e := range p.entries {
			e.revoked = e.confirmed
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
	for _, e := range p.entries {
		e.kept = e.kept && failed.again // a kept outcome stands for the claims of the other entries
		e.claim()
	}
	p.refuse(failed, reasonOf(err))
	return false
}

// isLost reports whether the context ended while a response was confirmed that is sent only after the
// handler has returned. Within http.TimeoutHandler the client then gets 503, so the confirmed claims are
// taken back. A response is not lost if its client named the operation, and so may ask again, or if an
// outcome is kept.
func (p *Passage) isLost() bool {
	return p.response.buffer && p.scope.Err() != nil && !slices.ContainsFunc(p.entries, func(e *entry) bool {
		return e.confirmed && (e.rule.keepsOutcome() || !e.decision.Attempt.MadeID())
	})
}

// judge decides for each entry whether it is kept. If a Rule.Failed panics, its rule and the later ones have
// failed.
func (p *Passage) judge(status int) {
	if p.deferred {
		status = deferredStatus
	}
	p.status, p.judging = uint16(status), true
	for _, e := range p.entries {
		e.kept = false
	}
	for _, e := range p.entries {
		// If nobody was answered, or the request runs later, there is no outcome to keep.
		e.judged = true
		none := status == StatusClientGone || p.deferred
		e.kept = (!none || !e.rule.keepsOutcome()) && e.rule.keepsOn(status)
	}
	p.judging = false
}

// confirm confirms the entries that are kept and need it. It stops at the first failure. Outcomes go last:
// after a crash in between, a repetition must not get the answer of a purchase that was not confirmed.
func (p *Passage) confirm(over bool) (failed *entry, err error) {
	for _, outcomes := range []bool{false, true} {
		if outcomes && p.isLost() {
			break
		}
		for _, e := range p.entries {
			traits := &e.rule.traits
			if !e.kept || !traits.Confirms || e.confirmed || e.rule.keepsOutcome() != outcomes || !e.claim() {
				continue
			}
			end := core.Commit
			if outcomes {
				outcome := p.recording.outcome(int(p.status), traits.MaxBody, over)
				end, e.rest = core.CommitWith(outcome), outcome.Pending
			}
			if err := e.rule.Guard.Settle(&p.settling, e.decision, end); err != nil {
				e.again = outcomes && !errors.Is(err, core.ErrGone) && !errors.Is(err, core.ErrInvalid)
				return e, err
			}
			e.confirmed = true
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

// refuse answers in the handler's place. by is the entry whose rule refuses; nil if no rule does.
func (p *Passage) refuse(by *entry, reason core.Reason) {
	if p.response.base == nil {
		return
	}
	last := p.entries[len(p.entries)-1]
	if by != nil {
		last = by
	}
	d := last.decision
	d.Allowed, d.Reason, d.Replayed = false, reason, false
	if d.RetryAfter = 0; reason == core.ReasonUnconfirmed {
		d.RetryAfter = unconfirmedRetry
	}
	f := last.rule.refuse(reason, d)
	others := slices.DeleteFunc(slices.Clone(p.entries), func(e *entry) bool { return e == by })
	fields := p.figures(others, &answers.Figure{Source: &last.rule.source, Decision: &core.Decision{}})
	if by == nil {
		f.By(nil, p.from.Request, fields)
	} else {
		f.By(&by.rule.source, p.from.Request, fields)
	}
	p.setHeader(p.response.before)
	p.response.heard = f.Status
	hears := &beginning{tell: func(status int) { p.response.heard = status }}
	f.Answer(watched(p.response.base, hears), p.from.Request)
}

// setHeader replaces the header of the response.
func (p *Passage) setHeader(h http.Header) {
	clear(p.response.header)
	maps.Copy(p.response.header, h.Clone())
}

// reopen is called when the response did not begin after all, because hijacking the connection failed.
// Entries that were confirmed stay confirmed.
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
// kit.Place and core.Drain. Errors go to the engine's observer.
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

// nothingSpent ends the entries of a passage that has nothing to tell its guards. It reports false if a
// handler has said what the request has cost.
func (p *Passage) nothingSpent() bool {
	for _, e := range p.entries {
		if !e.spending.sum.CompareAndSwap(0, -1) {
			return false
		}
		e.owner.CompareAndSwap(ownerPipeline, ownerNobody)
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

// settle settles the entries that were not settled before the header was sent: first those that are given
// back together, then the others in the order of the rules, outcomes last.
func (p *Passage) settle() {
	defer p.settleFrom(0) // also if a guard of the application panics
	p.settleTogether()
}

// settleFrom goes through the entries twice, counted by i, and settles those that keep outcomes the second
// time. It reaches every entry even if a guard of the application panics.
func (p *Passage) settleFrom(i int) {
	n := len(p.entries)
	defer func() {
		if i < 2*n { // it panics
			p.settleFrom(i + 1)
		}
	}()
	for ; i < 2*n; i++ {
		if e := p.entries[i%n]; e.rule.keepsOutcome() == (i >= n) {
			e.settle(&p.settling, p)
		}
	}
}

func (e *entry) settle(ctx context.Context, p *Passage) {
	if e.settled {
		return
	}
	e.settled = true
	defer e.free()
	end := e.ending(p)
	switch {
	case e.revoked, e.confirmed && e.rest:
		e.place.Settle(ctx, e.rule.Guard, e.decision, end)
	case e.again:
		e.place.SettleLater(e.rule.Guard, e.decision, end)
	case !e.confirmed && e.claim():
		e.place.Settle(ctx, e.rule.Guard, e.decision, end)
	}
}

// ending returns how the attempt ended.
func (e *entry) ending(p *Passage) core.Ending {
	if sum, told := e.spending.end(); told { // spent units stay spent, also if the request failed
		return core.CommitCost(sum)
	}
	if e.rule.keepsOutcome() && e.kept {
		outcome := p.recording.outcome(int(p.status), e.rule.traits.MaxBody, !p.aborted)
		outcome.Pending = false // whatever is missing will not come
		return core.CommitWith(outcome)
	}
	switch {
	case e.revoked:
		return core.Revoke
	case e.kept, e.confirmed, e.again:
		return core.Commit
	}
	return core.Rollback
}

// Refused returns the status of the refusal that replaced the handler's response. It is for frameworks that
// keep the status themselves. ok is false if there was no such refusal.
func (p *Passage) Refused() (status int, ok bool) { return p.response.heard, p.response.heard != 0 }

// Held reports whether the handler's response is held back until Leave: see Watch.
func (p *Passage) Held() bool { return p.phase == phaseHeld }
