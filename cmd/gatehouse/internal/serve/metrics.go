package serve

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/gatehouse-go/gatehouse/core"
)

// metrics counts what guards do, under the names of package gatehouseprom, so that its dashboard fits. It
// needs no client of Prometheus.
type metrics struct {
	mu     sync.Mutex
	counts map[series]float64
}

// series is a metric with its labels, in the order of kinds.
type series struct {
	kind   int
	labels [3]string
}

func newMetrics() *metrics { return &metrics{counts: map[series]float64{}} }

// The metrics.
const (
	breakers = iota
	decisions
	failures
	refusals
)

var kinds = [...]struct {
	name, kind, help string
	labels           []string
}{
	breakers: {"gatehouse_breakers_open", "gauge", "Breakers that are open now.", nil},
	decisions: {"gatehouse_decisions_total", "counter", "Attempts that guards decided, by reason and source.",
		[]string{"guard", "reason", "source"}},
	failures: {"gatehouse_errors_total", "counter", "Failed calls of guards, by kind of error.",
		[]string{"guard", "op", "kind"}},
	refusals: {"gatehouse_refusals_total", "counter", "Requests that were refused without a decision.",
		[]string{"guard", "key", "reason"}},
}

// Observe implements [core.Observer].
func (m *metrics) Observe(_ context.Context, e core.Event) {
	switch reason := string(e.Decision.Reason); {
	case e.Breaker != nil && e.Breaker.Open:
		m.add(1, series{kind: breakers})
	case e.Breaker != nil:
		m.add(-1, series{kind: breakers})
	case e.Op == "refuse":
		m.add(1, series{refusals, [3]string{e.Guard, e.Key, reason}})
	case e.Err != nil:
		m.add(1, series{failures, [3]string{e.Guard, e.Op, e.ErrorKind()}})
	case e.Decided():
		m.add(1, series{decisions, [3]string{e.Guard, reason, e.Source()}})
	}
}

func (m *metrics) add(n float64, s series) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[s] += n
}

// write answers with the text format of Prometheus.
func (m *metrics) write(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	counts := maps.Clone(m.counts)
	m.mu.Unlock()
	lines := make([][]string, len(kinds))
	for s, n := range counts {
		var labels []string
		for i, name := range kinds[s.kind].labels {
			labels = append(labels, fmt.Sprintf("%s=%q", name, s.labels[i])) // names and reasons: all of them plain
		}
		line := kinds[s.kind].name
		if labels != nil {
			line += "{" + strings.Join(labels, ",") + "}"
		}
		lines[s.kind] = append(lines[s.kind], fmt.Sprintf("%s %v\n", line, n))
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	for i, k := range kinds {
		slices.Sort(lines[i])
		_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s", k.name, k.help, k.name, k.kind,
			strings.Join(lines[i], ""))
	}
}
