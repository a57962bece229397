package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// target is a guard or a tool with its operations.
type target struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`
	Actions    []string `json:"actions"`
	settings   []kit.Detail
	guard      named
	operations []kit.Operation
	rollouts   []listRollout
	joins      bool    // a rule of the guard joins IDs with the actor
	bans       *target // bans actors that are refused too often; or nil
}

// listRollout is the roll-out of the guard's rule in a list. The name is empty for Options.Rules.
type listRollout struct {
	list string
	*pipeline.Rollout
}

// named is a guard or a tool.
type named interface{ Name() string }

// targets are the guards and tools to show, each once.
type targets []*target

// targetsOf returns the guards of the options. It panics on guards that have the same name.
func targetsOf(o Options) targets {
	var all targets
	for _, list := range allLists(o) {
		for _, rule := range list.Rules {
			t := all.add(rule.Guard)
			if bans, ok := rule.Bans.(core.Guard); ok {
				t.bans = all.add(bans)
			}
			t.joins = t.joins || rule.ID != nil && !rule.BareID
			t.addRollout(list.Name, rule.Rollout)
		}
	}
	for _, g := range o.Guards {
		all.add(g)
	}
	for _, tool := range o.Tools {
		all.add(tool)
	}
	if len(all) == 0 {
		panic("operator: New has nothing to show: set Options.Rules, Options.Guards or Options.Tools")
	}
	for _, t := range all {
		t.operateRollouts()
	}
	all.letIn()
	for _, t := range all {
		t.name()
	}
	return all
}

// letInAgain is the action that lifts the ban of a client and resets what was counted of them, in one step.
const letInAgain = "let-in-again"

// letIn gives the action to each guard that bans or counts. With bans it also covers the guards whose
// refusals ban.
func (all targets) letIn() {
	added := map[*target]kit.Operation{}
	for _, t := range all {
		var undo []undoing
		for _, other := range all {
			if other != t && other != t.bans && other.bans != t {
				continue
			}
			for _, name := range []string{"unban", "reset"} {
				if do := other.find(name); do != nil && ofClient(do) {
					undo = append(undo, undoing{pair{other.Name, name}, do.Run})
				}
			}
		}
		if len(undo) > 0 && t.find(letInAgain) == nil {
			added[t] = kit.Operation{Name: letInAgain, Changes: true,
				Fields: []kit.Field{{Name: "actor", Required: true}, {Name: "resource"}},
				Run: func(ctx context.Context, in kit.Input) (any, error) {
					return undoAll(ctx, in, undo)
				}}
		}
	}
	for t, do := range added {
		t.operations = append(t.operations[:len(t.operations):len(t.operations)], do)
	}
}

// ofClient reports whether an operation asks for a client and no more, such as an operation ID.
func ofClient(do *kit.Operation) bool {
	isMore := func(f kit.Field) bool { return f.Name != "actor" && f.Name != "resource" }
	return !slices.ContainsFunc(do.Fields, isMore)
}

// undoing is an action that lets a client in: its guard, its name and its function.
type undoing struct {
	pair
	run func(ctx context.Context, in kit.Input) (any, error)
}

// undoAll does them all, and returns those that had something to undo.
func undoAll(ctx context.Context, in kit.Input, all []undoing) (done []pair, err error) {
	for _, one := range all {
		_, err := one.run(ctx, in)
		switch {
		case errors.Is(err, core.ErrNotFound) || errors.Is(err, core.ErrNotNow): // nothing to undo
		case err != nil:
			return done, fmt.Errorf("%s of %s, after %d other steps: %w", one.Value, one.Name, len(done), err)
		default:
			done = append(done, one.pair)
		}
	}
	return done, nil
}

// allLists returns the lists of the options. Rules is the one without a name.
func allLists(o Options) []List {
	if len(o.Rules) == 0 {
		return o.Lists
	}
	return append([]List{{"", o.Rules}}, o.Lists...)
}

// named returns the target of a name, or nil.
func (all targets) named(guard string) *target {
	if i := slices.IndexFunc(all, func(t *target) bool { return t.Name == guard }); i >= 0 {
		return all[i]
	}
	return nil
}

// find returns the operation of a name, or nil.
func (t *target) find(name string) *kit.Operation {
	i := slices.IndexFunc(t.operations, func(o kit.Operation) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &t.operations[i]
}

// logger returns the logger of the guard's engine, or of the first guard's engine if there is no such
// guard.
func (all targets) logger(guard string) *slog.Logger {
	i := slices.IndexFunc(all, func(t *target) bool { return t.Name == guard })
	return core.LoggerOf(all[max(i, 0)].guard)
}

// texts returns the fields as the operation reads them. Operators know the ID that a client sent. The guard
// knows the ID that the rule made of it.
func (all targets) texts(a Action) map[string]string {
	actor, id := a.Fields["actor"], a.Fields["id"]
	joins := slices.ContainsFunc(all, func(t *target) bool { return t.Name == a.Guard && t.joins })
	if !joins || actor == "" || id == "" {
		return a.Fields
	}
	fields := maps.Clone(a.Fields)
	fields["id"] = keyfuncs.JoinTexts(actor, id)
	return fields
}

// add returns the target of a guard. It makes a new one if there is none yet.
func (all *targets) add(g named) *target {
	if g == nil {
		panic("operator: New has a nil guard: remove it")
	}
	name := g.Name()
	for _, t := range *all {
		if t.Name != name {
			continue
		}
		if t.guard != g {
			panic(fmt.Sprintf("operator: two guards of different engines have the name %q: make one handler for "+
				"each engine", name))
		}
		return t
	}
	says := kit.DescriptionOf(g)
	t := &target{Name: name, Kind: says.Kind, settings: says.Settings, guard: g, operations: says.Operations}
	if t.Kind == "" {
		t.Kind = "guard"
	}
	if len(t.operations) == 0 {
		t.operations = operationsOf(g)
	}
	*all = append(*all, t)
	return t
}

// addRollout notes the rollout of a rule of the guard. A rule has one in each list at most.
func (t *target) addRollout(list string, r *pipeline.Rollout) {
	i := slices.IndexFunc(t.rollouts, func(other listRollout) bool { return other.list == list })
	switch {
	case r == nil:
	case i < 0:
		t.rollouts = append(t.rollouts, listRollout{list, r})
	case t.rollouts[i].Rollout != r:
		panic(fmt.Sprintf("operator: two rules of the guard %q have different rollouts: use the same one in both, "+
			"or put the rules into lists of different names", t.Name))
	}
}

// operateRollouts adds the operations of the guard's rollout. If lists have different ones, the operations of
// each have the name of its list behind theirs.
func (t *target) operateRollouts() {
	t.operations = slices.Clip(t.operations)
	differ := slices.ContainsFunc(t.rollouts, func(r listRollout) bool {
		return r.Rollout != t.rollouts[0].Rollout
	})
	for i, r := range t.rollouts {
		for _, do := range rolloutOperations(r.Rollout) {
			switch {
			case differ && r.list != "":
				do.Name += "-" + r.list
			case i > 0 && !differ:
				continue
			}
			t.operations = append(t.operations, do)
		}
	}
}

// name lists the names of the operations. It panics on two operations of the same name.
func (t *target) name() {
	known := map[string]bool{}
	for _, o := range t.operations {
		if known[o.Name] {
			panic(fmt.Sprintf("operator: the guard %q has two operations named %q: rename the one in its description",
				t.Name, o.Name))
		}
		known[o.Name] = true
		t.Actions = append(t.Actions, o.Name)
	}
}

// operationsOf returns the operations of a guard that describes none, from its methods.
func operationsOf(g named) (all []kit.Operation) {
	key := []kit.Field{{Name: "actor", Required: true}, {Name: "resource"}}
	if g, ok := g.(interface {
		Peek(context.Context, core.Attempt) (core.Decision, error)
	}); ok {
		all = append(all, kit.Operation{Name: "peek", Fields: key,
			Run: func(ctx context.Context, in kit.Input) (any, error) {
				return g.Peek(ctx, in.Attempt())
			}})
	}
	if g, ok := g.(interface {
		Reset(context.Context, core.Attempt) error
	}); ok {
		all = append(all, kit.Operation{
			Name: "reset", Changes: true, Fields: key,
			Run: func(ctx context.Context, in kit.Input) (any, error) { return nil, g.Reset(ctx, in.Attempt()) },
		})
	}
	return all
}

func rolloutOperations(r *pipeline.Rollout) []kit.Operation {
	percentages := []kit.Field{
		{Name: "enabled", Kind: kit.FieldPercent, Required: true,
			Hint: "percent of the clients that the rule counts, such as 100"},
		{Name: "enforced", Kind: kit.FieldPercent, Required: true,
			Hint: "percent of the clients that it refuses, such as 12.5"},
	}
	return []kit.Operation{
		{Name: "rollout", Run: func(context.Context, kit.Input) (any, error) { return r.Report(), nil }},
		{
			Name: "set-rollout", Changes: true, Reversible: true, Fields: percentages,
			Run: func(_ context.Context, in kit.Input) (any, error) {
				if err := r.Set(in.Percent("enabled"), in.Percent("enforced")); err != nil {
					return nil, fmt.Errorf("%w: %w", core.ErrInvalid, err)
				}
				return r.Report(), nil
			},
		},
		{
			Name: "switch", Changes: true, Reversible: true,
			Fields: []kit.Field{{Name: "on", Kind: kit.FieldFlag, Required: true}},
			Run: func(_ context.Context, in kit.Input) (any, error) {
				r.Switch(in.Flag("on"))
				return r.Report(), nil
			},
		},
	}
}

// decision is the part of a core.Decision that operators see.
type decision struct {
	Allowed    bool        `json:"allowed"`
	Reason     core.Reason `json:"reason"`
	Limit      int64       `json:"limit"`
	Remaining  int64       `json:"remaining"`
	Window     string      `json:"window"`
	RetryAfter string      `json:"retry_after"`
}

// shown returns the result of an operation as operators see it.
func shown(result any) any {
	switch r := result.(type) {
	case nil:
		return map[string]bool{"done": true} // the operation has no other result
	case core.Decision:
		return decision{r.Allowed, r.Reason, r.Limit, r.Remaining, r.Window.String(), kit.TextOf(r.RetryAfter)}
	}
	return result
}
