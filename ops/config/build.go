package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config/internal/rulefile"
	"github.com/gatehouse-go/gatehouse/ops/control"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Set is the guards and rules that were made of a file. It never changes, and it is safe for concurrent use.
type Set struct {
	config    *Config
	guards    map[string]*madeGuard
	rollouts  map[string]*madeRollout
	lists     map[string][]pipeline.Rule
	pipelines map[string]*pipeline.Pipeline
	bound     map[[2]string]bool // the kinds and names of parts that operators decide about
}

// madeGuard is a guard and its definition.
type madeGuard struct {
	core.Guard
	spec   *rulefile.Guard
	source *rulefile.LimitSource
}

// madeRollout is a rollout and its definition in the file. Operators may have changed it since.
type madeRollout struct {
	*pipeline.Rollout
	enabled, enforced float64
}

// Build makes the guards of the file on an engine, and the rules. It does not talk to Redis. It returns an
// [*Error] for mistakes that only the engine shows: another guard of the engine has the name, the guard
// needs a Redis and the engine has none, or the client of an acked sale cannot wait for replicas.
//
// A guard's name belongs to one guard of an engine, so a file can be built once per engine. [Watch] builds a
// file anew when it changes.
func (c *Config) Build(gate *core.Engine) (*Set, error) { return c.build(gate, nil) }

// build makes the guards and rules. It takes over equal ones from the set before.
func (c *Config) build(gate *core.Engine, before *Set) (*Set, error) {
	if before == nil {
		before = new(Set)
	}
	s := &Set{config: c, guards: map[string]*madeGuard{}, rollouts: map[string]*madeRollout{},
		lists: map[string][]pipeline.Rule{}, pipelines: map[string]*pipeline.Pipeline{},
		bound: map[[2]string]bool{}}
	b := &builder{set: s, before: before, gate: gate}
	for _, g := range c.file.Guards {
		b.guard(g)
	}
	for _, list := range c.file.Rules {
		b.list(list)
	}
	if len(b.mistakes) > 0 {
		b.undo()
		return nil, errorOf(b.mistakes...)
	}
	b.commit()
	return s, nil
}

// builder makes a Set.
type builder struct {
	set, before *Set
	gate        *core.Engine
	mistakes    []rulefile.Mistake
	taken       []string // names of guards that are new
	commits     []func() // changes of things that the set before has too
}

// guard makes a guard, or takes it over.
func (b *builder) guard(g rulefile.Named[*rulefile.Guard]) {
	former := b.before.guards[g.Name]
	source := g.Value.Source(b.gate)
	switch {
	case former == nil:
	case former.spec.Text == g.Value.Text,
		former.source != nil && source != nil && former.spec.Kind == g.Value.Kind:
		b.set.guards[g.Name] = &madeGuard{former.Guard, g.Value, former.source}
		if former.source != nil {
			b.commits = append(b.commits, func() { former.source.Set(g.Value.Limits) })
		}
		return
	default:
		b.gate.Release(g.Name)
	}
	made := &madeGuard{spec: g.Value, source: source}
	err := rulefile.Caught(func() { made.Guard = g.Value.Make(b.gate, g.Name, source) })
	switch {
	case err != nil:
		b.mistakes = append(b.mistakes, g.Mistake(b.set.config.name, err.Error()))
		if former != nil {
			_ = rulefile.Caught(func() { b.gate.Register(g.Name) }) // the former guard has its name again
		}
		return
	case former == nil:
		b.taken = append(b.taken, g.Name)
	}
	b.set.guards[g.Name] = made
}

// list makes a list of rules.
func (b *builder) list(list rulefile.Named[[]*rulefile.Rule]) {
	var rules []pipeline.Rule
	for _, spec := range list.Value {
		rule, ok := b.rule(list.Name, spec)
		if !ok {
			return // the guard has a mistake, which was reported
		}
		rules = append(rules, rule)
	}
	err := rulefile.Caught(func() {
		for i := range rules {
			for _, adjust := range b.set.config.program.adjust {
				adjust(list.Name, &rules[i])
			}
		}
		b.set.pipelines[list.Name] = pipeline.New(rules...)
	})
	if err != nil {
		b.mistakes = append(b.mistakes, list.Mistake(b.set.config.name, err.Error()))
		return
	}
	b.set.lists[list.Name] = rules
}

// rule makes a rule.
func (b *builder) rule(list string, spec *rulefile.Rule) (pipeline.Rule, bool) {
	rule := spec.Rule
	c := b.set.config
	if made := b.set.guards[spec.Guard]; made != nil {
		rule.Guard = made.Guard
		if limits := made.spec.Limits; limits != nil && limits.Tier() != nil {
			rule.Which = limits.Tier()
		}
	} else if rule.Guard = c.program.Guards[spec.Guard]; rule.Guard == nil {
		return rule, false
	}
	if spec.Bans != "" {
		g := c.program.Guards[spec.Bans]
		if made := b.set.guards[spec.Bans]; made != nil {
			g = made.Guard
		}
		if rule.Bans, _ = g.(pipeline.Bans); rule.Bans == nil {
			return rule, false
		}
	}
	rule.Deny, rule.Allow = c.file.Lists[spec.Deny], c.file.Lists[spec.Allow]
	if spec.Rollout != nil {
		rule.Rollout = b.rollout(list+" "+spec.Guard, spec.Rollout)
	}
	return rule, true
}

// rollout makes a rollout, or takes it over with its counts. An operator's change stays until the file
// changes the rollout.
func (b *builder) rollout(name string, spec *rulefile.Rollout) *pipeline.Rollout {
	made := &madeRollout{new(pipeline.Rollout), 100, spec.Enforced}
	if spec.Enabled != nil {
		made.enabled = *spec.Enabled
	}
	former := b.before.rollouts[name]
	if former != nil {
		made.Rollout = former.Rollout
	}
	if former == nil || former.enabled != made.enabled || former.enforced != made.enforced {
		b.commits = append(b.commits, func() { _ = made.Set(made.enabled, made.enforced) }) // checked in the file
	}
	b.set.rollouts[name] = made
	return made.Rollout
}

// commit does what changes the set before, which is out of use now.
func (b *builder) commit() {
	for _, f := range b.commits {
		f()
	}
	for name := range b.before.guards {
		if b.set.guards[name] == nil {
			b.gate.Release(name)
		}
	}
	if desk := b.set.config.program.desk; desk != nil {
		rebind(b, desk, control.Limits, (*Set).limiters, func(_ string, g control.Limiter) { desk.Limits(g) })
		rebind(b, desk, control.List, (*Set).keyLists, desk.List)
		rebind(b, desk, control.Rollout, (*Set).shares, desk.Rollout)
	}
}

// rebind lets operators decide about the parts of the set, in place of those of the set before. It logs a
// name that the program has bound itself, and leaves it to the program.
func rebind[T comparable](b *builder, desk *control.Desk, kind string, of func(*Set) map[string]T,
	bind func(string, T),
) {
	before, now := of(b.before), of(b.set)
	for name, t := range before {
		if now[name] != t && b.before.bound[[2]string{kind, name}] {
			desk.Release(kind, name)
		}
	}
	for name, t := range now {
		is := [2]string{kind, name}
		if before[name] == t && b.before.bound[is] {
			b.set.bound[is] = true
			continue
		}
		if err := rulefile.Caught(func() { bind(name, t) }); err != nil {
			b.gate.Logger().Error("gatehouse: operators cannot decide about a thing of the file", "err", err)
			continue
		}
		b.set.bound[is] = true
	}
}

func (s *Set) limiters() map[string]control.Limiter {
	all := map[string]control.Limiter{}
	for name, made := range s.guards {
		if g, ok := made.Guard.(control.Limiter); ok {
			all[name] = g
		}
	}
	return all
}

func (s *Set) keyLists() map[string]*keyfuncs.List {
	if s.config == nil {
		return nil // before the first file
	}
	return s.config.file.Lists
}

func (s *Set) shares() map[string]*pipeline.Rollout {
	all := map[string]*pipeline.Rollout{}
	for name, made := range s.rollouts {
		all[name] = made.Rollout
	}
	return all
}

// undo gives the names of new guards up. The set before stays in use.
func (b *builder) undo() {
	for _, name := range b.taken {
		b.gate.Release(name)
	}
}

// Config returns what the file says.
func (s *Set) Config() *Config { return s.config }

// Rules returns the rules of a list, in their order: the same values as in code. They stay as they are when
// the file changes. To follow it, see [Live.Source]. It panics if the file has no list of that name.
func (s *Set) Rules(list string) []pipeline.Rule {
	s.must(list)
	return slices.Clone(s.lists[list])
}

// Pipeline returns the pipeline of a list, for nethttpmw.Follow and the same functions of other adapters. It
// panics if the file has no list of that name.
func (s *Set) Pipeline(list string) *pipeline.Pipeline {
	s.must(list)
	return s.pipelines[list]
}

// Guard returns a guard of the file by its name, or nil. Its type is the one of the guard's package, such as
// *seckill.Guard.
func (s *Set) Guard(name string) core.Guard {
	if made := s.guards[name]; made != nil {
		return made.Guard
	}
	return nil
}

// must panics unless there is such a list.
func (s *Set) must(list string) {
	if _, ok := s.pipelines[list]; !ok {
		panic(fmt.Sprintf("config: %s has no list of rules named %q; it has %s: mount one of these, or add the "+
			"list", s.config.name, list, strings.Join(s.config.Lists(), ", ")))
	}
}
