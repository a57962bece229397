package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAUnitTakesSixBytes: in each of its logs, when many units count; an idle user takes nothing.
func TestAUnitTakesSixBytes(t *testing.T) {
	b := redistest.Single(t)
	g, clock := newBudget(t, b, plan{"acme": hourly(10_000), "acme||ann": hourly(10_000)})
	for range 2000 {
		clock.Advance(time.Second)
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "acme", "", "ann")), core.ReasonOK)
	}
	sizes := map[string]int64{}
	for _, level := range []string{"log", "log||ann"} {
		size, err := b.Client.MemoryUsage(t.Context(), g.Key("acme", level), 0).Result()
		if err != nil || size > 2000*6+1000 {
			t.Errorf("%s takes %d B for 2000 units, %v; want 6 each and a kilobyte", level, size, err)
		}
		sizes[level] = size
	}
	t.Log(fmt.Sprint(sizes))
}
