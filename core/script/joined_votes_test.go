package script_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// begun returns a guard whose poll has a vote for red.
func begun(t *testing.T, c *crowd) *votes.Guard {
	t.Helper()
	g := votes.New(c.e, "v", votes.Options{})
	guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "first", Resource: "p", Item: "red"}),
		core.ReasonOK)
	if err := c.e.Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// holdTwo has two claims of one thing under way, so that others have to wait.
func (c *crowd) holdTwo(t *testing.T, claim func(i int)) {
	t.Helper()
	c.holds.Store(true)
	for i := range 2 {
		c.all.Go(func() { claim(1000 + i) })
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return c.held.Load() == 2 }, "two are under way")
}

// TestVotersOfTheSameMomentAreDecidedTogether: by one run of a script, with operation IDs from outside and
// without. Each has an answer, a vote and an undo of its own. A vote for a choice that nobody has voted for
// goes by itself, and so does the second of an operation.
func TestVotersOfTheSameMomentAreDecidedTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for kind, id := range map[string]func(i int) string{
			"made": func(int) string { return "" }, "outside": func(i int) string { return fmt.Sprint("id", i) },
		} {
			t.Run(kind, func(t *testing.T) {
				b := b
				b.Prefix += kind
				c := newCrowd(t, b, core.WithRefusalMemory(0))
				g := begun(t, c)
				var mu sync.Mutex
				var cast []core.Decision
				vote := func(i int) {
					a := core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "red", ID: id(i)}
					switch i {
					case 98:
						a.Actor = "first"
					case 99:
						a.Item = "blue"
					}
					d, err := g.Check(t.Context(), a)
					want := map[bool]core.Reason{false: core.ReasonOK, true: core.ReasonDuplicate}[i == 98]
					if err != nil || d.Reason != want || !slices.Equal(votes.Choices(d), []string{a.Item}) {
						t.Errorf("%+v, %v, %q", d, err, votes.Choices(d))
					}
					mu.Lock()
					defer mu.Unlock()
					if d.Allowed {
						cast = append(cast, d)
					}
				}
				c.holdTwo(t, vote)
				before := c.commands.Load()
				c.wait(t, 100, vote)
				c.open()
				if got := c.commands.Load() - before; got != 4 {
					t.Errorf("%d scripts ran for the two under way, those that waited, and blue; want 4", got)
				}
				wantTally(t, g, "p", map[string]int64{"red": 101, "blue": 1})
				for i, d := range cast {
					guardtest.Settle(t, g, d, d.Attempt.Item == "blue" || i%2 == 0)
				}
				if v, err := g.Verify(t.Context(), "p"); err != nil || len(v.Lost) > 0 {
					t.Errorf("%+v, %v", v, err)
				}
			})
		}
	})
}

// TestAJointRunThatFailsLeavesEachVoterToItself: where its reply is lost, where it was refused, and where the
// breaker has opened since. Whoever got a yes has a vote and nobody else, also when the run arrives late.
func TestAJointRunThatFailsLeavesEachVoterToItself(t *testing.T) {
	for name, fault := range map[string]struct {
		says    error
		arrives bool
		breaks  bool
	}{
		"lost":                        {says: errNoReply},
		"reply lost":                  {says: errNoReply, arrives: true},
		"full":                        {says: answered("OOM command not allowed when used memory > 'maxmemory'.")},
		"slot moves":                  {says: answered("TRYAGAIN Multiple keys request during rehashing of slot")},
		"reply lost, breaker open":    {says: errNoReply, arrives: true, breaks: true},
		"lost and late, breaker open": {says: errNoReply, breaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				quiet(t)
				r := newLostRoad(voteJoinedScript.SHA())
				r.says, r.arrives = fault.says, fault.arrives
				options := []core.Option{core.WithRefusalMemory(0)}
				if fault.breaks {
					options = append(options, core.WithBreaker(1, 20*time.Millisecond))
				}
				c := r.over(t, b, options...)
				g := begun(t, c)
				var mu sync.Mutex
				var cast []core.Decision
				vote := func(i int) {
					d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "red"})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err != nil:
						if !fault.breaks {
							t.Error(err)
						}
					case d.Allowed && !d.Replayed:
						cast = append(cast, d)
					default:
						t.Errorf("%+v", d)
					}
				}
				c.holdTwo(t, vote)
				c.wait(t, 20, vote)
				c.open()
				redistest.Eventually(t, 10*time.Second, func() bool { return c.e.Pending() == 0 }, "all is undone")
				if !fault.breaks && len(cast) != 22 {
					t.Errorf("%d votes were cast, want 22", len(cast))
				}
				wantTally(t, g, "p", map[string]int64{"red": int64(1 + len(cast))})
				for i, d := range cast {
					guardtest.Settle(t, g, d, i < 4)
				}
				if errors.Is(fault.says, errNoReply) && !fault.arrives {
					r.deliver(t, c)
				}
				wantTally(t, g, "p", map[string]int64{"red": int64(1 + min(len(cast), 4))})
			})
		})
	}
}

// TestWithoutSharedCallsNoVoterWaits for another.
func TestWithoutSharedCallsNoVoterWaits(t *testing.T) {
	b := redistest.Mini(t)
	var sent atomic.Int64
	g := votes.New(core.New(counting{b.Client, &sent}, core.WithPrefix(b.Prefix),
		core.WithDeadline(10*time.Second), core.WithRefusalMemory(0), core.WithoutSharedCalls()),
		"v", votes.Options{})
	guardtest.Check(t, g, core.Attempt{Actor: "first", Resource: "p", Item: "red"})
	sent.Store(0)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "p", Item: "red"})
			if err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	all.Wait()
	if sent.Load() != 50 {
		t.Errorf("%d commands for 50 voters", sent.Load())
	}
}

// TestOneReplyToAllIsNotTakenApart, although it has as many values as there are calls, and some are texts.
func TestOneReplyToAllIsNotTakenApart(t *testing.T) {
	b := redistest.Mini(t)
	c := newCrowd(t, b)
	g := seckill.New(c.e, "s", seckill.Options{})
	buy := func(i int) {
		d, err := g.Check(t.Context(), core.Attempt{Actor: fmt.Sprint(i), Resource: "never opened"})
		if err != nil || d.Reason != core.ReasonNotReady {
			t.Errorf("%+v, %v", d, err)
		}
	}
	c.holdTwo(t, buy)
	c.wait(t, 7, buy)
	c.open()
}
