package votes

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// votersOf returns a voter of each part.
func votersOf(parts int) map[int]string {
	of := map[int]string{}
	for i := 0; len(of) < parts; i++ {
		of[newVoter(fmt.Sprint(i)).part(parts)] = fmt.Sprint(i)
	}
	return of
}

// TestVotesOfALostPartAreRefused: all keys of one part of a poll are lost, as when a master of the cluster
// comes back empty. Its voters cannot vote again, in the process that counted them and in another, and Tally
// and Verify say so. The voters of other parts vote on.
func TestVotesOfALostPartAreRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		const spread = 3
		of := votersOf(spread)
		for part := range spread {
			process := func() *Guard {
				return New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), fmt.Sprint("v", part),
					Options{Spread: spread, Audit: true})
			}
			g := process()
			for _, voter := range of {
				guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", Item: "red"})
			}
			what := fmt.Sprint("its part ", part)
			if part == 0 {
				what = "its first part"
			}
			b.Client.Del(t.Context(), g.wholeKeys("p", part)...)
			for _, g := range []*Guard{process(), g} {
				_, err := g.Check(t.Context(), core.Attempt{Actor: of[part], Resource: "p", Item: "red"})
				wantLost(t, err, what)
			}
			other := process()
			_, err := other.Tally(t.Context(), "p")
			wantLost(t, err, what)
			_, err = other.Verify(t.Context(), "p")
			wantLost(t, err, what)
			for elsewhere, voter := range of {
				if part > 0 && elsewhere != part {
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
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)), "v",
			Options{Spread: 2, Keep: time.Hour})
		of := votersOf(2)
		vote := func(part int, want core.Reason) {
			t.Helper()
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: of[part], Resource: "p"}), want)
		}
		vote(0, core.ReasonOK)
		wantTally(t, g, "p", map[string]int64{"": 1}) // nobody has voted in the other
		vote(1, core.ReasonOK)
		for range 5 {
			clock.Advance(30 * time.Minute)
			vote(0, core.ReasonDuplicate)
		}
		b.Client.Del(t.Context(), g.wholeKeys("p", 1)...) // this clock expires no keys
		wantTally(t, g, "p", map[string]int64{"": 1})
		vote(1, core.ReasonOK)
		wantTally(t, g, "p", map[string]int64{"": 2})
	})
}
