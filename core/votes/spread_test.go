package votes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestVotesSpreadUsesAllMasters: the parts of one poll are spread over all masters, about evenly, and every
// call works on them.
func TestVotesSpreadUsesAllMasters(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Spread: 30, Poll: Poll{Retract: true}, Audit: true})
		const voters = 900
		var decisions []core.Decision
		for i := range voters {
			decisions = append(decisions,
				guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: fmt.Sprint(i % 3)}))
		}
		wantTally(t, g, "p", map[string]int64{"0": voters / 3, "1": voters / 3, "2": voters / 3})
		wantVerified(t, g, "p", map[string]int64{"0": voters / 3, "1": voters / 3, "2": voters / 3})
		guardtest.Settle(t, g, decisions[0], false)
		retract(t, g, core.Attempt{Actor: "1", Resource: "p", Item: "1"}, core.ReasonOK)
		lost := decisions[3]
		lost.SetClaim(nil) // as if from another process
		if err := g.Settle(t.Context(), lost, core.Rollback); !guardtest.IsInvalid(err) {
			t.Errorf("a decision of another process: %v", err)
		}
		guardtest.Settle(t, g, decisions[3], false)
		wantVerified(t, g, "p", map[string]int64{"0": voters/3 - 2, "1": voters/3 - 1, "2": voters / 3})

		var shares []int64
		if err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			votes := int64(0)
			for part := range 30 {
				for _, sum := range c.HGetAll(ctx, g.recordKeys("p", part)[1]).Val() { // MOVED counts as nothing
					var n int64
					if _, err := fmt.Sscan(sum, &n); err != nil {
						return err
					}
					votes += n
				}
			}
			shares = append(shares, votes)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		t.Logf("votes on each master: %v", shares)
		for _, share := range shares {
			if share < voters/10 {
				t.Errorf("votes on each master: %v", shares)
			}
		}
	})
}

// TestVotesSpreadDisagrees: processes with different options vote in one poll concurrently, including the
// first votes, and each voter counts once.
func TestVotesSpreadDisagrees(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rounds, voters := 6, 40
		if b.Mini != nil {
			rounds = 2
		}
		var guards []*Guard
		for _, spread := range []int{0, 1, 7, 30} {
			guards = append(guards, New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v",
				Options{Spread: spread}))
		}
		for round := range rounds {
			poll := fmt.Sprint("p", round)
			var all sync.WaitGroup
			var won atomic.Int64
			begin := make(chan struct{})
			for i := range guards {
				all.Go(func() {
					g := guards[(i+round)%len(guards)]
					<-begin
					for voter := range voters {
						d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(voter), Resource: poll})
						switch {
						case err != nil:
							t.Error(err)
						case d.Allowed:
							won.Add(1)
						}
					}
				})
			}
			close(begin)
			all.Wait()
			for _, g := range guards {
				wantTally(t, g, poll, map[string]int64{"": int64(voters)})
				wantVerified(t, g, poll, map[string]int64{"": int64(voters)})
			}
			if won.Load() != int64(voters) {
				t.Errorf("%d of %d voters were counted", won.Load(), voters)
			}
		}
	})
}

// TestVotesSpreadIsKept: a changed option applies to polls that begin afterwards.
func TestVotesSpreadIsKept(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		spread := func(n int) *Guard {
			return New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v",
				Options{Spread: n, Poll: Poll{Retract: true}})
		}
		for poll, order := range map[string][]int{"up": {1, 8, 256}, "down": {256, 8, 0}} {
			cast := guardtest.Check(t, spread(order[0]), core.Attempt{Actor: "ann", Resource: poll, ID: "op"})
			for _, n := range order[1:] {
				g := spread(n)
				guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: poll}),
					core.ReasonDuplicate)
				if d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: poll, ID: "op"}); !d.Replayed {
					t.Errorf("%+v is not replayed", d)
				}
				wantTally(t, g, poll, map[string]int64{"": 1})
			}
			g := spread(order[1])
			guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: poll}), core.ReasonOK)
			retract(t, spread(order[2]), core.Attempt{Actor: "bob", Resource: poll}, core.ReasonOK)
			guardtest.Settle(t, g, cast, false) // two other calls received a yes for it
			wantTally(t, g, poll, map[string]int64{"": 1})
		}
	})
}

// TestVotesSpreadBeforeThePollOpens: a call before the opening writes nothing and decides nothing.
func TestVotesSpreadBeforeThePollOpens(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		poll := Poll{Opens: clock.Now().Add(time.Minute), Closes: clock.Now().Add(time.Hour), Retract: true}
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", Options{Spread: 8, Poll: poll})
		other := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", Options{Spread: 3, Poll: poll})
		a := core.Attempt{Actor: "ann", Resource: "p"}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonNotOpen)
		retract(t, g, a, core.ReasonGone)
		wantTally(t, g, "p", map[string]int64{})
		if n := b.Client.Exists(t.Context(), g.recordKeys("p", 0)[2]).Val(); n != 0 {
			t.Error("a refused vote has written something")
		}
		clock.Advance(time.Minute)
		guardtest.WantReason(t, guardtest.Check(t, other, a), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonDuplicate)
		clock.Advance(time.Hour)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p"}), core.ReasonClosed)
		wantTally(t, g, "p", map[string]int64{"": 1})
	})
}

// TestVotesSpreadWhileThePollOpens: a poll opens between two steps of a vote, such as by the clocks of two
// masters. A process that asked for the number of parts before it was decided must not use its own number, or
// the voter could vote again by the number of another process.
func TestVotesSpreadWhileThePollOpens(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		opens := guardtest.NewClock().Now()
		options := Options{Spread: 8, Poll: Poll{Opens: opens}}
		refused := 0
		for _, spread := range []int{1, 3} {
			voter := "" // whose parts are not the same
			for i := 0; voter == "" || newVoter(voter).part(8) == newVoter(voter).part(spread); i++ {
				voter = fmt.Sprint(i)
			}
			for before := range 8 { // the number of clock readings before the poll opens
				early := New(guardtest.NewEngine(b), "v", options)
				reads := 0
				core.WithClock(func() time.Time {
					if reads++; reads <= before {
						return opens.Add(-time.Millisecond)
					}
					return opens
				})(early.Engine())
				late := New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v",
					Options{Spread: spread, Poll: options.Poll})
				core.WithClock(func() time.Time { return opens })(late.Engine())
				a := core.Attempt{Actor: voter, Resource: fmt.Sprint("p", spread, before)}
				won := 0
				for _, g := range []*Guard{early, late, early} {
					switch d := guardtest.Check(t, g, a); {
					case d.Allowed:
						won++
					case d.Reason == core.ReasonNotOpen:
						refused++
					}
				}
				if won != 1 {
					t.Errorf("spread 8 and %d, %d readings before the opening: %d votes count", spread, before, won)
				}
				wantTally(t, late, a.Resource, map[string]int64{"": 1})
			}
		}
		if refused == 0 {
			t.Error("the early one was never too early")
		}
	})
}

// TestVotesPartsThatDisagree: Redis has lost a part of a poll. Nobody can vote twice because of that, and the
// error names the cause.
func TestVotesPartsThatDisagree(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Spread: 8, Poll: Poll{Retract: true}})
		actor, part := "", 0
		for i := 0; part == 0; i++ {
			actor = fmt.Sprint(i)
			part = newVoter(actor).part(8)
		}
		guardtest.Check(t, g, core.Attempt{Actor: actor, Resource: "p"})
		b.Client.HSet(t.Context(), g.recordKeys("p", part)[2], ":parts", 9)
		_, err := g.Check(t.Context(), core.Attempt{Actor: actor, Resource: "p"})
		if !errors.Is(err, errDivided) || guardtest.IsInvalid(err) {
			t.Errorf("%v", err)
		}
		if _, err = g.Retract(t.Context(), core.Attempt{Actor: actor, Resource: "p"}); !errors.Is(err, errDivided) {
			t.Errorf("%v", err)
		}
		b.Client.HSet(t.Context(), g.recordKeys("p", 0)[2], ":parts", 1000)
		fresh := New(guardtest.NewEngine(b), "v", Options{Spread: 8})
		if _, err = fresh.Tally(t.Context(), "p"); !errors.Is(err, errDivided) {
			t.Errorf("%v", err)
		}
	})
}

// TestVotesSpreadOutlivesItsVotes: the number of parts outlives every vote that was cast by it.
func TestVotesSpreadOutlivesItsVotes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", Options{Spread: 4, Keep: time.Hour})
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		for part, actor := range actorsOf(4) {
			guardtest.Check(t, g, core.Attempt{Actor: actor, Resource: "p"})
			for _, key := range g.recordKeys("p", part) {
				ttl := b.Client.PTTL(t.Context(), key).Val()
				if want := time.Hour + time.Minute; ttl > want+want/32 || ttl < want-time.Minute/2 {
					t.Errorf("%q expires in %v, want %v", key, ttl, want)
				}
			}
		}
	})
}

// actorsOf returns an actor for each part.
func actorsOf(parts int) map[int]string {
	actors := map[int]string{}
	for i := 0; len(actors) < parts; i++ {
		actor := fmt.Sprint("actor ", i)
		actors[newVoter(actor).part(parts)] = actor
	}
	return actors
}

// TestVotersOfTheAuditStream: a voter's text in the stream leads to the same records.
func TestVotersOfTheAuditStream(t *testing.T) {
	for _, text := range append(guardtest.Hostile, "#"+strings.Repeat("A", 43), "#AAAA") {
		if encodedVoter(script.Encode(text)) != newVoter(text) {
			t.Errorf("%.40q is another voter in the stream", text)
		}
	}
	encodedVoter("#" + strings.Repeat("A", 100)) // no panic
	seen := map[string]string{}
	for _, text := range guardtest.Hostile {
		if other, taken := seen[newVoter(text).record()]; taken {
			t.Errorf("%.40q and %.40q are one voter", text, other)
		}
		seen[newVoter(text).record()] = text
	}
	shares := map[int]int{}
	for i := range 10_000 {
		shares[newVoter(fmt.Sprint(i)).part(10)]++
	}
	for part, n := range shares {
		if n < 800 || n > 1200 {
			t.Errorf("part %d has %d of 10,000 voters: %v", part, n, maps.Collect(maps.All(shares)))
		}
	}
}
