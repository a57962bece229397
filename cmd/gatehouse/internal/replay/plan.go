package replay

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3" //nolint:depguard // takes rules out of a file that config has checked; no rule is read here

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/rules"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/accesslog"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// plan is which rules of a file the fields of a log can decide, and under which limits they are tried.
type plan struct {
	file    string
	flags   *flags
	log     *accesslog.Reader
	config  *config.Config
	options []config.Option
	root    *yaml.Node
	lists   []*plannedList
	skipped []skippedRule
	direct  map[*yaml.Node]string // arguments of ip, by which the log has no clients
	sweeps  []sweep
}

// plannedList is a list of rules that is replayed.
type plannedList struct {
	name   string
	mounts []string // patterns of routes; "" stands for all requests
	rules  []plannedRule
}

// plannedRule is a rule that is replayed.
type plannedRule struct {
	guard, kind, limits string
	settles             bool // what it counts depends on the status of the answer
	preflights          bool // CORS preflights pass it
	notes               []string
}

// skippedRule is a rule, or a list without a guard, that is not replayed.
type skippedRule struct {
	List  string   `json:"list"`
	Guard string   `json:"guard,omitempty"`
	Kind  string   `json:"kind,omitempty"`
	Why   []string `json:"why"`
}

// limitKinds are the kinds of guards that decide inside one process.
var limitKinds = map[string]bool{
	"sliding_window": true, "leased_window": true, "fixed_window": true, "token_bucket": true,
}

func newPlan(file string, flags *flags, log *accesslog.Reader) (*plan, error) {
	p := &plan{file: file, flags: flags, log: log, direct: map[*yaml.Node]string{}}
	err := cli.Caught(func() { p.options = flags.options() })
	if err != nil {
		return nil, err
	}
	if p.config, err = rules.Load(file, p.options); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err = yaml.Unmarshal(data, &document); err == nil && len(document.Content) != 1 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: it has changed, or cannot be read as YAML: %w", file, err)
	}
	p.root = document.Content[0]
	for _, mount := range flags.mounts {
		if !slices.Contains(p.config.Lists(), mount.list) {
			return nil, cli.Usagef("-mount: %s has no list %q: it has %s", file, mount.list,
				strings.Join(p.config.Lists(), ", "))
		}
	}
	for _, name := range p.config.Lists() {
		p.list(name)
	}
	if len(p.lists) == 0 {
		text := file + ": no rule can be replayed:"
		for _, one := range p.skipped {
			text += "\n  " + one.String()
		}
		return nil, errors.New(text)
	}
	p.takeOut()
	return p, p.sweep()
}

// planned returns a list that is replayed, or nil.
func (p *plan) planned(name string) *plannedList {
	for _, list := range p.lists {
		if list.name == name {
			return list
		}
	}
	return nil
}

// String describes what is not replayed, and why.
func (n skippedRule) String() string {
	text := n.List
	if n.Guard != "" {
		text += fmt.Sprintf(" %s (%s)", n.Guard, n.Kind)
	}
	return text + ": " + strings.Join(n.Why, "; ")
}

// list plans a list of rules.
func (p *plan) list(name string) {
	list := &plannedList{name: name}
	for _, mount := range p.flags.mounts {
		if mount.list == name {
			list.mounts = append(list.mounts, mount.pattern)
		}
	}
	switch {
	case len(p.flags.mounts) == 0:
		list.mounts = []string{""}
	case list.mounts == nil:
		p.skipped = append(p.skipped, skippedRule{List: name, Why: []string{"-mount does not name the list"}})
		return
	}
	for _, rule := range member(member(p.root, "rules"), name).Content {
		guard := member(rule, "guard").Value
		kind := p.config.Kind(guard)
		if why := p.why(list, rule, guard, kind); len(why) > 0 {
			p.skipped = append(p.skipped, skippedRule{name, guard, kind, why})
			continue
		}
		list.rules = append(list.rules, p.rule(rule, guard, kind))
	}
	if len(list.rules) > 0 {
		p.lists = append(p.lists, list)
	}
}

// why returns why a rule cannot be replayed.
func (p *plan) why(list *plannedList, rule *yaml.Node, guard, kind string) []string {
	switch {
	case kind == "semaphore" || kind == "lock":
		return []string{"a log does not tell what requests hold at the same time"}
	case !limitKinds[kind]:
		return []string{"what it decides is in Redis, and not in a log"}
	}
	var why []string
	for _, key := range p.keysOf(rule, guard) {
		why = append(why, p.lacks(list, key)...)
	}
	if cost := member(rule, "cost"); cost.ShortTag() == "!!str" {
		if source, ok := p.flags.costs[cost.Value]; !ok || source == "" {
			why = append(why, fmt.Sprintf("the cost %s is not in the log: -cost %[1]s=FIELD names it", cost.Value))
		}
	}
	slices.Sort(why)
	return slices.Compact(why)
}

// keysOf returns the key functions that a rule calls, and empty nodes for those that it does not have.
func (p *plan) keysOf(rule *yaml.Node, guard string) []*yaml.Node {
	keys := []*yaml.Node{member(member(p.guard(guard), "tiers"), "by")}
	for _, name := range []string{"who", "what", "which"} {
		keys = append(keys, member(rule, name))
	}
	for _, name := range []string{"deny", "allow"} {
		keys = append(keys, member(member(member(p.root, "lists"), member(rule, name).Value), "key"))
	}
	return keys
}

// guard returns the options of a guard.
func (p *plan) guard(name string) *yaml.Node {
	return member(member(member(p.root, "guards"), name), p.config.Kind(name))
}

// rule describes a rule that is replayed, and what has to be known about it.
func (p *plan) rule(rule *yaml.Node, guard, kind string) plannedRule {
	planned := plannedRule{guard: guard, kind: kind, limits: p.limitsOf(guard)}
	note := func(format string, args ...any) {
		planned.notes = append(planned.notes, fmt.Sprintf(format, args...))
	}
	if bans := member(rule, "bans").Value; bans != "" {
		note("without the bans of %s, which are in Redis", bans)
	}
	planned.settles = !member(rule, "failed").IsZero() || !member(rule, "counted").IsZero()
	switch {
	case planned.settles && p.log.HasStatus():
		note("by the status in the log, units come back at once, as if requests took no time")
	case planned.settles:
		note("the log has no status: all requests count as if they were answered 200")
	}
	planned.preflights = member(rule, "count_preflights").Value != "true" &&
		(!p.log.HasHeader("Origin") || !p.log.HasHeader("Access-Control-Request-Method"))
	for _, key := range p.keysOf(rule, guard) {
		for _, field := range p.peers(key) {
			note("the log has no %s: the address in it counts as the client's, also if it is a proxy's", field)
		}
	}
	slices.Sort(planned.notes)
	planned.notes = slices.Compact(planned.notes)
	return planned
}

// limitsOf returns the limits of a guard as the file has them.
func (p *plan) limitsOf(guard string) string {
	options := p.guard(guard)
	if limits := member(options, "limits").Value; limits != "" {
		return limits
	}
	var tiers []string
	of := member(member(options, "tiers"), "of")
	for i := 0; i+1 < len(of.Content); i += 2 {
		tiers = append(tiers, of.Content[i].Value+" "+of.Content[i+1].Value)
	}
	return strings.Join(append(tiers, "others "+member(member(options, "tiers"), "others").Value), "; ")
}

// nothing stands for members that are not there.
var nothing = new(yaml.Node)

// member returns the member of a mapping, or an empty node.
func member(n *yaml.Node, name string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nothing
}

// maxNested bounds how deep key functions are followed; the file was checked before.
const maxNested = 64

// function returns the name and the argument of a key function. Names of the section keys are resolved.
func (p *plan) function(key *yaml.Node) (name string, argument *yaml.Node) {
	for range maxNested {
		if key.Kind == yaml.MappingNode && len(key.Content) == 2 {
			return key.Content[0].Value, key.Content[1]
		}
		named := member(member(p.root, "keys"), key.Value)
		if named.IsZero() {
			break
		}
		key = named
	}
	return key.Value, nothing
}

// lacks returns what a key function reads that the log does not have.
func (p *plan) lacks(list *plannedList, key *yaml.Node) []string {
	name, argument := p.function(key)
	switch text := argument.Value; name {
	case "", "const", "query", "method", "ip":
		return nil
	case "join", "first_of":
		var all []string
		for _, one := range argument.Content {
			all = append(all, p.lacks(list, one)...)
		}
		return all
	case "hash", "folded", "require":
		return p.lacks(list, argument)
	case "form", "json", "fingerprint":
		return []string{"a log has no bodies, of which " + name + " reads one"}
	case "user":
		if p.flags.users[text] == "" && p.flags.everyone != "" {
			p.flags.users[text] = p.flags.everyone
		}
		return lack(p.flags.users[text] != "",
			"the user %s is not in the log: -user %[1]s=FIELD names the field", text)
	case "header", "cookie", "idempotency_key", "visitor":
		return p.lacksHeaders(map[string][]string{"header": {text}, "cookie": {"Cookie"},
			"idempotency_key": {"Idempotency-Key"}, "visitor": {"User-Agent", "Accept-Language"}}[name])
	case "basic_auth":
		return lack(p.log.HasUser() || p.hasHeader("Authorization"), "the log has no user of Basic authentication")
	case "host":
		return lack(p.log.HasHost(), "the log has no host: -field host=FIELD names the field")
	case "route", "param":
		return p.lacksRoute(list, name, text)
	}
	return lack(p.flags.keys[name] != "",
		"the key function %s of the program: -key %[1]s=FIELD names the field of the log", name)
}

// lack returns what is missing, unless the log has it.
func lack(has bool, format string, args ...any) []string {
	if has {
		return nil
	}
	return []string{fmt.Sprintf(format, args...)}
}

// lacksHeaders is lacks for key functions that read header fields.
func (p *plan) lacksHeaders(fields []string) (all []string) {
	for _, field := range fields {
		all = append(all, lack(p.hasHeader(field), "the log has no %s: -header %[1]s=FIELD names the field",
			field)...)
	}
	return all
}

// lacksRoute is lacks for key functions that need the pattern of the route.
func (p *plan) lacksRoute(list *plannedList, name, param string) []string {
	has := func(pattern string) bool {
		if name == "route" {
			return pattern != ""
		}
		return strings.Contains(pattern, "{"+param+"}") || strings.Contains(pattern, "{"+param+"...}")
	}
	switch {
	case !slices.ContainsFunc(list.mounts, func(pattern string) bool { return !has(pattern) }):
		return nil
	case name == "route":
		return []string{fmt.Sprintf("the route is not in the log: -mount '%s=PATTERN' names it", list.name)}
	}
	return []string{fmt.Sprintf("the path parameter %s is not in the log: -mount '%s=POST /path/{%[1]s}' names "+
		"the route", param, list.name)}
}

// peers makes ip take the address that the log has, where the log lacks the header field with the client's.
// It returns the names of such fields.
func (p *plan) peers(key *yaml.Node) (fields []string) {
	switch name, argument := p.function(key); name {
	case "ip":
		field := member(argument, "read_header").Value
		switch {
		case field != "":
		case member(argument, "read_forwarded").Value == "true":
			field = "Forwarded"
		case len(member(argument, "trust_proxies").Content) > 0:
			field = "X-Forwarded-For"
		}
		if field == "" || p.hasHeader(field) {
			return nil
		}
		p.direct[argument] = field
		return []string{field}
	case "hash", "folded", "require":
		return p.peers(argument)
	case "join", "first_of":
		for _, one := range argument.Content {
			fields = append(fields, p.peers(one)...)
		}
	}
	return fields
}

func (p *plan) hasHeader(name string) bool {
	for given := range p.flags.headers {
		if strings.EqualFold(given, name) {
			return true
		}
	}
	return p.log.HasHeader(name)
}

// takeOut removes what is not replayed from the file, so that an engine without Redis can have the rest.
func (p *plan) takeOut() {
	lists, guards := &yaml.Node{Kind: yaml.MappingNode}, &yaml.Node{Kind: yaml.MappingNode}
	all, used := member(p.root, "rules"), map[string]bool{}
	for _, list := range p.lists {
		kept := &yaml.Node{Kind: yaml.SequenceNode}
		for _, rule := range member(all, list.name).Content {
			guard := member(rule, "guard").Value
			if !slices.ContainsFunc(list.rules, func(r plannedRule) bool { return r.guard == guard }) {
				continue
			}
			used[guard] = true
			remove(rule, "bans")
			kept.Content = append(kept.Content, rule)
		}
		name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: list.name}
		lists.Content = append(lists.Content, name, kept)
	}
	from := member(p.root, "guards")
	for i := 0; i+1 < len(from.Content); i += 2 {
		if used[from.Content[i].Value] {
			guards.Content = append(guards.Content, from.Content[i], from.Content[i+1])
		}
	}
	for argument := range p.direct {
		for _, name := range []string{"trust_proxies", "trust_unix_socket", "read_forwarded", "read_header",
			"proxy_may_be_client"} {
			remove(argument, name)
		}
	}
	*member(p.root, "rules"), *member(p.root, "guards") = *lists, *guards
}

func remove(n *yaml.Node, name string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

// sweep is another limit of a guard.
type sweep struct{ guard, limits string }

// sweep reads the flags -sweep.
func (p *plan) sweep() error {
	for _, text := range p.flags.sweeps {
		guard, limits, named := strings.Cut(text, "=")
		if !named {
			var names []string
			for _, list := range p.lists {
				for _, rule := range list.rules {
					names = append(names, rule.guard)
				}
			}
			slices.Sort(names)
			if names = slices.Compact(names); len(names) > 1 {
				return cli.Usagef("-sweep %q: name the guard, one of %s: GUARD=%s", text, strings.Join(names, ", "),
					text)
			}
			guard, limits = names[0], text
		}
		if err := p.sweepOf(strings.TrimSpace(guard), strings.TrimSpace(limits)); err != nil {
			return cli.Usagef("-sweep %q: %w", text, err)
		}
	}
	if len(p.sweeps) > maxSweeps {
		return cli.Usagef("-sweep: %d limits: try at most %d at a time", len(p.sweeps), maxSweeps)
	}
	return nil
}

// maxSweeps is how many limits are tried in one pass.
const maxSweeps = 32

// sweepOf reads limits as a file has them: they stand in place of all that the guard has.
func (p *plan) sweepOf(guard, text string) error {
	if p.guard(guard).IsZero() {
		return fmt.Errorf("no guard %q is replayed", guard)
	}
	if member(p.guard(guard), "limits").Value == "" {
		return fmt.Errorf("the guard %q has tiers: change them in the file", guard)
	}
	if _, err := limit.ParseAll(text); err != nil {
		return fmt.Errorf("%w (write limits as in a file, and the flag once for each try)", err)
	}
	p.sweeps = append(p.sweeps, sweep{guard, text})
	return nil
}

// rules returns the file of a world: with the limits of a sweep, unless it is nil.
func (p *plan) rules(s *sweep) (*config.Config, error) {
	if s != nil {
		limits := member(p.guard(s.guard), "limits")
		was := *limits
		limits.Value, limits.Style = s.limits, yaml.DoubleQuotedStyle
		defer func() { *limits = was }()
	}
	data, err := yaml.Marshal(p.root)
	if err != nil {
		return nil, err
	}
	return config.Parse(p.file, data, p.options...)
}

// alone says what the result is of where the program has several lists and no flag tells where.
func (p *plan) alone() string {
	text := "each list was replayed on all requests, as if it were the only one: say where the program has them,"
	for _, list := range p.lists {
		text += " -mount '" + list.name + "=PATTERN'"
	}
	return text + ", without =PATTERN for one that all requests pass"
}
