package votes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesSeventeenTriesOfOneOperation: a client sends its vote again and again, and hangs up on all tries
// but the last. Whoever is told that the vote counts is counted, and whoever is one too many is not told so.
//
// Promise: A vote stands for each call that got a yes, however many share an ID. While 16 have not ended, the
// next gets `in_progress`.
func TestVotesSeventeenTriesOfOneOperation(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{})
		a := core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "op"}
		for _, order := range []string{"the last is told at once", "the last waits for the others"} {
			a.Actor, a.ID = order, order
			var told []core.Decision
			for range 16 {
				d := guardtest.Check(t, g, a)
				guardtest.WantReason(t, d, core.ReasonOK)
				told = append(told, d)
			}
			late := guardtest.Check(t, g, a)
			guardtest.WantReason(t, late, core.ReasonInProgress)
			if late.Replayed || late.Kept || late.RetryAfter != time.Second {
				t.Errorf("%+v", late)
			}
			guardtest.Settle(t, g, late, core.Rollback) // it holds nothing
			guardtest.Settle(t, g, told[0], core.Rollback)
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: a.Actor, Resource: "p", Item: "red"}),
				core.ReasonDuplicate)
			last := guardtest.Check(t, g, a) // there is room for one
			if guardtest.WantReason(t, last, core.ReasonOK); !last.Replayed || last.Kept {
				t.Errorf("%+v", last)
			}
			if order == "the last is told at once" {
				guardtest.Settle(t, g, last, core.Commit)
			}
			for _, d := range told {
				guardtest.Settle(t, g, d, core.Rollback)
			}
			guardtest.Settle(t, g, last, core.Commit)
		}
		wantTally(t, g, "p", map[string]int64{"red": 2})
		wantVerified(t, g, "p", map[string]int64{"red": 2})
	})
}

// TestVotesReplaysSayWhetherTheVoteIsKept: while the first request runs it can still fail, so a replay is not
// kept; once a request has gone well each replay is, however many there are, and no rollback takes the vote.
//
// Promise: `Kept` on a replay means that a request of the operation has succeeded. From then on only the
// voter or an operator takes the vote back.
func TestVotesReplaysSayWhetherTheVoteIsKept(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Change: true}})
		a := core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "op"}
		first, second := guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		if first.Replayed || first.Kept || !second.Replayed || second.Kept {
			t.Errorf("%+v, then %+v", first, second)
		}
		guardtest.Settle(t, g, second, core.Commit)
		guardtest.Settle(t, g, second, core.Commit) // settling twice is settling once
		for range 40 {
			d := guardtest.Check(t, g, a)
			if guardtest.WantReason(t, d, core.ReasonOK); !d.Replayed || !d.Kept {
				t.Fatalf("%+v: want a replay that is kept", d)
			}
			guardtest.Settle(t, g, d, core.Rollback)
		}
		guardtest.Settle(t, g, first, core.Rollback)
		wantTally(t, g, "p", map[string]int64{"red": 1})
		if n := answerBytes(t, b, g, a.ID); n > 30 {
			t.Errorf("the answer of a vote that is kept has %d bytes", n)
		}

		a.Item, a.ID = "blue", "op 2"
		guardtest.Settle(t, g, guardtest.Check(t, g, a), core.Commit)
		d := guardtest.Check(t, g, a)
		if guardtest.WantReason(t, d, core.ReasonChanged); !d.Kept || !slices.Equal(Choices(d), []string{"blue"}) {
			t.Errorf("%+v", d)
		}
	})
}

// TestVotesAskingAgainIsAnotherCall: the attempt of a decision has no call name, so asking again with it is a
// replay with a share of its own in the vote. What the client library sends again within one call is none.
//
// Promise (Every guard): Another call with the same ID gets a replay. A command that go-redis repeats does
// not.
func TestVotesAskingAgainIsAnotherCall(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Retract: true}})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, id := range []string{"", "op"} {
			faults.SwallowReply("evalsha")
			a := core.Attempt{Actor: fmt.Sprint("voter ", i), Resource: "p", Item: "red", ID: id}
			first := guardtest.Check(t, g, a)
			faults.SwallowReply("evalsha")
			again := guardtest.Check(t, g, first.Attempt)
			if first.Replayed || !again.Replayed || first.Attempt.Call() != "" || again.Attempt.Call() != "" {
				t.Errorf("%+v, then %+v", first, again)
			}
			guardtest.Settle(t, g, first, core.Rollback)
			wantTally(t, g, "p", map[string]int64{"red": 1}) // the second was told that it counts
			guardtest.Settle(t, g, again, core.Rollback)
			wantTally(t, g, "p", map[string]int64{})

			a.ID = ""
			guardtest.Check(t, g, a)
			faults.SwallowReply("evalsha")
			back := retract(t, g, a, core.ReasonOK)
			if again := retract(t, g, back.Attempt, core.ReasonOK); back.Replayed || !again.Replayed {
				t.Errorf("%+v, then %+v", back, again)
			}
		}
		if faults.Swallowed() != 6 {
			t.Errorf("%d replies lost, want 6", faults.Swallowed())
		}
	})
}

// TestVotesThatNobodyElseKnowsCostNoCall: a commit of a vote whose ID the guard made needs no call to Redis,
// and one with an ID from outside needs one.
func TestVotesThatNobodyElseKnowsCostNoCall(t *testing.T) {
	b := redistest.Mini(t)
	counting := &guardtest.Counting{Client: b.Client}
	g := New(guardtest.NewEngineOver(b, counting), "v", Options{})
	if err := g.Engine().Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int64{"": 1, "op": 2} {
		before := counting.Sent.Load()
		d := guardtest.Check(t, g, core.Attempt{Actor: "voter " + id, Resource: "p", ID: id})
		guardtest.Settle(t, g, d, core.Commit)
		if sent := counting.Sent.Load() - before; sent != want {
			t.Errorf("ID %q: %d calls, want %d", id, sent, want)
		}
	}
}
