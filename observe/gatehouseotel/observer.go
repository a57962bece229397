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

// scope names the instrumentation.
const scope = "github.com/gatehouse-go/gatehouse/observe/gatehouseotel"

// Options says where to.
type Options struct {
	// MeterProvider makes the instruments. Nil: the global one.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Nil: the global one.
	TracerProvider trace.TracerProvider
	// NoSpans leaves the spans out.
	NoSpans bool
}

// Observer is a core.Observer that measures and traces. Make it with New. It is safe for concurrent use.
type Observer struct {
	tracer    trace.Tracer // nil: no spans
	decisions metric.Int64Counter
	nearLimit metric.Int64Counter
	durations metric.Float64Histogram
	open      metric.Int64UpDownCounter
	changes   metric.Int64Counter
}

// buckets are for what is decided inside the process, for a Redis nearby and far away, and for the deadlines of checks (100 ms) and
// of other calls (1 s).
var buckets = []float64{.000_01, .000_1, .000_25, .000_5, .001, .002_5, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

// New makes an Observer. The error is one of the provider, which can not make an instrument.
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
	var errs [5]error
	all.decisions, errs[0] = meter.Int64Counter("gatehouse.decisions", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that guards decided."))
	all.nearLimit, errs[1] = meter.Int64Counter("gatehouse.near_limit", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts that were allowed and left less than 20 % of their rate limit or quota."))
	all.durations, errs[2] = meter.Float64Histogram("gatehouse.call.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls of guards took."), metric.WithExplicitBucketBoundaries(buckets...))
	all.open, errs[3] = meter.Int64UpDownCounter("gatehouse.breaker.open", metric.WithUnit("{breaker}"),
		metric.WithDescription("Breakers that are open: so many servers of Redis are not asked now."))
	all.changes, errs[4] = meter.Int64Counter("gatehouse.breaker.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Breakers that have turned open or closed."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return &all, nil
}

// Observe implements core.Observer.
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

// trace makes the span of a call that has just ended.
func (o *Observer) trace(ctx context.Context, e core.Event, attributes []attribute.KeyValue) {
	if o.tracer == nil {
		return
	}
	ended := time.Now()
	if e.Decided() {
		attributes = append(attributes, attribute.String("gatehouse.reason", string(e.Decision.Reason)),
			attribute.Bool("gatehouse.allowed", e.Decision.Allowed))
	}
	_, span := o.tracer.Start(ctx, "gatehouse "+e.Op, trace.WithTimestamp(ended.Add(-e.Took)), trace.WithAttributes(attributes...))
	if e.Err != nil {
		span.SetStatus(codes.Error, e.ErrorKind())
	}
	span.End(trace.WithTimestamp(ended))
}
