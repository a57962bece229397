package limit

import (
	"context"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestATierWithoutLimitsIsNotLimited: a function that returned no limits once made every check an error, so
// that unlimited customers were answered with 503.
//
// Promise: A function that returns no limits does not limit: the attempt is allowed and uncounted.
func TestATierWithoutLimitsIsNotLimited(t *testing.T) {
	eachKindEverywhere(t, func(t *testing.T, b redistest.Backend, k kind) {
		var limits []Limit
		g := k.by(guardtest.NewEngine(b), "w",
			func(context.Context, core.Attempt) ([]Limit, error) { return limits, nil })
		a := core.Attempt{Actor: "a", Cost: 1 << 50}
		local := func() core.Decision {
			d, err := limiterOf(g).CheckLocal(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		for _, d := range []core.Decision{guardtest.Check(t, g, a), peek(t, g, a), local()} {
			guardtest.WantReason(t, d, core.ReasonOK)
			if !d.Allowed || d.Limit != 0 || d.Window != 0 || d.Source != "" || len(d.Policies()) != 0 {
				t.Errorf("%+v with %v", d, d.Policies())
			}
			refund(t, g, d)
			guardtest.Settle(t, g, d, core.Commit)
		}
		if err := g.Reset(t.Context(), a); err != nil {
			t.Error(err)
		}
		limits = []Limit{PerHour(1)} // nothing has been counted
		a.Cost = 1
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonLimited)
	})
}
