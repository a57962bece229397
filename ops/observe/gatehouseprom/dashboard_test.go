package gatehouseprom_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouseprom"
)

type source struct{ Type, UID string }

type panel struct {
	ID                       int
	Title, Description, Type string
	Datasource               source
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                source
	}
}

type dashboard struct {
	UID, Title    string
	SchemaVersion int
	ID            *int
	Panels        []panel
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 10 || d.UID == "" || d.Title == "" || d.SchemaVersion < 39 || d.ID != nil {
		t.Errorf("%d panels, uid %q, title %q, schema %d, id %v", len(d.Panels), d.UID, d.Title, d.SchemaVersion,
			d.ID)
	}
	return d
}

// exported returns the names of the package's series in queries, their labels, and which of them only grow.
func exported(t *testing.T) (labels map[string]map[string]bool, grows map[string]bool) {
	t.Helper()
	registry := prometheus.NewRegistry()
	o := gatehouseprom.New(registry)
	o.Observe(t.Context(), core.Event{Guard: "g", Op: "check", Took: time.Second, Decision: core.Decision{
		Allowed: true, Reason: core.ReasonOK, Limit: 1, Window: time.Minute,
	}})
	o.Observe(t.Context(), core.Event{Guard: "g", Op: "refuse", Key: "who"})
	o.Observe(t.Context(), core.Event{Guard: "g", Op: "check", Err: core.ErrBreakerOpen})
	labels, grows = map[string]map[string]bool{}, map[string]bool{}
	for name, family := range scrape(t, registry) {
		all := map[string]bool{"instance": true, "job": true} // Prometheus's own
		for _, l := range family.GetMetric()[0].GetLabel() {
			all[l.GetName()] = true
		}
		if family.GetMetric()[0].GetHistogram() != nil {
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				labels[name+part], grows[name+part] = all, true
			}
			all["le"] = true
			continue
		}
		labels[name], grows[name] = all, strings.HasSuffix(name, "_total")
	}
	return labels, grows
}

// TestDashboardQueriesExistingMetrics: each metric of a query is exported and has the labels of the query,
// and queries take the rate of each metric that only grows.
func TestDashboardQueriesExistingMetrics(t *testing.T) {
	labels, grows := exported(t)
	asked := map[string]bool{}
	for _, p := range readDashboard(t).Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s has no query", p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: query %s of %+v", p.Title, target.RefID, target.Datasource)
			}
			refs[target.RefID] = true
			metrics := regexp.MustCompile(`(\w*\()?(gatehouse_\w+)(?:\{([^}]*)\})?(\[\$__rate_interval\])?`).FindAllStringSubmatch(target.Expr, -1)
			if len(metrics) == 0 {
				t.Errorf("%s: no metric in %s", p.Title, target.Expr)
			}
			var grouped []string
			for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(target.Expr, -1) {
				grouped = append(grouped, strings.Split(by[1], ", ")...)
			}
			for _, m := range metrics {
				function, name, rate := m[1], m[2], m[4] != ""
				if labels[name] == nil {
					t.Errorf("%s: %s is not exported", p.Title, name)
				}
				if grown := function == "rate(" || function == "increase("; grown != rate || grown != grows[name] {
					t.Errorf("%s: %q of %s, which only grows: %t", p.Title, function, name, grows[name])
				}
				used := slices.Clone(grouped)
				for _, matcher := range regexp.MustCompile(`(\w+)[!=]~?"`).FindAllStringSubmatch(m[3], -1) {
					used = append(used, matcher[1])
				}
				for _, label := range used {
					if !labels[name][label] {
						t.Errorf("%s: %s has no label %s", p.Title, name, label)
					}
				}
				asked[strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")] = true
			}
			for _, shown := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !strings.Contains(target.Expr, "by (") || !strings.Contains(target.Expr, shown[1]) {
					t.Errorf("%s: the legend shows %s, which the query drops", p.Title, shown[1])
				}
			}
			if strings.Count(target.Expr, "(") != strings.Count(target.Expr, ")") {
				t.Errorf("%s: brackets of %s", p.Title, target.Expr)
			}
		}
	}
	for name := range labels {
		if name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"),
			"_sum"); !asked[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestDashboardIsLaidOut(t *testing.T) {
	d := readDashboard(t)
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID <= 0 || ids[p.ID] || p.Title == "" || titles[p.Title] {
			t.Errorf("panel %d, %q: each has an id and a title of its own", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.Datasource != (source{"prometheus", "${datasource}"}) {
			t.Errorf("%s: data source %+v", p.Title, p.Datasource)
		}
		g := p.GridPos
		if g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("%s is at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s is on top of %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name+" "+v.Type)
	}
	if fmt.Sprint(variables) != "[datasource datasource guard query]" {
		t.Errorf("variables %v", variables)
	}
}

// TestDashboardIsDescribed: each panel says what it shows.
func TestDashboardIsDescribed(t *testing.T) {
	for _, p := range readDashboard(t).Panels {
		if p.Description == "" {
			t.Errorf("%s has no description", p.Title)
		}
	}
}

// TestDashboardExplainsTheErrorKinds: each kind that core.Event.ErrorKind lists is in the description of its
// panel.
func TestDashboardExplainsTheErrorKinds(t *testing.T) {
	source, err := os.ReadFile("../../../core/observer.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(source), "// ErrorKind sorts Err")
	list, _, _ = strings.Cut(list, "func (e Event) ErrorKind")
	kinds := regexp.MustCompile(`(?m)^//\t(\w+) `).FindAllStringSubmatch(list, -1)
	if len(kinds) < 10 {
		t.Fatalf("found only %q", kinds)
	}
	for _, p := range readDashboard(t).Panels {
		if p.Title != "Errors by kind" {
			continue
		}
		for _, kind := range kinds {
			if !regexp.MustCompile(`\b` + kind[1] + `\b`).MatchString(p.Description) {
				t.Errorf("the panel does not explain %s", kind[1])
			}
		}
		return
	}
	t.Error("there is no panel for errors")
}

// TestDocumentedMetrics: the names and labels in the package's documentation are the exported ones.
func TestDocumentedMetrics(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(gatehouse_\w+)(?:\{([\w,]+)\})?  `).FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = m[2]
	}
	labels, _ := exported(t)
	for name, list := range documented {
		all := labels[name]
		if all == nil {
			all = labels[name+"_bucket"]
		}
		has := 0
		for label := range all {
			if label != "instance" && label != "job" && label != "le" {
				has++
				if !strings.Contains(","+list+",", ","+label+",") {
					t.Errorf("%s has an undocumented label %s", name, label)
				}
			}
		}
		if list != "" && has != len(strings.Split(list, ",")) || list == "" && has != 0 {
			t.Errorf("%s is documented with labels %q, and has %d", name, list, has)
		}
	}
	if len(documented) != 7 {
		t.Errorf("%d metrics are documented, want 7", len(documented))
	}
}
