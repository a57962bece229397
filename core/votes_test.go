package core

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

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

func tally(t testing.TB, g *Votes, poll string) map[string]int64 {
	t.Helper()
	sums, err := g.Tally(t.Context(), poll)
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func wantTally(t *testing.T, g *Votes, poll string, want map[string]int64) {
	t.Helper()
	if got := tally(t, g, poll); !maps.Equal(got, want) {
		t.Fatalf("tally %v, want %v", got, want)
	}
}

func TestVotesCountOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{})
		d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red"})
		wantReason(t, d, ReasonOK)
		if d.Limit != 1 || d.Remaining != 0 || !slices.Equal(Choices(d), []string{"red"}) {
			t.Fatalf("%+v", d)
		}
		for _, item := range []string{"red", "blue", ""} {
			d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: item})
			wantReason(t, d, ReasonDuplicate)
			if !slices.Equal(Choices(d), []string{"red"}) || d.RetryAfter != 0 {
				t.Fatalf("%+v: a duplicate says the choice that stands", d)
			}
		}
		wantReason(t, check(t, g, Attempt{Actor: "bob", Resource: "p", Item: "blue", Cost: 3}), ReasonOK)
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "q", Item: ""}), ReasonOK)
		wantTally(t, g, "p", map[string]int64{"red": 1, "blue": 3})
		wantTally(t, g, "q", map[string]int64{"": 1})
		wantTally(t, g, "unknown", map[string]int64{})
	})
}

func TestVotesSeveralChoices(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{PerVoter: 2}})
		for _, step := range []struct {
			item      string
			reason    Reason
			remaining int64
			choices   []string
		}{
			{"red", ReasonOK, 1, []string{"red"}},
			{"red", ReasonDuplicate, 1, []string{"red"}},
			{"dark red", ReasonOK, 0, []string{"red", "dark red"}},
			{"red", ReasonDuplicate, 0, []string{"red", "dark red"}},
			{"blue", ReasonQuota, 0, []string{"red", "dark red"}},
		} {
			d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: step.item})
			wantReason(t, d, step.reason)
			if d.Remaining != step.remaining || !slices.Equal(Choices(d), step.choices) {
				t.Fatalf("%+v, want %+v", d, step)
			}
		}
		wantTally(t, g, "p", map[string]int64{"red": 1, "dark red": 1})
	})
}

func TestVotesOpenAndClose(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		poll := Poll{Opens: clock.Now().Add(time.Minute), Closes: clock.Now().Add(time.Hour)}
		g := newEngine(b, withClock(clock)).Votes("v", VoteOptions{Poll: poll})
		vote := func(voter string) Decision {
			return check(t, g, Attempt{Actor: voter, Resource: "p", ID: "id of " + voter})
		}
		d := vote("ann")
		wantReason(t, d, ReasonNotOpen)
		if d.RetryAfter != time.Minute {
			t.Errorf("%+v: want a retry in a minute", d)
		}
		clock.Advance(time.Minute - time.Millisecond)
		wantReason(t, vote("ann"), ReasonNotOpen)
		clock.Advance(time.Millisecond)
		wantReason(t, vote("ann"), ReasonOK)
		clock.Advance(59*time.Minute - time.Millisecond)
		wantReason(t, vote("bob"), ReasonOK)
		clock.Advance(time.Millisecond)
		wantReason(t, vote("cid"), ReasonClosed)
		if d := vote("bob"); !d.Replayed {
			t.Errorf("%+v: the stored answer is heard after the closing", d)
		}
		wantTally(t, g, "p", map[string]int64{"": 2})
	})
}

func TestVotesFind(t *testing.T) {
	broken := errors.New("broken")
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Find: func(_ context.Context, poll string) (Poll, error) {
			switch poll {
			case "colours":
				return Poll{Choices: []string{"red", "blue"}}, nil
			case "broken":
				return Poll{}, broken
			case "wrong":
				return Poll{PerVoter: -1}, nil
			}
			return Poll{}, ErrNoPoll
		}})
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "colours", Item: "red"}), ReasonOK)
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "unknown", Item: "red"}), ReasonNotOpen)
		if _, err := g.Check(t.Context(), Attempt{Actor: "bob", Resource: "colours", Item: "green"}); !isInvalid(err) {
			t.Errorf("a choice that is none: %v", err)
		}
		if _, err := g.Check(t.Context(), Attempt{Actor: "bob", Resource: "broken"}); !errors.Is(err, broken) || isInvalid(err) {
			t.Errorf("Find's own error: %v", err)
		}
		if _, err := g.Check(t.Context(), Attempt{Actor: "bob", Resource: "wrong"}); err == nil || isInvalid(err) {
			t.Errorf("a poll that makes no sense: %v", err)
		}
		wantTally(t, g, "colours", map[string]int64{"red": 1, "blue": 0})
	})
}

func TestVotesReplayAndConflict(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{PerVoter: 2}})
		first := Attempt{Actor: "ann", Resource: "p", Item: "red", Cost: 2, ID: "op 1"}
		wantReason(t, check(t, g, first), ReasonOK)
		for range 2 {
			d := check(t, g, first)
			wantReason(t, d, ReasonOK)
			if !d.Replayed {
				t.Errorf("%+v is not replayed", d)
			}
			settle(t, g, d, false) // the first was told that it counts, and has not failed
		}
		for _, other := range []Attempt{
			{Actor: "bob", Resource: "p", Item: "red", Cost: 2, ID: "op 1"},
			{Actor: "ann", Resource: "p", Item: "blue", Cost: 2, ID: "op 1"},
			{Actor: "ann", Resource: "p", Item: "red", Cost: 1, ID: "op 1"},
		} {
			wantReason(t, check(t, g, other), ReasonConflict)
		}
		wantTally(t, g, "p", map[string]int64{"red": 2})
	})
}

// TestVotesSharedByRetries: a vote that several calls with one operation ID were told of goes when all of them have failed.
func TestVotesSharedByRetries(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{})
		a := Attempt{Actor: "ann", Resource: "p", Item: "red", ID: "op"}
		one, two := check(t, g, a), check(t, g, a)
		settle(t, g, one, false) // its client has gone, and tries again
		settle(t, g, two, true)
		settle(t, g, one, false)
		wantTally(t, g, "p", map[string]int64{"red": 1})
		three := check(t, g, a)
		settle(t, g, three, false)
		wantTally(t, g, "p", map[string]int64{"red": 1})

		a.Actor, a.ID = "bob", "op 2"
		one, two, three = check(t, g, a), check(t, g, a), check(t, g, a)
		for _, d := range []Decision{two, one, one} {
			settle(t, g, d, false)
			wantTally(t, g, "p", map[string]int64{"red": 2})
		}
		settle(t, g, three, false)
		wantTally(t, g, "p", map[string]int64{"red": 1})
		if d := check(t, g, a); !d.Allowed || d.Replayed {
			t.Errorf("%+v: a vote that was taken back may be tried again", d)
		}

		for range 100 { // a client that hammers does not make the record grow
			check(t, g, a)
		}
		if n := b.Client.StrLen(t.Context(), g.partKeys("p", 0, a.ID)[3]).Val(); n > 250 {
			t.Errorf("the record of the operation has %d bytes", n)
		}
	})
}

// TestVotesUndoThatOvertakes: a vote that comes after it was given up does not count.
func TestVotesUndoThatOvertakes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{})
		a, err := Attempt{Actor: "ann", Resource: "p", ID: "op"}.prepareClaim("the poll")
		if err != nil {
			t.Fatal(err)
		}
		if err := g.undo(t.Context(), a, 1, TombstoneTTL); err != nil {
			t.Fatal(err)
		}
		wantReason(t, check(t, g, a), ReasonGone)
		a = a.WithoutCall()
		wantReason(t, check(t, g, a), ReasonOK) // another try
		wantTally(t, g, "p", map[string]int64{"": 1})
	})
}

func TestVotesLongChoices(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		long, japanese := strings.Repeat("{", 5_000), "日本語の長い選択肢です。日本語の長い選択肢です。"
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{Choices: []string{long, japanese}}})
		check(t, g, Attempt{Actor: "ann", Resource: "p", Item: long})
		check(t, g, Attempt{Actor: "bob", Resource: "p", Item: japanese})
		wantTally(t, g, "p", map[string]int64{long: 1, japanese: 1})
		if d := check(t, g, Attempt{Actor: "bob", Resource: "p", Item: long}); !slices.Equal(Choices(d), []string{japanese}) {
			t.Errorf("%+v", d)
		}
	})
}

func TestVotesTakenBackOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{PerVoter: 3}})
		red := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red", Cost: 5})
		blue := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "blue", ID: "op"})
		check(t, g, Attempt{Actor: "bob", Resource: "p", Item: "blue"})
		refused := check(t, g, Attempt{Actor: "bob", Resource: "p", Item: "blue"})
		for _, d := range []Decision{blue, blue, refused} {
			if err := g.Settle(t.Context(), d, false); err != nil {
				t.Fatal(err)
			}
		}
		wantTally(t, g, "p", map[string]int64{"red": 5, "blue": 1})
		if err := g.Settle(t.Context(), red, true); err != nil {
			t.Fatal(err)
		}
		d := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "blue", ID: "op"})
		wantReason(t, d, ReasonOK) // the same operation, tried again after its failure
		if d.Replayed || !slices.Equal(Choices(d), []string{"red", "blue"}) {
			t.Errorf("%+v", d)
		}
		for _, d := range []Decision{red, d} {
			if err := g.Settle(t.Context(), d, false); err != nil {
				t.Fatal(err)
			}
		}
		wantTally(t, g, "p", map[string]int64{"blue": 1})
	})
}

func TestVotesHostileText(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{})
		for i, text := range hostile {
			for _, a := range []Attempt{
				{Actor: text, Resource: "voters", Item: "x"},
				{Actor: "ann", Resource: "poll " + text},
				{Actor: strconv.Itoa(i), Resource: "choices", Item: text},
				{Actor: strconv.Itoa(i), Resource: "ids", ID: text},
			} {
				if d := check(t, g, a); !d.Allowed || d.Replayed {
					t.Errorf("%.40q collides with another: %+v", text, d)
				}
			}
		}
		sums := tally(t, g, "choices")
		for _, text := range hostile {
			if !strings.HasPrefix(encodeUpTo(maxRecord, text), "#") && sums[text] != 1 {
				t.Errorf("choice %q has %d votes", text, sums[text])
			}
		}
		if len(sums) != len(hostile) {
			t.Errorf("%d choices, want %d", len(sums), len(hostile))
		}
	})
}

func TestVotesInvalid(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{})
		for _, a := range []Attempt{
			{Resource: "p"}, {Actor: "ann"}, {Actor: "ann", Resource: "p", Cost: -1},
			{Actor: "ann", Resource: "p", Cost: 1 << 53}, {Actor: "ann", Resource: "p", Cost: math.MaxInt64},
		} {
			if d, err := g.Check(t.Context(), a); !isInvalid(err) || d.Allowed {
				t.Errorf("%+v: %+v, %v", a, d, err)
			}
		}
		wantReason(t, check(t, g, Attempt{Actor: "ann", Resource: "p", Cost: 1<<53 - 1}), ReasonOK)
		wantTally(t, g, "p", map[string]int64{"": 1<<53 - 1})
	})
}

// TestVotesTallyOverflow fills a choice up to the largest sum that Redis counts: the vote beyond it changes nothing.
// miniredis is no judge of it: it wraps around where Redis refuses.
func TestVotesTallyOverflow(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{})
		check(t, g, Attempt{Actor: "ann", Resource: "p"})
		key := g.recordKeys("p", 0)[1]
		b.Client.HSet(t.Context(), key, "", math.MaxInt64)
		if _, err := g.Check(t.Context(), Attempt{Actor: "bob", Resource: "p"}); err == nil {
			t.Error("a sum beyond 64 bits was counted")
		}
		b.Client.HSet(t.Context(), key, "", 1)
		wantReason(t, check(t, g, Attempt{Actor: "bob", Resource: "p"}), ReasonOK)
	})
}

func TestVotesRace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{})
		var all sync.WaitGroup
		for i := range 400 {
			all.Go(func() {
				a := Attempt{Actor: fmt.Sprint(i % 20), Resource: "p", Item: fmt.Sprint(i % 3)}
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
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Votes("v", VoteOptions{
			Poll: Poll{Closes: clock.Now().Add(2 * time.Hour)}, Keep: time.Hour,
		})
		made := check(t, g, Attempt{Actor: "ann", Resource: "p"})
		given := check(t, g, Attempt{Actor: "bob", Resource: "p", ID: "given"})
		for key, want := range map[string]time.Duration{
			g.recordKeys("p", 0)[0]:                 3 * time.Hour,
			g.recordKeys("p", 0)[1]:                 3 * time.Hour,
			g.recordKeys("p", 0)[2]:                 3 * time.Hour,
			g.partKeys("p", 0, made.Attempt.ID)[3]:  10 * time.Minute,
			g.partKeys("p", 0, given.Attempt.ID)[3]: 3 * time.Hour,
		} {
			if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl > want || ttl < want-time.Minute {
				t.Errorf("%q expires in %v, want %v", key, ttl, want)
			}
		}
	})
}

// TestVotesKeysThatComeAndGo: a poll without a closing time lives on with every vote, and a key that has been empty expires too.
func TestVotesKeysThatComeAndGo(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := newTestClock()
		g := newEngine(b, withClock(clock)).Votes("v", VoteOptions{Keep: 64 * time.Hour, Poll: Poll{PerVoter: 1000, PerChoice: 1000, Retract: true}})
		keys := g.recordKeys("p", 0)
		wants := func(least, most time.Duration) {
			t.Helper()
			for _, key := range keys {
				if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl < least-time.Minute || ttl > most {
					t.Errorf("%q expires in %v, want %v to %v", key, ttl, least, most)
				}
			}
		}
		red := Attempt{Actor: "ann", Resource: "p", Item: "red"}
		check(t, g, red)
		wants(65*time.Hour, 65*time.Hour)
		retract(t, g, red, ReasonOK)
		if n := b.Client.Exists(t.Context(), keys[1]).Val(); n != 0 {
			t.Error("an empty tally is kept")
		}
		check(t, g, red)
		wants(65*time.Hour, 65*time.Hour)
		for range 20 { // nobody but this clock sees that time passes
			clock.Advance(2 * time.Hour)
			check(t, g, red)
			wants(65*time.Hour, 65*time.Hour)
		}
		b.Client.Del(t.Context(), keys[1])
		check(t, g, red)
		wants(64*time.Hour, 65*time.Hour)
	})
}

// TestVotesAuditThatComesBackHasATTL: an audit stream that was deleted, or turned on later, expires too, also when nobody votes again.
func TestVotesAuditThatComesBackHasATTL(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Audit: true, Poll: Poll{Retract: true}})
		for name, back := range map[string]func(a Attempt, d Decision){
			"undone":    func(_ Attempt, d Decision) { settle(t, g, d, false) },
			"retracted": func(a Attempt, _ Decision) { retract(t, g, a, ReasonOK) },
			"voided": func(a Attempt, _ Decision) {
				events, _, err := g.Audit(t.Context(), a.Resource, "", 1)
				if err != nil || len(events) != 1 {
					t.Fatalf("%v, %v", events, err)
				}
				b.Client.Del(t.Context(), g.auditKey(a.Resource, 0)) // while Void goes through what it has read
				if voided, err := g.voidOne(t.Context(), a.Resource, "run", events[0], VoidOptions{}); err != nil || !voided {
					t.Fatalf("%v, %v", voided, err)
				}
			},
		} {
			a := Attempt{Actor: "ann", Resource: name, Item: "red"}
			d := check(t, g, a)
			if name != "voided" {
				b.Client.Del(t.Context(), g.auditKey(name, 0))
			}
			back(a, d)
			want := b.Client.PTTL(t.Context(), g.recordKeys(name, 0)[0]).Val()
			if ttl := b.Client.PTTL(t.Context(), g.auditKey(name, 0)).Val(); ttl <= 0 || ttl > want+time.Minute {
				t.Errorf("%s: the stream expires in %v, want %v", name, ttl, want)
			}
		}
	})
}

// TestVotesTallyThatComesBackHasATTL: the tally is lost, and the first to write it again is an undo that restores a former vote.
func TestVotesTallyThatComesBackHasATTL(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b).Votes("v", VoteOptions{Poll: Poll{Change: true}})
		check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "red"})
		changed := check(t, g, Attempt{Actor: "ann", Resource: "p", Item: "blue"})
		keys := g.recordKeys("p", 0)
		b.Client.Del(t.Context(), keys[1])
		settle(t, g, changed, false)
		wantTally(t, g, "p", map[string]int64{"red": 1})
		if ttl := b.Client.PTTL(t.Context(), keys[1]).Val(); ttl <= 0 {
			t.Errorf("the tally expires in %v", ttl)
		}
	})
}

// TestVotesThatAreLostInPart: a Redis that has lost a poll knows nothing of it; one that has lost some of it, such as by eviction, lets
// nobody vote who may have voted.
func TestVotesThatAreLostInPart(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g := newEngine(b, WithRefusalMemory(0)).Votes("v", VoteOptions{})
		for what, lose := range map[string]func(keys []string){
			"the records": func(keys []string) { b.Client.Del(t.Context(), keys[0]) },
			"a bucket":    func(keys []string) { b.Client.HDel(t.Context(), keys[0], "0") },
			"the book":    func(keys []string) { b.Client.Del(t.Context(), keys[2]) },
		} {
			keys := g.recordKeys(what, 0)
			ann := Attempt{Actor: "ann", Resource: what}
			check(t, g, ann)
			lose(keys)
			for _, voter := range []string{"ann", "bob"} {
				d, err := g.Check(t.Context(), Attempt{Actor: voter, Resource: what})
				if err == nil || d.Allowed || isInvalid(err) || !strings.Contains(err.Error(), "nobody knows who has voted") {
					t.Errorf("%s are lost: %+v, %v", what, d, err)
				}
			}
			b.Client.Del(t.Context(), keys...)
			wantReason(t, check(t, g, ann), ReasonOK)
		}
	})
}
