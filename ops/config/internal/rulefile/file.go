package rulefile

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// File is what a file says.
type File struct {
	Guards []Named[*Guard]
	Rules  []Named[[]*Rule]
	Lists  map[string]*keyfuncs.List
	Routes []Route
}

// Read reads the contents of a file. If there are mistakes, the File has not all.
func Read(name string, data []byte, p *Program) (*File, []Mistake) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"}) // nobody calls it
	defer client.Close()
	d := &reader{
		file: name, program: p, keys: map[string]*namedKey{}, lists: map[string]*keyfuncs.List{},
		listKeys: map[string]key{},
		scratch:  core.New(client, core.WithDeadline(time.Minute)),
	}
	f := new(File)
	d.readAll(data, f)
	slices.SortStableFunc(d.mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f, d.mistakes
}

// readAll reads the file, until there are enough mistakes.
func (d *reader) readAll(data []byte, f *File) {
	defer func() {
		if p := recover(); p != nil && p != any(enough{}) {
			panic(p)
		}
	}()
	if root := d.document(data); root != nil {
		d.read(root, f)
	}
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
		{"routes", "For gatehouse serve: the lists that the requests of a pattern pass, the outermost first.",
			routesForm().schema},
	}
}

// read reads the sections of a file.
func (d *reader) read(root *yaml.Node, f *File) {
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
			d.lists[l.Name], d.listKeys[l.Name] = l.Value.list, l.Value.key
		}
	}
	if n := child(root, "guards"); n != nil {
		f.Guards, _ = tableOf("guards", anyGuard()).read(d, "guards", n)
	}
	for _, g := range f.Guards {
		if d.program.Guards[g.Name] != nil {
			d.mistake(g.at, g.node, "the program has a guard named %s already: choose another name", quote(g.Name))
		}
	}
	if n := child(root, "rules"); n != nil {
		f.Rules, _ = tableOf("lists of rules", rulesForm()).read(d, "rules", n)
	} else {
		d.mistake("", root, "rules is missing: without a list of rules the file guards nothing")
	}
	d.checkRules(f)
	d.readRoutes(root, f)
	f.Lists = d.lists
}

// checkRules finds rules that do not fit the guards.
func (d *reader) checkRules(f *File) {
	for _, list := range f.Rules {
		seen := map[string]int{}
		for _, r := range list.Value {
			if r.Guard == "" {
				continue // a mistake that was reported
			}
			if first, twice := seen[r.Guard]; twice {
				d.mistake(join(r.at, "guard"), child(r.node, "guard"), "the guard %s is in two rules of the list, which "+
					"would count a request twice: the first one is in line %d", quote(r.Guard), first)
			}
			seen[r.Guard] = r.node.Line
			d.checkAgainstGuards(f, r)
		}
	}
}

// checkAgainstGuards finds names of guards and lists that the file does not have, and what does not fit the
// rule's guard.
func (d *reader) checkAgainstGuards(f *File, r *Rule) {
	for name, list := range map[string]string{"deny": r.Deny, "allow": r.Allow} {
		if _, ok := d.lists[list]; list != "" && !ok {
			d.mistakeIn(r, name, "%s", unknown("list", list, slices.Sorted(maps.Keys(d.lists))))
		}
	}
	if r.Bans != "" {
		if g, known := d.guard(f, r.Bans); !known {
			d.mistakeIn(r, "bans", "%s", unknown("guard", r.Bans, d.guardNames(f)))
		} else if _, ok := g.(pipeline.Bans); g != nil && !ok {
			d.mistakeIn(r, "bans", "%s is no guard of the kind bans", quote(r.Bans))
		}
	}
	g, known := d.guard(f, r.Guard)
	if !known {
		d.mistakeIn(r, "guard", "%s", unknown("guard", r.Guard, d.guardNames(f)))
	}
	if g != nil {
		d.checkNeeds(f, r, g)
	}
}

// checkNeeds finds what a rule's guard needs and the rule does not say, and what the guard cannot do.
func (d *reader) checkNeeds(f *File, r *Rule, g core.Guard) {
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
			"the last, and none for a guard without levels", len(r.under), quote(r.Guard), traits.Levels)
	}
	if !lacks("which") && d.tiered(f, r.Guard) {
		d.mistakeIn(r, "which", "the guard %s has tiers, which take its place: leave it out", quote(r.Guard))
	}
	outage := cmp.Or(r.Rule.OnOutage, traits.Outage)
	if _, ok := g.(kit.LocalGuard); outage == core.FailLocal && !ok {
		d.mistakeIn(r, "on_outage", "the guard %s cannot decide inside one process: use closed or open",
			quote(r.Guard))
	}
}

// guard returns a guard of the file or of the program, by which rules can be checked. It is nil if the file
// has the guard with mistakes.
func (d *reader) guard(f *File, name string) (g core.Guard, known bool) {
	for _, e := range f.Guards {
		if e.Name == name {
			if e.ok {
				return e.Value.sample, true
			}
			return nil, true
		}
	}
	g, known = d.program.Guards[name]
	return g, known
}

func (d *reader) tiered(f *File, name string) bool { return d.tierKey(f, name).find != nil }

// tierKey returns what finds the tier for a guard, if it has tiers.
func (d *reader) tierKey(f *File, name string) key {
	for _, e := range f.Guards {
		if e.Name == name && e.ok && e.Value.Limits != nil {
			return e.Value.Limits.by
		}
	}
	return key{}
}

func (d *reader) guardNames(f *File) []string {
	names := slices.Collect(maps.Keys(d.program.Guards))
	for _, g := range f.Guards {
		names = append(names, g.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
