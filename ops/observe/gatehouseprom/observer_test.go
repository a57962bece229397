package gatehouseprom_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouseprom"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// scrape fetches the metrics as Prometheus does, and parses them.
func scrape(t *testing.T, registry *prometheus.Registry) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// values returns a family's series: the sorted labels, and the value, for a histogram the number of
// observations.
func values(family *dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for _, m := range family.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		sort.Strings(labels)
		value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
		if h := m.GetHistogram(); h != nil {
			value = float64(h.GetSampleCount())
		}
		all[strings.Join(labels, " ")] = value
	}
	return all
}

func want(t *testing.T, families map[string]*dto.MetricFamily, name string, series map[string]float64) {
	t.Helper()
	if got := values(families[name]); fmt.Sprint(got) != fmt.Sprint(series) {
		t.Errorf("%s\nhas  %v\nwant %v", name, got, series)
	}
}

// TestMetricsOfGuards: guards on a Redis that works, and then fails.
func TestMetricsOfGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes between the calls
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		defer m.Close()
		rdb := redis.NewClient(&redis.Options{DisableIdentity: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
		defer func() { _ = rdb.Close() }()
		metricsOfGuards(t, m, rdb)
	})
}

func metricsOfGuards(t *testing.T, m *miniredis.Miniredis, rdb *redis.Client) {
	registry := prometheus.NewPedanticRegistry()
	e := core.New(rdb, core.WithDeadline(time.Minute),
		core.WithObserver(gatehouseprom.New(registry)))
	limit, votes := limit.NewSlidingWindow(e, "site", limit.PerHour(10)), votes.New(e, "poll", votes.Options{})
	for range 12 {
		_, _ = limit.Check(t.Context(), core.Attempt{Actor: "ann"})
	}
	_, _ = limit.Check(t.Context(), core.Attempt{Actor: "ann", Shadow: true})
	_, _ = limit.Check(t.Context(), core.Attempt{Actor: "ann", Cost: 11})
	_, _ = limit.Check(t.Context(), core.Attempt{})
	d, _ := votes.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "p"})
	_ = votes.Settle(t.Context(), d, core.Rollback)
	m.SetError("LOADING Redis is loading the dataset in memory")
	for range 6 {
		_, _ = limit.Check(t.Context(), core.Attempt{Actor: "bob"})
	}
	_, _ = limit.CheckLocal(t.Context(), core.Attempt{Actor: "bob"})

	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	families := scrape(t, registry)
	want(t, families, "gatehouse_decisions_total", map[string]float64{
		"guard=site reason=ok source=redis": 10, "guard=site reason=limited source=redis": 1,
		"guard=site reason=limited source=remembered": 1, "guard=site reason=limited source=shadow": 1,
		"guard=site reason=over_limit source=none": 1,
		"guard=site reason=ok source=local":        1, "guard=poll reason=ok source=redis": 1,
	})
	want(t, families, "gatehouse_near_limit_total", map[string]float64{"guard=site": 2})
	want(t, families, "gatehouse_errors_total", map[string]float64{
		"guard=site kind=invalid op=check": 1, "guard=site kind=unready op=check": 1,
		"guard=site kind=breaker_open op=check": 5,
	})
	want(t, families, "gatehouse_call_duration_seconds", map[string]float64{
		"guard=site op=check source=redis": 11, "guard=site op=check source=remembered": 1,
		"guard=site op=check source=none":        8,
		"guard=site op=check source=shadow":      1,
		"guard=site op=check_local source=local": 1, "guard=poll op=check source=redis": 1,
		"guard=poll op=settle source=none": 1,
	})
	want(t, families, "gatehouse_breakers_open", map[string]float64{"": 1})
	want(t, families, "gatehouse_breaker_changes_total", map[string]float64{"to=open": 1, "to=closed": 0})
	if len(families) != 6 {
		t.Errorf("%d families, want the six documented ones", len(families))
	}

	m.SetError("") // not before: an answered probe closes the breaker
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := limit.Check(t.Context(), core.Attempt{Actor: "bob"})
		open := values(scrape(t, registry)["gatehouse_breakers_open"])
		return err == nil && open[""] == 0 // the observer may hear of it after the first call has been sent
	}, "Redis is asked again, and the breaker has closed")
	families = scrape(t, registry)
	want(t, families, "gatehouse_breaker_changes_total", map[string]float64{"to=open": 1, "to=closed": 1})
}

// TestSeriesDoNotGrowWithTheTraffic: 10,000 actors, resources and errors that name them make no more series
// than one.
func TestSeriesDoNotGrowWithTheTraffic(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	o := gatehouseprom.New(registry)
	e := core.NewMemory(core.WithObserver(o))
	limit := limit.NewSlidingWindow(e, "site", limit.PerHour(1))
	count := func() (n int) {
		for _, family := range scrape(t, registry) {
			n += len(family.GetMetric())
		}
		return n
	}
	attempts := func(actor string) {
		a := core.Attempt{Actor: actor, Resource: "/things/" + actor}
		_, _ = limit.Check(t.Context(), a)
		_, _ = limit.Check(t.Context(), a)
		o.Observe(t.Context(), core.Event{Guard: "site", Op: "check", Decision: core.Decision{Attempt: a},
			Err: errors.New(actor)})
	}
	attempts("one")
	before := count()
	for i := range 10_000 {
		attempts(fmt.Sprint("actor-", i))
	}
	if after := count(); after != before {
		t.Errorf("%d series, with one actor %d", after, before)
	}
	var text bytes.Buffer
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	_, _ = io.Copy(&text, w.Body)
	if strings.Contains(text.String(), "actor-") {
		t.Error("an actor is in the metrics")
	}
	want(t, scrape(t, registry), "gatehouse_decisions_total", map[string]float64{
		"guard=site reason=ok source=local": 10_001, "guard=site reason=limited source=local": 10_001,
	})
}

func TestCountsOfManyGoroutines(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	o := gatehouseprom.New(registry)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 1000 {
				o.Observe(context.Background(), core.Event{Guard: "g", Op: "check", Decision: core.Decision{
					Reason: []core.Reason{core.ReasonOK, core.ReasonLimited}[(i+j)%2], Source: core.SourceRedis,
				}})
			}
		})
	}
	all.Wait()
	want(t, scrape(t, registry), "gatehouse_decisions_total", map[string]float64{
		"guard=g reason=ok source=redis": 4000, "guard=g reason=limited source=redis": 4000,
	})
}

func TestSetUpMistakesPanicWithTheRemedy(t *testing.T) {
	registry := prometheus.NewRegistry()
	gatehouseprom.New(registry)
	other := prometheus.NewRegistry()
	other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "gatehouse_near_limit_total"}))
	for text, registerer := range map[string]prometheus.Registerer{
		"DefaultRegisterer":            nil,
		"same Observer to all engines": registry,
		"other labels or help":         other,
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, text) {
					t.Errorf("%q, want %q in it", got, text)
				}
			}()
			gatehouseprom.New(registerer)
		}()
	}
	gatehouseprom.New(prometheus.WrapRegistererWith(prometheus.Labels{"engine": "two"},
		prometheus.NewRegistry()))
}

// BenchmarkCheck measures the fastest check, one inside the process, with and without an observer.
func BenchmarkCheck(b *testing.B) {
	for name, options := range map[string][]core.Option{
		"none":       nil,
		"prometheus": {core.WithObserver(gatehouseprom.New(prometheus.NewRegistry()))},
		"both": {core.WithObserver(core.Observers(core.LogErrors(),
			gatehouseprom.New(prometheus.NewRegistry())))},
	} {
		b.Run(name, func(b *testing.B) {
			g := limit.NewFixedWindow(core.NewMemory(options...), "g", limit.PerHour(1<<40))
			a := core.Attempt{Actor: "ann"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Check(b.Context(), a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestRefusalsWithoutADecisionAreCounted: a hundred requests without a login changed no metric.
func TestRefusalsWithoutADecisionAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := gatehouseprom.New(registry)
	for range 100 {
		o.Observe(t.Context(), core.Event{Guard: "site", Op: "refuse", Key: "who", Function: `User("uid")`,
			Decision: core.Decision{Guard: "site", Reason: "no_key"}})
	}
	family := scrape(t, registry)["gatehouse_refusals_total"]
	if family == nil || family.GetMetric()[0].GetCounter().GetValue() != 100 {
		t.Errorf("%v", family)
	}
}
