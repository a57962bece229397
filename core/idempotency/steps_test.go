package idempotency

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestOperationsAreDoneInTwoSteps: after the first step an operation never begins anew, and attempts get what
// is known of it.
func TestOperationsAreDoneInTwoSteps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "once", Options{MaxBody: 10})
		a := core.Attempt{Actor: "ann", ID: "o1"}
		first := guardtest.Check(t, g, a)
		half := core.CommitWith(&core.Outcome{Status: 201, Incomplete: true})
		whole := core.CommitWith(&core.Outcome{Status: 201, Body: []byte("done")})
		settle := func(end core.Ending) {
			t.Helper()
			if err := g.Settle(t.Context(), first, end); err != nil {
				t.Fatal(err)
			}
		}
		want := func(incomplete bool, body string) {
			t.Helper()
			d := guardtest.Check(t, g, a)
			if o := core.OutcomeOf(d); d.Reason != core.ReasonDone || o == nil || o.Incomplete != incomplete ||
				string(o.Body) != body {
				t.Errorf("%s %+v, want done, incomplete: %t, %q", d.Reason, o, incomplete, body)
			}
		}
		settle(half)
		want(true, "")
		settle(half) // sent again
		settle(core.Rollback)
		want(true, "")
		settle(whole)
		want(false, "done")
		settle(half) // arrives late
		settle(core.Rollback)
		want(false, "done")
	})
}
