package pipeline

import (
	"context"
	"flag"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
)

// warnOfTwice warns if a middleware around this one has asked the same guard for the same attempt. A limit
// counts such a request twice, and a claim refuses each request as a duplicate of itself.
func warnOfTwice(outer *Passage, rule *mounted.Rule, d *core.Decision) {
	if c := findIn(outer, d.Guard); c != nil && c.decision.Attempt.Actor == d.Attempt.Actor &&
		c.decision.Attempt.Resource == d.Attempt.Resource {
		warn.Twice.Tell(outer.scope.Context, rule.Logger(), d.Guard, "guard", d.Guard)
	}
}

func find(ctx context.Context, guard string) *claim {
	p, _ := ctx.Value(passageKey{}).(*Passage)
	return findIn(p, guard)
}

// findIn returns the claim of a guard in a passage, which may be nil, or in those around it.
func findIn(p *Passage, guard string) *claim {
	for ; p != nil; p = p.outer {
		for c := range p.all {
			if c.decision.Guard == guard {
				return c
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
	logger := p.pipeline.rules[0].Logger()
	var names []string
	for ; p != nil; p = p.outer {
		for _, rule := range p.pipeline.rules {
			if rule.Name == guard {
				return
			}
			names = append(names, rule.Name)
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
	c := find(ctx, guard)
	if c == nil {
		return core.Decision{}, false
	}
	return c.decision, true
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
	c := findIn(p, guard)
	if c == nil {
		wantRule(ctx, p, "Take", guard)
	}
	if c == nil || c.on(eventTake) != stateTaken {
		return core.Decision{}, false
	}
	return c.decision, true
}
