package gatehouseotel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouseotel"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// telemetry is an observer, its metrics and its spans.
type telemetry struct {
	*gatehouseotel.Observer
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	traces *sdktrace.TracerProvider
}

func newTelemetry(t *testing.T, o gatehouseotel.Options) *telemetry {
	t.Helper()
	x := &telemetry{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	x.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(x.spans))
	o.MeterProvider, o.TracerProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(x.reader)), x.traces
	var err error
	if x.Observer, err = gatehouseotel.New(o); err != nil {
		t.Fatal(err)
	}
	return x
}

// values returns the series of all metrics: the name and sorted attributes, and the value, for a histogram
// the number of recorded values.
func (x *telemetry) values(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := x.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					values[m.Name+" "+texts(p.Attributes.ToSlice())] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[m.Name+" "+texts(p.Attributes.ToSlice())] = int64(p.Count)
				}
			default:
				t.Errorf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return values
}

// texts returns the sorted attributes without the prefix "gatehouse.".
func texts(attributes []attribute.KeyValue) string {
	var all []string
	for _, a := range attributes {
		all = append(all, strings.TrimPrefix(string(a.Key), "gatehouse.")+"="+a.Value.Emit())
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

func TestMetricsAndSpansOfGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes between the calls
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		defer m.Close()
		rdb := redis.NewClient(&redis.Options{DisableIdentity: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
		defer func() { _ = rdb.Close() }()
		metricsAndSpansOfGuards(t, m, rdb)
	})
}

func metricsAndSpansOfGuards(t *testing.T, m *miniredis.Miniredis, rdb *redis.Client) {
	x := newTelemetry(t, gatehouseotel.Options{})
	e := core.New(rdb, core.WithDeadline(time.Minute), core.WithObserver(x))
	limit := limit.NewSlidingWindow(e, "site", limit.PerHour(1))
	ctx, parent := x.traces.Tracer("test").Start(t.Context(), "request")
	d, err := limit.Check(ctx, core.Attempt{Actor: "ann@example.org", Resource: "secret-thing"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = limit.Check(ctx, core.Attempt{Actor: "ann@example.org", Resource: "secret-thing"})
	_ = limit.Settle(ctx, d, core.Rollback)
	m.SetError("LOADING ann@example.org")
	for range 6 {
		_, _ = limit.Check(ctx, core.Attempt{Actor: "bob"})
	}
	parent.End()

	want := map[string]int64{
		"gatehouse.decisions guard=site reason=ok source=redis":               1,
		"gatehouse.decisions guard=site reason=limited source=redis":          1,
		"gatehouse.near_limit guard=site":                                     1,
		"gatehouse.call.duration guard=site op=check source=redis":            2,
		"gatehouse.call.duration guard=site op=settle":                        1,
		"gatehouse.call.duration error.type=unready guard=site op=check":      1,
		"gatehouse.call.duration error.type=breaker_open guard=site op=check": 5,
		"gatehouse.breaker.open ":                                             1,
		"gatehouse.breaker.changes breaker.state=open":                        1,
	}
	if got := x.values(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("has  %v\nwant %v", got, want)
	}

	spans := x.spans.Ended()
	if len(spans) != 10 {
		t.Fatalf("%d spans, want one per call and that of the request", len(spans))
	}
	for i, want := range []string{
		"gatehouse check: allowed=true guard=site op=check reason=ok source=redis",
		"gatehouse check: allowed=false guard=site op=check reason=limited source=redis",
		"gatehouse settle: guard=site op=settle",
		"gatehouse check: error.type=unready guard=site op=check",
	} {
		if got := spans[i].Name() + ": " + texts(spans[i].Attributes()); got != want {
			t.Errorf("span %d is %s\nwant %s", i, got, want)
		}
	}
	for i, span := range spans[:9] {
		if span.Parent().SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("span %d has another parent", i)
		}
		if failed := i >= 3; failed != (span.Status().Code == codes.Error) {
			t.Errorf("span %d: status %v", i, span.Status())
		}
		if text := fmt.Sprint(span.Attributes(), span.Events(), span.Status()); strings.Contains(text, "ann") ||
			strings.Contains(text, "secret") {
			t.Errorf("personal data: %s", text)
		}
	}
	last := x.spans.Ended()[8].Status().Description
	if last != "breaker_open" {
		t.Errorf("the last call's status says %q", last)
	}

	m.SetError("") // not before: an answered probe closes the breaker
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := limit.Check(ctx, core.Attempt{Actor: "bob"})
		got := x.values(t) // the observer may hear of the breaker after the first call has been sent
		return err == nil && got["gatehouse.breaker.open "] == 0 &&
			got["gatehouse.breaker.changes breaker.state=closed"] == 1
	}, "Redis is asked again, and the breaker has closed once")
}

// TestSpansBeganWhenTheCallDid: a span is made after the call has ended, and begins with the call.
func TestSpansBeganWhenTheCallDid(t *testing.T) {
	x := newTelemetry(t, gatehouseotel.Options{})
	before := time.Now()
	x.Observe(t.Context(), core.Event{Guard: "g", Op: "check", Took: time.Hour})
	after := time.Now()
	span := x.spans.Ended()[0]
	if took := span.EndTime().Sub(span.StartTime()); took != time.Hour {
		t.Errorf("took %v", took)
	}
	if span.EndTime().Before(before) || span.EndTime().After(after) {
		t.Errorf("ended %v, want %v to %v", span.EndTime(), before, after)
	}
}

func TestSourceNone(t *testing.T) {
	x := newTelemetry(t, gatehouseotel.Options{NoSpans: true})
	x.Observe(t.Context(), core.Event{Guard: "g", Op: "check",
		Decision: core.Decision{Reason: core.ReasonOverLimit}})
	if got := x.values(t)["gatehouse.decisions guard=g reason=over_limit source=none"]; got != 1 {
		t.Errorf("%v", x.values(t))
	}
	if n := len(x.spans.Ended()); n != 0 {
		t.Errorf("%d spans, want none", n)
	}
}

func TestGlobalProviders(t *testing.T) {
	o, err := gatehouseotel.New(gatehouseotel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Observe(t.Context(), core.Event{Guard: "g", Op: "check"}) // the global providers do nothing
}

// broken is a provider whose meters cannot make a counter.
type broken struct{ noop.MeterProvider }

func (broken) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

type brokenMeter struct{ noop.Meter }

var errMeter = errors.New("no more counters")

func (brokenMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errMeter
}

func TestProviderError(t *testing.T) {
	if o, err := gatehouseotel.New(gatehouseotel.Options{MeterProvider: broken{}}); !errors.Is(err, errMeter) ||
		o != nil {
		t.Errorf("%v, %v", o, err)
	}
}

func BenchmarkObserve(b *testing.B) {
	o, err := gatehouseotel.New(gatehouseotel.Options{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	if err != nil {
		b.Fatal(err)
	}
	e := core.Event{Guard: "g", Op: "check",
		Decision: core.Decision{Reason: core.ReasonOK, Source: core.SourceRedis}}
	b.ReportAllocs()
	for b.Loop() {
		o.Observe(context.Background(), e)
	}
}
