package votes

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestVotesPerChoice(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{PerVoter: 4, PerChoice: 2}})
		for i, step := range []struct {
			item      string
			reason    core.Reason
			remaining int64
		}{
			{"red", core.ReasonOK, 3}, {"red", core.ReasonOK, 2}, {"red", core.ReasonDuplicate, 2},
			{"blue", core.ReasonOK, 1}, {"red", core.ReasonDuplicate, 1},
			{"", core.ReasonOK, 0}, {"red", core.ReasonDuplicate, 0}, {"blue", core.ReasonQuota, 0},
			{"green", core.ReasonQuota, 0},
		} {
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: step.item, Cost: 3})
			if d.Reason != step.reason || d.Remaining != step.remaining || d.Limit != 4 || d.RetryAfter != 0 {
				t.Fatalf("step %d: %+v, want %+v", i, d, step)
			}
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue"})
		if !slices.Equal(Choices(d), []string{"red", "red", "blue", ""}) {
			t.Errorf("%q", Choices(d))
		}
		wantTally(t, g, "p", map[string]int64{"red": 6, "blue": 3, "": 3})
	})
}

// TestVotesPerDay: one vote per day, by the server's clock and the calendar of a time zone, independent of
// the process's clock.
func TestVotesPerDay(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		clock.Set(time.Date(2026, time.March, 28, 22, 0, 0, 0, berlin)) // the next day has 23 hours
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", Options{
			Poll: Poll{PerVoter: 4, PerChoice: 4, PerDay: 1, Day: period.Daily(berlin)},
		})
		skews := []time.Duration{0, -24 * time.Hour, 24 * time.Hour, 1000 * time.Hour}
		wants := func(reason core.Reason, retry time.Duration) {
			t.Helper()
			skew := skews[0]
			skews = append(skews[1:], skew)
			g.clock = func() time.Time { return clock.Now().Add(skew) }
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red"})
			guardtest.WantReason(t, d, reason)
			if d.RetryAfter != retry {
				t.Fatalf("with a clock that is wrong by %v: %+v, want a retry in %v", skew, d, retry)
			}
		}
		wants(core.ReasonOK, 0)
		wants(core.ReasonQuota, 2*time.Hour)
		clock.Advance(2*time.Hour - time.Millisecond)
		wants(core.ReasonQuota, time.Millisecond)
		clock.Advance(time.Millisecond)
		wants(core.ReasonOK, 0)
		wants(core.ReasonQuota, 23*time.Hour)
		clock.Advance(23 * time.Hour)
		wants(core.ReasonOK, 0)
		clock.Advance(24 * time.Hour)
		wants(core.ReasonOK, 0)
		wants(core.ReasonDuplicate, 0) // the choice has all its votes
		clock.Advance(24 * time.Hour)
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue"})
		guardtest.WantReason(t, d, core.ReasonQuota) // all votes are used
		if d.RetryAfter != 0 {
			t.Errorf("%+v", d)
		}
		wantTally(t, g, "p", map[string]int64{"red": 4})
	})
}

// TestVotesPerDayGivesBack: a vote that is undone on its day may be cast again on that day.
func TestVotesPerDayGivesBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v",
			Options{Poll: Poll{PerVoter: 9, PerChoice: 9, PerDay: 2, Day: oneDay, Retract: true}})
		a := core.Attempt{Actor: "ann", Resource: "p", Item: "red"}
		first := guardtest.Check(t, g, a)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonQuota)
		guardtest.Settle(t, g, first, core.Rollback)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonQuota)
		retract(t, g, a, core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonQuota)
		wantTally(t, g, "p", map[string]int64{"red": 2})
	})
}

// oneDay returns a day that does not end during a test.
func oneDay(time.Time) (begins, ends time.Time) { return time.UnixMilli(0), time.UnixMilli(1 << 42) }

// TestVotesClockThatJumps uses a server whose clock is in another day at each call.
func TestVotesClockThatJumps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		e := guardtest.NewEngine(b, core.WithClock(func() time.Time {
			clock.Advance(24 * time.Hour)
			return clock.Now()
		}))
		g := New(e, "v", Options{Poll: Poll{PerVoter: 2, PerDay: 1}})
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red"})
		guardtest.WantReason(t, d, core.ReasonDayRolled)
		if d.RetryAfter != time.Second {
			t.Errorf("%+v", d)
		}
		wantTally(t, g, "p", map[string]int64{})

		g = New(e, "broken", Options{Poll: Poll{PerVoter: 2, PerDay: 1,
			Day: func(t time.Time) (begins, ends time.Time) {
				return t.Add(time.Hour), t.Add(2 * time.Hour)
			}}})
		if d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "p"}); err == nil ||
			guardtest.IsInvalid(err) || d.Allowed {
			t.Errorf("a day that does not contain its moment: %+v, %v", d, err)
		}
	})
}

func TestVotesChange(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Change: true}})
		vote := func(item string, cost int64, id string, want core.Reason, choices ...string) core.Decision {
			t.Helper()
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: item, Cost: cost, ID: id})
			guardtest.WantReason(t, d, want)
			if !slices.Equal(Choices(d), choices) || d.Remaining != 0 {
				t.Fatalf("%+v, want the choices %q", d, choices)
			}
			return d
		}
		red := vote("red", 2, "", core.ReasonOK, "red")
		vote("red", 2, "", core.ReasonDuplicate, "red")
		vote("red", 5, "", core.ReasonDuplicate, "red") // another weight is not another choice
		vote("blue", 3, "op", core.ReasonChanged, "blue")
		blue := vote("blue", 3, "op", core.ReasonChanged, "blue")
		if !blue.Replayed {
			t.Errorf("%+v is not replayed", blue)
		}
		wantTally(t, g, "p", map[string]int64{"blue": 3})
		green := vote("green", 1, "", core.ReasonChanged, "green")
		wantTally(t, g, "p", map[string]int64{"green": 1})

		guardtest.Settle(t, g, red, core.Rollback) // the vote has been changed since: there is nothing to undo
		wantTally(t, g, "p", map[string]int64{"green": 1})
		guardtest.Settle(t, g, green, core.Rollback)
		wantTally(t, g, "p", map[string]int64{"blue": 3})
		guardtest.Settle(t, g, green, core.Rollback)
		guardtest.Settle(t, g, blue, core.Rollback) // its twin received a yes and has not failed
		wantTally(t, g, "p", map[string]int64{"blue": 3})
		vote("green", 1, "", core.ReasonChanged, "green")
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: "green"})
		wantTally(t, g, "p", map[string]int64{"green": 2})
	})
}

// TestVotesChangeBackAndForth: a request that fails late undoes its own vote, not a later vote for the same
// choice.
func TestVotesChangeBackAndForth(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Change: true, Retract: true}})
		for range 20 { // a voter casts a hundred votes more than they have
			vote := func(item string, want core.Reason) core.Decision {
				t.Helper()
				d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: item})
				guardtest.WantReason(t, d, want)
				return d
			}
			red := vote("red", core.ReasonOK)
			blue := vote("blue", core.ReasonChanged)
			vote("red", core.ReasonChanged)
			guardtest.Settle(t, g, red, core.Rollback)
			guardtest.Settle(t, g, blue, core.Rollback)
			wantTally(t, g, "p", map[string]int64{"red": 1})
			retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red"}, core.ReasonOK)
			again := vote("red", core.ReasonOK)
			guardtest.Settle(t, g, red, core.Rollback)
			wantTally(t, g, "p", map[string]int64{"red": 1})
			guardtest.Settle(t, g, again, core.Rollback)
			wantTally(t, g, "p", map[string]int64{})
		}
	})
}

func retract(t *testing.T, g *Guard, a core.Attempt, want core.Reason) core.Decision {
	t.Helper()
	d, err := g.Retract(t.Context(), a)
	if err != nil {
		t.Fatalf("Retract(%+v): %v", a, err)
	}
	guardtest.WantReason(t, d, want)
	return d
}

func TestVotesRetract(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", Options{
			Poll: Poll{PerVoter: 3, PerChoice: 2, Retract: true, Closes: clock.Now().Add(time.Hour)},
		})
		red := core.Attempt{Actor: "ann", Resource: "p", Item: "red"}
		guardtest.WantReason(t, retract(t, g, red, core.ReasonGone), core.ReasonGone)
		for _, weight := range []int64{2, 5} {
			red.Cost = weight
			guardtest.WantReason(t, guardtest.Check(t, g, red), core.ReasonOK)
		}
		blue := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue", ID: "blue"})
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "green"}),
			core.ReasonQuota)
		wantTally(t, g, "p", map[string]int64{"red": 7, "blue": 1})

		d := retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "back"}, core.ReasonOK)
		if d.Replayed || d.Attempt.Cost != 5 || d.Remaining != 1 || d.Limit != 3 ||
			!slices.Equal(Choices(d), []string{"red", "blue"}) {
			t.Errorf("%+v: the newest red vote, of weight 5, goes", d)
		}
		d = retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "back"}, core.ReasonOK)
		if !d.Replayed || d.Attempt.Cost != 5 {
			t.Errorf("%+v: the same operation, again", d)
		}
		guardtest.Settle(t, g, d, core.Rollback) // does nothing
		wantTally(t, g, "p", map[string]int64{"red": 2, "blue": 1})
		for _, other := range []core.Attempt{
			{Actor: "ann", Resource: "p", Item: "blue", ID: "back"},
			{Actor: "bob", Resource: "p", Item: "red", ID: "back"},
			{Actor: "ann", Resource: "p", Item: "blue", ID: "blue"}, // the ID of the vote itself
		} {
			retract(t, g, other, core.ReasonConflict)
		}
		guardtest.WantReason(t, guardtest.Check(t, g,
			core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "back"}), core.ReasonConflict)

		retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue"}, core.ReasonOK)
		guardtest.Settle(t, g, blue, core.Rollback) // no vote is subtracted twice
		wantTally(t, g, "p", map[string]int64{"red": 2})
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue"}),
			core.ReasonOK)
		guardtest.Settle(t, g, blue, core.Rollback)
		wantTally(t, g, "p", map[string]int64{"red": 2, "blue": 1})

		clock.Advance(time.Hour)
		retract(t, g, red, core.ReasonClosed)
		d = retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "back"}, core.ReasonOK)
		if !d.Replayed {
			t.Errorf("%+v: the stored answer is heard after the closing", d)
		}
		wantTally(t, g, "p", map[string]int64{"red": 2, "blue": 1})

		for _, a := range []core.Attempt{{Resource: "p"}, {Actor: "ann"}} {
			if _, err := g.Retract(t.Context(), a); !guardtest.IsInvalid(err) {
				t.Errorf("%+v: %v", a, err)
			}
		}
		plain := New(guardtest.NewEngine(b), "v", Options{})
		if _, err := plain.Retract(t.Context(), red); !guardtest.IsInvalid(err) ||
			!strings.Contains(err.Error(), "Poll.Retract") {
			t.Errorf("a poll without Retract: %v", err)
		}
	})
}

// TestVotesRetractHostileText retracts votes with hostile text.
func TestVotesRetractHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{PerVoter: 1000, Retract: true}})
		for _, text := range guardtest.Hostile {
			guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: text})
			guardtest.Check(t, g, core.Attempt{Actor: text, Resource: "voters", Item: text})
		}
		for _, text := range guardtest.Hostile {
			retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: text}, core.ReasonOK)
			retract(t, g, core.Attempt{Actor: text, Resource: "voters", Item: text}, core.ReasonOK)
			retract(t, g, core.Attempt{Actor: text, Resource: "voters", Item: text}, core.ReasonGone)
		}
		wantTally(t, g, "p", map[string]int64{})
		wantTally(t, g, "voters", map[string]int64{})
	})
}

// TestVotesFullRedis: a full Redis accepts no vote, but votes can be undone.
func TestVotesFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	e := core.New(rdb, core.WithDeadline(time.Minute), core.WithObserver(guardtest.Ignore{}))
	g := New(e, "v", Options{Poll: Poll{Change: true, Retract: true}, Audit: true})
	vote := func(voter, item string) core.Decision {
		return guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", Item: item})
	}
	ann, _, _ := vote("ann", "red"), vote("bob", "red"), vote("cid", "red")
	vote("dan", "red")
	eve := []core.Decision{vote("eve", "red"), vote("eve", "blue")}
	wantTally(t, g, "p", map[string]int64{"red": 4, "blue": 1})

	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	for _, a := range []core.Attempt{{Actor: "new", Resource: "p", Item: "red"},
		{Actor: "ann", Resource: "p", Item: "blue"}} {
		if _, err := g.Check(t.Context(), a); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%+v at a full Redis: %v, want its OOM error", a, err)
		}
	}
	guardtest.Settle(t, g, ann, core.Rollback)
	guardtest.Settle(t, g, eve[1], core.Rollback)
	retract(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: "red"}, core.ReasonOK)
	for _, again := range []bool{true, false} {
		result, err := g.Void(t.Context(), "p", VoidOptions{VoteAgain: again, Match: func(e Event) bool {
			return e.Voter == map[bool]string{true: "cid", false: "dan"}[again]
		}})
		if err != nil || result.Voided != 1 {
			t.Errorf("%+v, %v", result, err)
		}
	}
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	redistest.Eventually(t, time.Minute, func() bool { return e.Pending() == 0 }, "the undos have ended")
	wantTally(t, g, "p", map[string]int64{"red": 1})
	wantVerified(t, g, "p", map[string]int64{"red": 1})
	guardtest.WantReason(t, vote("ann", "red"), core.ReasonOK)
	guardtest.WantReason(t, vote("dan", "red"), core.ReasonDuplicate)
}

func TestVotesSetUp(t *testing.T) {
	e := core.New(guardtest.NoClient{})
	for text, options := range map[string]Options{
		"votes: PerVoter is -1: set 1 to 1000": {Poll: Poll{PerVoter: -1}},
		"PerVoter is 1001: set":                {Poll: Poll{PerVoter: 1001}},
		"PerChoice is 1001":                    {Poll: Poll{PerChoice: 1001}},
		"PerChoice is -1":                      {Poll: Poll{PerChoice: -1}},
		"PerDay is -1":                         {Poll: Poll{PerDay: -1}},
		"set Retract instead (guard \"v\")":    {Poll: Poll{PerVoter: 2, Change: true}},
	} {
		guardtest.WantPanic(t, text, func() { New(e, "v", options) })
	}
	New(e, "v", Options{Poll: Poll{PerVoter: 1, Change: true, Retract: true, PerDay: 1},
		Audit: true})
}
