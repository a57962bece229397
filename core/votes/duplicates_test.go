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

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func TestDuplicatesAreRememberedForAMoment(t *testing.T) {
	now := time.Now()
	m := newDuplicates[int](time.Hour) // a second at most
	heard := m.ask("ann", now)
	m.hear(heard, 7)
	for age, want := range map[time.Duration]bool{0: true, time.Second - 1: true, time.Second: false, -1: false} {
		if value, found := m.find("ann", now.Add(age)); found != want || found && value != 7 {
			t.Errorf("after %v: %d, %v", age, value, found)
		}
	}
	if _, found := m.find("bob", now); found {
		t.Error("somebody else")
	}

	underWay := m.ask("ann", now)
	m.drop("ann")
	if _, found := m.find("ann", now); found {
		t.Error("was dropped")
	}
	m.hear(underWay, 8)
	if _, found := m.find("ann", now); found {
		t.Error("what was under way when it was dropped is kept")
	}
	m.hear(m.ask("ann", now), 9)
	if value, found := m.find("ann", now); !found || value != 9 {
		t.Errorf("%d, %v", value, found)
	}

	off := newDuplicates[int](0)
	off.hear(off.ask("ann", now), 1)
	off.drop("ann")
	if _, found := off.find("ann", now); found || off.keys.Len() != 0 {
		t.Error("a memory that is off remembers")
	}
}

func TestDuplicatesAreBounded(t *testing.T) {
	m := newDuplicates[int](time.Second)
	now := time.Now()
	for i := range 3 * duplicateKeys {
		m.hear(m.ask(strconv.Itoa(i), now), i)
		m.drop("x" + strconv.Itoa(i))
	}
	if n := m.keys.Len(); n > duplicateKeys {
		t.Errorf("%d are remembered, want %d at most", n, duplicateKeys)
	}
}

func TestDuplicatesConcurrently(t *testing.T) {
	m := newDuplicates[int](time.Second)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 2000 {
				key, now := strconv.Itoa(i%20), time.Now()
				call := m.ask(key, now)
				if value, found := m.find(key, now); found && value != i%20 {
					t.Errorf("%s: %d", key, value)
				}
				if worker == 0 {
					m.drop(key)
				}
				m.hear(call, i%20)
			}
		})
	}
	all.Wait()
}

// scriptCalls counts the calls of scripts that reach Redis.
type scriptCalls struct {
	core.Client
	n int
}

func (c *scriptCalls) Process(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() == "evalsha" {
		c.n++
	}
	return c.Client.Process(ctx, cmd)
}

// TestVotesRememberDuplicates: hammering voters stay out of Redis, and hear what they would hear from it.
func TestVotesRememberDuplicates(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		counter := &scriptCalls{Client: b.Client}
		e := core.New(counter, core.WithPrefix(b.Prefix), core.WithDeadline(10*time.Second), core.WithObserver(guardtest.Ignore{}), guardtest.WithClock(clock))
		poll := Poll{Retract: true, Opens: clock.Now().Add(-time.Hour), Closes: clock.Now().Add(time.Hour)}
		var found error
		g := New(e, "v", Options{Find: func(context.Context, string) (Poll, error) { return poll, found }, Audit: true})
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
		guardtest.Settle(t, g, first, false) // a twin is left
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
		if d := guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: "red"}); d.Reason != core.ReasonNotOpen {
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

// TestVotesRememberLittle: what takes much memory is not remembered.
func TestVotesRememberLittle(t *testing.T) {
	b := redistest.Mini(t)
	g := New(guardtest.NewEngine(b), "v", Options{Poll: Poll{PerVoter: 100}})
	long := fmt.Sprintf("%600d", 1)
	for range 2 {
		guardtest.Check(t, g, core.Attempt{Actor: "ann", Resource: "p", Item: long})
	}
	if n := g.duplicates.keys.Len(); n != 0 {
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
