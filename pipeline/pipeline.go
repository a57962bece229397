package pipeline

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/gatehouse-go/gatehouse/pipeline/answers"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// Pipeline takes requests through a list of rules: check, confirm, respond, settle. Applications use it
// through nethttpmw.HTTP, ginmw.Gin and echomw.Echo. It is exported for adapters to other frameworks, which
// only translate, and which package adaptertest tests. It is safe for concurrent use.
//
//	passage, refusal := pipeline.Enter(&keyfuncs.Request{Request: r, Facts: ...})
//	if refusal != nil {
//		refusal.Answer(w, r)
//		return
//	}
//	defer passage.Abort() // has an effect only if the handler panics
//	next(passage.Watch(w), r.WithContext(passage.Context()))
//	passage.Leave(http.StatusOK)
//
// A table in docs/contracts.md lists how requests end, and what happens to their attempts.
type Pipeline struct {
	rules   []*mounted
	settles bool // a rule depends on how a request ends
	hears   bool // a guard is told of each ending
	defers  bool // a rule has Defer
	replays bool // the pipeline answers replays of a guard
	holds   bool // a guard is a kit.Holder
}

// New makes a pipeline of rules. It panics on rules that cannot work, with a remedy in the message.
func New(rules ...Rule) *Pipeline {
	if len(rules) == 0 {
		panic("gatehouse: a middleware without rules guards nothing: add a rule")
	}
	p := &Pipeline{rules: make([]*mounted, len(rules))}
	seen := map[string]bool{}
	for i := range rules {
		rule, err := mount(rules[i])
		if err != nil {
			name := "no guard"
			if !isNil(rules[i].Guard) {
				name = fmt.Sprintf("guard %q", rules[i].Guard.Name())
			}
			panic(fmt.Sprintf("gatehouse: rule %d (%s) %v", i+1, name, err))
		}
		if seen[rule.name] {
			panic(fmt.Sprintf("gatehouse: two rules of one middleware have a guard named %q, which would count a "+
				"request twice, "+
				"or, of another engine, could not be told from the first: make a second guard with a name of its own",
				rule.name))
		}
		seen[rule.name] = true
		p.settles, p.hears = p.settles || rule.settles(), p.hears || !rule.counts
		p.replays, p.holds = p.replays || rule.claims() && !rule.counts, p.holds || rule.holder != nil
		p.rules[i] = rule
	}
	p.findDefers()
	warnOfOrder(p.rules)
	for i := len(p.rules) - 1; i >= 0; i-- {
		if rule := p.rules[i]; rule.phases != nil {
			rule.together = 1
			if i+1 < len(p.rules) {
				rule.together += p.rules[i+1].together
			}
		}
	}
	return p
}

// Settles reports whether any rule depends on the status with which a request ends. If none does, an adapter
// need not determine it.
func (p *Pipeline) Settles() bool { return p.settles }

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
	entered := false
	defer func() {
		if !entered { // refused, or a key function of the application panics
			passage.giveBack(nil)
		}
	}()
	var few [4]prepared // without an allocation
	ready := few[:min(len(p.rules), len(few))]
	if len(p.rules) > len(few) {
		ready = make([]prepared, len(p.rules))
	}
	if p.defers {
		if rule, refusal := passage.deferredBefore(); refusal != nil {
			return nil, passage.refusedBy(refusal, rule)
		}
	}
	if rule, refusal := passage.askAll(ready); refusal != nil {
		return nil, passage.refused(rule, refusal)
	}
	if p.replays {
		if replay := passage.replay(); replay != nil {
			return nil, replay
		}
	}
	passage.fields = passage.figures(passage.entries, nil)
	if p.holds {
		passage.hold()
	}
	if p.defers {
		passage.tellRerun()
	}
	entered = true
	return passage, nil
}

// askAll asks the rules, and returns the one that refuses the request, if one does.
func (p *Passage) askAll(ready []prepared) (*mounted, *answers.Refusal) {
	rules := p.pipeline.rules
	if len(rules) == 1 {
		return rules[0], p.ask(rules[0], &ready[0])
	}
	bodied := bodied(&p.from)
	for i := 0; i < len(rules); {
		if p.pipeline.looksAhead(i, bodied) {
			if rule, refusal := p.pipeline.lookAhead(&p.settling, &p.from, i, ready); refusal != nil {
				return rule, refusal
			}
		}
		n := p.pipeline.together(i, bodied)
		if n < 2 {
			if refusal := p.ask(rules[i], &ready[i]); refusal != nil {
				return rules[i], refusal
			}
		} else if rule, refusal := p.askTogether(rules[i:i+n], ready[i:i+n]); refusal != nil {
			return rule, refusal
		}
		i += max(n, 1)
	}
	return nil, nil
}

// replay returns the answer to a request that repeats an operation which is done, or nil for any other
// request.
func (p *Passage) replay() *answers.Refusal {
	done := p.done()
	if done == nil {
		return nil
	}
	replay := p.refusedBy(answers.Replay(done.rule.answers, done.decision), done.rule)
	if rerun := rerunOf(&p.settling); rerun != nil {
		rerun.decided.Store(true) // its handler ran before
	}
	return replay
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

// hold makes the handler's context end when a claim of the request is lost. Nobody stops it: it ends with the
// request, and middlewares around the rules may use it until then.
func (p *Passage) hold() {
	for _, e := range p.entries {
		if e.rule.holder != nil && !e.decision.Attempt.Shadow {
			p.scope.Context, _ = e.rule.holder.Hold(p.scope.Context, e.decision)
		}
	}
}

// newPassage begins the passage of a request.
func newPassage(p *Pipeline, r *keyfuncs.Request) *Passage {
	ctx := r.Context()
	passage := &Passage{settling: detached{r.Request}, from: *r, pipeline: p, response: &unwatched}
	passage.scope.Context, passage.scope.passage = ctx, passage
	passage.entries = passage.few[:0]
	passage.outer, _ = ctx.Value(passageKey{}).(*Passage)
	return passage
}

// newEntry returns an entry for the rule's decision. It becomes one of the passage's entries when the rule
// allows the request.
func (p *Passage) newEntry(rule *mounted) *entry {
	if len(p.entries) > 0 {
		return &entry{rule: rule}
	}
	p.first = entry{rule: rule}
	return &p.first
}

// done returns the first entry that repeats an attempt which is done, if the request claims nothing else.
func (p *Passage) done() *entry {
	for _, e := range p.entries {
		if e.rule.doneBefore(&e.decision) {
			if p.allDone() {
				return e
			}
			break
		}
	}
	return nil
}

// ask asks a rule, and keeps what its guard took.
func (p *Passage) ask(rule *mounted, ready *prepared) *answers.Refusal {
	e := p.newEntry(rule)
	defer e.freeUnlessAllowed() // also if a function of the application panics
	rule.prepare(&p.settling, &p.from, ready)
	if ready.asks() {
		rule.try(&p.settling, ready, e)
	}
	return p.conclude(rule, ready, e)
}

// conclude draws the conclusion from what a rule was asked.
func (p *Passage) conclude(rule *mounted, ready *prepared, e *entry) *answers.Refusal {
	refusal := rule.judge(&p.settling, ready, e)
	if rule.Rollout != nil {
		refusal = rule.Rollout.note(ready.cohort, refusal)
	}
	if refusal != nil {
		return refusal
	}
	if p.outer != nil {
		warnOfTwice(p.outer, rule, &e.decision)
	}
	if e.decision.Allowed {
		p.entries = append(p.entries, e)
		if rule.traits.KeepsOutcome {
			p.record(&rule.traits)
		}
	}
	return nil
}

// try goes through the stages in which a rule that is prepared asks its bans and its guard. It does not act
// on their answers: see judge.
func (r *mounted) try(ctx context.Context, p *prepared, e *entry) {
	for _, stage := range r.stages {
		switch stage {
		case stageBans:
			if e.decision, p.banned = r.banned(ctx, p.attempt); p.banned || p.only {
				return
			}
		case stagePlace:
			if p.failed = e.place.Take(); p.failed != nil {
				return
			}
		case stageRun:
			e.run = r.begin(&p.attempt)
		case stageCheck:
			e.decision, p.failed = r.Guard.Check(ctx, p.attempt)
		default: // see prepare
		}
	}
}

// asks reports whether the bans and the guard of a rule that is prepared have to be asked.
func (p *prepared) asks() bool { return p.refusal == nil && !p.passes && p.cohort != cohortSkipped }

// judge says what follows from what try has heard, and adapts the entry's decision. The decision is not
// allowed, and there is no refusal, if the rule did not decide.
func (r *mounted) judge(ctx context.Context, p *prepared, e *entry) *answers.Refusal {
	switch {
	case p.refusal != nil:
		r.traceRefusal(ctx, p.refusal.Reason, p.err, p.cohort == cohortShadowed)
		return p.refusal
	case p.passes || p.cohort == cohortSkipped:
		return nil
	case p.banned:
		return r.refuseBanned(e.decision)
	case p.only:
		return nil
	}
	return r.answer(ctx, &p.attempt, e, p.failed)
}

// answer makes an answer of the guard's decision. If the guard returned an error, it applies the rule's
// outage policy. A refusal in the shadow has no effect, so it is no strike.
func (r *mounted) answer(ctx context.Context, a *core.Attempt, e *entry, err error) *answers.Refusal {
	local := err != nil && !errors.Is(err, core.ErrInvalid) && r.outage() == core.FailLocal
	if local { // the guard decides inside the process, because Redis is unavailable
		e.decision, err = r.local.CheckLocal(ctx, *a) // mount has checked that it exists
	}
	d := &e.decision
	d.Guard = r.name // a guard of the application may set another name
	if err != nil {
		return r.answerError(ctx, a, d, err)
	}
	switch {
	case d.Allowed && (!d.Replayed || !r.underWay(d)):
		return nil
	case d.Allowed:
		e.place.Settle(ctx, r.Guard, *d, core.Rollback)
		d.Allowed, d.Reason, d.RetryAfter = false, core.ReasonInProgress, underWayRetry
	case e.run.refused():
		soon(d)
	case !local && !a.Shadow: // without Redis, a strike would only wait for it again
		r.strike(ctx, *a, d.Reason)
	}
	return r.refuse(d.Reason, *d)
}

// answerError makes an answer of an error of the rule's guard.
func (r *mounted) answerError(
	ctx context.Context, a *core.Attempt, d *core.Decision, err error,
) *answers.Refusal {
	switch {
	case errors.Is(err, core.ErrInvalid):
		r.traceRefusal(ctx, answers.ReasonInvalid, &keyError{field: "guard"}, a.Shadow)
		return r.refuse(answers.ReasonInvalid, *d)
	case r.outage() == core.FailOpen:
		*d = core.Decision{}
		return nil
	}
	return r.refuse(answers.ReasonUnavailable, *d)
}

// refuseKey refuses a request out of which no attempt could be made.
func (r *mounted) refuseKey(ctx context.Context, err error) *answers.Refusal {
	reason := answers.ReasonUnavailable
	switch {
	case errors.Is(err, keyfuncs.ErrMalformed):
		reason = answers.ReasonMalformed
	case errors.Is(err, keyfuncs.ErrTooLarge):
		reason = answers.ReasonTooLarge
	case errors.Is(err, core.ErrInvalid): // such as any other error of Cost
		reason = answers.ReasonInvalid
	case errors.Is(err, keyfuncs.ErrMissing), errors.Is(err, keyfuncs.ErrRequired):
		reason = answers.ReasonNoKey
		r.logins.missed(ctx, r, err)
	default: // a function of the application failed, which is not the client's fault
		r.logFailure(ctx, err)
	}
	refusal := r.refuse(reason, core.Decision{Guard: r.name})
	if reason == answers.ReasonNoKey {
		refusal.Missing = keyfuncs.FieldOf(err)
	}
	return refusal
}

// failure is a kind of failure of a key function.
type failure struct{ key, function string }

// logFailure logs that a key function of the application failed: of each kind the first failure, and then one
// per minute, since each request may cause one.
func (r *mounted) logFailure(ctx context.Context, err error) {
	if skipped, ok := r.failures.Due(failure{keyOf(err), keyfuncs.FunctionOf(err)}); ok {
		r.logger().ErrorContext(ctx, "gatehouse: a key function failed", "guard", r.name, "err", err,
			"failures_not_logged", skipped)
	}
}

// traceRefusal reports a refusal that the guard has not decided to the observer. Without it, requests that
// lack a login would leave no trace.
func (r *mounted) traceRefusal(ctx context.Context, reason core.Reason, err error, shadow bool) {
	d := core.Decision{Guard: r.name, Reason: reason, Attempt: core.Attempt{Shadow: shadow}}
	kit.Refused(ctx, r.Guard, d, keyOf(err), keyfuncs.FunctionOf(err))
}

// passageKey is the key of the innermost passage in a request's context.
type passageKey struct{}

// scope is the context of the handler.
type scope struct {
	context.Context // of the request
	passage         *Passage
}

// Value returns the passage, or a value of the request's context.
func (s *scope) Value(key any) any {
	if _, ok := key.(passageKey); ok {
		return s.passage
	}
	return s.Context.Value(key)
}

// Context returns the request's context with the decisions: see [Decision] and [Take].
func (p *Passage) Context() context.Context { return &p.scope }

// warnOfTwice warns if a middleware around this one has asked the same guard for the same attempt. A limit
// counts such a request twice, and a claim refuses each request as a duplicate of itself.
func warnOfTwice(outer *Passage, rule *mounted, d *core.Decision) {
	if e := findIn(outer, d.Guard); e != nil && e.decision.Attempt.Actor == d.Attempt.Actor &&
		e.decision.Attempt.Resource == d.Attempt.Resource {
		warn.Twice.Tell(outer.scope.Context, rule.logger(), d.Guard, "guard", d.Guard)
	}
}

func find(ctx context.Context, guard string) *entry {
	p, _ := ctx.Value(passageKey{}).(*Passage)
	return findIn(p, guard)
}

// findIn returns the entry of a guard in a passage, which may be nil, or in those around it.
func findIn(p *Passage, guard string) *entry {
	for ; p != nil; p = p.outer {
		for _, e := range p.entries {
			if e.decision.Guard == guard {
				return e
			}
		}
	}
	return nil
}

// inTest reports whether the program is a test. It is a variable because a test has to act as a server.
var inTest = func() bool { return flag.Lookup("test.v") != nil }

// wantRule complains if the request has passed rules, and none of them has a guard of this name. The rules
// depend on the program alone. A rule that has let the request pass undecided is one of them.
func wantRule(ctx context.Context, p *Passage, function, guard string) {
	if p == nil {
		return // no middleware, as in the unit test of a handler
	}
	logger := p.pipeline.rules[0].logger()
	var names []string
	for ; p != nil; p = p.outer {
		for _, rule := range p.pipeline.rules {
			if rule.name == guard {
				return
			}
			names = append(names, rule.name)
		}
	}
	if inTest() {
		panic(fmt.Sprintf("gatehouse: %s(%q): no rule around this handler has a guard of that name; there are "+
			"%q: pass the name that the guard was made with", function, guard, names))
	}
	warn.Untaken.Tell(ctx, logger, guard, "function", function, "guard", guard, "rules", names)
}

// Decision returns the decision of the named guard about the request with this context. ok is false if the
// guard has no rule on the route, or if the rule let the request pass undecided.
func Decision(ctx context.Context, guard string) (core.Decision, bool) {
	e := find(ctx, guard)
	if e == nil {
		return core.Decision{}, false
	}
	return e.decision, true
}

// Take makes the handler responsible for the decision of the named guard. The rule no longer settles it.
// The handler must, or the code that it passes the decision on to. Take takes no units (the guard's Check
// took them before the handler ran), and it settles nothing. A handler that only wants to look at the
// decision calls [Decision].
//
// Use Take for a purchase that is paid later: store the decision's Attempt with the order (Actor, Resource
// and ID), and call Confirm or Cancel of the seckill.Guard with it when it is paid or not.
//
// Call Take before the handler responds. Once the header has been sent, ok is false for a reservation and
// for an operation whose outcome is kept: they have been confirmed. After the request everything has been
// settled, and ok is false, as for [Decision].
//
// A name that no rule around the handler has is a mistake in the program, which would refuse every client.
// In a test Take then panics, with the remedy. Elsewhere it logs the warning GH006 once and ok is false. So
// a handler of several routes works on a route that has no such rule on purpose.
//
// A client that asks again while a reservation waits for its payment gets in_progress, unless the rule has
// RunReplays: see the section Replays of the package.
func Take(ctx context.Context, guard string) (core.Decision, bool) {
	p, _ := ctx.Value(passageKey{}).(*Passage)
	e := findIn(p, guard)
	if e == nil {
		wantRule(ctx, p, "Take", guard)
	}
	if e == nil || !e.owner.CompareAndSwap(ownerPipeline, ownerTaker) && e.owner.Load() != ownerTaker {
		return core.Decision{}, false
	}
	return e.decision, true
}
