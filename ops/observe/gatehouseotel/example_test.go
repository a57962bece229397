package gatehouseotel_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouseotel"
)

// The metrics of one check. An application leaves MeterProvider out where it has set a global one.
func Example() {
	server, err := miniredis.Run() // an application has a Redis of its own
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	reader := sdkmetric.NewManualReader()
	telemetry, err := gatehouseotel.New(gatehouseotel.Options{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	if err != nil {
		panic(err)
	}
	gate := core.New(rdb, core.WithDeadline(time.Minute), // the default is 100 ms
		core.WithObserver(core.Observers(core.LogErrors(), telemetry)))

	ctx := context.Background()
	d, err := limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)).Check(ctx,
		core.Attempt{Actor: "203.0.113.7"})
	fmt.Println(d.Reason, err)

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &collected); err != nil {
		panic(err)
	}
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "gatehouse.decisions" {
			fmt.Println(m.Name, sum.DataPoints[0].Value)
		}
	}
	// Output:
	// ok <nil>
	// gatehouse.decisions 1
}
