package core

import (
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestOperationsAreDoneInTwoSteps: from the first one on an operation never begins anew, and who asks hears what is known.
func TestOperationsAreDoneInTwoSteps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Idempotency("once", IdempotencyOptions{MaxBody: 10})
		a := Attempt{Actor: "ann", ID: "o1"}
		first := check(t, g, a)
		half, whole := first, first
		half.Outcome = &Outcome{Status: 201, Incomplete: true}
		whole.Outcome = &Outcome{Status: 201, Body: []byte("done")}
		want := func(incomplete bool, body string) {
			t.Helper()
			d := check(t, g, a)
			if d.Reason != ReasonDone || d.Outcome == nil || d.Outcome.Incomplete != incomplete || string(d.Outcome.Body) != body {
				t.Errorf("%s %+v, want done, incomplete: %t, %q", d.Reason, d.Outcome, incomplete, body)
			}
		}
		settle(t, g, half, true)
		want(true, "")
		settle(t, g, half, true) // sent again
		settle(t, g, first, false)
		want(true, "")
		settle(t, g, whole, true)
		want(false, "done")
		settle(t, g, half, true) // comes late
		settle(t, g, first, false)
		want(false, "done")
	})
}
