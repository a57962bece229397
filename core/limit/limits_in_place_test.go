package limit

import (
	"context"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestRefundUnderLimitsThatWereChangedInPlace: inside the process a refund went by what the function's slice
// had become since the attempt, and gave nothing back.
func TestRefundUnderLimitsThatWereChangedInPlace(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		limits := []Limit{PerHour(1)}
		g := k.by(guardtest.NewEngine(b), "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
		a := core.Attempt{Actor: "a"}
		d := guardtest.Check(t, g, a)
		limits[0] = PerDay(5)
		if p := d.Policies(); p[0].Window != PerHour(1).Window {
			t.Errorf("%v", p)
		}
		refund(t, g, d)
		limits[0] = PerHour(1)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
	})
}
