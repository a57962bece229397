package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/control"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Set is the guards and rules that were made of a file. It never changes, and it is safe for concurrent use.
type Set struct {
	config    *Config
	guards    map[string]*madeGuard
	rollouts  map[string]*madeRollout
	lists     map[string][]pipeline.Rule
	pipelines map[string]*pipeline.Pipeline
}

// madeGuard is a guard, and what it was made of.
type madeGuard struct {
	core.Guard
	spec   *guardSpec
	source *limitSource
}

// madeRollout is a rollout, and what the file said of it. Operators may have changed it since.
type madeRollout struct {
	*pipeline.Rollout
	enabled, enforced float64
}

// Build makes the guards of the file on an engine, and the rules. It does not talk to Redis. It returns an
// [*Error] for what only the engine can tell: a name that another guard of the engine has, a guard that needs
// a Redis on an engine without one, an acked sale with a client that cannot wait for replicas.
//
// A guard's name belongs to one guard of an engine, so a file can be built once per engine. [Watch] builds a
// file anew when it changes.
func (c *Config) Build(gate *core.Engine) (*Set, error) { return c.build(gate, nil) }

// build makes the guards and rules. What is the same in the set before is taken over.
func (c *Config) build(gate *core.Engine, before *Set) (*Set, error) {
	if before == nil {
		before = new(Set)
	}
	s := &Set{config: c, guards: map[string]*madeGuard{}, rollouts: map[string]*madeRollout{},
		lists: map[string][]pipeline.Rule{}, pipelines: map[string]*pipeline.Pipeline{}}
	b := &builder{set: s, before: before, gate: gate}
	for _, g := range c.guards {
		b.guard(g)
	}
	for _, list := range c.rules {
		b.list(list)
	}
	if len(b.mistakes) > 0 {
		b.undo()
		return nil, &Error{b.mistakes}
	}
	b.commit()
	return s, nil
}

// builder makes a Set.
type builder struct {
	set, before *Set
	gate        *core.Engine
	mistakes    []Mistake
	taken       []string // names of guards that are new
	commits     []func() // what changes things that the set before has too
}

func (b *builder) mistake(at string, n *yaml.Node, err error) {
	b.mistakes = append(b.mistakes, Mistake{b.set.config.file, n.Line, n.Column, at, err.Error()})
}

// guard makes a guard, or takes it over.
func (b *builder) guard(g named[*guardSpec]) {
	former := b.before.guards[g.name]
	source := g.value.source(b.gate)
	switch {
	case former == nil:
	case former.spec.text == g.value.text,
		former.source != nil && source != nil && former.spec.kind == g.value.kind:
		b.set.guards[g.name] = &madeGuard{former.Guard, g.value, former.source}
		if former.source != nil {
			b.commits = append(b.commits, func() { former.source.table.Store(g.value.limits) })
		}
		return
	default:
		b.gate.Release(g.name)
	}
	made := &madeGuard{spec: g.value, source: source}
	err := caught(func() { made.Guard = g.value.make(b.gate, g.name, source) })
	switch {
	case err != nil:
		b.mistake(g.at, g.node, err)
		if former != nil {
			_ = caught(func() { b.gate.Register(g.name) }) // the former guard has its name again
		}
		return
	case former == nil:
		b.taken = append(b.taken, g.name)
	}
	b.set.guards[g.name] = made
}

// list makes a list of rules.
func (b *builder) list(list named[[]*ruleSpec]) {
	var rules []pipeline.Rule
	for _, spec := range list.value {
		rule, ok := b.rule(list.name, spec)
		if !ok {
			return // the guard has a mistake, which was reported
		}
		rules = append(rules, rule)
	}
	err := caught(func() { b.set.pipelines[list.name] = pipeline.New(rules...) })
	if err != nil {
		b.mistake(list.at, list.node, err)
		return
	}
	b.set.lists[list.name] = rules
}

// rule makes a rule.
func (b *builder) rule(list string, spec *ruleSpec) (pipeline.Rule, bool) {
	rule := spec.rule
	c := b.set.config
	if made := b.set.guards[spec.guard]; made != nil {
		rule.Guard = made.Guard
		if limits := made.spec.limits; limits != nil && limits.by != nil {
			rule.Which = limits.tier()
		}
	} else if rule.Guard = c.options.guards[spec.guard]; rule.Guard == nil {
		return rule, false
	}
	if spec.bans != "" {
		g := c.options.guards[spec.bans]
		if made := b.set.guards[spec.bans]; made != nil {
			g = made.Guard
		}
		if rule.Bans, _ = g.(pipeline.Bans); rule.Bans == nil {
			return rule, false
		}
	}
	rule.Deny, rule.Allow = c.lists[spec.deny], c.lists[spec.allow]
	if spec.rollout != nil {
		rule.Rollout = b.rollout(list+" "+spec.guard, spec.rollout)
	}
	for _, adjust := range c.options.adjust {
		adjust(list, &rule)
	}
	return rule, true
}

// rollout makes a rollout, or takes it over with its counts. What an operator has changed stays until the
// file says something else.
func (b *builder) rollout(name string, spec *rolloutSpec) *pipeline.Rollout {
	made := &madeRollout{new(pipeline.Rollout), 100, spec.enforced}
	if spec.enabled != nil {
		made.enabled = *spec.enabled
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
	if desk := b.set.config.options.desk; desk != nil {
		rebind(b, desk, control.Limits, (*Set).limiters, func(_ string, g control.Limiter) { desk.Limits(g) })
		rebind(b, desk, control.List, (*Set).keyLists, desk.List)
		rebind(b, desk, control.Rollout, (*Set).shares, desk.Rollout)
	}
}

// rebind lets operators decide about what is new in the set, in place of what the set before had. The logger
// hears of a name that the program has bound itself.
func rebind[T comparable](b *builder, desk *control.Desk, kind string, of func(*Set) map[string]T,
	bind func(string, T),
) {
	before, now := of(b.before), of(b.set)
	for name, t := range before {
		if now[name] != t {
			desk.Release(kind, name)
		}
	}
	for name, t := range now {
		if before[name] == t {
			continue
		}
		if err := caught(func() { bind(name, t) }); err != nil {
			b.gate.Logger().Error("gatehouse: operators cannot decide about a thing of the file", "err", err)
		}
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
	return s.config.lists
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

// Rules returns the rules of a list, in their order: the same values as those that code has. They stay as
// they are when the file changes; to follow it, see [Live.Source]. It panics if the file has no list of that
// name.
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

// AllRules returns the rules of all lists, such as for operator.Options.
func (s *Set) AllRules() []pipeline.Rule {
	var all []pipeline.Rule
	for _, list := range s.config.rules {
		all = append(all, s.lists[list.name]...)
	}
	return all
}

// Guard returns a guard of the file by its name, or nil. Its type is that of the guard's package, such as
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
			"list", s.config.file, list, strings.Join(s.config.Lists(), ", ")))
	}
}
