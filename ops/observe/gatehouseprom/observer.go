package gatehouseprom

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-go/gatehouse/core"
)

// Observer is a [core.Observer] that counts calls and decisions. Make it with [New]. It is safe for
// concurrent use.
type Observer struct {
	decisions *prometheus.CounterVec
	nearLimit *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	errors    *prometheus.CounterVec
	durations *prometheus.HistogramVec
	open      prometheus.Gauge
	changes   *prometheus.CounterVec

	calls sync.Map // call -> *series: saves the lookup by labels
}

// call is what determines the series of an event.
type call struct {
	guard, op string
	reason    core.Reason
	source    string
	decided   bool
}

// series are the metrics that an event without an error changes.
type series struct {
	decided  prometheus.Counter // nil if the event is not a decision
	duration prometheus.Observer
}

// buckets are in seconds. They cover decisions inside the process, a near and a distant Redis, and the
// deadlines of checks (100 ms) and of other calls (1 s).
var buckets = []float64{.000_01, .000_1, .000_25, .000_5, .001, .002_5, .005, .01, .025, .05, .1, .25, .5, 1,
	2.5}

// New returns an Observer and registers its metrics. It panics if the registerer has them already: pass the
// same Observer to all engines, or wrap the registerer for each with prometheus.WrapRegistererWith. It also
// panics on a nil registerer, and if the registerer has a metric of the same name with other labels.
func New(registerer prometheus.Registerer) *Observer {
	if registerer == nil {
		panic("gatehouseprom: New(nil): pass prometheus.DefaultRegisterer or another registry")
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	o := &Observer{
		decisions: counter("gatehouse_decisions_total",
			"Attempts that guards decided, by reason (ok and again are allowed) and source.", "guard",
			"reason", "source"),
		nearLimit: counter("gatehouse_near_limit_total",
			"Allowed attempts that left less than 20 % of their rate limit or quota.", "guard"),
		refusals: counter("gatehouse_refusals_total",
			"Requests that were refused without a decision, such as without a login, by what refused.", "guard", "key",
			"reason", "source"),
		errors: counter("gatehouse_errors_total",
			"Failed calls of guards, by kind of error.", "guard", "op", "kind"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gatehouse_call_duration_seconds", Buckets: buckets,
			Help: "Duration of calls of guards, by source of the decision.",
		}, []string{"guard", "op", "source"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "gatehouse_breakers_open",
			Help: "Breakers that are open now: each stands for a Redis server that gets no calls.",
		}),
		changes: counter("gatehouse_breaker_changes_total", "Breakers that became open or closed.", "to"),
	}
	for _, to := range []string{"open", "closed"} {
		o.changes.WithLabelValues(to) // exists from the start, so that rate() sees the first change
	}
	for _, c := range []prometheus.Collector{o.decisions, o.nearLimit, o.refusals, o.errors, o.durations, o.open,
		o.changes} {
		err := registerer.Register(c)
		var twice prometheus.AlreadyRegisteredError
		if errors.As(err, &twice) {
			panic(fmt.Sprintf("gatehouseprom: %v: pass the same Observer to all engines", err))
		}
		if err != nil {
			panic(fmt.Sprintf("gatehouseprom: %v: check for a metric of the same name with other labels or help", err))
		}
	}
	return o
}

// Observe implements [core.Observer].
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
	if e.Op == "refuse" {
		source := "none"
		if e.Decision.Attempt.Shadow {
			source = "shadow"
		}
		o.refusals.WithLabelValues(e.Guard, e.Key, string(e.Decision.Reason), source).Inc()
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

// series returns the series of the event.
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
