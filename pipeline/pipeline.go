package pipeline

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
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
	rules   []*mounted.Rule
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
	p := &Pipeline{rules: make([]*mounted.Rule, len(rules))}
	seen := map[string]bool{}
	for i := range rules {
		rule, err := mounted.New(rules[i])
		if err != nil {
			panic(fmt.Sprintf("gatehouse: rule %d %v", i+1, err))
		}
		rule.Source.Answer = hearing(rule.Answer)
		if seen[rule.Name] {
			panic(fmt.Sprintf("gatehouse: two rules of one middleware have a guard named %q, which would count a "+
				"request twice, "+
				"or, of another engine, could not be told from the first: make a second guard with a name of its own",
				rule.Name))
		}
		seen[rule.Name] = true
		p.settles, p.hears = p.settles || rule.Settles(), p.hears || !rule.Counts
		p.replays, p.holds = p.replays || rule.Replays() && !rule.Counts, p.holds || rule.Holder != nil
		p.rules[i] = rule
	}
	p.findDefers()
	mounted.WarnOfOrder(p.rules)
	for i := len(p.rules) - 1; i >= 0; i-- {
		if rule := p.rules[i]; rule.Phases != nil {
			rule.Together = 1
			if i+1 < len(p.rules) {
				rule.Together += p.rules[i+1].Together
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
	var few [2]turn // without an allocation
	turns := few[:min(len(p.rules), len(few))]
	if len(p.rules) > len(few) {
		turns = make([]turn, len(p.rules))
	}
	for i, rule := range p.rules {
		turns[i].rule = rule
	}
	entered := false
	defer func() {
		if !entered { // refused, or a key function of the application panics
			passage.giveBack(turns)
		}
	}()
	if p.defers {
		if rule, refusal := passage.deferredBefore(); refusal != nil {
			return nil, passage.refusedBy(refusal, rule)
		}
	}
	if rule, refusal := passage.ask(turns); refusal != nil {
		return nil, passage.refused(rule, refusal)
	}
	if p.replays {
		if replay := passage.replay(); replay != nil {
			return nil, replay
		}
	}
	passage.fields = passage.figures(nil, nil)
	if p.holds {
		passage.hold()
	}
	if p.defers {
		passage.tellRerun()
	}
	entered = true
	return passage, nil
}

// hold makes the handler's context end when a claim of the request is lost. Nobody stops it: it ends with the
// request, and middlewares around the rules may use it until then.
func (p *Passage) hold() {
	for c := range p.all {
		if c.rule.Holder != nil && !c.decision.Attempt.Shadow {
			p.scope.Context, _ = c.rule.Holder.Hold(p.scope.Context, c.decision)
		}
	}
}

// lone is the passage through a single rule, with room for its claim.
type lone struct {
	Passage
	room [1]claim
}

// newPassage begins the passage of a request.
func newPassage(p *Pipeline, r *keyfuncs.Request) *Passage {
	var passage *Passage
	if len(p.rules) == 1 { // one allocation
		l := new(lone)
		passage, l.claims = &l.Passage, l.room[:0]
	} else {
		passage = new(Passage)
	}
	passage.settling, passage.from, passage.pipeline, passage.response = detached{r.Request}, *r, p, &unwatched
	ctx := r.Context()
	passage.scope.Context, passage.scope.passage = ctx, passage
	passage.outer, _ = ctx.Value(passageKey{}).(*Passage)
	return passage
}

// newClaim returns a claim for a rule whose guard is about to be asked.
func (p *Passage) newClaim(rule *mounted.Rule) *claim {
	if p.claims == nil {
		p.claims = make([]claim, 0, len(p.pipeline.rules))
	}
	p.claims = p.claims[:len(p.claims)+1]
	c := &p.claims[len(p.claims)-1]
	c.rule = rule
	return c
}

// all goes through the claims of guards that have allowed the request.
func (p *Passage) all(yield func(*claim) bool) {
	for i := range p.claims {
		if c := &p.claims[i]; c.state() != stateAsked && !yield(c) {
			return
		}
	}
}

// anyClaim reports whether any claim is of this kind.
func (p *Passage) anyClaim(is func(*claim) bool) bool {
	for c := range p.all {
		if is(c) {
			return true
		}
	}
	return false
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
