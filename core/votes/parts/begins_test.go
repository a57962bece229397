package parts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestAPollThatBeginsWhileItIsReadIsNotLost: between any two commands of a reader, the first votes of a poll
// are cast. The reader hears of the votes, or of none, and never of a loss. Before, the number of parts was
// read as 1 before it was fixed.
func TestAPollThatBeginsWhileItIsReadIsNotLost(t *testing.T) {
	const most = 40 // commands of a reader, more than it sends
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for what, read := range map[string]func(g *Guard, poll string) error{
			"tally": func(g *Guard, poll string) error {
				_, err := g.Tally(t.Context(), poll)
				return err
			},
			"verify": func(g *Guard, poll string) error {
				_, err := g.Verify(t.Context(), poll)
				return err
			},
			"repair": func(g *Guard, poll string) error {
				_, err := g.Repair(t.Context(), poll)
				return err
			},
			"audit": func(g *Guard, poll string) error {
				_, _, err := g.Audit(t.Context(), poll, "", 10)
				return err
			},
			"void": func(g *Guard, poll string) error {
				_, err := g.Void(t.Context(), poll, votes.VoidOptions{
					Match: func(votes.Event) bool { return false }, DryRun: true})
				return err
			},
		} {
			t.Run(what, func(t *testing.T) {
				before := &beforeCommand{}
				client := b.NewClient(t)
				client.AddHook(before)
				name := "v" + what
				options := votes.Options{Poll: votes.Poll{Change: true}, Audit: true}
				reader := New(guardtest.NewEngine(redistest.Backend{Client: client, Prefix: b.Prefix}), name, 3, options)
				if err := reader.Engine().Preload(t.Context()); err != nil {
					t.Fatal(err)
				}
				writer := New(guardtest.NewEngine(b), name, 3, options)
				for n := range int64(most) {
					poll, begun := fmt.Sprint("p", n), false
					before.do(n, func() {
						begun = true
						for _, voter := range actorsOf(3) {
							guardtest.Check(t, writer, core.Attempt{Actor: voter, Resource: poll})
						}
					})
					if err := read(reader, poll); err != nil && !errors.Is(err, votes.ErrNoPoll) {
						t.Errorf("a poll that begins before command %d: %v", n, err)
					}
					if before.do(-1, nil); !begun {
						return
					}
					wantTally(t, writer, poll, map[string]int64{"": 3})
				}
				t.Error("a reader sends more commands than were tried")
			})
		}
	})
}

// beforeCommand does something once, before a command of a client, which it counts.
type beforeCommand struct {
	left atomic.Int64
	f    func()
}

func (h *beforeCommand) do(n int64, f func()) { h.f = f; h.left.Store(n + 1) }

func (h *beforeCommand) count(commands int) {
	for range commands {
		if h.left.Add(-1) == 0 && h.f != nil {
			h.f()
		}
	}
}

func (*beforeCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *beforeCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		reads := []string{"evalsha", "exists", "hget", "hscan", "hgetall", "xrange", "hmget"}
		if slices.Contains(reads, cmd.Name()) {
			h.count(1)
		}
		return next(ctx, cmd)
	}
}

func (h *beforeCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count(len(cmds))
		return next(ctx, cmds)
	}
}

// TestAPollThatBeginsAgainInOtherPartsCountsOnce: one process remembers for a minute that a poll has two
// parts. Its keys are deleted, and it begins again in three through another process. Whoever votes or
// retracts through the first process does it in the three. Before, a voter who voted through both counted
// twice, and a vote in a part that the poll did not have was in no tally.
func TestAPollThatBeginsAgainInOtherPartsCountsOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		of := actorsOf(6) // each part of two with each of three
		for again := range of {
			poll := fmt.Sprint("p", again)
			process := func(parts int) *Guard {
				return New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), fmt.Sprint("v", again), parts,
					votes.Options{Poll: votes.Poll{Retract: true}})
			}
			first, second := process(2), process(3)
			for _, voter := range of {
				guardtest.Check(t, first, core.Attempt{Actor: voter, Resource: poll, Item: "red"})
			}
			for n := range 3 {
				b.Client.Del(t.Context(), first.Part(n, 2).Keys(poll)...)
			}
			b.Client.Del(t.Context(), first.Keys(poll)...)
			vote := func(g *Guard, n int, want core.Reason) {
				t.Helper()
				a := core.Attempt{Actor: of[n], Resource: poll, Item: "red"}
				guardtest.WantReason(t, guardtest.Check(t, g, a), want)
			}
			vote(second, again, core.ReasonOK)
			retract(t, first, core.Attempt{Actor: of[again], Resource: poll, Item: "red"}, core.ReasonOK)
			for n := range of {
				vote(first, n, core.ReasonOK)
				vote(second, n, core.ReasonDuplicate)
			}
			wantTally(t, second, poll, map[string]int64{"red": 6})
			wantVerified(t, first, poll, map[string]int64{"red": 6})
		}
	})
}

// TestAPollThatClosesLaterKeepsItsNumberOfParts: a poll has begun before its closing was known, and the last
// votes come within the minute for which a process remembers it. Until Keep after the closing the poll knows
// its number of parts and each part. Before, they were kept for Keep from the beginning, and the votes were
// called lost.
func TestAPollThatClosesLaterKeepsItsNumberOfParts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		var closes time.Time
		g := New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v", 3, votes.Options{Keep: time.Hour,
			Find: func(context.Context, string) (votes.Poll, error) {
				return votes.Poll{PerVoter: 2, Closes: closes}, nil
			}})
		for range 2 {
			for _, voter := range actorsOf(3) {
				a := core.Attempt{Actor: voter, Resource: "p", Item: fmt.Sprint(closes.IsZero())}
				guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
			}
			closes = time.Now().Add(5 * time.Hour)
		}
		voters := g.Keys("p")[0]
		if left := b.Client.PTTL(t.Context(), voters).Val(); left < 6*time.Hour {
			t.Errorf("the number of parts is kept for %v", left)
		}
		for n := 1; n <= 3; n++ {
			until, err := b.Client.HGet(t.Context(), voters, fmt.Sprint("@", n)).Int64()
			if left := time.Until(time.UnixMilli(until)); err != nil || left < 6*time.Hour {
				t.Errorf("part %d is known for %v: %v", n, left, err)
			}
			if left := b.Client.PTTL(t.Context(), g.Part(n, 3).Keys("p")[2]).Val(); left < 6*time.Hour {
				t.Errorf("part %d is kept for %v", n, left)
			}
		}
	})
}

// TestAPollThatIsToOpenAgainHasLostNothing: its opening was put off when some parts had votes. Whoever retracts
// in a part without any has nothing to retract. Before, it was an ErrLost.
func TestAPollThatIsToOpenAgainHasLostNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		var opens time.Time
		g := New(guardtest.NewEngine(b, core.WithRefusalMemory(0)), "v", 3, votes.Options{
			Find: func(context.Context, string) (votes.Poll, error) {
				return votes.Poll{Retract: true, Opens: opens}, nil
			}})
		of := actorsOf(3)
		guardtest.Check(t, g, core.Attempt{Actor: of[1], Resource: "p", Item: "red"})
		opens = time.Now().Add(time.Hour)
		retract(t, g, core.Attempt{Actor: of[2], Resource: "p", Item: "red"}, core.ReasonGone)
		d := guardtest.Check(t, g, core.Attempt{Actor: of[2], Resource: "p", Item: "red"})
		guardtest.WantReason(t, d, core.ReasonNotOpen)
		opens = time.Time{}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: of[2], Resource: "p", Item: "red"}),
			core.ReasonOK)
		wantTally(t, g, "p", map[string]int64{"red": 2})
	})
}
