package quota

import (
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestQuotaIDsAreNoCounter: an ID that the guard makes says nothing about the next one. It is kept in Redis
// and replays an answer, so somebody who has seen one must not guess another.
func TestQuotaIDsAreNoCounter(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 10)
		seen := map[string]bool{}
		for range 10 {
			id := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "a7"}).Attempt.ID
			prefix := id[:min(len(id), 8)]
			if len(id) < 26 || strings.Contains(id, "-") || seen[prefix] {
				t.Fatalf("the ID %q can be guessed from those before it: %v", id, seen)
			}
			seen[prefix] = true
		}
	})
}

// TestQuotaAskingAgainIsAnotherCall: the attempt of a decision has no call name, so asking again with it is a
// replay with a share of its own in the item, and each of the two is settled for itself.
func TestQuotaAskingAgainIsAnotherCall(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newQuota(t, b, 3)
		for _, id := range []string{"", "op"} {
			item := "item " + id
			first := guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: item, ID: id})
			again := guardtest.Check(t, g, first.Attempt)
			guardtest.WantReason(t, again, core.ReasonOK)
			if first.Replayed || !again.Replayed || again.Kept || again.Attempt.Call() != "" {
				t.Errorf("%+v, then %+v: want a replay that nothing has kept", first, again)
			}
			guardtest.Settle(t, g, first, core.Rollback)
			wantUsed(t, g, 2, item) // the second was told that it counts
			guardtest.Settle(t, g, again, core.Rollback)
			wantUsed(t, g, 3)
		}
		refused := guardtest.Check(t, newQuota(t, redistest.Backend{Client: b.Client, Prefix: b.Prefix + "x"}, 1),
			core.Attempt{Actor: "ann", Item: "a7"})
		if refused.Attempt.Call() != "" {
			t.Errorf("%+v has the name of a call", refused)
		}
	})
}

// TestQuotaReplayWhoseReplyWasLostIsAReplay: the client library sends the command of a replay again, and it
// hears the replay.
func TestQuotaReplayWhoseReplyWasLostIsAReplay(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := newQuota(t, b, 3)
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: "known"})
		for item, want := range map[string]core.Reason{"known": core.ReasonAgain, "new": core.ReasonOK} {
			a := core.Attempt{Actor: "ann", Item: item, ID: "of " + item}
			var told []core.Decision
			for i := range 3 {
				faults.SwallowReply("evalsha")
				d := guardtest.Check(t, g, a)
				if guardtest.WantReason(t, d, want); d.Replayed != (i > 0) {
					t.Errorf("try %d: %+v", i, d)
				}
				told = append(told, d)
			}
			for _, d := range told {
				guardtest.Settle(t, g, d, core.Rollback)
			}
		}
		wantUsed(t, g, 2, "known")
		if faults.Swallowed() != 6 {
			t.Errorf("%d replies lost, want 6", faults.Swallowed())
		}
	})
}
