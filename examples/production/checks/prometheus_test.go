package checks

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouseprom"
)

const root = "../../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// exported returns the metrics of gatehouseprom as queries name them, with their labels.
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	o := gatehouseprom.New(registry)
	o.Observe(t.Context(), core.Event{Guard: "g", Op: "check", Took: time.Second, Decision: core.Decision{
		Allowed: true, Reason: core.ReasonOK, Limit: 1, Window: time.Minute,
	}})
	o.Observe(t.Context(), core.Event{Guard: "g", Op: "refuse", Key: "who"})
	o.Observe(t.Context(), core.Event{Guard: "g", Op: "check", Err: core.ErrBreakerOpen})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]map[string]bool{"up": {"job": true, "instance": true}} // that of Prometheus itself
	for _, family := range families {
		all := map[string]bool{"job": true, "instance": true}
		for _, l := range family.GetMetric()[0].GetLabel() {
			all[l.GetName()] = true
		}
		if family.GetMetric()[0].GetHistogram() == nil {
			metrics[family.GetName()] = all
			continue
		}
		all["le"] = true
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			metrics[family.GetName()+part] = all
		}
	}
	return metrics
}

var promQL = parser.NewParser(parser.Options{})

// checkQuery wants a query that Prometheus can parse, of metrics and labels that are exported.
func checkQuery(t *testing.T, where, query string, metrics map[string]map[string]bool) {
	t.Helper()
	expr, err := promQL.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	asked := 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		asked++
		if metrics[selector.Name] == nil {
			t.Errorf("%s: nothing exports %s", where, selector.Name)
			return nil
		}
		for _, m := range selector.LabelMatchers {
			if m.Name != model.MetricNameLabel && !metrics[selector.Name][m.Name] {
				t.Errorf("%s: %s has no label %s", where, selector.Name, m.Name)
			}
		}
		return nil
	})
	if asked == 0 {
		t.Errorf("%s: no metric in %s", where, query)
	}
}

func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../prometheus/alerts.yml", false, model.LegacyValidation, promQL,
		slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var rules []rulefmt.Rule
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) < 10 {
		t.Fatalf("found only %d alerts", len(rules))
	}
	return rules
}

// TestAlertsCanBeActedOn: each alert asks for metrics that are exported, says how urgent it is, and leads to a
// section that says what to do.
func TestAlertsCanBeActedOn(t *testing.T) {
	metrics := exported(t)
	page := read(t, root+"/docs/operations/alerts.md")
	sections := regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(page, -1)
	described := map[string]bool{}
	for _, s := range sections {
		described[s[1]] = true
	}
	for _, rule := range alerts(t) {
		checkQuery(t, rule.Alert, rule.Expr, metrics)
		if s := rule.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has the severity %q", rule.Alert, s)
		}
		if rule.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", rule.Alert)
		}
		want := "https://github.com/gatehouse-go/gatehouse/blob/main/docs/operations/alerts.md#" +
			strings.ToLower(rule.Alert)
		if rule.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %s", rule.Alert, rule.Annotations["runbook_url"])
		}
		if !described[rule.Alert] {
			t.Errorf("docs/operations/alerts.md has no section %s", rule.Alert)
		}
		delete(described, rule.Alert)
	}
	for name := range described {
		t.Errorf("docs/operations/alerts.md describes %s, which is no alert", name)
	}
}

const step = 15 * time.Second // between samples and between evaluations

// sample is a value at a moment.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                    { return s.t }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.f }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// series are what Prometheus has scraped, in the notation of its unit tests: "name{label="value"} 0+1x10".
type series []string

// storage returns a storage with the series, and the time of the last sample.
func (s series) storage(t *testing.T) (storage.Queryable, time.Time) {
	t.Helper()
	var entries []*storage.SeriesEntry
	var sets []labels.Labels
	last := time.Unix(0, 0)
	for _, text := range s {
		set, values, err := promQL.ParseSeriesDesc(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			at := time.Unix(0, 0).Add(time.Duration(i) * step)
			if last.Before(at) {
				last = at
			}
			if !v.Omitted {
				samples = append(samples, sample{at.UnixMilli(), v.Value})
			}
		}
		sets = append(sets, set)
		entries = append(entries, storage.NewListSeries(set, samples))
	}
	choose := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		chosen := &list{SeriesSet: storage.EmptySeriesSet(), at: -1}
		for i, set := range sets {
			matches := true
			for _, m := range matchers {
				matches = matches && m.Matches(set.Get(m.Name))
			}
			if matches {
				chosen.entries = append(chosen.entries, entries[i])
			}
		}
		return chosen
	}
	return storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
		return &storage.MockQuerier{SelectMockFunction: choose}, nil
	}), last
}

// list is a set of series.
type list struct {
	storage.SeriesSet // its other methods are those of an empty one
	entries           []*storage.SeriesEntry
	at                int
}

func (l *list) Next() bool         { l.at++; return l.at < len(l.entries) }
func (l *list) At() storage.Series { return l.entries[l.at] }
func (l *list) Err() error         { return nil }

// fires reports whether the alert fires at any time from a moment on: its query has had the same result for as
// long as For says.
func fires(t *testing.T, rule rulefmt.Rule, scraped series, from time.Duration) bool {
	t.Helper()
	stored, last := scraped.storage(t)
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, EnableAtModifier: true, Parser: promQL,
		LookbackDelta: 2 * step,
	})
	begin := time.Unix(0, 0).Add(from)
	query, err := engine.NewRangeQuery(t.Context(), stored, nil, rule.Expr, begin, last, step)
	if err != nil {
		t.Fatalf("%s: %v", rule.Alert, err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if result.Err != nil {
		t.Fatalf("%s: %v", rule.Alert, result.Err)
	}
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", rule.Alert, err)
	}
	for _, one := range matrix {
		var since, before int64 = -1, -1
		for _, point := range one.Floats {
			if since < 0 || point.T-before > step.Milliseconds() {
				since = point.T
			}
			before = point.T
			if point.T-since >= time.Duration(rule.For).Milliseconds() {
				return true
			}
		}
	}
	return false
}

// healthy is a quiet hour: a few refusals, mistakes of clients, one outage long ago.
var healthy = series{
	`up{job="shop",instance="a"} 1x240`,
	`gatehouse_breakers_open{instance="a"} 0x240`,
	`gatehouse_breaker_changes_total{instance="a",to="open"} 1x240`,
	`gatehouse_decisions_total{instance="a",guard="site",reason="ok",source="redis"} 0+150x240`,
	`gatehouse_decisions_total{instance="a",guard="site",reason="limited",source="redis"} 0+30x240`,
	`gatehouse_decisions_total{instance="a",guard="try",reason="limited",source="shadow"} 0+300x240`,
	`gatehouse_errors_total{instance="a",guard="site",op="check",kind="invalid"} 0+10x240`,
	`gatehouse_errors_total{instance="a",guard="site",op="check",kind="timeout"} 0+1x240`,
	`gatehouse_errors_total{instance="a",guard="sale",op="settle",kind="gone"} 3x240`,
	`gatehouse_refusals_total{instance="a",guard="sale",key="who",reason="no_key",source="none"} 0+2x240`,
	`gatehouse_call_duration_seconds_count{instance="a",guard="site",op="check",source="redis"} 0+180x240`,
	`gatehouse_call_duration_seconds_bucket{instance="a",guard="site",op="check",source="redis",le="0.001"} 0+170x240`,
	`gatehouse_call_duration_seconds_bucket{instance="a",guard="site",op="check",source="redis",le="0.01"} 0+180x240`,
	`gatehouse_call_duration_seconds_bucket{instance="a",guard="site",op="check",source="redis",le="+Inf"} 0+180x240`,
}

// wrong is what each alert is there for: the series that make it fire.
var wrong = map[string][]series{
	"GatehouseRedisUnreachable": {{`gatehouse_breakers_open{instance="a"} 0x10 1x10`}},
	"GatehouseBreakerFlaps":     {{`gatehouse_breaker_changes_total{instance="a",to="open"} 0+1x100`}},
	"GatehouseClaimLost": {
		{`gatehouse_errors_total{instance="a",guard="sale",op="settle",kind="gone"} _x10 1x10`}, // the first one
		{`gatehouse_errors_total{instance="a",guard="sale",op="settle",kind="unsettled"} 5x30 6x10`},
	},
	"GatehouseRedisFull": {
		{`gatehouse_errors_total{instance="a",guard="sale",op="check",kind="full"} _x10 1x10`},
		{`gatehouse_errors_total{instance="a",guard="sale",op="check",kind="full"} 5x30 6x10`},
	},
	"GatehouseSettlementsPileUp": {{`gatehouse_errors_total{instance="a",guard="sale",op="check",kind="backlog"} 0+3x40`}},
	"GatehouseUnconfirmed":       {{`gatehouse_errors_total{instance="a",guard="sale",op="settle",kind="unconfirmed"} 0+3x40`}},
	"GatehouseErrors": {{
		`gatehouse_errors_total{instance="a",guard="site",op="check",kind="timeout"} 0+5x80`,
		`gatehouse_call_duration_seconds_count{instance="a",guard="site",op="check",source="redis"} 0+100x80`,
	}},
	"GatehouseSlow": {{
		`gatehouse_call_duration_seconds_bucket{instance="a",guard="site",op="check",source="redis",le="0.05"} 0+90x100`,
		`gatehouse_call_duration_seconds_bucket{instance="a",guard="site",op="check",source="redis",le="0.1"} 0+100x100`,
		`gatehouse_call_duration_seconds_bucket{instance="a",guard="site",op="check",source="redis",le="+Inf"} 0+100x100`,
	}},
	"GatehouseNotReady": {{
		`gatehouse_decisions_total{instance="a",guard="sale",reason="ok",source="redis"} 0+60x100`,
		`gatehouse_decisions_total{instance="a",guard="sale",reason="not_ready",source="redis"} 0+10x100`,
	}},
	"GatehouseManyRefused": {{
		`gatehouse_decisions_total{instance="a",guard="site",reason="ok",source="redis"} 0+10x100`,
		`gatehouse_decisions_total{instance="a",guard="site",reason="limited",source="redis"} 0+90x100`,
	}},
	"GatehouseNoKey": {{
		`gatehouse_refusals_total{instance="a",guard="sale",key="who",reason="no_key",source="none"} 0+30x100`,
	}},
	"GatehouseAppDown": {{`up{job="shop",instance="a"} 1x10 0x10`}},
}

// TestAlertsFire: each alert fires on what it is there for, and none in a quiet hour.
func TestAlertsFire(t *testing.T) {
	for _, rule := range alerts(t) {
		// What was counted before Prometheus has looked for the first time is new to it for a while.
		if fires(t, rule, healthy, 15*time.Minute) {
			t.Errorf("%s fires although all is well", rule.Alert)
		}
		if len(wrong[rule.Alert]) == 0 {
			t.Errorf("%s: no series show what it is there for", rule.Alert)
		}
		for _, s := range wrong[rule.Alert] {
			if !fires(t, rule, s, 0) {
				t.Errorf("%s does not fire on\n%s", rule.Alert, strings.Join(s, "\n"))
			}
		}
	}
}

// TestDashboardsQueriesAreRight: Prometheus can parse each query of the dashboard, and its metrics exist.
func TestDashboardsQueriesAreRight(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text := read(t, root+"/ops/observe/gatehouseprom/dashboard.json")
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil || len(dashboard.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(dashboard.Panels), err)
	}
	metrics, variables := exported(t), strings.NewReplacer("$__rate_interval", "1m", "$guard", ".*")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			checkQuery(t, panel.Title, variables.Replace(target.Expr), metrics)
		}
	}
}

// TestPrometheusAndGrafanaFindTheirFiles: what the configurations name is what compose.yaml mounts.
func TestPrometheusAndGrafanaFindTheirFiles(t *testing.T) {
	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			Job     string                       `yaml:"job_name"`
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../prometheus/prometheus.yml")), &config); err != nil {
		t.Fatal(err)
	}
	compose := read(t, "../compose.yaml")
	mounted := func(file string) bool { return strings.Contains(compose, ":"+file+":ro") }
	for _, file := range config.RuleFiles {
		if !mounted(file) {
			t.Errorf("compose.yaml does not mount %s", file)
		}
	}
	if len(config.ScrapeConfigs) != 1 || config.ScrapeConfigs[0].Job != "shop" {
		t.Fatalf("scraped: %+v", config.ScrapeConfigs) // the alert GatehouseAppDown names the job
	}
	for _, target := range config.ScrapeConfigs[0].Targets[0].Targets {
		service, port, _ := strings.Cut(target, ":")
		if !strings.Contains(compose, "\n  "+service+": *app\n") || port != "9090" {
			t.Errorf("%s is no app", target)
		}
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	text := read(t, "../grafana/provisioning/dashboards/gatehouse.yml")
	if err := yaml.Unmarshal([]byte(text), &providers); err != nil || len(providers.Providers) != 1 {
		t.Fatalf("%+v, %v", providers, err)
	}
	if !mounted(filepath.Join(providers.Providers[0].Options.Path, "gatehouse.json")) {
		t.Error("compose.yaml does not mount the dashboard where Grafana looks for it")
	}
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	text = read(t, "../grafana/provisioning/datasources/prometheus.yml")
	if err := yaml.Unmarshal([]byte(text), &sources); err != nil || len(sources.Datasources) != 1 ||
		sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("%+v, %v", sources, err)
	}
}
