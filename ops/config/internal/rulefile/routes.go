package rulefile

import (
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/plainhost"
)

// Route names the lists of rules that the requests of a pattern pass, the outermost first.
type Route struct {
	Pattern string
	Lists   []string
	node    *yaml.Node // of the pattern
	at      string
}

// routesForm is the section routes.
func routesForm() form[[]Route] {
	lists := listOf(name("a list of rules"), true)
	s := schema{"type": "object", "maxProperties": maxEntries, "additionalProperties": lists.schema}
	return form[[]Route]{s, func(d *reader, at string, n *yaml.Node) ([]Route, bool) {
		if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
			d.mistake(at, n, `found %s: want a mapping of patterns to lists of rules, such as "POST /login": login`,
				foundOrEmpty(n))
			return nil, false
		}
		if len(n.Content)/2 > maxEntries {
			d.mistake(at, n, "%d routes: at most %d are allowed", len(n.Content)/2, maxEntries)
			return nil, false
		}
		var all []Route
		var mux http.ServeMux // which knows the patterns, and which of them conflict
		for i := 0; i < len(n.Content); i += 2 {
			pattern, at := n.Content[i], join(at, quote(n.Content[i].Value))
			fits := d.try(at, pattern, func() { mux.Handle(pattern.Value, http.NotFoundHandler()) })
			names, ok := lists.read(d, at, n.Content[i+1])
			if fits && ok {
				all = append(all, Route{pattern.Value, names, pattern, at})
			}
		}
		return all, len(all) == len(n.Content)/2
	}}
}

// readRoutes reads the section routes. The lists are known.
func (d *reader) readRoutes(root *yaml.Node, f *File) {
	n := child(root, "routes")
	if n == nil {
		if d.program.ForGateway {
			d.mistake("", root, `routes is missing: name the lists of rules for each pattern, such as "/": site`)
		}
		return
	}
	f.Routes, _ = routesForm().read(d, "routes", n)
	names := make([]string, len(f.Rules))
	for i, list := range f.Rules {
		names[i] = list.Name
	}
	routed := map[string]bool{}
	for _, r := range f.Routes {
		if host := hostOf(r.Pattern); d.program.ForGateway && host != plainhost.Of(host) {
			d.mistake(r.at, r.node, "the host %s never matches: write it in lower case, without a port and without a "+
				"dot at its end", quote(host))
		}
		for i, list := range r.Lists {
			routed[list] = true
			switch {
			case !slices.Contains(names, list):
				d.mistake(r.at, r.node, "%s", unknown("list of rules", list, names))
			case slices.Contains(r.Lists[:i], list):
				d.mistake(r.at, r.node, "the list %s comes twice, and would count a request twice", quote(list))
			}
		}
	}
	if !d.program.ForGateway {
		return
	}
	for _, list := range f.Rules {
		if !routed[list.Name] {
			continue
		}
		for _, r := range list.Value {
			d.checkForGateway(f, r)
		}
	}
}

// hostOf returns the host of a pattern that a ServeMux has accepted, or nothing.
func hostOf(pattern string) string {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		pattern = strings.TrimLeft(pattern[i:], " \t")
	}
	host, _, _ := strings.Cut(pattern, "/")
	return host
}

// checkForGateway finds what a rule needs and a gateway does not see: the body of a request, and how it ends.
func (d *reader) checkForGateway(f *File, r *Rule) {
	for member, k := range map[string]key{"who": r.who, "what": r.what, "which": r.which, "id": r.id,
		"origin": r.from, "headers": r.headers.partition, "deny": d.listKeys[r.Deny],
		"allow": d.listKeys[r.Allow]} {
		if k.needs != "" {
			d.mistakeIn(r, member, "a gateway cannot tell: %s", k.needs)
		}
	}
	for _, k := range r.under {
		if k.needs != "" {
			d.mistakeIn(r, "under", "a gateway cannot tell: %s", k.needs)
		}
	}
	if r.counted != nil || len(r.failed) > 0 {
		d.mistakeIn(r, "guard", "failed and counted depend on the answer of the application, which a gateway does "+
			"not see: leave them out")
	}
	g, _ := d.guard(f, r.Guard)
	if g == nil {
		return
	}
	traits := g.Traits()
	_, holds := g.(kit.Holder)
	switch {
	case traits.Confirms:
		d.mistakeIn(r, "guard", "the guard %s confirms when the application has answered, which a gateway does "+
			"not see: mount this rule in the application", quote(r.Guard))
	case holds:
		d.mistakeIn(r, "guard", "the guard %s holds until the application has answered, which a gateway does not "+
			"see: mount this rule in the application", quote(r.Guard))
	case !traits.KeepsOnFailure && r.failed == nil:
		d.mistakeIn(r, "failed", "the guard %s gives back what a failed request took, and a gateway does not see "+
			"failures: write failed: none to keep it in any case", quote(r.Guard))
	}
	if t := d.tierKey(f, r.Guard); t.needs != "" {
		d.mistakeIn(r, "guard", "a gateway cannot tell the tier: %s", t.needs)
	}
}

// lacking says what a key function reads that a gateway does not see.
func (d *reader) lacking(kind string, argument *yaml.Node) string {
	switch {
	case !d.program.ForGateway:
	case kind == "form" || kind == "json" || kind == "fingerprint":
		return kind + " reads the body, which the proxy keeps: take a header, a cookie or the query"
	case kind == "user" && argument != nil && !slices.Contains(d.program.Users, argument.Value):
		return "user " + argument.Value + ": no login is in front of it; name the header field in which the " +
			"proxy sends it (-user " + strings.ToLower(argument.Value) + "=X-User), or use header"
	}
	return ""
}
