package rulefile

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// Rule is a rule of a file.
type Rule struct {
	Rule            pipeline.Rule // without what has to be made: guard, bans, rollout
	Guard           string
	Bans            string
	Rollout         *Rollout
	Deny, Allow     string
	who, what       key
	under           []key
	which, id, from key
	headers         headersSpec
	failed, counted []statuses
	node            *yaml.Node
	at              string
}

// Rollout is for how many percent of the clients a rule applies.
type Rollout struct {
	Enabled  *float64
	Enforced float64
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

// statusesOrNone is statuses, or the word none: then it is an empty list.
func statusesOrNone() form[[]statuses] {
	f := statusList()
	return form[[]statuses]{schema{"anyOf": []any{schema{"const": "none"}, f.schema}},
		func(d *reader, at string, n *yaml.Node) ([]statuses, bool) {
			if n.Kind == yaml.ScalarNode && n.Value == "none" {
				return []statuses{}, true
			}
			return f.read(d, at, n)
		}}
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
			if f := d.program.Costs[n.Value]; f != nil {
				return f, true
			}
			d.mistake(at, n, "%s, or a whole number",
				unknown("cost function", n.Value, slices.Sorted(maps.Keys(d.program.Costs))))
			return nil, false
		}}
}

var rolloutForm = object(
	in("enabled", "For how many percent of the clients the rule is asked; the default is 100.",
		pointer(percent()), func(o *Rollout) **float64 { return &o.Enabled }),
	must(in("enforced", "For how many percent it refuses; 0 is a shadow, which refuses nobody.", percent(),
		func(o *Rollout) *float64 { return &o.Enforced })),
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
		func(r *Rule) *string { return &r.Guard })),
	must(in("who", "The key function that finds who acts, such as ip or {user: uid}.", anyKey(),
		func(r *Rule) *key { return &r.who })),
	in("under", "For guards with levels: whom the actor is under, the outermost first, such as [{user: org}].",
		listOf(anyKey(), false), func(r *Rule) *[]key { return &r.under }),
	in("what", "What it is about: the poll, the item on sale, the route.", anyKey(),
		func(r *Rule) *key { return &r.what }),
	in("which", "Which of several: the choice of a voter, the item of a quota.", anyKey(),
		func(r *Rule) *key { return &r.which }),
	in("cost", "How many units a request takes, or the name of a function of the program; the default is 1.",
		cost(), func(r *Rule) *func(*keyfuncs.Request) (int64, error) { return &r.Rule.Cost }),
	in("id", "The operation ID, such as idempotency_key.", anyKey(), func(r *Rule) *key { return &r.id }),
	in("bare_id", "Take the operation ID as it is, not joined with who.", boolean(),
		func(r *Rule) *bool { return &r.Rule.BareID }),
	in("origin", "Where the request comes from, for the audit of votes.", anyKey(),
		func(r *Rule) *key { return &r.from }),
	in("run_replays", "Run the handler for replays too.", boolean(),
		func(r *Rule) *bool { return &r.Rule.RunReplays }),
	in("deny", "The list of those whom the rule refuses.", name("a list"),
		func(r *Rule) *string { return &r.Deny }),
	in("allow", "The list of those who pass uncounted.", name("a list"),
		func(r *Rule) *string { return &r.Allow }),
	in("count_preflights", "Count CORS preflights as other requests.", boolean(),
		func(r *Rule) *bool { return &r.Rule.CountPreflights }),
	in("bans", "The guard of the kind bans that shuts out those whom this rule refuses too often.",
		name("a guard"), func(r *Rule) *string { return &r.Bans }),
	in("rollout", "Apply the rule to a part of the clients.", pointer(rolloutForm),
		func(r *Rule) **Rollout { return &r.Rollout }),
	in("no_key", "What happens to requests without who, or without an id that the guard requires: refuse, or "+
		"skip the rule; the default is refuse.",
		oneOf(choice[pipeline.NoKey]{"refuse", pipeline.NoKeyRefuse},
			choice[pipeline.NoKey]{"skip", pipeline.NoKeySkip}),
		func(r *Rule) *pipeline.NoKey { return &r.Rule.NoKey }),
	in("on_outage", "What happens while Redis is away: closed, open or local; the default is the guard's.",
		oneOf(choice[core.Outage]{"closed", core.FailClosed}, choice[core.Outage]{"open", core.FailOpen},
			choice[core.Outage]{"local", core.FailLocal}),
		func(r *Rule) *core.Outage { return &r.Rule.OnOutage }),
	in("failed", `Statuses of answers that give back what the request took, such as [4xx, 5xx], or none.`,
		statusesOrNone(),
		func(r *Rule) *[]statuses { return &r.failed }),
	in("counted", "The only statuses of answers that count, in place of failed: all others give back.",
		statusList(), func(r *Rule) *[]statuses { return &r.counted }),
	in("headers", "Which figures of the rule clients see.", headersForm,
		func(r *Rule) *headersSpec { return &r.headers }),
)

// anyRule is the form of a rule, whose key functions stand where the rule has them.
func anyRule() form[*Rule] {
	return form[*Rule]{ruleFields.schema, func(d *reader, at string, n *yaml.Node) (*Rule, bool) {
		r, ok := ruleFields.read(d, at, n)
		r.node, r.at = n, at
		r.Rule.Who, r.Rule.What, r.Rule.Which = r.who.find, r.what.find, r.which.find
		r.Rule.ID, r.Rule.Origin = r.id.find, r.from.find
		for _, k := range r.under {
			r.Rule.Under = append(r.Rule.Under, k.find)
		}
		r.Rule.Headers = r.headers.Headers
		r.Rule.Headers.PartitionKey = r.headers.partition.find
		if failed := r.failed; failed != nil {
			r.Rule.Failed = func(status int) bool { return hasStatus(failed, status) }
		}
		for _, s := range r.counted {
			for status := s.from; status <= s.to; status++ {
				r.Rule.Counted = append(r.Rule.Counted, status)
			}
		}
		return &r, d.checkRule(&r) && ok
	}}
}

// mistakeIn reports a mistake in a member of a rule, or in the rule if it lacks the member.
func (d *reader) mistakeIn(r *Rule, name, format string, args ...any) {
	n := child(r.node, name)
	if n == nil {
		n = r.node
	}
	d.mistake(join(r.at, name), n, format, args...)
}

// checkRule finds members of a rule that contradict each other.
func (d *reader) checkRule(r *Rule) bool {
	before := len(d.mistakes)
	if r.failed != nil && r.counted != nil {
		d.mistakeIn(r, "counted", "it has both failed and counted: set one of them")
	}
	if r.Rollout != nil && r.Rollout.Enabled != nil && *r.Rollout.Enabled < r.Rollout.Enforced {
		d.mistakeIn(r, "rollout", "enforced for %v %% of the clients, but enabled for %v %%: a rule cannot refuse "+
			"clients that it is not asked about", r.Rollout.Enforced, *r.Rollout.Enabled)
	}
	if r.headers.Hide && r.headers.Legacy {
		d.mistakeIn(r, "headers", "hide and legacy contradict each other: set one of them")
	}
	return len(d.mistakes) == before
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

// keyList is a list, and what it looks up.
type keyList struct {
	list *keyfuncs.List
	key  key
}

// anyList is the form of a list.
func anyList() form[keyList] {
	read := func(d *reader, at string, n *yaml.Node) (keyList, bool) {
		spec, ok := listFields.read(d, at, n)
		if !ok {
			return keyList{}, false
		}
		l, texts := keyfuncs.NewList(spec.key.find), make([]string, len(spec.entries))
		for i, e := range spec.entries {
			texts[i] = e.text
			ok = d.accepted(l, e) && ok // by what it looks up
		}
		if !ok {
			return keyList{}, false
		}
		return keyList{l, spec.key}, l.Set(texts...) == nil
	}
	return form[keyList]{listFields.schema, read}
}

// rulesForm is a list of rules. All lists together have no more than maxRules.
func rulesForm() form[[]*Rule] {
	of := atMost(maxEntries, listOf(anyRule(), false))
	return form[[]*Rule]{of.schema, func(d *reader, at string, n *yaml.Node) ([]*Rule, bool) {
		if d.rules += len(n.Content); n.Kind == yaml.SequenceNode && d.rules > maxRules {
			d.mistake(at, n, "more than %d rules in all", maxRules)
			return nil, false
		}
		return of.read(d, at, n)
	}}
}
