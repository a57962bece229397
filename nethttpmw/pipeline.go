package nethttpmw

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Pipeline takes requests through a list of rules: check, confirm, answer, settle. Applications use it through HTTP, ginmw.Gin and
// echomw.Echo; it is exported for adapters to other frameworks, which only have to translate:
//
//	passage, refusal := pipeline.Enter(&keyfuncs.Request{Request: r, Facts: ...})
//	if refusal != nil {
//		refusal.Answer(w, r)
//		return
//	}
//	defer passage.Abort() // counts when the handler panics
//	next(passage.Watch(w), r.WithContext(passage.Context()))
//	passage.Leave(http.StatusOK)
//
// How requests end, and what that makes of their attempts, is a table in docs/contracts.md.
type Pipeline struct {
	rules   []*mounted
	settles bool
}

// NewPipeline makes a pipeline of rules. It panics on rules that can not work, with what to do about it.
func NewPipeline(rules ...Rule) *Pipeline {
	if len(rules) == 0 {
		panic("gatehouse: a middleware without rules guards nothing: give it at least one")
	}
	p := &Pipeline{rules: make([]*mounted, len(rules))}
	seen := map[string]bool{}
	for i := range rules {
		rule, err := mount(rules[i])
		if err != nil {
			name := "no guard"
			if rules[i].Guard != nil {
				name = fmt.Sprintf("guard %q", rules[i].Guard.Name())
			}
			panic(fmt.Sprintf("gatehouse: rule %d (%s) %v", i+1, name, err))
		}
		if seen[rule.name] {
			panic(fmt.Sprintf("gatehouse: two rules of one middleware have a guard named %q, which would count a request twice, "+
				"or, of another engine, could not be told from the first: make a second guard with a name of its own", rule.name))
		}
		seen[rule.name] = true
		p.settles = p.settles || rule.settles()
		p.rules[i] = rule
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
	passage := &Passage{request: r.Context(), settling: context.WithoutCancel(r.Context()), from: r, settles: p.settles}
	passage.outer, _ = passage.request.Value(passageKey{}).(*link)
	entered := false
	defer func() {
		if !entered { // refused, or a key function of the application's panics
			passage.giveBack()
		}
	}()
	for _, rule := range p.rules {
		var place core.Place
		d, refusal := rule.enter(passage.settling, r, &place)
		if refusal != nil {
			passage.outer.warnOfTwice(rule, refusal.Decision)
			refusal.by(rule, r, passage)
			return nil, refusal
		}
		passage.outer.warnOfTwice(rule, d)
		if d.Allowed {
			passage.entries = append(passage.entries, &entry{rule: rule, decision: d, place: place})
			passage.record(rule)
		}
	}
	passage.fields = figures(r, passage.entries, nil)
	entered = true
	return passage, nil
}

// enter checks one rule, for those whom it is rolled out for. The decision is not allowed, and there is no refusal, where the
// rule lets pass what it does not decide, and what it would have refused.
func (r *mounted) enter(
	ctx context.Context, req *keyfuncs.Request, place *core.Place,
) (d core.Decision, refusal *Refusal) {
	defer func() {
		if !d.Allowed {
			place.Free() // also when a function of the application's panics
		}
	}()
	cohort := r.cohort(req)
	if cohort != cohortSkipped {
		d, refusal = r.decide(ctx, req, place, cohort == cohortShadowed)
	}
	return d, r.Rollout.note(cohort, refusal)
}

// decide asks the rule: its lists, its bans, its guard.
func (r *mounted) decide(
	ctx context.Context, req *keyfuncs.Request, place *core.Place, shadow bool,
) (core.Decision, *Refusal) {
	denied, allowed, err := r.listed(req)
	switch {
	case err != nil:
		return core.Decision{}, r.refuseKey(ctx, err)
	case denied:
		return core.Decision{}, r.refuse(ReasonDenied, core.Decision{Guard: r.name})
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
		return d, refuse(r.bans, d.Reason, d)
	}
	return r.ask(ctx, a, place)
}

// ask asks the rule's guard, and where that fails does as the rule's outage policy says. In the shadow
// nothing follows from a refusal, so it is no strike either.
func (r *mounted) ask(ctx context.Context, a core.Attempt, place *core.Place) (core.Decision, *Refusal) {
	d, local, err := r.checkGuard(ctx, a, place)
	d.Guard = r.name // whatever a guard of the application's own says
	switch {
	case errors.Is(err, core.ErrInvalid):
		return d, r.refuse(ReasonInvalid, d)
	case err != nil && r.outage() == core.FailOpen:
		return core.Decision{}, nil
	case err != nil:
		return d, r.refuse(ReasonUnavailable, d)
	case d.Allowed:
		return d, nil
	}
	if !local && !a.Shadow { // where Redis could not be asked, a strike would but wait for it once more
		r.strike(ctx, a, d.Reason)
	}
	return d, r.refuse(d.Reason, d)
}

// checkGuard asks the guard, and reports whether it has decided inside the process because it could not do
// otherwise.
//
// A claim has a place before its guard is asked: what is taken can be settled, however long Redis may be away
// by then.
func (r *mounted) checkGuard(
	ctx context.Context, a core.Attempt, place *core.Place,
) (d core.Decision, local bool, err error) {
	if !r.traits.KeepsOnFailure {
		err = place.Take()
	}
	if err == nil {
		d, err = r.Guard.Check(ctx, a)
	}
	if err == nil || errors.Is(err, core.ErrInvalid) || r.outage() != core.FailLocal {
		return d, false, err
	}
	d, err = r.local.CheckLocal(ctx, a) // mount has seen that it is there
	return d, true, err
}

// refuseKey answers a request out of which no attempt could be made.
func (r *mounted) refuseKey(ctx context.Context, err error) *Refusal {
	reason := ReasonUnavailable
	switch {
	case errors.Is(err, core.ErrInvalid):
		reason = ReasonInvalid
	case errors.Is(err, keyfuncs.ErrMissing), errors.Is(err, keyfuncs.ErrRequired):
		reason = ReasonNoKey
	case errors.Is(err, keyfuncs.ErrMalformed):
		reason = ReasonMalformed
	default: // a function of the application's own could not do its work: not the client's fault
		core.LoggerOf(r.Guard).ErrorContext(ctx, "gatehouse: a key function failed", "guard", r.name, "err", err)
	}
	return r.refuse(reason, core.Decision{Guard: r.name})
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
func (l *link) warnOfTwice(rule *mounted, d core.Decision) {
	if l == nil {
		return
	}
	if e := l.find(d.Guard); e != nil && e.decision.Attempt.Actor == d.Attempt.Actor && e.decision.Attempt.Resource == d.Attempt.Resource {
		warn.Twice.TellBy(l.passage.request, core.LoggerOf(rule.Guard), d.Guard, "guard", d.Guard)
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
// It is called before the handler answers. When the header of the answer has gone, a reservation or an operation that is kept has been
// confirmed, and after the request has ended everything is settled: then there is nothing to take.
func Take(ctx context.Context, guard string) (core.Decision, bool) {
	e := find(ctx, guard)
	if e == nil || !e.owner.CompareAndSwap(ownerPipeline, ownerTaker) && e.owner.Load() != ownerTaker {
		return core.Decision{}, false
	}
	return e.decision, true
}
