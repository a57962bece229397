package pipeline_test

import (
	"context"
	"sync"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// fake is an application's own guard: it allows everything, and notes how the attempts ended.
type fake struct {
	name   string
	traits core.Traits

	mu      sync.Mutex
	settled []bool
}

func (g *fake) Name() string        { return g.name }
func (g *fake) Traits() core.Traits { return g.traits }

func (g *fake) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	return core.Decision{Guard: g.name, Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
}

func (g *fake) Settle(_ context.Context, _ core.Decision, end core.Ending) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled = append(g.settled, end.Commits())
	return nil
}

// ends returns how the attempts have ended so far.
func (g *fake) ends() []bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]bool(nil), g.settled...)
}

// ruleOf is a rule of the guard that finds its keys in every request.
func ruleOf(g core.Guard) pipeline.Rule {
	return pipeline.Rule{Guard: g, Who: keyfuncs.Const("ann"), What: keyfuncs.Const("t1")}
}
