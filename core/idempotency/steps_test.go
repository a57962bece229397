package idempotency

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestOperationsAreDoneInTwoSteps: from the first one on an operation never begins anew, and who asks hears what is known.
func TestOperationsAreDoneInTwoSteps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "once", Options{MaxBody: 10})
		a := core.Attempt{Actor: "ann", ID: "o1"}
		first := guardtest.Check(t, g, a)
		half, whole := first, first
		half.Outcome = &core.Outcome{Status: 201, Incomplete: true}
		whole.Outcome = &core.Outcome{Status: 201, Body: []byte("done")}
		want := func(incomplete bool, body string) {
			t.Helper()
			d := guardtest.Check(t, g, a)
			if d.Reason != core.ReasonDone || d.Outcome == nil || d.Outcome.Incomplete != incomplete || string(d.Outcome.Body) != body {
				t.Errorf("%s %+v, want done, incomplete: %t, %q", d.Reason, d.Outcome, incomplete, body)
			}
		}
		guardtest.Settle(t, g, half, true)
		want(true, "")
		guardtest.Settle(t, g, half, true) // sent again
		guardtest.Settle(t, g, first, false)
		want(true, "")
		guardtest.Settle(t, g, whole, true)
		want(false, "done")
		guardtest.Settle(t, g, half, true) // comes late
		guardtest.Settle(t, g, first, false)
		want(false, "done")
	})
}
