package gatehouseotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/gatehouse-go/gatehouse/core"
)

// scope is the name of the instrumentation.
const scope = "github.com/gatehouse-go/gatehouse/ops/observe/gatehouseotel"

// Options selects the providers. The zero value uses the global ones.
type Options struct {
	// MeterProvider makes the instruments. Nil: the global provider.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Nil: the global provider.
	TracerProvider trace.TracerProvider
	// NoSpans turns the spans off.
	NoSpans bool
}

// Observer is a [core.Observer] that measures and traces calls. Make it with [New]. It is safe for concurrent
// use.
type Observer struct {
	tracer    trace.Tracer // nil: no spans
	decisions metric.Int64Counter
	nearLimit metric.Int64Counter
	refusals  metric.Int64Counter
	durations metric.Float64Histogram
	open      metric.Int64UpDownCounter
	changes   metric.Int64Counter
}

// buckets are in seconds. They cover decisions inside the process, a near and a distant Redis, and the
// deadlines of checks (100 ms) and of other calls (1 s).
var buckets = []float64{.000_01, .000_1, .000_25, .000_5, .001, .002_5, .005, .01, .025, .05, .1, .25, .5, 1,
	2.5}

// New returns an Observer. It returns the provider's error if the provider cannot make an instrument.
func New(o Options) (*Observer, error) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	meter := o.MeterProvider.Meter(scope)
	var all Observer
	if !o.NoSpans {
		all.tracer = o.TracerProvider.Tracer(scope)
	}
	var errs [6]error
	all.decisions, errs[0] = meter.Int64Counter("gatehouse.decisions", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that guards decided."))
	all.nearLimit, errs[1] = meter.Int64Counter("gatehouse.near_limit", metric.WithUnit("{attempt}"),
		metric.WithDescription("Allowed attempts that left less than 20 % of their rate limit or quota."))
	all.durations, errs[2] = meter.Float64Histogram("gatehouse.call.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of calls of guards."), metric.WithExplicitBucketBoundaries(buckets...))
	all.open, errs[3] = meter.Int64UpDownCounter("gatehouse.breaker.open", metric.WithUnit("{breaker}"),
		metric.WithDescription("Breakers that are open now: each stands for a Redis server that gets no calls."))
	all.changes, errs[4] = meter.Int64Counter("gatehouse.breaker.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Breakers that became open or closed."))
	all.refusals, errs[5] = meter.Int64Counter("gatehouse.refusals", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that were refused without a decision, such as without a login."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return &all, nil
}

// Observe implements [core.Observer].
func (o *Observer) Observe(ctx context.Context, e core.Event) {
	if e.Breaker != nil {
		step, state := int64(1), "open"
		if !e.Breaker.Open {
			step, state = -1, "closed"
		}
		o.open.Add(ctx, step)
		o.changes.Add(ctx, 1, metric.WithAttributes(attribute.String("gatehouse.breaker.state", state)))
		return
	}
	if e.Op == "refuse" {
		o.refusals.Add(ctx, 1, metric.WithAttributes(attribute.String("gatehouse.guard", e.Guard),
			attribute.String("gatehouse.key", e.Key), attribute.String("gatehouse.reason", string(e.Decision.Reason)),
			attribute.Bool("gatehouse.shadow", e.Decision.Attempt.Shadow)))
		return
	}
	attributes := append(make([]attribute.KeyValue, 0, 6), attribute.String("gatehouse.guard", e.Guard))
	if e.NearLimit() {
		o.nearLimit.Add(ctx, 1, metric.WithAttributes(attributes...))
	}
	if e.Decided() {
		attributes = append(attributes, attribute.String("gatehouse.source", e.Source()))
		o.decisions.Add(ctx, 1, metric.WithAttributes(attributes...),
			metric.WithAttributes(attribute.String("gatehouse.reason", string(e.Decision.Reason))))
	}
	attributes = append(attributes, attribute.String("gatehouse.op", e.Op))
	if e.Err != nil {
		attributes = append(attributes, attribute.String("error.type", e.ErrorKind()))
	}
	o.durations.Record(ctx, e.Took.Seconds(), metric.WithAttributes(attributes...))
	o.trace(ctx, e, attributes)
}

// trace records the span of a call that has just ended.
func (o *Observer) trace(ctx context.Context, e core.Event, attributes []attribute.KeyValue) {
	if o.tracer == nil {
		return
	}
	ended := time.Now()
	if e.Decided() {
		attributes = append(attributes, attribute.String("gatehouse.reason", string(e.Decision.Reason)),
			attribute.Bool("gatehouse.allowed", e.Decision.Allowed))
	}
	_, span := o.tracer.Start(ctx, "gatehouse "+e.Op, trace.WithTimestamp(ended.Add(-e.Took)),
		trace.WithAttributes(attributes...))
	if e.Err != nil {
		span.SetStatus(codes.Error, e.ErrorKind())
	}
	span.End(trace.WithTimestamp(ended))
}
