package histories

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
)

// TestCallsThatWereSentTwiceAndRefusedMayArriveAgain: a vote was a duplicate, and the connection of its first
// sending was cut. That sending runs when there is room again, and the call asked again gets a replay.
func TestCallsThatWereSentTwiceAndRefusedMayArriveAgain(t *testing.T) {
	var guard subject
	for _, s := range polls() {
		if s.name == "votes: two each" {
			guard = s
		}
	}
	cast := func(id, call int, out voteOut) porcupine.Operation {
		out.Resent = true
		return porcupine.Operation{Input: voteIn{Op: "cast", ID: id, Call: call}, Output: out}
	}
	for _, resends := range []bool{false, true} {
		refused := cast(1, 1, voteOut{Reason: core.ReasonDuplicate})
		h := &history{guard: guard, ops: []porcupine.Operation{
			cast(0, 0, voteOut{Reason: core.ReasonOK}), refused,
			{Input: voteIn{Op: "undo"}}, cast(1, 2, voteOut{Reason: core.ReasonOK, Replay: true}),
		}}
		for i := range h.ops {
			h.ops[i].Call, h.ops[i].Return = int64(2*i), int64(2*i+1)
		}
		c := &caller{history: h, resends: resends, begun: h.ops[1].Call}
		c.sentTwice(refused.Input, voteIn{Op: "undo", ID: 1, Call: 1})
		want := porcupine.Illegal
		if resends {
			want = porcupine.Ok
		}
		if got := h.verdict(); got != want {
			t.Errorf("a client that sends again: %v: %v, want %v", resends, got, want)
		}
	}
}
