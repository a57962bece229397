package gatehouseprom_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouselog"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouseprom"
)

func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	metrics := gatehouseprom.New(prometheus.DefaultRegisterer)
	denials := gatehouselog.New(slog.Default(), gatehouselog.Options{})
	observer := core.WithObserver(core.Observers(core.LogErrors(), metrics, denials))

	gate := core.New(rdb, observer, core.WithDeadline(time.Minute)) // the default is 100 ms

	d, err := limit.NewSlidingWindow(gate, "site", limit.PerMinute(100)).Check(context.Background(),
		core.Attempt{Actor: "203.0.113.7"})
	fmt.Println(d.Reason, err)
	// Output: ok <nil>
}
