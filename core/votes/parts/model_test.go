package parts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestVotesAgainstModel makes random calls at polls of one slot and in parts, from one process that remembers
// duplicates or from two that divide polls differently, and compares tally, records and audit stream with a
// model in Go after each step.
//
// Promise: The sums of tally and records are equal at all times, under faults and concurrency.
func TestVotesAgainstModel(t *testing.T) {
	redistest.EachInCI(t, func(t *testing.T, b redistest.Backend) {
		number := 0
		rapid.Check(t, func(rt *rapid.T) {
			number++
			m := newVoteModel(rt)
			var guards []ballots
			memory := time.Second
			all := rapid.SampledFrom([][]int{{0}, {3}, {1, 3}, {3, 2}}).Draw(rt, "parts, 0: package votes")
			if len(all) > 1 {
				memory = 0 // an undo by the other process would be seen late
			}
			b := b
			b.Prefix += fmt.Sprint("-", number)
			for _, of := range all {
				e := guardtest.NewEngine(b, guardtest.WithClock(m.clock), core.WithRefusalMemory(memory))
				guards = append(guards, newBallots(e, of, votes.Options{
					Find: func(context.Context, string) (votes.Poll, error) { return m.poll, nil }, Audit: true,
				}))
			}
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				process := rapid.IntRange(0, len(guards)-1).Draw(rt, "process")
				m.g, m.begins = guards[process], all[process]
				m.step(rt)
				m.compare(rt)
			}
		})
	})
}

// callOf identifies the call of Check that a decision came from.
func callOf(d core.Decision) any {
	claim, _ := core.ClaimOf[any](d)
	return claim
}

// voteModel is the expected state of a poll.
type voteModel struct {
	g      ballots
	begins int // in how many parts g lets a poll begin; 0: one slot
	clock  *guardtest.Clock
	poll   votes.Poll
	parts  int // 0: nobody has voted
	votes  map[string][]*modelVote
	ops    map[string]*modelOp // keyed by the part of the poll and the ID
	events []modelEvent
	told   []core.Decision
}

type modelVote struct {
	choice string
	weight int64
	day    int64
	voided bool
}

type modelOp struct {
	retracts  bool
	changed   bool
	kept      bool
	actor     string
	vote, old *modelVote
	calls     []any
}

// modelEvent is a vote that was cast, and its origin.
type modelEvent struct {
	actor, origin string
	vote          *modelVote
}

func newVoteModel(rt *rapid.T) *voteModel {
	m := &voteModel{clock: guardtest.NewClock(), votes: map[string][]*modelVote{}, ops: map[string]*modelOp{}}
	m.poll = votes.Poll{Retract: true, PerVoter: rapid.IntRange(1, 3).Draw(rt, "per voter")}
	m.poll.PerChoice = rapid.IntRange(1, m.poll.PerVoter).Draw(rt, "per choice")
	m.poll.PerDay = rapid.IntRange(0, 2).Draw(rt, "per day")
	m.poll.Change = m.poll.PerVoter == 1 && rapid.Bool().Draw(rt, "change")
	return m
}

var (
	modelActors  = rapid.SampledFrom([]string{"ann", "bob", "{c}"})
	modelChoices = rapid.SampledFrom([]string{"", "red", "dark red"})
	modelOrigins = rapid.SampledFrom([]string{"", "home", "office"})
	modelIDs     = rapid.SampledFrom([]string{"", "", "1", "2", "3"})
)

func (m *voteModel) step(rt *rapid.T) {
	switch rapid.IntRange(0, 9).Draw(rt, "step") {
	default:
		m.cast(rt)
	case 5, 6:
		if len(m.told) > 0 {
			m.settle(rt, rapid.SampledFrom(m.told).Draw(rt, "decision"))
		}
	case 7:
		m.retract(rt)
	case 8:
		m.void(rt)
	case 9:
		m.clock.Advance(time.Duration(rapid.IntRange(0, 30).Draw(rt, "hours")) * time.Hour)
		now := m.clock.Now()
		m.poll.Opens, m.poll.Closes = time.Time{}, time.Time{}
		switch rapid.IntRange(0, 7).Draw(rt, "times") {
		case 0:
			m.poll.Opens = now.Add(time.Hour)
		case 1:
			m.poll.Closes = now
		case 2:
			m.poll.Opens, m.poll.Closes = now, now.Add(time.Hour)
		}
	}
}

func (m *voteModel) today() int64 {
	if m.poll.PerDay == 0 {
		return 0
	}
	return m.clock.Now().Truncate(24 * time.Hour).UnixMilli()
}

// op is the key of an operation: each part of a poll has its own operations.
func (m *voteModel) op(actor, id string) string {
	return fmt.Sprint(partOfVoter(actor, max(m.parts, 1)), " ", id)
}

func (m *voteModel) open() core.Reason {
	now := m.clock.Now()
	switch {
	case now.Before(m.poll.Opens):
		return core.ReasonNotOpen
	case !m.poll.Closes.IsZero() && !now.Before(m.poll.Closes):
		return core.ReasonClosed
	}
	return core.ReasonOK
}

func (m *voteModel) cast(rt *rapid.T) {
	a := core.Attempt{
		Actor: modelActors.Draw(rt, "voter"), Resource: "p", Item: modelChoices.Draw(rt, "choice"),
		Cost: rapid.Int64Range(1, 2).Draw(rt, "weight"), ID: modelIDs.Draw(rt, "id"),
		Origin: modelOrigins.Draw(rt, "origin"),
	}
	d, err := m.g.Check(rt.Context(), a)
	if err != nil {
		rt.Fatal(err)
	}
	if m.parts == 0 && (m.open() == core.ReasonOK) {
		m.parts = max(m.begins, 1)
	}
	mine := m.votes[a.Actor]
	want, replayed, retry := m.decide(a, d)
	if d.Reason != want || d.Replayed != replayed || d.RetryAfter != retry {
		rt.Fatalf("%+v: want %q, replayed %v, a retry in %v; the voter has %s", d, want, replayed, retry,
			show(mine))
	}
	if want == core.ReasonConflict {
		return
	}
	mine = m.votes[a.Actor]
	var choices []string
	for _, v := range mine {
		if !v.voided {
			choices = append(choices, v.choice)
		}
	}
	if !slices.Equal(votes.Choices(d), choices) || d.Remaining != int64(m.poll.PerVoter-len(mine)) {
		rt.Fatalf("%+v: the voter has %s", d, show(mine))
	}
	if d.Allowed {
		m.told = append(m.told, d)
	}
}

// decide returns the expected answer to an attempt and applies it to the model.
func (m *voteModel) decide(
	a core.Attempt, d core.Decision,
) (want core.Reason, replayed bool, retry time.Duration) {
	op := m.op(a.Actor, d.Attempt.ID)
	if known := m.ops[op]; known != nil {
		if known.retracts || known.actor != a.Actor || known.vote.choice != a.Item || known.vote.weight != a.Cost {
			return core.ReasonConflict, false, 0
		}
		if !known.kept && len(known.calls) == 16 {
			return core.ReasonInProgress, false, time.Second
		}
		if !known.kept {
			known.calls = append(known.calls, callOf(d))
		}
		if known.changed {
			return core.ReasonChanged, true, 0
		}
		return core.ReasonOK, true, 0
	}
	if reason := m.open(); reason != core.ReasonOK {
		return reason, false, max(m.poll.Opens.Sub(m.clock.Now()), 0)
	}
	mine := m.votes[a.Actor]
	had, today := 0, 0
	for _, v := range mine {
		if v.choice == a.Item {
			had++
		}
		if v.day == m.today() {
			today++
		}
	}
	vote := &modelVote{choice: a.Item, weight: a.Cost, day: m.today()}
	cast := func(old *modelVote) {
		m.ops[op] = &modelOp{changed: old != nil, actor: a.Actor, vote: vote, old: old, calls: []any{callOf(d)}}
		m.events = append(m.events, modelEvent{a.Actor, a.Origin, vote})
	}
	switch {
	case m.poll.Change && len(mine) == 1 && !mine[0].voided && had == 0:
		cast(mine[0])
		m.votes[a.Actor] = []*modelVote{vote}
		return core.ReasonChanged, false, 0
	case had >= m.poll.PerChoice, len(mine) >= m.poll.PerVoter && m.poll.PerVoter == 1:
		return core.ReasonDuplicate, false, 0
	case len(mine) >= m.poll.PerVoter:
		return core.ReasonQuota, false, 0
	case m.poll.PerDay > 0 && today >= m.poll.PerDay:
		return core.ReasonQuota, false, time.UnixMilli(m.today()).Add(24 * time.Hour).Sub(m.clock.Now())
	}
	cast(nil)
	m.votes[a.Actor] = append(mine, vote)
	return core.ReasonOK, false, 0
}

func (m *voteModel) settle(rt *rapid.T, d core.Decision) {
	if err := m.g.Settle(rt.Context(), d, core.Rollback); err != nil {
		rt.Fatal(err)
	}
	id := m.op(d.Attempt.Actor, d.Attempt.ID)
	op := m.ops[id]
	if op == nil || op.retracts || op.actor != d.Attempt.Actor {
		return
	}
	at := slices.Index(op.calls, callOf(d))
	if at < 0 {
		return
	}
	if op.calls = slices.Delete(op.calls, at, at+1); len(op.calls) > 0 {
		return
	}
	delete(m.ops, id)
	if place := m.place(op.actor, op.vote); place >= 0 && !op.vote.voided {
		m.take(op.actor, place, op.old)
	}
	for _, later := range m.ops { // one that replaced this vote shall not bring it back
		if later.old == op.vote {
			later.old = op.old
		}
	}
}

// place returns the index of a vote among a voter's votes, or -1.
func (m *voteModel) place(actor string, vote *modelVote) int {
	return slices.Index(m.votes[actor], vote)
}

// take removes a vote, and puts another one in its place, if there is one.
func (m *voteModel) take(actor string, place int, old *modelVote) {
	mine := slices.Delete(slices.Clone(m.votes[actor]), place, place+1)
	if old != nil {
		mine = slices.Insert(mine, place, old)
	}
	m.votes[actor] = mine
}

func (m *voteModel) retract(rt *rapid.T) {
	a := core.Attempt{Actor: modelActors.Draw(rt, "voter"), Resource: "p", Item: modelChoices.Draw(rt, "choice"),
		ID: modelIDs.Draw(rt, "id")}
	d, err := m.g.Retract(rt.Context(), a)
	if err != nil {
		rt.Fatal(err)
	}
	if m.parts == 0 && m.open() == core.ReasonOK && m.begins > 0 {
		m.parts = m.begins // decided, though there was nothing to retract
	}
	want, replayed, weight := core.ReasonOK, false, int64(1)
	op := m.op(a.Actor, d.Attempt.ID)
	place := -1
	for i, v := range m.votes[a.Actor] {
		if v.choice == a.Item && !v.voided {
			place = i
		}
	}
	switch known := m.ops[op]; {
	case known != nil && (!known.retracts || known.actor != a.Actor || known.vote.choice != a.Item):
		want = core.ReasonConflict
	case known != nil:
		replayed, weight = true, known.vote.weight
	case m.open() == core.ReasonClosed:
		want = core.ReasonClosed
	case place < 0:
		want = core.ReasonGone
	default:
		vote := m.votes[a.Actor][place]
		weight = vote.weight
		m.take(a.Actor, place, nil)
		m.ops[op] = &modelOp{retracts: true, actor: a.Actor, vote: vote}
	}
	if d.Reason != want || d.Replayed != replayed || d.Attempt.Cost != weight {
		rt.Fatalf("%+v: want %q, replayed %v, weight %d; the voter has %s", d, want, replayed, weight,
			show(m.votes[a.Actor]))
	}
}

func (m *voteModel) void(rt *rapid.T) {
	origin, actor := modelOrigins.Draw(rt, "origin"), modelActors.Draw(rt, "voter")
	options := votes.VoidOptions{VoteAgain: rapid.Bool().Draw(rt, "again"), DryRun: rapid.Bool().Draw(rt, "dry")}
	options.Match = func(e votes.Event) bool { return e.Origin == origin || e.Voter == actor }
	want := votes.VoidResult{Weights: map[string]int64{}}
	for _, e := range m.events {
		if e.origin != origin && e.actor != actor {
			continue
		}
		want.Matched++
		place := m.place(e.actor, e.vote)
		if place < 0 || e.vote.voided {
			continue
		}
		want.Voided++
		want.Weights[e.vote.choice] += e.vote.weight
		switch {
		case options.DryRun:
		case options.VoteAgain:
			m.take(e.actor, place, nil)
		default:
			e.vote.voided = true
		}
	}
	got, err := m.g.Void(rt.Context(), "p", options)
	if err != nil || got.Matched != want.Matched || got.Voided != want.Voided ||
		!maps.Equal(got.Weights, want.Weights) {
		rt.Fatalf("void: %+v (%v), want %+v", got, err, want)
	}
}

// compare reads everything back.
func (m *voteModel) compare(rt *rapid.T) {
	sums := map[string]int64{}
	cast, voters, voided := int64(0), int64(0), int64(0)
	for _, mine := range m.votes {
		for _, v := range mine {
			if v.voided {
				voided++
				continue
			}
			cast++
			sums[v.choice] += v.weight
		}
		if len(mine) > 0 {
			voters++
		}
	}
	got, err := m.g.Tally(rt.Context(), "p")
	if err != nil || !maps.Equal(got, sums) {
		rt.Fatalf("tally %v, want %v (%v)", got, sums, err)
	}
	r, err := m.g.Verify(rt.Context(), "p")
	if err != nil || !r.Consistent() || !maps.Equal(r.Records, sums) || r.Votes != cast || r.Voters != voters ||
		r.Voided != voided {
		rt.Fatalf("Verify (%v):\n%v\nwant %v, %d votes, %d voters, %d voided", err, r, sums, cast, voters, voided)
	}
	if sums := told(auditOf(rt, m.g, "p", 1000)); !maps.Equal(sums, got) {
		rt.Fatalf("the events add up to %v, the tally is %v", sums, got)
	}
}

func show(all []*modelVote) (text string) {
	for _, v := range all {
		text += fmt.Sprintf("%+v ", *v)
	}
	return text
}
