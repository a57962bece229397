package votes

import (
	"fmt"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesLostReplies loses the reply of each script once: the resend changes nothing and receives the same
// answer.
func TestVotesLostReplies(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		plain := b.Client
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		e := guardtest.NewEngine(b)
		g := New(e, "v", Options{Poll: Poll{Change: true, Retract: true}, Audit: true})
		if err := e.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		lose := func(n int) {
			t.Helper()
			if lost := faults.Swallowed(); lost != n {
				t.Fatalf("%d replies lost, want %d", lost, n)
			}
		}
		a := core.Attempt{Actor: "ann", Resource: "p", Item: "red", Cost: 2}
		faults.SwallowReply("evalsha")
		d := guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonOK)
		lose(1)
		a.Item = "blue"
		faults.SwallowReply("evalsha")
		d = guardtest.Check(t, g, a)
		guardtest.WantReason(t, d, core.ReasonChanged)
		if d.Replayed {
			t.Errorf("%+v: the same call is no replay", d)
		}
		wantVerified(t, g, "p", map[string]int64{"blue": 2})
		faults.SwallowReply("evalsha")
		guardtest.Settle(t, g, d, core.Rollback)
		wantVerified(t, g, "p", map[string]int64{"red": 2})
		faults.SwallowReply("evalsha")
		a.Item = "red"
		if d := retract(t, g, a, core.ReasonOK); d.Replayed || d.Attempt.Cost != 2 {
			t.Errorf("%+v", d)
		}
		wantVerified(t, g, "p", map[string]int64{})
		lose(4)

		for _, again := range []bool{false, true} {
			voter := fmt.Sprint(again)
			guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", Item: "red", Cost: 3})
			faults.SwallowReply("evalsha")
			r, err := g.Void(t.Context(), "p",
				VoidOptions{VoteAgain: again, Match: func(e Event) bool { return e.Voter == voter }})
			if err != nil || r.Matched != 1 || r.Voided != 1 || r.Weights["red"] != 3 {
				t.Errorf("%+v, %v", r, err)
			}
		}
		lose(6)
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: "red"})
		plain.HIncrBy(t.Context(), g.Keys("p")[1], "red", 7)
		faults.SwallowReply("evalsha")
		if _, err := g.Repair(t.Context(), "p"); err != nil {
			t.Error(err)
		}
		lose(7)
		wantVerified(t, g, "p", map[string]int64{"red": 1})
	})
}
