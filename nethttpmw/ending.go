package nethttpmw

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Passage is a request that every rule has let through, until it has been answered. Its methods are for adapters, and may not be called
// at the same time.
//
// When the final status of the answer is about to be sent, each entry is kept or has failed, by this status and by nothing else: see
// Rule.Failed. What is kept and needs a confirmation (core.Traits.Confirms) is confirmed before the header goes out. Where that
// fails, the client hears a refusal in place of the handler's answer: gone, unconfirmed or unavailable. From the first byte of the answer
// on nothing changes what has been decided. What has failed is given back when the passage is left.
type Passage struct {
	request  context.Context
	settling context.Context // the request's without its end: what a request took is settled after it, too
	from     *keyfuncs.Request
	outer    *link // of the middlewares around this one
	entries  []*entry
	fields   fields
	settles  bool

	base   http.ResponseWriter // what the watched writer writes to; nil: nobody watches
	header http.Header         // of the answer
	before http.Header         // what it was before the handler ran
	buffer bool                // the base is a buffer, whose answer leaves only after the handler has returned
	held   held                // the answer that waits for that

	phase  phase
	status int // by which the entries are judged
	heard  int // the status of a refusal that was given in the handler's place
	left   bool

	judging   bool // a Failed of the application's is being asked
	aborted   bool // the handler has not come to its end
	nobody    bool // a passage inside this one has found that nobody answers
	recording *recording
}

// phase is how far the answer has got.
type phase int

const (
	phaseOpen    phase = iota // nothing has been written
	phaseHeld                 // the handler answers, and the answer is held back
	phaseSent                 // it has been decided, and the handler's answer goes out
	phaseRefused              // the rules have answered in the handler's place
)

// held is an answer that is held back.
type held struct {
	status int
	header http.Header
	body   []byte
}

// entry is one decision that has to be settled, by the pipeline or by who takes it.
type entry struct {
	rule     *mounted
	decision core.Decision
	place    core.Place
	owner    atomic.Int32

	kept      bool // the request has not failed
	claimed   bool // nobody else can take it any more
	confirmed bool // it was kept before the header went out
	rest      bool // and more of its outcome is to come
	again     bool // that could not be done, and still has to be: what its outcome tells has happened
}

// Who settles an entry.
const (
	ownerPipeline int32 = iota // will, in the end
	ownerTaker                 // has taken it
	ownerNobody                // it has been settled
)

// claim takes the entry out of everybody's reach but the pipeline's, and reports whether it is the pipeline's to settle.
func (e *entry) claim() bool {
	e.claimed = e.claimed || e.owner.CompareAndSwap(ownerPipeline, ownerNobody)
	return e.claimed
}

// begin is called when the final status is about to be sent. It reports whether the handler's answer goes on to the base.
func (p *Passage) begin(status int) bool {
	switch {
	case p.left || p.phase == phaseSent:
		return true
	case p.phase != phaseOpen:
		return false
	case p.buffer:
		p.phase = phaseHeld
		p.held = held{status: status, header: p.header.Clone()}
		p.recording.begin()
		return false
	}
	return p.decide(status, false)
}

// decide judges the entries by the status, and confirms what needs it. It reports whether the handler's answer goes out; else it has
// answered itself. over says that the answer is known to its end.
func (p *Passage) decide(status int, over bool) bool {
	if p.nobody {
		p.nobody = false
		p.judge(StatusClientGone)
		p.phase = phaseSent
		return true
	}
	p.judge(status)
	if p.phase != phaseHeld {
		p.recording.begin()
	}
	failed, err := p.confirm(over)
	if failed == nil {
		p.phase = phaseSent
		return true
	}
	p.phase = phaseRefused
	for _, e := range p.entries {
		e.kept = e.kept && failed.again // what is kept tells of what the others took
		e.claim()
	}
	p.refuse(failed, reasonOf(err))
	return false
}

// judge says of each entry whether it is kept. Where a Failed of the application's panics, its rule and those after it have failed.
func (p *Passage) judge(status int) {
	p.status, p.judging = status, true
	for _, e := range p.entries {
		e.kept = false
	}
	for _, e := range p.entries {
		// Where nobody was answered there is nothing to keep.
		e.kept = (status != StatusClientGone || !e.rule.keepsOutcome()) && e.rule.keepsOn(status)
	}
	p.judging = false
}

// confirm confirms what is kept and needs it, and stops where that fails. Outcomes go last: who asks again after a crash in between
// shall not hear of a purchase that was not confirmed.
func (p *Passage) confirm(over bool) (failed *entry, err error) {
	for _, outcomes := range []bool{false, true} {
		for _, e := range p.entries {
			traits := &e.rule.traits
			if !e.kept || !traits.Confirms || e.confirmed || e.rule.keepsOutcome() != outcomes || !e.claim() {
				continue
			}
			end := core.Commit
			if outcomes {
				outcome := p.recording.outcome(p.status, traits.MaxBody, over)
				end, e.rest = core.CommitWith(outcome), outcome.Incomplete
			}
			if err := e.rule.Guard.Settle(p.settling, e.decision, end); err != nil {
				e.again = outcomes && !errors.Is(err, core.ErrGone) && !errors.Is(err, core.ErrInvalid)
				return e, err
			}
			e.confirmed = true
		}
	}
	return nil, nil
}

// reasonOf says what the client is told whose claim could not be confirmed.
func reasonOf(err error) core.Reason {
	switch {
	case errors.Is(err, core.ErrGone):
		return core.ReasonGone
	case errors.Is(err, core.ErrUnconfirmed):
		return core.ReasonUnconfirmed
	}
	return ReasonUnavailable
}

// refuse answers in the handler's place, by the entry's rule; nil: by none.
func (p *Passage) refuse(by *entry, reason core.Reason) {
	if p.base == nil {
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
	f.outer = p.outer
	if by != nil {
		f.rule = by.rule
	}
	others := slices.DeleteFunc(slices.Clone(p.entries), func(e *entry) bool { return e == by })
	f.fields = figures(p.from, others, &entry{rule: last.rule})
	p.setHeader(p.before)
	p.heard = f.Status
	f.Answer(watched(p.base, &beginning{tell: func(status int) { p.heard = status }}), p.from.Request)
}

// setHeader makes the header of the answer this one.
func (p *Passage) setHeader(h http.Header) {
	clear(p.header)
	maps.Copy(p.header, h.Clone())
}

// reopen is called when the answer that was about to begin has not: the connection could not be taken over. What was confirmed stays.
func (p *Passage) reopen() {
	if p.phase == phaseSent {
		p.phase = phaseOpen
	}
}

// Leave is called when the handler has returned, and settles the rules. Where nothing has been written, the answer is going to have
// this status, 200 where the framework knows of none; it is confirmed, or refused and answered, as any other. But where in addition
// the request's context is over and the status is 200, nobody has answered: the rules hear StatusClientGone, and the client, who
// may have closed only his side of the connection, 503.
//
// The first call of Leave or Abort counts. It waits for Redis for at most ten times the engine's deadline a rule; what cannot be
// settled in that time is tried again in the background: see core.Place and core.Drain. What goes wrong goes to the engine's observer.
func (p *Passage) Leave(status int) {
	if p.left {
		return
	}
	over := p.request.Err() != nil
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

// Abort is called when the handler does not return: it panics, or its goroutine ends. Where nothing has been sent the request counts as
// 500, or as StatusClientGone where its context is over, and the panic goes on to whoever is around. What has been sent stands.
func (p *Passage) Abort() {
	if p.left {
		return
	}
	p.left, p.aborted = true, true
	defer p.settle() // also when a Failed panics
	if p.phase != phaseOpen && p.phase != phaseHeld || p.judging {
		return
	}
	status := http.StatusInternalServerError
	if p.request.Err() != nil {
		status = StatusClientGone
	}
	p.judge(status)
}

// unanswered is for a request that nobody has answered, or that whoever is around has answered in the handler's place.
func (p *Passage) unanswered() {
	p.judge(StatusClientGone)
	p.phase = phaseRefused
	for l := p.outer; l != nil; l = l.outer {
		if l.passage.request.Err() != nil {
			l.passage.nobody = true
		}
	}
	p.refuse(nil, ReasonUnavailable)
}

// release decides about an answer that was held back, and reports whether it goes out; else the rules have answered. over says that it
// is known to its end.
func (p *Passage) release(over bool) bool {
	p.setHeader(p.held.header)
	p.recording.wrote(p.held.body, nil)
	if !p.decide(p.held.status, over) {
		return false
	}
	p.base.WriteHeader(p.held.status)
	if len(p.held.body) > 0 {
		_, _ = p.base.Write(p.held.body) // the client may have gone
	}
	p.held.body = nil
	return true
}

// settle settles what has not been settled before the header went out. First to last, each of them, even if a guard of the
// application's own panics; outcomes last.
func (p *Passage) settle() {
	for _, outcomes := range []bool{true, false} {
		for _, e := range slices.Backward(p.entries) {
			if e.rule.keepsOutcome() == outcomes {
				defer e.settle(p)
			}
		}
	}
}

func (e *entry) settle(p *Passage) {
	end := core.Rollback
	if e.kept || e.confirmed || e.again {
		end = core.Commit
	}
	if e.rule.keepsOutcome() && e.kept {
		end = core.CommitWith(p.recording.outcome(p.status, e.rule.traits.MaxBody, !p.aborted))
	}
	switch {
	case e.confirmed && e.rest && !p.aborted:
		e.place.Settle(p.settling, e.rule.Guard, e.decision, end)
	case e.again:
		e.place.SettleLater(e.rule.Guard, e.decision, end)
	case !e.confirmed && e.claim():
		e.place.Settle(p.settling, e.rule.Guard, e.decision, end)
	}
	e.place.Free()
}

// giveBack undoes what the entries took, the latest first.
func (p *Passage) giveBack() {
	for _, e := range slices.Backward(p.entries) {
		e.place.Settle(p.settling, e.rule.Guard, e.decision, core.Rollback)
	}
}

// Refused returns the status of the refusal that the rules have given in the handler's place, for frameworks that keep the status of
// the answer themselves; ok is false where they have given none.
func (p *Passage) Refused() (status int, ok bool) { return p.heard, p.heard != 0 }

// Held reports whether the handler's answer is held back until Leave: see Watch.
func (p *Passage) Held() bool { return p.phase == phaseHeld }
