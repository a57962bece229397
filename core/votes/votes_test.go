package votes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func tally(t testing.TB, g *Guard, poll string) map[string]int64 {
	t.Helper()
	sums, err := g.Tally(t.Context(), poll)
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func wantTally(t *testing.T, g *Guard, poll string, want map[string]int64) {
	t.Helper()
	if got := tally(t, g, poll); !maps.Equal(got, want) {
		t.Fatalf("tally %v, want %v", got, want)
	}
}

// Promise: A voter has one vote, or as many as poll, choice and day allow.
func TestVotesCountOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{})
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red"})
		guardtest.WantReason(t, d, core.ReasonOK)
		if d.Limit != 1 || d.Remaining != 0 || !slices.Equal(Choices(d), []string{"red"}) {
			t.Fatalf("%+v", d)
		}
		for _, item := range []string{"red", "blue", ""} {
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: item})
			guardtest.WantReason(t, d, core.ReasonDuplicate)
			if !slices.Equal(Choices(d), []string{"red"}) || d.RetryAfter != 0 {
				t.Fatalf("%+v: a duplicate says the choice that stands", d)
			}
		}
		guardtest.WantReason(t, guardtest.Check(t, g,
			core.Attempt{Actor: "bob", Resource: "p", Item: "blue", Cost: 3}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "q", Item: ""}),
			core.ReasonOK)
		wantTally(t, g, "p", map[string]int64{"red": 1, "blue": 3})
		wantTally(t, g, "q", map[string]int64{"": 1})
		wantTally(t, g, "unknown", map[string]int64{})
	})
}

func TestVotesSeveralChoices(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{PerVoter: 2}})
		for _, step := range []struct {
			item      string
			reason    core.Reason
			remaining int64
			choices   []string
		}{
			{"red", core.ReasonOK, 1, []string{"red"}},
			{"red", core.ReasonDuplicate, 1, []string{"red"}},
			{"dark red", core.ReasonOK, 0, []string{"red", "dark red"}},
			{"red", core.ReasonDuplicate, 0, []string{"red", "dark red"}},
			{"blue", core.ReasonQuota, 0, []string{"red", "dark red"}},
		} {
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: step.item})
			guardtest.WantReason(t, d, step.reason)
			if d.Remaining != step.remaining || !slices.Equal(Choices(d), step.choices) {
				t.Fatalf("%+v, want %+v", d, step)
			}
		}
		wantTally(t, g, "p", map[string]int64{"red": 1, "dark red": 1})
	})
}

func TestVotesOpenAndClose(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		poll := Poll{Opens: clock.Now().Add(time.Minute), Closes: clock.Now().Add(time.Hour)}
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", Options{Poll: poll})
		vote := func(voter string) core.Decision {
			return guardtest.Check(t, g, core.Attempt{Actor: voter, Resource: "p", ID: "id of " + voter})
		}
		d := vote("ann")
		guardtest.WantReason(t, d, core.ReasonNotOpen)
		if d.RetryAfter != time.Minute {
			t.Errorf("%+v: want a retry in a minute", d)
		}
		clock.Advance(time.Minute - time.Millisecond)
		guardtest.WantReason(t, vote("ann"), core.ReasonNotOpen)
		clock.Advance(time.Millisecond)
		guardtest.WantReason(t, vote("ann"), core.ReasonOK)
		clock.Advance(59*time.Minute - time.Millisecond)
		guardtest.WantReason(t, vote("bob"), core.ReasonOK)
		clock.Advance(time.Millisecond)
		guardtest.WantReason(t, vote("cid"), core.ReasonClosed)
		if d := vote("bob"); !d.Replayed {
			t.Errorf("%+v: the stored answer is heard after the closing", d)
		}
		wantTally(t, g, "p", map[string]int64{"": 2})
	})
}

func TestVotesFind(t *testing.T) {
	broken := errors.New("broken")
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		known := true
		g := New(guardtest.NewEngine(b), "v", Options{Find: func(_ context.Context, poll string) (Poll, error) {
			switch poll {
			case "colours":
				if !known {
					return Poll{}, ErrNoPoll
				}
				return Poll{Choices: []string{"red", "blue"}}, nil
			case "broken":
				return Poll{}, broken
			case "wrong":
				return Poll{PerVoter: -1}, nil
			}
			return Poll{}, ErrNoPoll
		}})
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "colours", Item: "red"}),
			core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "unknown", Item: "red"}),
			core.ReasonNotOpen)
		if _, err := g.Check(t.Context(),
			core.Attempt{Actor: "bob", Resource: "colours", Item: "green"}); !guardtest.IsInvalid(err) {
			t.Errorf("a choice that is none: %v", err)
		}
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "broken"}); !errors.Is(err,
			broken) || guardtest.IsInvalid(err) {
			t.Errorf("Find's own error: %v", err)
		}
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "wrong"}); err == nil ||
			guardtest.IsInvalid(err) {
			t.Errorf("a poll that makes no sense: %v", err)
		}
		wantTally(t, g, "colours", map[string]int64{"red": 1, "blue": 0})

		// A page of results could not tell a name that a client had made up from a poll without votes.
		if tally, err := g.Tally(t.Context(), "unknown"); !errors.Is(err, ErrNoPoll) || tally != nil {
			t.Errorf("the tally of no poll: %v, %v", tally, err)
		}
		if top, err := g.Top(t.Context(), "unknown", 3); !errors.Is(err, ErrNoPoll) || top != nil {
			t.Errorf("the top of no poll: %v, %v", top, err)
		}
		known = false // its page was taken down, and its result is still there
		wantTally(t, g, "colours", map[string]int64{"red": 1})
	})
}

func TestVotesReplayAndConflict(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{PerVoter: 2}})
		first := core.Attempt{Actor: "ann", Resource: "p", Item: "red", Cost: 2, ID: "op 1"}
		guardtest.WantReason(t, guardtest.Check(t, g, first), core.ReasonOK)
		for range 2 {
			d := guardtest.Check(t, g, first)
			guardtest.WantReason(t, d, core.ReasonOK)
			if !d.Replayed {
				t.Errorf("%+v is not replayed", d)
			}
			guardtest.Settle(t, g, d, core.Rollback) // the first call received a yes and has not failed
		}
		for _, other := range []core.Attempt{
			{Actor: "bob", Resource: "p", Item: "red", Cost: 2, ID: "op 1"},
			{Actor: "ann", Resource: "p", Item: "blue", Cost: 2, ID: "op 1"},
			{Actor: "ann", Resource: "p", Item: "red", Cost: 1, ID: "op 1"},
		} {
			guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonConflict)
		}
		wantTally(t, g, "p", map[string]int64{"red": 2})
	})
}

// TestVotesSharedByRetries: a vote that several calls with one operation ID share is removed when all of them
// have failed.
func TestVotesSharedByRetries(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{})
		a := core.Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "op"}
		one, two := guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		guardtest.Settle(t, g, one, core.Rollback) // its client has gone and tries again
		guardtest.Settle(t, g, two, core.Commit)
		guardtest.Settle(t, g, one, core.Rollback)
		wantTally(t, g, "p", map[string]int64{"red": 1})
		three := guardtest.Check(t, g, a)
		guardtest.Settle(t, g, three, core.Rollback)
		wantTally(t, g, "p", map[string]int64{"red": 1})

		a.Actor, a.ID = "bob", "op 2"
		one, two, three = guardtest.Check(t, g, a), guardtest.Check(t, g, a), guardtest.Check(t, g, a)
		for _, d := range []core.Decision{two, one, one} {
			guardtest.Settle(t, g, d, core.Rollback)
			wantTally(t, g, "p", map[string]int64{"red": 2})
		}
		guardtest.Settle(t, g, three, core.Rollback)
		wantTally(t, g, "p", map[string]int64{"red": 1})
		if d := guardtest.Check(t, g, a); !d.Allowed || d.Replayed {
			t.Errorf("%+v: a vote that was taken back may be tried again", d)
		}

		for range 100 { // many repetitions do not make the record grow
			guardtest.Check(t, g, a)
		}
		if n := answerBytes(t, b, g, a.ID); n > 250 {
			t.Errorf("the record of the operation has %d bytes", n)
		}
	})
}

// TestVotesUndoThatOvertakes: a vote that arrives after its undo does not count.
func TestVotesUndoThatOvertakes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{})
		a, err := core.Attempt{Actor: "ann", Resource: "p", ID: "op"}.PrepareClaim("the poll")
		if err != nil {
			t.Fatal(err)
		}
		claim := &ballot{keys: g.operationKeys("p", a.ID), call: a.Call(), late: true}
		if err := g.undo(t.Context(), a, claim); err != nil {
			t.Fatal(err)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonGone)
		a = a.WithoutCall()
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK) // a new call
		wantTally(t, g, "p", map[string]int64{"": 1})
	})
}

func TestVotesLongChoices(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		long, japanese := strings.Repeat("{", 5_000), "日本語の長い選択肢です。日本語の長い選択肢です。"
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Choices: []string{long, japanese}}})
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: long})
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: japanese})
		wantTally(t, g, "p", map[string]int64{long: 1, japanese: 1})
		if d := guardtest.Check(t, g,
			core.Attempt{Actor: "bob", Resource: "p", Item: long}); !slices.Equal(Choices(d), []string{japanese}) {
			t.Errorf("%+v", d)
		}
	})
}

// Promise: A failed request takes its vote back, once.
func TestVotesUndoneOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{PerVoter: 3}})
		red := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red", Cost: 5})
		blue := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue", ID: "op"})
		guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: "blue"})
		refused := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", Item: "blue"})
		for _, d := range []core.Decision{blue, blue, refused} {
			if err := g.Settle(t.Context(), d, core.Rollback); err != nil {
				t.Fatal(err)
			}
		}
		wantTally(t, g, "p", map[string]int64{"red": 5, "blue": 1})
		if err := g.Settle(t.Context(), red, core.Commit); err != nil {
			t.Fatal(err)
		}
		d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue", ID: "op"})
		guardtest.WantReason(t, d, core.ReasonOK) // the same operation, tried again after its failure
		if d.Replayed || !slices.Equal(Choices(d), []string{"red", "blue"}) {
			t.Errorf("%+v", d)
		}
		for _, d := range []core.Decision{red, d} {
			if err := g.Settle(t.Context(), d, core.Rollback); err != nil {
				t.Fatal(err)
			}
		}
		wantTally(t, g, "p", map[string]int64{"blue": 1})
	})
}

func TestVotesHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{})
		for i, text := range guardtest.Hostile {
			for _, a := range []core.Attempt{
				{Actor: text, Resource: "voters", Item: "x"},
				{Actor: "ann", Resource: "poll " + text},
				{Actor: strconv.Itoa(i), Resource: "choices", Item: text},
				{Actor: strconv.Itoa(i), Resource: "ids", ID: text},
			} {
				if d := guardtest.Check(t, g, a); !d.Allowed || d.Replayed {
					t.Errorf("%.40q collides with another: %+v", text, d)
				}
			}
		}
		sums := tally(t, g, "choices")
		for _, text := range guardtest.Hostile {
			if !strings.HasPrefix(script.EncodeUpTo(script.MaxRecord, text), "#") && sums[text] != 1 {
				t.Errorf("choice %q has %d votes", text, sums[text])
			}
		}
		if len(sums) != len(guardtest.Hostile) {
			t.Errorf("%d choices, want %d", len(sums), len(guardtest.Hostile))
		}
	})
}

func TestVotesInvalid(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{})
		for _, a := range []core.Attempt{
			{Resource: "p"}, {Actor: "ann"}, {Actor: "ann", Resource: "p", Cost: -1},
			{Actor: "ann", Resource: "p", Cost: 1 << 53}, {Actor: "ann", Resource: "p", Cost: math.MaxInt64},
		} {
			if d, err := g.Check(t.Context(), a); !guardtest.IsInvalid(err) || d.Allowed {
				t.Errorf("%+v: %+v, %v", a, d, err)
			}
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Cost: 1<<53 - 1}),
			core.ReasonOK)
		wantTally(t, g, "p", map[string]int64{"": 1<<53 - 1})
	})
}

// TestVotesTallyOverflow fills a choice up to the largest sum that Redis counts: the vote beyond it changes
// nothing. The test skips miniredis, which wraps around where Redis returns an error.
func TestVotesTallyOverflow(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{})
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		key := g.Keys("p")[1]
		b.Client.HSet(t.Context(), key, "", math.MaxInt64)
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "bob", Resource: "p"}); err == nil {
			t.Error("a sum beyond 64 bits was counted")
		}
		b.Client.HSet(t.Context(), key, "", 1)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p"}), core.ReasonOK)
	})
}

func TestVotesRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{})
		var all sync.WaitGroup
		for i := range 400 {
			all.Go(func() {
				a := core.Attempt{Actor: fmt.Sprint(i % 20), Resource: "p", Item: fmt.Sprint(i % 3)}
				if _, err := g.Check(t.Context(), a); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		sum := int64(0)
		for _, n := range tally(t, g, "p") {
			sum += n
		}
		if sum != 20 {
			t.Errorf("20 voters have %d votes", sum)
		}
	})
}

func TestVotesKeysExpire(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v", Options{
			Poll: Poll{Closes: clock.Now().Add(2 * time.Hour)}, Keep: time.Hour,
		})
		made := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p"})
		given := guardtest.Check(t, g, core.Attempt{Actor: "bob", Resource: "p", ID: "given"})
		for key, want := range map[string]time.Duration{
			g.Keys("p")[0]:                            3 * time.Hour,
			g.Keys("p")[1]:                            3 * time.Hour,
			g.Keys("p")[2]:                            3 * time.Hour,
			g.operationKeys("p", made.Attempt.ID)[3]:  10*time.Minute + 75*time.Second,
			g.operationKeys("p", given.Attempt.ID)[3]: 3 * time.Hour,
		} {
			if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl > want || ttl < want-time.Minute {
				t.Errorf("%q expires in %v, want %v", key, ttl, want)
			}
		}
	})
}

// TestVotesKeysThatComeAndGo: every vote extends the life of a poll without a closing time, and a key that
// was empty expires too.
func TestVotesKeysThatComeAndGo(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "v",
			Options{Keep: 64 * time.Hour, Poll: Poll{PerVoter: 1000, PerChoice: 1000, Retract: true}})
		keys := g.Keys("p")
		wants := func(least, most time.Duration) {
			t.Helper()
			for _, key := range keys {
				if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl < least-time.Minute || ttl > most {
					t.Errorf("%q expires in %v, want %v to %v", key, ttl, least, most)
				}
			}
		}
		red := core.Attempt{Actor: "ann", Resource: "p", Item: "red"}
		guardtest.Check(t, g, red)
		wants(65*time.Hour, 65*time.Hour)
		retract(t, g, red, core.ReasonOK)
		if n := b.Client.Exists(t.Context(), keys[1]).Val(); n != 0 {
			t.Error("an empty tally is kept")
		}
		guardtest.Check(t, g, red)
		wants(65*time.Hour, 65*time.Hour)
		for range 20 { // time passes only by this clock
			clock.Advance(2 * time.Hour)
			guardtest.Check(t, g, red)
			wants(65*time.Hour, 65*time.Hour)
		}
		b.Client.Del(t.Context(), keys[1])
		repair(t, g, "p", "tally")
		wants(64*time.Hour, 65*time.Hour)
		guardtest.Check(t, g, red)
		wants(64*time.Hour, 65*time.Hour)
	})
}

// TestVotesAuditThatComesBackHasATTL: an audit stream that was deleted, or turned on later, expires too, even
// when nobody votes again. It comes back once the poll is repaired.
func TestVotesAuditThatComesBackHasATTL(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Audit: true, Poll: Poll{Retract: true}})
		for name, back := range map[string]func(a core.Attempt, d core.Decision){
			"undone":    func(_ core.Attempt, d core.Decision) { guardtest.Settle(t, g, d, core.Rollback) },
			"retracted": func(a core.Attempt, _ core.Decision) { retract(t, g, a, core.ReasonOK) },
			"voided": func(a core.Attempt, _ core.Decision) {
				events, _, err := g.Audit(t.Context(), a.Resource, "", 1)
				if err != nil || len(events) != 1 {
					t.Fatalf("%v, %v", events, err)
				}
				b.Client.Del(t.Context(), g.auditKey(a.Resource)) // while Void works on its events
				repair(t, g, a.Resource, "audit")
				if voided, err := g.voidOne(t.Context(), a.Resource, "run", events[0], VoidOptions{}); err != nil ||
					!voided {
					t.Fatalf("%v, %v", voided, err)
				}
			},
		} {
			a := core.Attempt{Actor: "ann", Resource: name, Item: "red"}
			d := guardtest.Check(t, g, a)
			if name != "voided" {
				b.Client.Del(t.Context(), g.auditKey(name))
				repair(t, g, name, "audit")
			}
			back(a, d)
			want := b.Client.PTTL(t.Context(), g.Keys(name)[0]).Val()
			if ttl := b.Client.PTTL(t.Context(), g.auditKey(name)).Val(); ttl <= 0 || ttl > want+time.Minute {
				t.Errorf("%s: the stream expires in %v, want %v", name, ttl, want)
			}
		}
	})
}

// TestVotesTallyThatComesBackHasATTL: the tally is lost, and an undo restores a former vote. The tally comes
// back when the poll is repaired.
func TestVotesTallyThatComesBackHasATTL(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{Change: true}})
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red"})
		changed := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue"})
		keys := g.Keys("p")
		b.Client.Del(t.Context(), keys[1])
		guardtest.Settle(t, g, changed, core.Rollback)
		repair(t, g, "p", "tally")
		wantTally(t, g, "p", map[string]int64{"red": 1})
		if ttl := b.Client.PTTL(t.Context(), keys[1]).Val(); ttl <= 0 {
			t.Errorf("the tally expires in %v", ttl)
		}
	})
}

// TestVotesThatAreLostInPart: a Redis that has lost a whole poll starts it again; one that has lost a part of
// it, such as by eviction, accepts no vote from a voter who may have voted.
//
// Promise: A lost tally, choice, audit stream or book is noticed. The next vote, and reads of it, return an
// error that names it.
func TestVotesThatAreLostInPart(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v", Options{})
		for what, lose := range map[string]func(keys []string){
			"the records": func(keys []string) { b.Client.Del(t.Context(), keys[0]) },
			"a bucket":    func(keys []string) { b.Client.HDel(t.Context(), keys[0], "0") },
			"the book":    func(keys []string) { b.Client.Del(t.Context(), keys[2]) },
		} {
			keys := g.Keys(what)
			ann := core.Attempt{Actor: "ann", Resource: what}
			guardtest.Check(t, g, ann)
			lose(keys)
			for _, voter := range []string{"ann", "bob"} {
				d, err := g.Check(t.Context(), core.Attempt{Actor: voter, Resource: what})
				if err == nil || d.Allowed || guardtest.IsInvalid(err) ||
					!strings.Contains(err.Error(), "who has voted is unknown") {
					t.Errorf("%s are lost: %+v, %v", what, d, err)
				}
			}
			b.Client.Del(t.Context(), keys...)
			guardtest.WantReason(t, guardtest.Check(t, g, ann), core.ReasonOK)
		}
	})
}
