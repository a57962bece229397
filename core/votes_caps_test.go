package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func TestVotesPerChoice(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{PerVoter: 4, PerChoice: 2}})
		for i, step := range []struct {
			item      string
			reason    Reason
			remaining int64
		}{
			{"red", ReasonOK, 3}, {"red", ReasonOK, 2}, {"red", ReasonDuplicate, 2}, {"blue", ReasonOK, 1}, {"red", ReasonDuplicate, 1},
			{"", ReasonOK, 0}, {"red", ReasonDuplicate, 0}, {"blue", ReasonQuota, 0}, {"green", ReasonQuota, 0},
		} {
			d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: step.item, Cost: 3})
			if d.Reason != step.reason || d.Remaining != step.remaining || d.Limit != 4 || d.RetryAfter != 0 {
				t.Fatalf("step %d: %+v, want %+v", i, d, step)
			}
		}
		d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "blue"})
		if !slices.Equal(d.Choices, []string{"red", "red", "blue", ""}) {
			t.Errorf("%q", d.Choices)
		}
		wantTally(t, g, "p", map[string]int64{"red": 6, "blue": 3, "": 3})
	})
}

// TestVotesPerDay: a vote a day, by the server's clock and the calendar of a time zone, whatever this process's clock says.
func TestVotesPerDay(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		clock.now = time.Date(2026, time.March, 28, 22, 0, 0, 0, berlin) // the next day has 23 hours
		g := newEngine(b, withClock(clock)).Votes("v", VoteOptions{
			Poll: Poll{PerVoter: 4, PerChoice: 4, PerDay: 1, Day: Daily(berlin)},
		})
		skews := []time.Duration{0, -24 * time.Hour, 24 * time.Hour, 1000 * time.Hour}
		wants := func(reason Reason, retry time.Duration) {
			t.Helper()
			skew := skews[0]
			skews = append(skews[1:], skew)
			g.clock = func() time.Time { return clock.Now().Add(skew) }
			d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red"})
			wantReason(t, d, reason)
			if d.RetryAfter != retry {
				t.Fatalf("with a clock that is wrong by %v: %+v, want a retry in %v", skew, d, retry)
			}
		}
		wants(ReasonOK, 0)
		wants(ReasonQuota, 2*time.Hour)
		clock.Advance(2*time.Hour - time.Millisecond)
		wants(ReasonQuota, time.Millisecond)
		clock.Advance(time.Millisecond)
		wants(ReasonOK, 0)
		wants(ReasonQuota, 23*time.Hour)
		clock.Advance(23 * time.Hour)
		wants(ReasonOK, 0)
		clock.Advance(24 * time.Hour)
		wants(ReasonOK, 0)
		wants(ReasonDuplicate, 0) // this choice has all that it may have
		clock.Advance(24 * time.Hour)
		d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "blue"})
		wantReason(t, d, ReasonQuota) // and all votes are used: another day is no help
		if d.RetryAfter != 0 {
			t.Errorf("%+v", d)
		}
		wantTally(t, g, "p", map[string]int64{"red": 4})
	})
}

// TestVotesPerDayGivesBack: what is taken back on its day may be cast again on it.
func TestVotesPerDayGivesBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{PerVoter: 9, PerChoice: 9, PerDay: 2, Day: oneDay, Retract: true}})
		a := Attempt{Actor: "ann", Resource: "p", Item: "red"}
		first := check(t, g, a)
		wantReason(t, check(t, g, a), ReasonOK)
		wantReason(t, check(t, g, a), ReasonQuota)
		settle(t, g, first, false)
		wantReason(t, check(t, g, a), ReasonOK)
		wantReason(t, check(t, g, a), ReasonQuota)
		retract(t, g, a, ReasonOK)
		wantReason(t, check(t, g, a), ReasonOK)
		wantReason(t, check(t, g, a), ReasonQuota)
		wantTally(t, g, "p", map[string]int64{"red": 2})
	})
}

// oneDay is a day that does not end during a test.
func oneDay(time.Time) (begins, ends time.Time) { return time.UnixMilli(0), time.UnixMilli(1 << 42) }

// TestVotesClockThatJumps has a server whose clock is in another day each time.
func TestVotesClockThatJumps(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		e := newEngine(b, withClock(clock))
		e.clock = func() time.Time { clock.Advance(24 * time.Hour); return clock.Now() }
		g := e.Votes("v", VoteOptions{Poll: Poll{PerVoter: 2, PerDay: 1}})
		d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red"})
		wantReason(t, d, ReasonDayRolled)
		if d.RetryAfter != time.Second {
			t.Errorf("%+v", d)
		}
		wantTally(t, g, "p", map[string]int64{})

		g = e.Votes("broken", VoteOptions{Poll: Poll{PerVoter: 2, PerDay: 1, Day: func(t time.Time) (begins, ends time.Time) {
			return t.Add(time.Hour), t.Add(2 * time.Hour)
		}}})
		if d, err := g.Check(t.Context(), Attempt{Actor: "ann", Resource: "p"}); err == nil || isInvalid(err) || d.Allowed {
			t.Errorf("a day that its moments are not in: %+v, %v", d, err)
		}
	})
}

func TestVotesChange(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{Change: true}})
		vote := func(item string, cost int64, id string, want Reason, choices ...string) Decision {
			t.Helper()
			d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: item, Cost: cost, ID: id})
			wantReason(t, d, want)
			if !slices.Equal(d.Choices, choices) || d.Remaining != 0 {
				t.Fatalf("%+v, want the choices %q", d, choices)
			}
			return d
		}
		red := vote("red", 2, "", ReasonOK, "red")
		vote("red", 2, "", ReasonDuplicate, "red")
		vote("red", 5, "", ReasonDuplicate, "red") // another weight is no other choice
		vote("blue", 3, "op", ReasonChanged, "blue")
		blue := vote("blue", 3, "op", ReasonChanged, "blue")
		if !blue.Replayed {
			t.Errorf("%+v is not replayed", blue)
		}
		wantTally(t, g, "p", map[string]int64{"blue": 3})
		green := vote("green", 1, "", ReasonChanged, "green")
		wantTally(t, g, "p", map[string]int64{"green": 1})

		settle(t, g, red, false) // has been changed since: there is nothing to take back
		wantTally(t, g, "p", map[string]int64{"green": 1})
		settle(t, g, green, false)
		wantTally(t, g, "p", map[string]int64{"blue": 3})
		settle(t, g, green, false)
		settle(t, g, blue, false) // its twin was told yes, and has not failed
		wantTally(t, g, "p", map[string]int64{"blue": 3})
		vote("green", 1, "", ReasonChanged, "green")
		check(t, g, Attempt{Actor: "bob", Resource: "p", Item: "green"})
		wantTally(t, g, "p", map[string]int64{"green": 2})
	})
}

// TestVotesChangeBackAndForth: a request that fails late takes back its own vote, and not one for the same choice that came after it.
func TestVotesChangeBackAndForth(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{Change: true, Retract: true}})
		for i := range 300 { // more than a record's turn can count
			vote := func(item string, want Reason) Decision {
				t.Helper()
				d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: item})
				wantReason(t, d, want)
				return d
			}
			red := vote("red", ReasonOK)
			blue := vote("blue", ReasonChanged)
			vote("red", ReasonChanged)
			settle(t, g, red, false)
			settle(t, g, blue, false)
			wantTally(t, g, "p", map[string]int64{"red": 1})
			retract(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red"}, ReasonOK)
			again := vote("red", ReasonOK)
			settle(t, g, red, false)
			wantTally(t, g, "p", map[string]int64{"red": 1})
			settle(t, g, again, false)
			wantTally(t, g, "p", map[string]int64{})
			if i == 20 && !soak() {
				break
			}
		}
	})
}

func retract(t *testing.T, g *Votes, a Attempt, want Reason) Decision {
	t.Helper()
	d, err := g.Retract(t.Context(), a)
	if err != nil {
		t.Fatalf("Retract(%+v): %v", a, err)
	}
	wantReason(t, d, want)
	return d
}

func TestVotesRetract(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Votes("v", VoteOptions{
			Poll: Poll{PerVoter: 3, PerChoice: 2, Retract: true, Closes: clock.Now().Add(time.Hour)},
		})
		red := Attempt{Actor: "ann", Resource: "p", Item: "red"}
		wantReason(t, retract(t, g, red, ReasonGone), ReasonGone)
		for _, weight := range []int64{2, 5} {
			red.Cost = weight
			wantReason(t, check(t, g, red), ReasonOK)
		}
		blue := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "blue", ID: "blue"})
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "green"}), ReasonQuota)
		wantTally(t, g, "p", map[string]int64{"red": 7, "blue": 1})

		d := retract(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "back"}, ReasonOK)
		if d.Replayed || d.Attempt.Cost != 5 || d.Remaining != 1 || d.Limit != 3 || !slices.Equal(d.Choices, []string{"red", "blue"}) {
			t.Errorf("%+v: the newest red vote, of weight 5, goes", d)
		}
		d = retract(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "back"}, ReasonOK)
		if !d.Replayed || d.Attempt.Cost != 5 {
			t.Errorf("%+v: the same operation, again", d)
		}
		settle(t, g, d, false) // does nothing
		wantTally(t, g, "p", map[string]int64{"red": 2, "blue": 1})
		for _, other := range []Attempt{
			{Actor: "ann", Resource: "p", Item: "blue", ID: "back"},
			{Actor: "bob", Resource: "p", Item: "red", ID: "back"},
			{Actor: "ann", Resource: "p", Item: "blue", ID: "blue"}, // that of the vote itself
		} {
			retract(t, g, other, ReasonConflict)
		}
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "back"}), ReasonConflict)

		retract(t, g, Attempt{Actor: "ann", Resource: "p", Item: "blue"}, ReasonOK)
		settle(t, g, blue, false) // nothing is subtracted twice
		wantTally(t, g, "p", map[string]int64{"red": 2})
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "blue"}), ReasonOK)
		settle(t, g, blue, false)
		wantTally(t, g, "p", map[string]int64{"red": 2, "blue": 1})

		clock.Advance(time.Hour)
		retract(t, g, red, ReasonClosed)
		d = retract(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "back"}, ReasonOK)
		if !d.Replayed {
			t.Errorf("%+v: the stored answer is heard after the closing", d)
		}
		wantTally(t, g, "p", map[string]int64{"red": 2, "blue": 1})

		for _, a := range []Attempt{{Resource: "p"}, {Actor: "ann"}} {
			if _, err := g.Retract(t.Context(), a); !isInvalid(err) {
				t.Errorf("%+v: %v", a, err)
			}
		}
		plain := newEngine(b).Votes("v", VoteOptions{})
		if _, err := plain.Retract(t.Context(), red); !isInvalid(err) || !strings.Contains(err.Error(), "Poll.Retract") {
			t.Errorf("a poll without Retract: %v", err)
		}
	})
}

// TestVotesRetractHostileText retracts what anybody may send.
func TestVotesRetractHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{PerVoter: 1000, Retract: true}})
		for _, text := range hostile {
			check(t, g, Attempt{Actor: "ann", Resource: "p", Item: text})
			check(t, g, Attempt{Actor: text, Resource: "voters", Item: text})
		}
		for _, text := range hostile {
			retract(t, g, Attempt{Actor: "ann", Resource: "p", Item: text}, ReasonOK)
			retract(t, g, Attempt{Actor: text, Resource: "voters", Item: text}, ReasonOK)
			retract(t, g, Attempt{Actor: text, Resource: "voters", Item: text}, ReasonGone)
		}
		wantTally(t, g, "p", map[string]int64{})
		wantTally(t, g, "voters", map[string]int64{})
	})
}

// TestVotesFullRedis: a full Redis takes no vote, and lets votes be taken back.
func TestVotesFullRedis(t *testing.T) {
	s := redistest.StartServer(t, "--maxmemory-policy", "noeviction")
	rdb := s.Client(t)
	e := New(rdb, WithDeadline(10*time.Second), WithObserver(ignore{}))
	g := e.Votes("v", VoteOptions{Poll: Poll{Change: true, Retract: true}, Audit: true})
	vote := func(voter, item string) Decision {
		return check(t, g, Attempt{Actor: voter, Resource: "p", Item: item})
	}
	ann, _, _ := vote("ann", "red"), vote("bob", "red"), vote("cid", "red")
	vote("dan", "red")
	eve := []Decision{vote("eve", "red"), vote("eve", "blue")}
	wantTally(t, g, "p", map[string]int64{"red": 4, "blue": 1})

	rdb.ConfigSet(t.Context(), "maxmemory", "1")
	for _, a := range []Attempt{{Actor: "new", Resource: "p", Item: "red"}, {Actor: "ann", Resource: "p", Item: "blue"}} {
		if _, err := g.Check(t.Context(), a); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%+v at a full Redis: %v, want its OOM error", a, err)
		}
	}
	settle(t, g, ann, false)
	settle(t, g, eve[1], false)
	retract(t, g, Attempt{Actor: "bob", Resource: "p", Item: "red"}, ReasonOK)
	for _, again := range []bool{true, false} {
		result, err := g.Void(t.Context(), "p", VoidOptions{VoteAgain: again, Match: func(e VoteEvent) bool {
			return e.Voter == map[bool]string{true: "cid", false: "dan"}[again]
		}})
		if err != nil || result.Voided != 1 {
			t.Errorf("%+v, %v", result, err)
		}
	}
	rdb.ConfigSet(t.Context(), "maxmemory", "0")
	redistest.Eventually(t, 10*time.Second, func() bool { return e.undoing() == 0 }, "the undos have ended")
	wantTally(t, g, "p", map[string]int64{"red": 1})
	wantRecount(t, g, "p", map[string]int64{"red": 1})
	wantReason(t, vote("ann", "red"), ReasonOK)
	wantReason(t, vote("dan", "red"), ReasonDuplicate)
}

func TestVotesSetUp(t *testing.T) {
	e := New(nothing{})
	for text, options := range map[string]VoteOptions{
		"-1 votes a voter: give 1 to 1000":              {Poll: Poll{PerVoter: -1}},
		"1001 votes a voter: give":                      {Poll: Poll{PerVoter: 1001}},
		"1001 votes a voter for one choice":             {Poll: Poll{PerChoice: 1001}},
		"-1 votes a voter for one choice":               {Poll: Poll{PerChoice: -1}},
		"-1 votes a voter on one day":                   {Poll: Poll{PerDay: -1}},
		"Use Retract in place of Change (guard \"v\")":  {Poll: Poll{PerVoter: 2, Change: true}},
		"spread over -1 parts":                          {Spread: -1},
		"spread over 257 parts: give Spread 1 to 256, ": {Spread: 257},
	} {
		wantPanic(t, text, func() { e.Votes("v", options) })
	}
	e.Votes("v", VoteOptions{Poll: Poll{PerVoter: 1, Change: true, Retract: true, PerDay: 1}, Spread: 256, Audit: true})
}
