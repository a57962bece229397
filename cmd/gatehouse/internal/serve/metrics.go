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

// metrics counts what guards do, under the names of package gatehouseprom, so that its dashboard fits.
type metrics struct {
	mu     sync.Mutex
	counts map[string]float64 // by the line of the metric
}

func newMetrics() *metrics { return &metrics{counts: map[string]float64{}} }

// kinds are the metrics.
var kinds = []struct{ name, kind, help string }{
	{"gatehouse_breakers_open", "gauge", "Breakers that are open now."},
	{"gatehouse_decisions_total", "counter", "Attempts that guards decided, by reason and source."},
	{"gatehouse_errors_total", "counter", "Failed calls of guards, by kind of error."},
	{"gatehouse_refusals_total", "counter", "Requests that were refused without a decision."},
}

// Observe implements [core.Observer].
func (m *metrics) Observe(_ context.Context, e core.Event) {
	switch {
	case e.Breaker != nil && e.Breaker.Open:
		m.add(1, "gatehouse_breakers_open")
	case e.Breaker != nil:
		m.add(-1, "gatehouse_breakers_open")
	case e.Op == "refuse":
		m.add(1, "gatehouse_refusals_total", "guard", e.Guard, "key", e.Key, "reason", string(e.Decision.Reason))
	case e.Err != nil:
		m.add(1, "gatehouse_errors_total", "guard", e.Guard, "op", e.Op, "kind", e.ErrorKind())
	case e.Decided():
		m.add(1, "gatehouse_decisions_total", "guard", e.Guard, "reason", string(e.Decision.Reason),
			"source", e.Source())
	}
}

func (m *metrics) add(n float64, name string, labels ...string) {
	var line strings.Builder
	line.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		line.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(&line, "%s=%q", labels[i], labels[i+1]) // names of guards and reasons: all of them plain
	}
	if len(labels) > 0 {
		line.WriteByte('}')
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[line.String()] += n
}

// write answers with the text format of Prometheus.
func (m *metrics) write(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	counts := maps.Clone(m.counts)
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	lines := slices.Sorted(maps.Keys(counts))
	for _, k := range kinds {
		_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", k.name, k.help, k.name, k.kind)
		for _, line := range lines {
			if strings.HasPrefix(line, k.name) {
				_, _ = fmt.Fprintf(w, "%s %v\n", line, counts[line])
			}
		}
	}
}
