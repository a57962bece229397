package pipeline

import (
	"fmt"
	"reflect"

	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
	"github.com/gatehouse-go/gatehouse/pipeline/rule"
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

// findDefers notes which rules have a Defer, and which of them share one.
func (p *Pipeline) findDefers() {
	var last rule.Deferrer
	for _, rule := range p.rules {
		if rule.Defer != nil {
			p.defers = true
			rule.SameDefer = reflect.ValueOf(rule.Defer).Comparable() && rule.Defer == last
			last = rule.Defer
		}
	}
}
