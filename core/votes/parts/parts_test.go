package parts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesInPartsUseAllMasters: the parts of one poll are spread over all masters, about evenly, and every
// call works on them.
func TestVotesInPartsUseAllMasters(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", 30, votes.Options{Poll: votes.Poll{Retract: true}, Audit: true})
		const voters = 900
		var decisions []core.Decision
		for i := range voters {
			decisions = append(decisions,
				guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: fmt.Sprint(i % 3)}))
		}
		wantTally(t, g, "p", map[string]int64{"0": voters / 3, "1": voters / 3, "2": voters / 3})
		wantVerified(t, g, "p", map[string]int64{"0": voters / 3, "1": voters / 3, "2": voters / 3})
		guardtest.Settle(t, g, decisions[0], core.Rollback)
		retract(t, g, core.Attempt{Actor: "1", Resource: "p", Item: "1"}, core.ReasonOK)
		lost := decisions[3]
		lost.SetClaim(nil) // as if from another process
		if err := g.Settle(t.Context(), lost, core.Rollback); !guardtest.IsInvalid(err) {
			t.Errorf("a decision of another process: %v", err)
		}
		guardtest.Settle(t, g, decisions[3], core.Rollback)
		wantVerified(t, g, "p", map[string]int64{"0": voters/3 - 2, "1": voters/3 - 1, "2": voters / 3})

		var shares []int64
		if err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			sums := int64(0)
			for n := range 30 {
				for _, sum := range c.HGetAll(ctx, g.Part(n+1, 0).Keys("p")[1]).Val() { // MOVED counts as nothing
					var n int64
					if _, err := fmt.Sscan(sum, &n); err != nil {
						return err
					}
					sums += n
				}
			}
			shares = append(shares, sums)
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

// TestProcessesThatDisagreeAboutParts: processes with different numbers of parts vote in one poll
// concurrently, including the first votes, and each voter counts once.
//
// Promise: Processes that disagree about the number of parts count each voter once.
func TestProcessesThatDisagreeAboutParts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		rounds, voters := 6, 40
		if b.Mini != nil {
			rounds = 2
		}
		var guards []*Guard
		for _, parts := range []int{1, 7, 30} {
			guards = append(guards, New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v", parts,
				votes.Options{}))
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

// TestTheNumberOfPartsIsKept: a changed number applies to polls that begin afterwards.
func TestTheNumberOfPartsIsKept(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		spread := func(n int) *Guard {
			return New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v", n,
				votes.Options{Poll: votes.Poll{Retract: true}})
		}
		for poll, order := range map[string][]int{"up": {1, 8, 256}, "down": {256, 8, 1}} {
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
			guardtest.Settle(t, g, cast, core.Rollback) // two other calls received a yes for it
			wantTally(t, g, poll, map[string]int64{"": 1})
		}
	})
}

// TestPartsBeforeThePollOpens: a call before the opening writes nothing and decides nothing.
func TestPartsBeforeThePollOpens(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		poll := votes.Poll{Opens: clock.Now().Add(time.Minute), Closes: clock.Now().Add(time.Hour), Retract: true}
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", 8, votes.Options{Poll: poll})
		other := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", 3, votes.Options{Poll: poll})
		a := core.Attempt{Actor: "ann", Resource: "p"}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonNotOpen)
		retract(t, g, a, core.ReasonGone)
		wantTally(t, g, "p", map[string]int64{})
		if n := b.Client.Exists(t.Context(), g.Keys("p")...).Val(); n != 0 {
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

// TestPartsWhileThePollOpens: a poll opens between two steps of a vote, such as by the clocks of two
// masters. A process that asked for the number of parts before it was decided must not use its own number, or
// the voter could vote again by the number of another process.
func TestPartsWhileThePollOpens(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		opens := guardtest.NewClock().Now()
		options := votes.Options{Poll: votes.Poll{Opens: opens}}
		refused := 0
		for _, spread := range []int{1, 3} {
			voter := "" // whose parts are not the same
			for i := 0; voter == "" || partOfVoter(voter, 8) == partOfVoter(voter, spread); i++ {
				voter = fmt.Sprint(i)
			}
			for before := range 8 { // the number of clock readings before the poll opens
				early := New(guardtest.NewEngine(b), "v", 8, options)
				reads := 0
				core.WithClock(func() time.Time {
					if reads++; reads <= before {
						return opens.Add(-time.Millisecond)
					}
					return opens
				})(early.Engine())
				late := New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v", spread, options)
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

// TestAGuardOfOneSlotRefusesAPollInParts: processes of votes.New and of New share polls, as while one takes
// the place of the other. A poll that the former began goes on in one slot; one in parts is refused by the
// former, which would let its voters vote again.
func TestAGuardOfOneSlotRefusesAPollInParts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		plain := votes.New(guardtest.NewEngine(b), "v", votes.Options{Audit: true})
		g := New(guardtest.NewEngine(b), "v", 8, votes.Options{Audit: true})
		for i := range 20 {
			of := []ballots{plain, g}[i%2]
			a := core.Attempt{Actor: fmt.Sprint(i), Resource: "old"}
			guardtest.WantReason(t, guardtest.Check(t, of, a), core.ReasonOK)
			a.Resource = "new"
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
			_, err := plain.Check(t.Context(), a)
			wantLost(t, err, "book")
		}
		wantTally(t, plain, "old", map[string]int64{"": 20})
		wantTally(t, g, "old", map[string]int64{"": 20})
		wantTally(t, g, "new", map[string]int64{"": 20})
		_, err := plain.Tally(t.Context(), "new")
		wantLost(t, err, "book")
		if r, err := plain.Repair(t.Context(), "new"); err == nil && r.Consistent() {
			t.Errorf("%v", r)
		}
		wantVerified(t, g, "new", map[string]int64{"": 20})
	})
}

// TestANumberOfPartsThatCannotBe: something else has written the number.
func TestANumberOfPartsThatCannotBe(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", 8, votes.Options{})
		b.Client.HSet(t.Context(), g.Keys("p")[0], ":parts", 1000)
		if _, err := g.Tally(t.Context(), "p"); err == nil || !strings.Contains(err.Error(), "1000") {
			t.Errorf("%v", err)
		}
		d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "p"})
		if err == nil || !strings.Contains(err.Error(), "1000") || d.Attempt.ID == "" {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestVotesInPartsWhoseRepliesAreLost: the number of parts is decided, a part begins, and the vote is cast,
// each by a command whose reply is lost and that the client library sends again.
func TestVotesInPartsWhoseRepliesAreLost(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults, func(o *redis.UniversalOptions) {
			o.MaxRetries, o.MaxRedirects = 12, 12
		})
		g := New(guardtest.NewEngine(b), "v", 8, votes.Options{})
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		faults.SwallowEvery("evalsha", 0.2, rand.New(rand.NewPCG(seed, 0))) // of 100 calls, 0.05 can be none
		const voters = 100
		for i := range voters {
			d := guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "p"})
			if guardtest.WantReason(t, d, core.ReasonOK); d.Replayed {
				t.Errorf("%+v", d)
			}
		}
		faults.Heal()
		if faults.Swallowed() == 0 {
			t.Error("no reply was lost")
		}
		wantVerified(t, g, "p", map[string]int64{"": voters})
	})
}

// TestThePartsOutliveWhatProcessesRemember: votes outlive Keep, a part outlives its mark, and the number of
// parts outlives every vote that was cast by it.
func TestThePartsOutliveWhatProcessesRemember(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", 4, votes.Options{Keep: time.Hour})
		for n, actor := range actorsOf(4) {
			guardtest.Check(t, g, core.Attempt{Actor: actor, Resource: "p"})
			for _, key := range g.Part(n, 0).Keys("p") {
				wantTTL(t, b, key, time.Hour+2*time.Minute)
			}
		}
		wantTTL(t, b, g.Keys("p")[0], time.Hour+3*time.Minute)
	})
}

func wantTTL(t *testing.T, b redistest.Backend, key string, want time.Duration) {
	t.Helper()
	if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl > want+want/32 || ttl < want-time.Minute/2 {
		t.Errorf("%q expires in %v, want %v", key, ttl, want)
	}
}

// actorsOf returns an actor for each part.
func actorsOf(parts int) map[int]string {
	actors := map[int]string{}
	for i := 0; len(actors) < parts; i++ {
		actor := fmt.Sprint("actor ", i)
		actors[partOfVoter(actor, parts)] = actor
	}
	return actors
}

// TestVotesAuditOfParts: all events of all parts come once, those of one voter in order, including events
// that are appended during the reading.
func TestVotesAuditOfParts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", 5, votes.Options{Poll: votes.Poll{Change: true}, Audit: true})
		voters := 200
		if b.Mini != nil {
			voters = 60
		}
		for _, count := range []int{1, 3, 10, 1000} {
			poll := fmt.Sprint("p", count)
			var all sync.WaitGroup
			for worker := range 4 {
				all.Go(func() {
					for i := worker; i < voters; i += 4 {
						for _, item := range []string{"red", "blue"} {
							if _, err := g.Check(t.Context(),
								core.Attempt{Actor: fmt.Sprint(i), Resource: poll, Item: item}); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			var events []votes.Event
			position := ""
			for len(events) < 2*voters && !t.Failed() {
				found, next, err := g.Audit(t.Context(), poll, position, count)
				if err != nil || len(found) > count {
					t.Fatalf("%d events, %v", len(found), err)
				}
				events, position = append(events, found...), next
			}
			all.Wait()
			if found, _, err := g.Audit(t.Context(), poll, position, count); err != nil || len(found) > 0 {
				t.Errorf("%d events too many, %v", len(found), err)
			}
			stands := map[string]string{}
			for _, e := range events {
				if e.Former != stands[e.Voter] {
					t.Fatalf("%+v after %q", e, stands[e.Voter])
				}
				stands[e.Voter] = e.Choice
			}
			if sums := told(events); !maps.Equal(sums, map[string]int64{"blue": int64(voters)}) {
				t.Errorf("the events add up to %v", sums)
			}
		}
	})
}

// TestPartsHaveAboutAsManyVoters: the part goes by the voter alone, and evenly.
func TestPartsHaveAboutAsManyVoters(t *testing.T) {
	shares := map[int]int{}
	for i := range 10_000 {
		shares[partOfVoter(fmt.Sprint(i), 10)]++
	}
	for part, n := range shares {
		if n < 800 || n > 1200 {
			t.Errorf("part %d has %d of 10,000 voters: %v", part, n, maps.Collect(maps.All(shares)))
		}
	}
}

// TestPartsSayWhatVotesSays: of polls that nobody knows, of mistakes, and to operators.
func TestPartsSayWhatVotesSays(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		known := true
		g := New(guardtest.NewEngine(b), "v", 3, votes.Options{Audit: true,
			Find: func(context.Context, string) (votes.Poll, error) {
				if !known {
					return votes.Poll{}, votes.ErrNoPoll
				}
				return votes.Poll{Choices: []string{"red", "blue"}, Retract: true}, nil
			}})
		for i := range 5 {
			guardtest.Check(t, g, core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "red"})
		}
		for _, a := range []core.Attempt{{Actor: "ann", Item: "red"}, {Resource: "p", Item: "red"},
			{Actor: "ann", Resource: "p", Item: "pink"}, {Actor: "ann", Resource: "p", Item: "red", Cost: -1}} {
			if _, err := g.Check(t.Context(), a); !guardtest.IsInvalid(err) {
				t.Errorf("%+v: %v", a, err)
			}
		}
		for _, o := range kit.DescriptionOf(g).Operations {
			given := map[string]string{"poll": "p", "choices": "1", "voter": "0"}
			maps.DeleteFunc(given, func(name, _ string) bool {
				return !slices.ContainsFunc(o.Fields, func(f kit.Field) bool { return f.Name == name })
			})
			in, err := o.Read(given)
			if err == nil {
				_, err = o.Run(t.Context(), in)
			}
			if err != nil {
				t.Errorf("%s: %v", o.Name, err)
			}
		}
		wantTally(t, g, "p", map[string]int64{"red": 4, "blue": 0}) // one was voided
		if top, err := g.Top(t.Context(), "p", 1); err != nil || len(top) != 1 || top[0].Weight != 4 {
			t.Errorf("%v, %v", top, err)
		}
		if _, err := g.Verify(t.Context(), ""); !guardtest.IsInvalid(err) {
			t.Errorf("no poll: %v", err)
		}
		for _, position := range []string{"x", "1-1", "1-1,1-1,1-1,1-1", "1-1,x,"} {
			if _, _, err := g.Audit(t.Context(), "p", position, 5); !guardtest.IsInvalid(err) {
				t.Errorf("%q: %v", position, err)
			}
		}

		known = false
		wantTally(t, g, "p", map[string]int64{"red": 4}) // Find has forgotten it
		if _, err := g.Tally(t.Context(), "other"); !errors.Is(err, votes.ErrNoPoll) {
			t.Errorf("%v", err)
		}
		for _, poll := range []string{"p", "other"} {
			a := core.Attempt{Actor: "ann", Resource: poll, Item: "red"}
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonNotOpen)
			retract(t, g, a, core.ReasonNotOpen)
		}
	})
}

func TestPartsOptionMistakes(t *testing.T) {
	for _, parts := range []int{-1, 0, 257} {
		func() {
			defer func() {
				if what := fmt.Sprint(recover()); !strings.Contains(what, fmt.Sprint(parts, " parts")) {
					t.Errorf("%d parts: %s", parts, what)
				}
			}()
			New(core.New(guardtest.NoClient{}), "v", parts, votes.Options{})
		}()
	}
}
