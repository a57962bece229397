package limit

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
)

// TestDecisionsKnowTheirLimits: adapters can report all limits and their unit, whether Redis or the process
// decided.
func TestDecisionsKnowTheirLimits(t *testing.T) {
	want := []Limit{PerHour(1), PerDay(5)}
	gate := core.NewMemory()
	limit := NewSlidingWindow(gate, "limit", want[0], want[1])
	if unit := limit.Traits().Unit; unit != kit.UnitRequests {
		t.Errorf("the unit is %q", unit)
	}
	for i, a := range []core.Attempt{{Actor: "ann"}, {Actor: "ann"}, {Actor: "bob", Cost: 2}} {
		d, err := limit.Check(t.Context(), a)
		if err != nil || !slices.Equal(d.Policies(),
			[]core.Policy{{Max: 1, Window: time.Hour}, {Max: 5, Window: 24 * time.Hour}}) || d.Limit != 1 ||
			d.Window != time.Hour {
			t.Errorf("attempt %d: %+v of %v, %v", i+1, d, d.Policies(), err)
		}
	}
	if d := (core.Decision{Limit: 1, Window: time.Hour}); d.Policies() != nil {
		t.Errorf("%v", d.Policies())
	}
}
