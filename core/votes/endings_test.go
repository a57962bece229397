package votes

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesOfTwoFailedRequestsAreGone: a vote is cast, and changed by a second request. Both fail, in either
// order, and nothing is left.
func TestVotesOfTwoFailedRequestsAreGone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Change: true}, Audit: true})
		for _, firstFailsFirst := range []bool{true, false} {
			voter := fmt.Sprint("voter ", firstFailsFirst)
			cast := guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", Item: "red"})
			changed := guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", Item: "blue"})
			guardtest.WantReason(t, changed, core.ReasonChanged)
			if !firstFailsFirst {
				cast, changed = changed, cast
			}
			guardtest.Settle(t, g, cast, core.Rollback)
			guardtest.Settle(t, g, changed, core.Rollback)
			wantTally(t, g, "p", map[string]int64{})
			wantVerified(t, g, "p", map[string]int64{})
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", Item: "red"}),
				core.ReasonOK)
			if _, err := g.Void(t.Context(), "p", VoidOptions{VoteAgain: true,
				Match: func(Event) bool { return true }}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestVotesEndInAnyOrder casts, changes and retracts at random, by requests that fail or not and end in any
// order. After each step that vote stands that would stand if the requests that have failed had never been
// made.
//
// Promise: The vote that stands is the one without the failed requests, in whatever order they end.
func TestVotesEndInAnyOrder(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v",
			Options{Poll: Poll{Change: true, Retract: true}, Audit: true})
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			poll := fmt.Sprint("p", number)
			m := endingModel{}
			for range rapid.IntRange(4, 30).Draw(rt, "steps") {
				m.step(rt, g, poll)
				want := m.sums()
				got, err := g.Tally(rt.Context(), poll)
				if err != nil || !maps.Equal(got, want) {
					rt.Fatalf("tally %v (%v), want %v", got, err, want)
				}
			}
			r, err := g.Verify(rt.Context(), poll)
			if err != nil || !r.Consistent() {
				rt.Fatalf("%v%v", r, err)
			}
			if sums := told(auditOf(rt, g, poll, 1000)); !maps.Equal(sums, m.sums()) {
				rt.Fatalf("the events add up to %v, want %v", sums, m.sums())
			}
		})
	})
}

// endingModel has the requests of each voter in the order in which they voted. A retraction takes back the
// vote that stands and, for good, those that it had replaced.
type endingModel map[string][]*endingRequest

type endingRequest struct {
	decision      core.Decision
	failed, ended bool
	retracted     bool
}

// stands returns the request whose vote stands, or nil: the last one that has not failed.
func (m endingModel) stands(voter string) *endingRequest {
	for i := len(m[voter]) - 1; i >= 0; i-- {
		if r := m[voter][i]; !r.failed && !r.retracted {
			return r
		}
	}
	return nil
}

func (m endingModel) sums() map[string]int64 {
	sums := map[string]int64{}
	for voter := range m {
		if r := m.stands(voter); r != nil {
			sums[r.decision.Attempt.Item] += r.decision.Attempt.Cost
		}
	}
	return sums
}

func (m endingModel) step(rt *rapid.T, g *Guard, poll string) {
	voter := rapid.SampledFrom([]string{"ann", "bob"}).Draw(rt, "voter")
	choices := rapid.SampledFrom([]string{"", "red", "dark red"})
	a := core.Attempt{Actor: voter, Resource: poll, Item: choices.Draw(rt, "choice"),
		Cost: rapid.Int64Range(1, 3).Draw(rt, "weight")}
	stands := m.stands(voter)
	switch rapid.IntRange(0, 9).Draw(rt, "step") {
	case 0:
		if stands == nil {
			return
		}
		a.Item = stands.decision.Attempt.Item
		if d, err := g.Retract(rt.Context(), a); err != nil || d.Reason != core.ReasonOK {
			rt.Fatalf("%+v, %v", d, err)
		}
		for _, r := range m[voter] {
			r.retracted = true
		}
	case 1, 2, 3, 4, 5:
		if len(m[voter]) == 0 {
			return
		}
		r := rapid.SampledFrom(m[voter]).Draw(rt, "request")
		if r.ended {
			return
		}
		r.ended, r.failed = true, rapid.IntRange(0, 3).Draw(rt, "ends well") > 0
		if err := g.Settle(rt.Context(), r.decision, guardtest.Ending(!r.failed)); err != nil {
			rt.Fatal(err)
		}
	default:
		want := core.ReasonOK
		switch {
		case stands != nil && stands.decision.Attempt.Item == a.Item:
			want = core.ReasonDuplicate
		case stands != nil:
			want = core.ReasonChanged
		}
		d, err := g.Check(rt.Context(), a)
		if err != nil || d.Reason != want {
			rt.Fatalf("%+v, %v, want %q", d, err, want)
		}
		if d.Allowed {
			m[voter] = append(m[voter], &endingRequest{decision: d})
		}
	}
}
