package config

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// ruleSpec is a rule of a file.
type ruleSpec struct {
	rule            pipeline.Rule // without what has to be made: guard, bans, rollout
	guard           string
	bans            string
	rollout         *rolloutSpec
	who, what       key
	under           []key
	which, id, from key
	headers         headersSpec
	deny, allow     string
	failed, counted []statuses
	node            *yaml.Node
	at              string
}

// rolloutSpec is for how many percent of the clients a rule applies.
type rolloutSpec struct {
	enabled  *float64
	enforced float64
}

// statuses is a range of statuses of answers.
type statuses struct{ from, to int }

func hasStatus(all []statuses, status int) bool {
	return slices.ContainsFunc(all, func(s statuses) bool { return s.from <= status && status <= s.to })
}

// statusList is statuses, alone or in ranges.
func statusList() form[[]statuses] {
	const want = `a status: "404", "5xx" or "500-503"`
	one := form[statuses]{
		schema{"anyOf": []any{schema{"type": "integer", "minimum": 100, "maximum": 999},
			schema{"type": "string", "pattern": `^[1-9](xx|[0-9]{2}(-[1-9][0-9]{2})?)$`}}},
		func(d *reader, at string, n *yaml.Node) (statuses, bool) {
			s, ok := d.scalar(at, n, want, "!!str", "!!int")
			if !ok {
				return statuses{}, false
			}
			from, to, between := strings.Cut(s, "-")
			if !between {
				from, to = strings.ReplaceAll(s, "xx", "00"), strings.ReplaceAll(s, "xx", "99")
			}
			least, err := strconv.Atoi(from)
			most, err2 := strconv.Atoi(to)
			if err != nil || err2 != nil || least < 100 || most > 999 || least > most {
				d.mistake(at, n, "found %s: want %s", quote(s), want)
				return statuses{}, false
			}
			return statuses{least, most}, true
		}}
	return listOf(one, true)
}

// cost is a number of units, or the name of a function of the program.
func cost() form[func(*keyfuncs.Request) (int64, error)] {
	number := whole(int64(1), core.MaxAmount)
	type function = func(*keyfuncs.Request) (int64, error)
	name := schema{"type": "string", "pattern": namePattern}
	return form[function]{schema{"anyOf": []any{number.schema, name}},
		func(d *reader, at string, n *yaml.Node) (function, bool) {
			if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
				units, ok := number.read(d, at, n)
				return func(*keyfuncs.Request) (int64, error) { return units, nil }, ok
			}
			if f := d.options.costs[n.Value]; f != nil {
				return f, true
			}
			d.mistake(at, n, "%s, or a whole number",
				unknown("cost function", n.Value, slices.Sorted(maps.Keys(d.options.costs))))
			return nil, false
		}}
}

var rolloutForm = object(
	in("enabled", "For how many percent of the clients the rule is asked; the default is 100.",
		pointer(percent()), func(o *rolloutSpec) **float64 { return &o.enabled }),
	must(in("enforced", "For how many percent it refuses; 0 is a shadow, which refuses nobody.", percent(),
		func(o *rolloutSpec) *float64 { return &o.enforced })),
)

var headersForm = object(
	in("hide", "Hide the rule's figures from clients.", boolean(),
		func(h *headersSpec) *bool { return &h.Hide }),
	in("legacy", "Add X-RateLimit-* for older clients.", boolean(),
		func(h *headersSpec) *bool { return &h.Legacy }),
	in("unit", `The unit of the figures, such as "content-bytes".`, text("a unit"),
		func(h *headersSpec) *string { return &h.Unit }),
	in("partition_key", "The key that tells clients which budget an answer is about.", anyKey(),
		func(h *headersSpec) *key { return &h.partition }),
)

type headersSpec struct {
	answers.Headers
	partition key
}

// name is the name of a guard or a list.
func name(what string) form[string] {
	f := text("the name of " + what)
	f.schema = schema{"type": "string", "pattern": namePattern}
	return f
}

// ruleFields is the form of a rule.
var ruleFields = object(
	must(in("guard", "The name of the guard that decides.", name("a guard"),
		func(r *ruleSpec) *string { return &r.guard })),
	must(in("who", "The key function that finds who acts, such as ip or {user: uid}.", anyKey(),
		func(r *ruleSpec) *key { return &r.who })),
	in("under", "For guards with levels: whom the actor is under, the outermost first, such as [{user: org}].",
		listOf(anyKey(), false), func(r *ruleSpec) *[]key { return &r.under }),
	in("what", "What it is about: the poll, the item on sale, the route.", anyKey(),
		func(r *ruleSpec) *key { return &r.what }),
	in("which", "Which of several: the choice of a voter, the item of a quota.", anyKey(),
		func(r *ruleSpec) *key { return &r.which }),
	in("cost", "How many units a request takes, or the name of a function of the program; the default is 1.",
		cost(), func(r *ruleSpec) *func(*keyfuncs.Request) (int64, error) { return &r.rule.Cost }),
	in("id", "The operation ID, such as idempotency_key.", anyKey(), func(r *ruleSpec) *key { return &r.id }),
	in("bare_id", "Take the operation ID as it is, not joined with who.", boolean(),
		func(r *ruleSpec) *bool { return &r.rule.BareID }),
	in("origin", "Where the request comes from, for the audit of votes.", anyKey(),
		func(r *ruleSpec) *key { return &r.from }),
	in("run_replays", "Run the handler for replays too.", boolean(),
		func(r *ruleSpec) *bool { return &r.rule.RunReplays }),
	in("deny", "The list of those whom the rule refuses.", name("a list"),
		func(r *ruleSpec) *string { return &r.deny }),
	in("allow", "The list of those who pass uncounted.", name("a list"),
		func(r *ruleSpec) *string { return &r.allow }),
	in("count_preflights", "Count CORS preflights as other requests.", boolean(),
		func(r *ruleSpec) *bool { return &r.rule.CountPreflights }),
	in("bans", "The guard of the kind bans that shuts out those whom this rule refuses too often.",
		name("a guard"), func(r *ruleSpec) *string { return &r.bans }),
	in("rollout", "Apply the rule to a part of the clients.", pointer(rolloutForm),
		func(r *ruleSpec) **rolloutSpec { return &r.rollout }),
	in("no_key", "What happens to requests without who, or without an id that the guard requires: refuse, or "+
		"skip the rule; the default is refuse.",
		oneOf(choice[pipeline.NoKey]{"refuse", pipeline.NoKeyRefuse},
			choice[pipeline.NoKey]{"skip", pipeline.NoKeySkip}),
		func(r *ruleSpec) *pipeline.NoKey { return &r.rule.NoKey }),
	in("on_outage", "What happens while Redis is away: closed, open or local; the default is the guard's.",
		oneOf(choice[core.Outage]{"closed", core.FailClosed}, choice[core.Outage]{"open", core.FailOpen},
			choice[core.Outage]{"local", core.FailLocal}),
		func(r *ruleSpec) *core.Outage { return &r.rule.OnOutage }),
	in("failed", `Statuses of answers that give back what the request took, such as [4xx, 5xx].`, statusList(),
		func(r *ruleSpec) *[]statuses { return &r.failed }),
	in("counted", "The only statuses of answers that count, in place of failed: all others give back.",
		statusList(), func(r *ruleSpec) *[]statuses { return &r.counted }),
	in("headers", "Which figures of the rule clients see.", headersForm,
		func(r *ruleSpec) *headersSpec { return &r.headers }),
)

// anyRule is the form of a rule, whose key functions stand where the rule has them.
func anyRule() form[*ruleSpec] {
	return form[*ruleSpec]{ruleFields.schema, func(d *reader, at string, n *yaml.Node) (*ruleSpec, bool) {
		r, ok := ruleFields.read(d, at, n)
		r.node, r.at = n, at
		r.rule.Who, r.rule.What, r.rule.Which = r.who.find, r.what.find, r.which.find
		r.rule.ID, r.rule.Origin = r.id.find, r.from.find
		for _, k := range r.under {
			r.rule.Under = append(r.rule.Under, k.find)
		}
		r.rule.Headers = r.headers.Headers
		r.rule.Headers.PartitionKey = r.headers.partition.find
		if failed := r.failed; failed != nil {
			r.rule.Failed = func(status int) bool { return hasStatus(failed, status) }
		}
		for _, s := range r.counted {
			for status := s.from; status <= s.to; status++ {
				r.rule.Counted = append(r.rule.Counted, status)
			}
		}
		return &r, d.checkRule(&r) && ok
	}}
}

// checkRule finds members of a rule that contradict each other.
func (d *reader) checkRule(r *ruleSpec) bool {
	before := len(d.mistakes)
	complain := func(name, format string, args ...any) {
		d.mistake(join(r.at, name), child(r.node, name), format, args...)
	}
	if r.failed != nil && r.counted != nil {
		complain("counted", "it has both failed and counted: set one of them")
	}
	if r.rollout != nil && r.rollout.enabled != nil && *r.rollout.enabled < r.rollout.enforced {
		complain("rollout", "enforced for %v %% of the clients, but enabled for %v %%: a rule cannot refuse "+
			"clients that it is not asked about", r.rollout.enforced, *r.rollout.enabled)
	}
	if r.headers.Hide && r.headers.Legacy {
		complain("headers", "hide and legacy contradict each other: set one of them")
	}
	return len(d.mistakes) == before
}

// checkRules finds rules that do not fit the guards.
func (d *reader) checkRules(c *Config) {
	for _, list := range c.rules {
		seen := map[string]int{}
		for _, r := range list.value {
			if r.guard == "" {
				continue // a mistake that was reported
			}
			if first, twice := seen[r.guard]; twice {
				d.mistake(join(r.at, "guard"), child(r.node, "guard"), "the guard %s is in two rules of the list, which "+
					"would count a request twice: the first one is in line %d", quote(r.guard), first)
			}
			seen[r.guard] = r.node.Line
			d.checkAgainstGuards(c, r)
		}
	}
}

// mistakeIn reports a mistake in a member of a rule, or in the rule if it lacks the member.
func (d *reader) mistakeIn(r *ruleSpec, name, format string, args ...any) {
	n := child(r.node, name)
	if n == nil {
		n = r.node
	}
	d.mistake(join(r.at, name), n, format, args...)
}

// checkAgainstGuards finds names of guards and lists that the file does not have, and what does not fit the
// rule's guard.
func (d *reader) checkAgainstGuards(c *Config, r *ruleSpec) {
	for name, list := range map[string]string{"deny": r.deny, "allow": r.allow} {
		if _, ok := d.lists[list]; list != "" && !ok {
			d.mistakeIn(r, name, "%s", unknown("list", list, slices.Sorted(maps.Keys(d.lists))))
		}
	}
	if r.bans != "" {
		if g, known := d.guard(c, r.bans); !known {
			d.mistakeIn(r, "bans", "%s", unknown("guard", r.bans, d.guardNames(c)))
		} else if _, ok := g.(pipeline.Bans); g != nil && !ok {
			d.mistakeIn(r, "bans", "%s is no guard of the kind bans", quote(r.bans))
		}
	}
	g, known := d.guard(c, r.guard)
	if !known {
		d.mistakeIn(r, "guard", "%s", unknown("guard", r.guard, d.guardNames(c)))
	}
	if g != nil {
		d.checkNeeds(c, r, g)
	}
}

// checkNeeds finds what a rule's guard needs and the rule does not say, and what the guard cannot do.
func (d *reader) checkNeeds(c *Config, r *ruleSpec, g core.Guard) {
	traits := g.Traits()
	lacks := func(name string) bool { return child(r.node, name) == nil }
	if traits.NeedsResource && lacks("what") {
		d.mistakeIn(r, "what", "missing: name what it is about, such as {param: poll}")
	}
	if traits.NeedsID && lacks("id") {
		d.mistakeIn(r, "id", "missing: the guard needs an operation ID, such as idempotency_key")
	}
	if traits.NeedsItem && lacks("which") {
		d.mistakeIn(r, "which", "missing: name which of several, such as {form: choice}")
	}
	if want := max(traits.Levels, 1) - 1; len(r.under) != want {
		d.mistakeIn(r, "under", "%d key functions, but the guard %s has %d levels: write one for each level but "+
			"the last, and none for a guard without levels", len(r.under), quote(r.guard), traits.Levels)
	}
	if !lacks("which") && d.tiered(c, r.guard) {
		d.mistakeIn(r, "which", "the guard %s has tiers, which take its place: leave it out", quote(r.guard))
	}
	outage := cmp.Or(r.rule.OnOutage, traits.Outage)
	if _, ok := g.(kit.LocalGuard); outage == core.FailLocal && !ok {
		d.mistakeIn(r, "on_outage", "the guard %s cannot decide inside one process: use closed or open",
			quote(r.guard))
	}
}

// guard returns a guard of the file or of the program, by which rules can be checked. It is nil if the file
// has the guard with mistakes.
func (d *reader) guard(c *Config, name string) (g core.Guard, known bool) {
	for _, e := range c.guards {
		if e.name == name {
			if e.ok {
				return e.value.sample, true
			}
			return nil, true
		}
	}
	g, known = d.options.guards[name]
	return g, known
}

func (d *reader) tiered(c *Config, name string) bool {
	for _, e := range c.guards {
		if e.name == name && e.ok {
			return e.value.limits != nil && e.value.limits.by != nil
		}
	}
	return false
}

func (d *reader) guardNames(c *Config) []string {
	names := append(c.Guards(), slices.Collect(maps.Keys(d.options.guards))...)
	slices.Sort(names)
	return slices.Compact(names)
}

// listSpec is a list of addresses or other keys.
type listSpec struct {
	key     key
	entries []listEntry
}

// listEntry is an entry, and where it stands.
type listEntry struct {
	text, at string
	node     *yaml.Node
}

var listFields = object(
	must(in("key", "The key function whose text is looked up, such as ip.", anyKey(),
		func(l *listSpec) *key { return &l.key })),
	in("entries", "Addresses, prefixes and other texts; none by default.", listOf(entry(), false),
		func(l *listSpec) *[]listEntry { return &l.entries }),
)

// entry is an entry of a list.
func entry() form[listEntry] {
	f := text("an address, a prefix or a text")
	anyList := keyfuncs.NewList(keyfuncs.Const("any"))
	return form[listEntry]{f.schema, func(d *reader, at string, n *yaml.Node) (listEntry, bool) {
		s, ok := f.read(d, at, n)
		e := listEntry{s, at, n}
		return e, ok && d.accepted(anyList, e)
	}}
}

// accepted reports whether the list accepts the entry.
func (d *reader) accepted(l *keyfuncs.List, e listEntry) bool {
	err := l.Accepts(e.text)
	if err != nil {
		d.mistake(e.at, e.node, "%s", strings.TrimPrefix(err.Error(), "keyfuncs: "))
	}
	return err == nil
}

// anyList is the form of a list.
func anyList() form[*keyfuncs.List] {
	read := func(d *reader, at string, n *yaml.Node) (*keyfuncs.List, bool) {
		spec, ok := listFields.read(d, at, n)
		if !ok {
			return nil, false
		}
		l, texts := keyfuncs.NewList(spec.key.find), make([]string, len(spec.entries))
		for i, e := range spec.entries {
			texts[i] = e.text
			ok = d.accepted(l, e) && ok // by what it looks up
		}
		if !ok {
			return nil, false
		}
		return l, l.Set(texts...) == nil
	}
	return form[*keyfuncs.List]{listFields.schema, read}
}

// rulesForm is a list of rules. All lists together have no more than maxRules.
func rulesForm() form[[]*ruleSpec] {
	of := atMost(maxEntries, listOf(anyRule(), false))
	return form[[]*ruleSpec]{of.schema, func(d *reader, at string, n *yaml.Node) ([]*ruleSpec, bool) {
		if d.rules += len(n.Content); n.Kind == yaml.SequenceNode && d.rules > maxRules {
			d.mistake(at, n, "more than %d rules in all", maxRules)
			return nil, false
		}
		return of.read(d, at, n)
	}}
}

// section is one of the members of a file.
type section struct {
	name, doc string
	schema    schema
}

func sections() []section {
	return []section{
		{"keys", "Key functions under names of their own.", tableOf("key functions", anyKey()).schema},
		{"lists", "Lists of addresses and other keys, for deny and allow.", tableOf("lists", anyList()).schema},
		{"guards", "The guards by name. The name is a part of their keys in Redis.",
			tableOf("guards", anyGuard()).schema},
		{"rules", "Lists of rules by name. A program mounts each list by its name.",
			tableOf("lists of rules", rulesForm()).schema},
	}
}

// read reads the sections of a file.
func (d *reader) read(root *yaml.Node, c *Config) {
	var names []string
	for _, s := range sections() {
		names = append(names, s.name)
	}
	if root.Kind != yaml.MappingNode {
		d.mistake("", root, "found %s: want a mapping with %s", found(root), strings.Join(names, ", "))
		return
	}
	for i := 0; i < len(root.Content); i += 2 {
		if name := root.Content[i]; !slices.Contains(names, name.Value) {
			d.mistake(name.Value, name, "%s", unknown("section", name.Value, names))
		}
	}
	d.readKeys(child(root, "keys"))
	if n := child(root, "lists"); n != nil {
		lists, _ := tableOf("lists", anyList()).read(d, "lists", n)
		for _, l := range lists {
			d.lists[l.name] = l.value
		}
	}
	if n := child(root, "guards"); n != nil {
		c.guards, _ = tableOf("guards", anyGuard()).read(d, "guards", n)
	}
	for _, g := range c.guards {
		if d.options.guards[g.name] != nil {
			d.mistake(g.at, g.node, "the program has a guard named %s already: choose another name", quote(g.name))
		}
	}
	if n := child(root, "rules"); n != nil {
		c.rules, _ = tableOf("lists of rules", rulesForm()).read(d, "rules", n)
	} else {
		d.mistake("", root, "rules is missing: without a list of rules the file guards nothing")
	}
	d.checkRules(c)
	c.lists = d.lists
}
