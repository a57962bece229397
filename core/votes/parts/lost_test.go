package parts

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesOfALostPartAreRefused: all keys of one part of a poll are lost, as when a master of the cluster
// comes back empty. Its voters cannot vote again, in the process that counted them and in another, and Tally
// and Verify say so. The voters of other parts vote on.
//
// Promise: The loss of a whole part is noticed. Its voters cannot vote again; Tally and Verify return an
// error.
func TestVotesOfALostPartAreRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		of := actorsOf(3)
		for part := range 4 {
			process := func() *Guard {
				return New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), fmt.Sprint("v", part), 3,
					votes.Options{Audit: true})
			}
			g := process()
			for _, voter := range of {
				guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", Item: "red"})
			}
			what, lost, again := fmt.Sprint("its part ", part), g.Guard, []*Guard{process(), g}
			if part > 0 {
				lost = g.Part(part, 3)
			} else { // the number of parts, which g remembers
				what, again = "the number of its parts", again[:1]
			}
			b.Client.Del(t.Context(), lost.Keys("p")...)
			for _, g := range again {
				_, err := g.Check(t.Context(), core.Attempt{Actor: of[max(part, 1)], Resource: "p", Item: "red"})
				wantLost(t, err, what)
			}
			other := process()
			_, err := other.Tally(t.Context(), "p")
			wantLost(t, err, what)
			_, err = other.Verify(t.Context(), "p")
			wantLost(t, err, what)
			for elsewhere, voter := range of {
				if elsewhere != part {
					guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p"}),
						core.ReasonDuplicate)
				}
			}
		}
	})
}

// TestVotesOfAQuietPartBeginAgain: a part in which nobody votes for as long as the poll keeps votes expires,
// and begins again. That is no loss, and neither is a part in which nobody has voted yet.
func TestVotesOfAQuietPartBeginAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)), "v", 2,
			votes.Options{Keep: time.Hour})
		of := actorsOf(2)
		vote := func(part int, want core.Reason) {
			t.Helper()
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: of[part], Resource: "p"}), want)
		}
		vote(1, core.ReasonOK)
		wantTally(t, g, "p", map[string]int64{"": 1}) // nobody has voted in the other
		vote(2, core.ReasonOK)
		for range 5 {
			clock.Advance(30 * time.Minute)
			vote(1, core.ReasonDuplicate)
		}
		b.Client.Del(t.Context(), g.Part(2, 2).Keys("p")...) // this clock expires no keys
		wantTally(t, g, "p", map[string]int64{"": 1})
		vote(2, core.ReasonOK)
		wantTally(t, g, "p", map[string]int64{"": 2})
	})
}
