package votes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

func TestDuplicatesAreRememberedForAMoment(t *testing.T) {
	now := time.Now()
	m := newDuplicates(time.Hour) // at most a second
	hear := func(asked kit.Asked[string], limit int64) { m.Hear(asked, votedBefore{limit: limit}, m.Longest()) }
	hear(m.Ask("ann", now), 7)
	for age, want := range map[time.Duration]bool{0: true, time.Second - 1: true, time.Second: false,
		-1: false} {
		if before, found := m.Find("ann", now.Add(age)); found != want || found && before.limit != 7 {
			t.Errorf("after %v: %+v, %v", age, before, found)
		}
	}
	if _, found := m.Find("bob", now); found {
		t.Error("somebody else")
	}

	underWay := m.Ask("ann", now)
	m.Drop("ann")
	if _, found := m.Find("ann", now); found {
		t.Error("was dropped")
	}
	hear(underWay, 8)
	if _, found := m.Find("ann", now); found {
		t.Error("an answer in flight when its key was dropped is kept")
	}
	hear(m.Ask("ann", now), 9)
	if before, found := m.Find("ann", now); !found || before.limit != 9 {
		t.Errorf("%+v, %v", before, found)
	}

	m = newDuplicates(0)
	hear(m.Ask("ann", now), 1)
	m.Drop("ann")
	if _, found := m.Find("ann", now); found || m.Len() != 0 {
		t.Error("a disabled memory remembers")
	}
}

func TestDuplicatesAreBounded(t *testing.T) {
	m := newDuplicates(time.Second)
	now := time.Now()
	for i := range 3 * duplicateKeys {
		m.Hear(m.Ask(strconv.Itoa(i), now), votedBefore{}, m.Longest())
		m.Drop("x" + strconv.Itoa(i))
	}
	if n := m.Len(); n > duplicateKeys || n < duplicateKeys/2 {
		t.Errorf("%d are remembered, want %d at most", n, duplicateKeys)
	}
}

func TestDuplicatesConcurrently(t *testing.T) {
	m := newDuplicates(time.Second)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 2000 {
				key, limit, now := strconv.Itoa(i%20), int64(i%20), time.Now()
				asked := m.Ask(key, now)
				if before, found := m.Find(key, now); found && before.limit != limit {
					t.Errorf("%s: %+v", key, before)
				}
				if worker == 0 {
					m.Drop(key)
				}
				m.Hear(asked, votedBefore{limit: limit}, m.Longest())
			}
		})
	}
	all.Wait()
}

// scriptCalls counts the calls of scripts that reach Redis.
type scriptCalls struct {
	script.Client
	n int
}

func (c *scriptCalls) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() == "evalsha" {
		c.n++
	}
	return c.Client.Process(ctx, cmd)
}

// TestVotesRememberDuplicates: voters who repeat their vote stay out of Redis and get the same answers as
// from Redis.
func TestVotesRememberDuplicates(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		counter := &scriptCalls{Client: b.Client}
		e := core.New(counter, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
			core.WithObserver(guardtest.Ignore{}), guardtest.WithClock(clock))
		poll := Poll{Retract: true, Opens: clock.Now().Add(-time.Hour), Closes: clock.Now().Add(time.Hour)}
		var found error
		g := New(e, "v", Options{Find: func(context.Context, string) (Poll, error) { return poll, found },
			Audit: true})
		vote := func(what, item, id string, asks bool, want core.Reason, choices ...string) core.Decision {
			t.Helper()
			before := counter.n
			d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: item, ID: id})
			if d.Reason != want || !slices.Equal(Choices(d), choices) {
				t.Fatalf("%s: %+v, want %s %q", what, d, want, choices)
			}
			source := map[bool]core.Source{true: core.SourceRedis, false: core.SourceRemembered}[asks]
			if d.Source != source || (counter.n > before) != asks {
				t.Fatalf("%s: %+v, %d calls, want the source %s", what, d, counter.n-before, source)
			}
			return d
		}
		first := vote("first", "red", "op", true, core.ReasonOK, "red")
		vote("second", "red", "", true, core.ReasonDuplicate, "red")
		d := vote("third", "red", "", false, core.ReasonDuplicate, "red")
		if d.Limit != 1 || d.Remaining != 0 || d.Allowed || d.Attempt.ID == "" {
			t.Errorf("%+v", d)
		}
		Choices(d)[0] = "changed by the caller"
		vote("for another choice", "blue", "", false, core.ReasonDuplicate, "red")
		vote("with the ID of the vote", "red", "op", true, core.ReasonOK, "red")
		vote("with another ID", "red", "op 2", true, core.ReasonDuplicate, "red")
		vote("which is remembered as well", "red", "", false, core.ReasonDuplicate, "red")
		clock.Advance(time.Second - time.Millisecond)
		vote("nearly a second later", "red", "", false, core.ReasonDuplicate, "red")
		clock.Advance(time.Millisecond)
		vote("a second later", "red", "", true, core.ReasonDuplicate, "red")
		vote("then", "red", "", false, core.ReasonDuplicate, "red")

		poll.PerVoter = 2
		vote("the poll has changed", "blue", "", true, core.ReasonOK, "red", "blue")
		vote("one choice of two", "blue", "", true, core.ReasonDuplicate, "red", "blue")
		vote("again", "blue", "", false, core.ReasonDuplicate, "red", "blue")
		vote("the other choice", "red", "", true, core.ReasonDuplicate, "red", "blue")
		retract(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "blue"}, core.ReasonOK)
		vote("after it was retracted", "red", "", true, core.ReasonDuplicate, "red")
		vote("again", "red", "", false, core.ReasonDuplicate, "red")
		guardtest.Settle(t, g, first, core.Rollback) // a twin is left
		vote("after an undo", "red", "", true, core.ReasonDuplicate, "red")
		vote("again", "red", "", false, core.ReasonDuplicate, "red")
		void := VoidOptions{Match: func(Event) bool { return true }, DryRun: true}
		for _, dry := range []bool{true, false} {
			void.DryRun, void.VoteAgain = dry, true
			if _, err := g.Void(t.Context(), "p", void); err != nil {
				t.Fatal(err)
			}
			if dry {
				vote("after looking what would be voided", "red", "", false, core.ReasonDuplicate, "red")
			}
		}
		vote("after it was voided", "red", "", true, core.ReasonOK, "red")
		vote("and", "red", "", true, core.ReasonDuplicate, "red")

		found = ErrNoPoll
		if d := guardtest.Check(t, g,
			core.Attempt{Actor: "ann", Resource: "p", Item: "red"}); d.Reason != core.ReasonNotOpen {
			t.Errorf("%+v: the poll is gone", d)
		}
		found = nil
		vote("it is back", "red", "", false, core.ReasonDuplicate, "red")
		poll.Closes = clock.Now()
		vote("it is closed", "red", "", true, core.ReasonClosed, "red")
		poll.Closes, poll.Change, poll.PerVoter = time.Time{}, true, 1
		vote("votes may be changed now", "red", "", true, core.ReasonDuplicate, "red")
		vote("which nobody remembers", "red", "", true, core.ReasonDuplicate, "red")
		vote("they are", "blue", "", true, core.ReasonChanged, "blue")
	})
}

// TestVotesRememberLittle: large answers are not remembered.
func TestVotesRememberLittle(t *testing.T) {
	b := redistest.Mini(t)
	g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{PerVoter: 100}})
	long := fmt.Sprintf("%600d", 1)
	for range 2 {
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: long})
	}
	if n := g.duplicates.Len(); n != 0 {
		t.Errorf("%d are remembered", n)
	}
	off := New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "w", Options{})
	for range 3 {
		if d := guardtest.Check(t, off, core.Attempt{Actor: "ann", Resource: "p"}); d.Source != core.SourceRedis {
			t.Errorf("%+v", d)
		}
	}
	if _, err := off.Check(t.Context(), core.Attempt{}); !errors.Is(err, core.ErrInvalid) {
		t.Error(err)
	}
}
