package gatehouseprom

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-go/gatehouse/core"
)

// Observer is a core.Observer that counts. Make it with New. It is safe for concurrent use.
type Observer struct {
	decisions *prometheus.CounterVec
	nearLimit *prometheus.CounterVec
	errors    *prometheus.CounterVec
	durations *prometheus.HistogramVec
	open      prometheus.Gauge
	changes   *prometheus.CounterVec

	calls sync.Map // call -> *series: what Prometheus finds by its labels, found faster
}

// call is what the series of an event depend on.
type call struct {
	guard, op string
	reason    core.Reason
	source    string
	decided   bool
}

// series are what an event without an error counts into.
type series struct {
	decided  prometheus.Counter // nil where the event is no decision
	duration prometheus.Observer
}

// buckets are for what is decided inside the process, for a Redis nearby and far away, and for the deadlines of checks (100 ms) and
// of other calls (1 s).
var buckets = []float64{.000_01, .000_1, .000_25, .000_5, .001, .002_5, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

// New makes an Observer and registers its metrics. It panics when the registerer has them already: pass the one Observer to all
// engines, or give each a prometheus.WrapRegistererWith of its own.
func New(registerer prometheus.Registerer) *Observer {
	if registerer == nil {
		panic("gatehouseprom: New(nil): pass prometheus.DefaultRegisterer, or a registry of your own")
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	o := &Observer{
		decisions: counter("gatehouse_decisions_total",
			"Attempts that guards decided, by the reason (ok and again are allowed) and by who decided.", "guard", "reason", "source"),
		nearLimit: counter("gatehouse_near_limit_total",
			"Attempts that were allowed and left less than 20 % of their rate limit or quota.", "guard"),
		errors: counter("gatehouse_errors_total",
			"Calls of guards that failed, by the kind of error.", "guard", "op", "kind"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gatehouse_call_duration_seconds", Buckets: buckets,
			Help: "How long calls of guards took, by who decided.",
		}, []string{"guard", "op", "source"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gatehouse_breakers_open",
			Help: "Breakers that are open: so many servers of Redis are not asked now.",
		}),
		changes: counter("gatehouse_breaker_changes_total", "Breakers that have turned open or closed.", "to"),
	}
	for _, to := range []string{"open", "closed"} {
		o.changes.WithLabelValues(to) // there from the start, so that the first change shows in a rate
	}
	for _, c := range []prometheus.Collector{o.decisions, o.nearLimit, o.errors, o.durations, o.open, o.changes} {
		err := registerer.Register(c)
		var twice prometheus.AlreadyRegisteredError
		if errors.As(err, &twice) {
			panic(fmt.Sprintf("gatehouseprom: %v: pass the one Observer to all engines", err))
		}
		if err != nil {
			panic(fmt.Sprintf("gatehouseprom: %v: is a metric of another name or other labels in its place?", err))
		}
	}
	return o
}

// Observe implements core.Observer.
func (o *Observer) Observe(_ context.Context, e core.Event) {
	if e.Breaker != nil {
		if e.Breaker.Open {
			o.open.Inc()
			o.changes.WithLabelValues("open").Inc()
		} else {
			o.open.Dec()
			o.changes.WithLabelValues("closed").Inc()
		}
		return
	}
	s := o.series(&e)
	s.duration.Observe(e.Took.Seconds())
	if s.decided != nil {
		s.decided.Inc()
	}
	if e.NearLimit() {
		o.nearLimit.WithLabelValues(e.Guard).Inc()
	}
	if e.Err != nil {
		o.errors.WithLabelValues(e.Guard, e.Op, e.ErrorKind()).Inc()
	}
}

// series returns what the event counts into.
func (o *Observer) series(e *core.Event) *series {
	key := call{guard: e.Guard, op: e.Op, source: "none", decided: e.Decided()}
	if key.decided {
		key.reason, key.source = e.Decision.Reason, e.Source()
	}
	if found, ok := o.calls.Load(key); ok {
		return found.(*series)
	}
	s := &series{duration: o.durations.WithLabelValues(e.Guard, e.Op, key.source)}
	if key.decided {
		s.decided = o.decisions.WithLabelValues(e.Guard, string(key.reason), key.source)
	}
	if found, loaded := o.calls.LoadOrStore(key, s); loaded {
		return found.(*series)
	}
	return s
}
