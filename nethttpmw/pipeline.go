package nethttpmw

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Pipeline takes requests through a list of rules: check, answer, settle. Applications use it through HTTP, ginmw.Gin and
// echomw.Echo; it is exported for adapters to other frameworks, which only have to translate:
//
//	passage, refusal := pipeline.Enter(&keyfuncs.Request{Request: r, Facts: ...})
//	if refusal != nil {
//		refusal.Answer(w, r)
//		return
//	}
//	passage.SetHeaders(w.Header())
//	defer passage.Leave(http.StatusInternalServerError) // counts when the handler panics
//	w, status := passage.Watch(w)
//	next(w, r.WithContext(passage.Context()))
//	passage.Leave(status())
type Pipeline struct {
	rules   []Rule
	settles bool
}

// NewPipeline makes a pipeline of rules. It panics on rules that can not work, with what to do about it.
func NewPipeline(rules ...Rule) *Pipeline {
	if len(rules) == 0 {
		panic("gatehouse: a middleware without rules guards nothing: give it at least one")
	}
	p := &Pipeline{rules: append([]Rule(nil), rules...)}
	seen := map[string]bool{}
	for i := range p.rules {
		rule := &p.rules[i]
		if err := rule.check(); err != nil {
			name := "no guard"
			if rule.Guard != nil {
				name = fmt.Sprintf("guard %q", rule.Guard.Name())
			}
			panic(fmt.Sprintf("gatehouse: rule %d (%s) %v", i+1, name, err))
		}
		if name := rule.Guard.Name(); seen[name] {
			panic(fmt.Sprintf("gatehouse: two rules of one middleware have a guard named %q, which would count a request twice, "+
				"or, of another engine, could not be told from the first: make a second guard with a name of its own", name))
		} else {
			seen[name] = true
		}
		p.settles = p.settles || rule.settles()
	}
	return p
}

// Settles reports whether any rule wants to know the status that a request ends with. Where none does, an adapter need not
// find it out.
func (p *Pipeline) Settles() bool { return p.settles }

// Enter checks the rules in order. It returns either a passage, which the adapter has to leave in the end, or a refusal,
// which it has to reply with: then what the rules before the refusing one had taken has been given back.
//
// The checks do not stop when the client goes: a check that was given up half-way might have taken something.
func (p *Pipeline) Enter(r *keyfuncs.Request) (*Passage, *Refusal) {
	passage := &Passage{request: r.Context(), settling: context.WithoutCancel(r.Context())}
	passage.outer, _ = passage.request.Value(passageKey{}).(*link)
	entered := false
	defer func() {
		if !entered { // refused, or a key function of the application's panics
			passage.giveBack()
		}
	}()
	for i := range p.rules {
		rule := &p.rules[i]
		d, refusal := rule.enter(passage.settling, r)
		if refusal != nil {
			passage.outer.warnOfTwice(refusal.Decision)
			refusal.by(rule, r, passage)
			return nil, refusal
		}
		passage.outer.warnOfTwice(d)
		if d.Allowed {
			passage.entries = append(passage.entries, &entry{rule: rule, decision: d})
			passage.record(rule, d)
		}
	}
	passage.fields = figures(r, passage.entries, nil)
	entered = true
	return passage, nil
}

// enter checks one rule, for those whom it is rolled out for. The decision is not allowed, and there is no refusal, where the
// rule lets pass what it does not decide, and what it would have refused.
func (r *Rule) enter(ctx context.Context, req *keyfuncs.Request) (d core.Decision, refusal *Refusal) {
	fate := r.fate(req)
	if fate != fateSkipped {
		d, refusal = r.decide(ctx, req, fate == fateShadowed)
	}
	return d, r.Rollout.note(fate, refusal)
}

// decide asks the rule: its lists, its bans, its guard. In the shadow nothing follows from a refusal, so it is no strike either.
func (r *Rule) decide(ctx context.Context, req *keyfuncs.Request, shadow bool) (core.Decision, *Refusal) {
	denied, allowed, err := r.listed(req)
	switch {
	case err != nil:
		return core.Decision{}, r.refuseKey(ctx, err)
	case denied:
		return core.Decision{}, refuse(ReasonDenied, core.Decision{Guard: r.Guard.Name()})
	case allowed:
		return core.Decision{}, nil
	}
	a, err := r.attempt(req)
	switch {
	case errors.Is(err, errNobody) && r.NoKey == NoKeySkip:
		return core.Decision{}, nil
	case err != nil:
		return core.Decision{}, r.refuseKey(ctx, err)
	}
	a.Shadow = shadow
	if d, banned := r.banned(ctx, a); banned {
		return d, refuse(d.Reason, d)
	}

	d, err := r.Guard.Check(ctx, a)
	local := err != nil && !errors.Is(err, core.ErrInvalidAttempt) && r.outage() == core.OutageLocal
	if local {
		d, err = r.Guard.(core.LocalGuard).CheckLocal(ctx, a) // NewPipeline has seen that it is one
	}
	d.Guard = r.Guard.Name() // whatever a guard of the application's own says
	switch {
	case errors.Is(err, core.ErrInvalidAttempt):
		return d, refuse(ReasonInvalid, d)
	case err != nil && r.outage() == core.OutageOpen:
		return core.Decision{}, nil
	case err != nil:
		return d, refuse(ReasonUnavailable, d)
	case !d.Allowed:
		if !local && !shadow { // where Redis could not be asked, a strike would but wait for it once more
			r.strike(ctx, a, d.Reason)
		}
		return d, refuse(d.Reason, d)
	}
	return d, nil
}

// refuseKey answers a request out of which no attempt could be made.
func (r *Rule) refuseKey(ctx context.Context, err error) *Refusal {
	reason := ReasonUnavailable
	switch {
	case errors.Is(err, core.ErrInvalidAttempt):
		reason = ReasonInvalid
	case errors.Is(err, keyfuncs.ErrMissing), errors.Is(err, keyfuncs.ErrRequired):
		reason = ReasonNoKey
	case errors.Is(err, keyfuncs.ErrMalformed):
		reason = ReasonMalformed
	default: // a function of the application's own could not do its work: not the client's fault
		slog.ErrorContext(ctx, "gatehouse: a key function failed", "guard", r.Guard.Name(), "err", err)
	}
	return refuse(reason, core.Decision{Guard: r.Guard.Name()})
}

// Passage is a request that every rule has let through.
type Passage struct {
	request  context.Context
	settling context.Context // the request's without its end: what a request took is settled after it, too
	outer    *link           // of the middlewares around this one
	entries  []*entry
	fields   fields
	answered bool // the header has been sent
	gone     bool // the client was gone by then
	left     bool

	recording *recording // of the answer; nil: no rule wants one
}

// entry is one decision that has to be settled, by the pipeline or by who takes it.
type entry struct {
	rule     *Rule
	decision core.Decision
	owner    atomic.Int32
}

// Who settles an entry.
const (
	ownerPipeline int32 = iota // will, in the end
	ownerTaker                 // has taken it
	ownerNobody                // it has been settled
)

// Answering tells the passage that the header of the answer is about to be sent. A client who goes later has had his answer,
// or at least the chance; one who was gone by then has not: the request has failed, whatever the answer. (The same holds for a
// context that ended in another way, such as a time-out.) Without a call, that is judged when the passage is left.
func (p *Passage) Answering() {
	if !p.answered {
		p.answered, p.gone = true, p.request.Err() != nil
		p.recording.begin()
	}
}

// Leave settles the rules with the status that the request ended with: 500 for a panic. The first call counts. It waits for
// Redis for at most ten times the engine's deadline a rule; what can not be settled in that time is tried again in the
// background: see core.Drain. What goes wrong goes to the engine's observer.
func (p *Passage) Leave(status int) {
	if p.left {
		return
	}
	p.left = true
	answered := p.answered || status != http.StatusOK // by the handler, and not by having nothing to say
	p.Answering()
	if hears := !p.gone || answered && p.retells(); !hears {
		status = StatusClientGone
	}
	// First to last, each of them, even if a Failed of the application's panics. Outcomes go last: who asks again after a crash in
	// between shall not hear of a purchase that was not confirmed.
	for _, outcomes := range []bool{true, false} {
		for _, e := range slices.Backward(p.entries) {
			if e.rule.keepsOutcome() == outcomes {
				defer e.leave(p, status)
			}
		}
	}
}

func (e *entry) leave(p *Passage, status int) {
	kept := false
	defer func() {
		if e.owner.CompareAndSwap(ownerPipeline, ownerNobody) {
			d := e.decision
			if traits := e.rule.Guard.Traits(); kept && traits.KeepsOutcome {
				d.Outcome = p.recording.outcome(status, traits.MaxBody)
			}
			settle(p.settling, e.rule.Guard, d, kept)
		}
	}()
	if status == StatusClientGone && e.rule.keepsOutcome() {
		return // nobody was answered, so there is nothing to keep
	}
	kept = e.rule.keepsOn(status)
}

// giveBack undoes what the entries took, the latest first.
func (p *Passage) giveBack() {
	for _, e := range slices.Backward(p.entries) {
		settle(p.settling, e.rule.Guard, e.decision, false)
	}
}

// passageKey is where a request's context has the innermost passage.
type passageKey struct{}

// link chains the passages of middlewares that are mounted one inside the other.
type link struct {
	passage *Passage
	outer   *link
}

// Context returns the request's context with the decisions in it.
func (p *Passage) Context() context.Context {
	return context.WithValue(p.request, passageKey{}, &link{passage: p, outer: p.outer})
}

// warnOfTwice warns where a middleware around this one has asked the same guard for the same attempt: a limit counts such a
// request twice, and a claim refuses each as a duplicate of itself.
func (l *link) warnOfTwice(d core.Decision) {
	if l == nil {
		return
	}
	if e := l.find(d.Guard); e != nil && e.decision.Attempt.Actor == d.Attempt.Actor && e.decision.Attempt.Resource == d.Attempt.Resource {
		warn.Twice.Tell(l.passage.request, d.Guard, "guard", d.Guard)
	}
}

func find(ctx context.Context, guard string) *entry {
	l, _ := ctx.Value(passageKey{}).(*link)
	return l.find(guard)
}

func (l *link) find(guard string) *entry {
	for ; l != nil; l = l.outer {
		for _, e := range l.passage.entries {
			if e.decision.Guard == guard {
				return e
			}
		}
	}
	return nil
}

// Decision returns what the guard of this name has decided about the request with this context. There is none when the
// guard has no rule on the route, or the rule let the request pass undecided.
func Decision(ctx context.Context, guard string) (core.Decision, bool) {
	e := find(ctx, guard)
	if e == nil {
		return core.Decision{}, false
	}
	return e.decision, true
}

// Take returns the decision of the guard of this name and takes it out of the pipeline's hands: the handler, or whoever it
// passes the decision on to, settles it. That is for a purchase that is paid later: keep the decision's Attempt.Resource
// and Attempt.ID with the order and call Seckill.Confirm or Seckill.Cancel when it is paid or not.
//
// After the request has ended there is nothing to take: it has been settled.
func Take(ctx context.Context, guard string) (core.Decision, bool) {
	e := find(ctx, guard)
	if e == nil || !e.owner.CompareAndSwap(ownerPipeline, ownerTaker) && e.owner.Load() != ownerTaker {
		return core.Decision{}, false
	}
	return e.decision, true
}
