package idempotency

import (
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// firstStep is the outcome of an operation whose answer is being sent.
var firstStep = core.Outcome{Status: 201, Incomplete: true, Pending: true}

// TestOperationsAreDoneInTwoSteps: after the first step an operation never begins anew. An attempt between
// the steps was told for good that the operation is done and its answer lost, a moment before the answer was
// kept.
//
// Promise (Endings): An operation is kept in two steps, and never begins anew after the first. A request
// between them gets `in_progress`, for a lease at most.
func TestOperationsAreDoneInTwoSteps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "once", Options{MaxBody: 10})
		for name, second := range map[string]core.Outcome{
			"whole":    {Status: 201, Body: []byte("done")},
			"streamed": {Status: 201, Incomplete: true},
		} {
			t.Run(name, func(t *testing.T) {
				a := core.Attempt{Actor: "ann", ID: name}
				first := guardtest.Check(t, g, a)
				settle := func(end core.Ending) {
					t.Helper()
					if err := g.Settle(t.Context(), first, end); err != nil {
						t.Fatal(err)
					}
				}
				between := func() {
					t.Helper()
					d := guardtest.Check(t, g, a)
					guardtest.WantReason(t, d, core.ReasonInProgress)
					if d.RetryAfter != time.Second || d.Replayed || core.OutcomeOf(d) != nil {
						t.Errorf("between the steps: %+v", d)
					}
					another := a
					another.Item = "another"
					guardtest.WantReason(t, guardtest.Check(t, g, another), core.ReasonConflict)
				}
				settle(core.CommitWith(&firstStep))
				between()
				settle(core.CommitWith(&firstStep)) // sent again
				settle(core.Rollback)
				between()
				settle(core.CommitWith(&second))
				wantDone(t, g, a, second)
				settle(core.CommitWith(&firstStep)) // arrives late
				settle(core.Rollback)
				wantDone(t, g, a, second)
			})
		}
	})
}

// TestTheSecondStepIsWaitedForNoLongerThanTheLease: the process may have died between the steps.
func TestTheSecondStepIsWaitedForNoLongerThanTheLease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const lease = 200 * time.Millisecond
		gate := guardtest.NewEngine(b)
		g := New(gate, "once", Options{Lease: lease})
		a := core.Attempt{Actor: "ann", ID: "o1"}
		first := guardtest.Check(t, g, a)
		begun := time.Now()
		finish(t, g, first, &firstStep)
		var d core.Decision
		redistest.Eventually(t, time.Minute, func() bool {
			d = guardtest.Check(t, g, a)
			return d.Reason != core.ReasonInProgress
		}, "nobody waits any more")
		if passed := time.Since(begun); passed < lease-10*time.Millisecond {
			t.Errorf("attempts waited for %v, want the lease of %v", passed, lease)
		}
		guardtest.WantReason(t, d, core.ReasonDone)
		if o := core.OutcomeOf(d); o == nil || o.Status != 201 || !o.Incomplete || o.Pending {
			t.Errorf("%+v, want what is known of the answer", o)
		}

		// While an outcome is kept for less than the lease, the second step is waited for.
		g = New(gate, "long", Options{Lease: time.Hour, Keep: time.Minute})
		finish(t, g, guardtest.Check(t, g, a), &firstStep)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonInProgress)
	})
}
