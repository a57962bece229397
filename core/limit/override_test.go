package limit

import (
	"context"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestOverriddenLimitsGoOnCounting: other limits of an actor count what was used before, also for those whom
// the process has just refused, and so do those of the guard afterwards.
//
// Promise (Control): Counted units count under other limits. Units in hand are not handed out under them.
func TestOverriddenLimitsGoOnCounting(t *testing.T) {
	everywhere(t, func(t *testing.T, b redistest.Backend) {
		var over []Limit
		override := func(own Func) Func {
			return func(ctx context.Context, a core.Attempt) ([]Limit, error) {
				if over != nil && a.Actor == "ann" {
					return over, nil
				}
				return own(ctx, a)
			}
		}
		e := guardtest.NewEngine(b)
		fixed, by := NewSlidingWindow(e, "fixed", PerHour(2)), NewSlidingWindowBy(e, "by",
			func(context.Context, core.Attempt) ([]Limit, error) { return []Limit{PerHour(2)}, nil })
		for _, g := range []*SlidingWindow{fixed, by} {
			over = nil
			g.Override(override)
			want := func(actor string, want core.Reason, most int64) {
				t.Helper()
				d := guardtest.Check(t, g, core.Attempt{Actor: actor})
				guardtest.WantReason(t, d, want)
				if d.Limit != most {
					t.Errorf("a limit of %d, want %d", d.Limit, most)
				}
			}
			want("ann", core.ReasonOK, 2)
			want("ann", core.ReasonOK, 2)
			want("ann", core.ReasonLimited, 2)
			over = []Limit{PerHour(3)}
			want("ann", core.ReasonOK, 3)
			want("ann", core.ReasonLimited, 3)
			want("bob", core.ReasonOK, 2)
			over = []Limit{PerHour(1)}
			want("ann", core.ReasonLimited, 1)
			over = nil
			want("ann", core.ReasonLimited, 2)
			if g.Accepts(PerHour(20_000)) == nil || g.Accepts(PerHour(2), PerHour(3)) == nil ||
				g.Accepts(PerHour(10_000), PerDay(20_000).WithResolution(100)) != nil {
				t.Error("Accepts differs from what the guard can keep")
			}
		}
		if settings := fixed.Describe().Settings; len(settings) != 1 || settings[0].Value != "2/1h" {
			t.Errorf("operators see %+v", settings)
		}
	})
}
