package operator

import (
	"context"
	"fmt"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// target is one guard, and what can be asked of it.
type target struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Actions []string `json:"actions"`
	// Rollout is that of the guard's rule, if it has one.
	Rollout *nethttpmw.Rollout `json:"-"`

	guard      core.Guard
	operations []core.Operation
}

// targets are the guards that are shown, each once.
type targets []*target

// targetsOf returns the guards of the options. It panics on those that can not be told apart.
func targetsOf(o Options) targets {
	var all targets
	for _, rule := range o.Rules {
		t := all.add(rule.Guard)
		if bans, ok := rule.Bans.(core.Guard); ok {
			all.add(bans)
		}
		t.addRollout(rule.Rollout)
	}
	for _, g := range o.Guards {
		all.add(g)
	}
	if len(all) == 0 {
		panic("operator: New without rules or guards has nothing to show: give it those of the application")
	}
	for _, t := range all {
		t.name()
	}
	return all
}

// add returns the target of a guard, a new one where there is none yet.
func (all *targets) add(g core.Guard) *target {
	if g == nil {
		panic("operator: New was given a nil guard")
	}
	name := g.Name()
	for _, t := range *all {
		if t.Name != name {
			continue
		}
		if t.guard != g {
			panic(fmt.Sprintf("operator: two guards are named %q, of two engines: give them a handler each", name))
		}
		return t
	}
	says := core.DescriptionOf(g)
	t := &target{Name: name, Kind: says.Kind, guard: g, operations: says.Operations}
	if t.Kind == "" {
		t.Kind = "guard"
	}
	if len(t.operations) == 0 {
		t.operations = operationsOf(g)
	}
	*all = append(*all, t)
	return t
}

// addRollout has the target show the Rollout of one of its guard's rules.
func (t *target) addRollout(r *nethttpmw.Rollout) {
	if r == nil || r == t.Rollout {
		return
	}
	if t.Rollout != nil {
		panic(fmt.Sprintf("operator: two rules of the guard %q have different Rollouts: let them share one", t.Name))
	}
	t.Rollout = r
	t.operations = append(t.operations[:len(t.operations):len(t.operations)], rolloutOperations(r)...)
}

// name lists the operations. It panics where two are called the same.
func (t *target) name() {
	known := map[string]bool{}
	for _, o := range t.operations {
		if known[o.Name] {
			panic(fmt.Sprintf("operator: the guard %q has two operations named %q: rename the one that it describes", t.Name, o.Name))
		}
		known[o.Name] = true
		t.Actions = append(t.Actions, o.Name)
	}
}

// operationsOf returns what can be asked of a guard that describes no operations: what it has methods for.
func operationsOf(g core.Guard) (all []core.Operation) {
	key := []core.Field{{Name: "actor", Required: true}, {Name: "resource"}}
	if g, ok := g.(interface {
		Peek(context.Context, core.Attempt) (core.Decision, error)
	}); ok {
		all = append(all, core.Operation{Name: "peek", Fields: key, Run: func(ctx context.Context, in core.Input) (any, error) {
			return g.Peek(ctx, in.Attempt())
		}})
	}
	if g, ok := g.(interface {
		Reset(context.Context, core.Attempt) error
	}); ok {
		all = append(all, core.Operation{
			Name: "reset", Changes: true, Fields: key,
			Run: func(ctx context.Context, in core.Input) (any, error) { return nil, g.Reset(ctx, in.Attempt()) },
		})
	}
	return all
}

func rolloutOperations(r *nethttpmw.Rollout) []core.Operation {
	percentages := []core.Field{
		{Name: "enabled", Kind: core.FieldPercent, Required: true}, {Name: "enforced", Kind: core.FieldPercent, Required: true},
	}
	return []core.Operation{
		{Name: "rollout", Run: func(context.Context, core.Input) (any, error) { return r.Report(), nil }},
		{
			Name: "set-rollout", Changes: true, Fields: percentages,
			Run: func(_ context.Context, in core.Input) (any, error) {
				if err := r.Set(in.Percent("enabled"), in.Percent("enforced")); err != nil {
					return nil, fmt.Errorf("%w: %w", core.ErrInvalid, err)
				}
				return r.Report(), nil
			},
		},
		{
			Name: "switch", Changes: true, Fields: []core.Field{{Name: "on", Kind: core.FieldFlag, Required: true}},
			Run: func(_ context.Context, in core.Input) (any, error) {
				r.Switch(in.Flag("on"))
				return r.Report(), nil
			},
		},
	}
}

// decision is what an operator sees of a core.Decision.
type decision struct {
	Allowed    bool        `json:"allowed"`
	Reason     core.Reason `json:"reason"`
	Limit      int64       `json:"limit"`
	Remaining  int64       `json:"remaining"`
	Window     string      `json:"window"`
	RetryAfter string      `json:"retry_after"`
}

// shown is what an operator sees of the result of an operation.
func shown(result any) any {
	switch r := result.(type) {
	case nil:
		return map[string]bool{"done": true} // there is nothing else to say
	case core.Decision:
		return decision{r.Allowed, r.Reason, r.Limit, r.Remaining, r.Window.String(), r.RetryAfter.String()}
	}
	return result
}
