package histories

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

const (
	pollVoters  = 3
	pollChoices = 3
	pollCloses  = 25 * time.Second // after the opening; only a clock that jumps gets there
)

// voteIn is a call of a poll. IDs are the numbers of the calls that used them first.
type voteIn struct {
	Op     string // cast, undo, keep, retract, tally
	Voter  int
	Choice int
	ID     int
	Call   int   // of cast, undo and keep: the call that was made, and that is undone or kept
	At     int64 // milliseconds of the clock since the poll was opened
}

type voteOut struct {
	Reason  core.Reason
	Replay  bool
	Kept    bool
	Choices [2]int8 // the voter's, plus 1; the newest last
	Resent  bool    // the call may have been sent again: then the choices are those of a later moment
	Tally   [pollChoices]int64
}

// vote is what an operation ID stands for.
type vote struct {
	known   bool // a vote was cast under the ID, and not undone
	retract bool // the ID is that of a retraction
	changed bool
	kept    bool // no undo removes it any more
	choice  int8
	maker   int8 // the call that was the first to be told; the others got a replay
	former  int8 // the ID of the vote that it replaced, plus 1
	calls   set  // those that were told of it
}

type voteState struct {
	standing [pollVoters][2]int8 // IDs plus 1, the oldest first
	votes    [most]vote
	dead     set // calls that were undone before they arrived
}

func (s *voteState) choices(voter int) (all [2]int8) {
	for i, id := range s.standing[voter] {
		if id != 0 {
			all[i] = s.votes[id-1].choice + 1
		}
	}
	return all
}

func (s *voteState) tally() (sums [pollChoices]int64) {
	for voter := range pollVoters {
		for _, choice := range s.choices(voter) {
			if choice != 0 {
				sums[choice-1]++
			}
		}
	}
	return sums
}

// replace replaces a standing vote: by 0, none.
func (s *voteState) replace(voter, id int, by int8) bool {
	mine := &s.standing[voter]
	i := slices.Index(mine[:], int8(id+1))
	if i < 0 {
		return false
	}
	mine[i] = by
	if mine[0] == 0 {
		mine[0], mine[1] = mine[1], 0
	}
	return true
}

// cast casts a vote and returns the reason, and whether the answer is a replay.
func (s *voteState) cast(in voteIn, change bool) (reason core.Reason, replay bool) {
	v := &s.votes[in.ID]
	if v.known {
		v.calls = v.calls.with(in.Call)
		reason = core.ReasonOK
		if v.changed {
			reason = core.ReasonChanged
		}
		return reason, int(v.maker) != in.Call
	}
	switch {
	case in.At < 0:
		return core.ReasonNotOpen, false
	case in.At >= pollCloses.Milliseconds():
		return core.ReasonClosed, false
	}
	mine, per := &s.standing[in.Voter], 2
	if change {
		per = 1
	}
	choices := s.choices(in.Voter)
	fresh := vote{known: true, choice: int8(in.Choice), maker: int8(in.Call), calls: set(0).with(in.Call)}
	switch {
	case slices.Contains(choices[:], int8(in.Choice+1)):
		return core.ReasonDuplicate, false
	case mine[0] == 0:
		mine[0] = int8(in.ID + 1)
	case per == 2 && mine[1] == 0:
		mine[1] = int8(in.ID + 1)
	case change:
		fresh.changed, fresh.former = true, mine[0]
		mine[0] = int8(in.ID + 1)
		*v = fresh
		return core.ReasonChanged, false
	default:
		return core.ReasonQuota, false
	}
	*v = fresh
	return core.ReasonOK, false
}

// undo takes back a call of cast. A vote that was changed since by another one cannot come back when that one
// is undone: then what was there before it does.
func (s *voteState) undo(in voteIn) {
	v := &s.votes[in.ID]
	switch {
	case !v.known || !v.calls.has(in.Call):
		s.dead = s.dead.with(in.Call)
		return
	case v.kept:
		return
	case v.calls != set(0).with(in.Call):
		v.calls = v.calls.without(in.Call)
		return
	}
	gone := *v
	*v = vote{}
	s.replace(in.Voter, in.ID, gone.former)
	for i := range s.votes {
		if s.votes[i].known && s.votes[i].former == int8(in.ID+1) {
			s.votes[i].former = gone.former
		}
	}
}

// keep keeps a vote for good, for a call that was told of it.
func (s *voteState) keep(in voteIn) {
	if v := &s.votes[in.ID]; v.known && v.calls.has(in.Call) {
		v.kept = true
	}
}

// retract takes back the standing vote for a choice, once per ID.
func (s *voteState) retract(in voteIn) core.Reason {
	if s.votes[in.ID].retract {
		return core.ReasonOK
	}
	if in.At >= pollCloses.Milliseconds() {
		return core.ReasonClosed
	}
	for _, id := range s.standing[in.Voter] {
		if id != 0 && int(s.votes[id-1].choice) == in.Choice {
			s.replace(in.Voter, int(id-1), 0)
			s.votes[in.ID] = vote{retract: true}
			return core.ReasonOK
		}
	}
	return core.ReasonGone
}

// byVoter splits a history without tallies by voters, who share nothing else.
func byVoter(ops []porcupine.Operation) [][]porcupine.Operation {
	parts := make([][]porcupine.Operation, pollVoters)
	for _, op := range ops {
		in := op.Input.(voteIn)
		if in.Op == "tally" {
			return [][]porcupine.Operation{ops}
		}
		parts[in.Voter] = append(parts[in.Voter], op)
	}
	return parts
}

func voteModel(change bool) porcupine.Model {
	return partitioned(byVoter, func(s voteState, in, out any) (bool, voteState) {
		op, right := in.(voteIn), true
		answer, known := out.(voteOut)
		switch op.Op {
		case "cast":
			if s.dead.has(op.Call) { // too late
				return !known, s
			}
			reason, replay := s.cast(op, change)
			right = answer.Reason == reason && answer.Replay == replay &&
				answer.Kept == (replay && s.votes[op.ID].kept) &&
				(answer.Resent || answer.Choices == s.choices(op.Voter))
		case "undo":
			s.undo(op)
		case "keep":
			s.keep(op)
		case "retract":
			reason := s.retract(op)
			right = answer.Reason == reason && (answer.Resent || answer.Choices == s.choices(op.Voter))
		case "tally":
			right = answer.Tally == s.tally()
		}
		return right || !known, s
	})
}

func polls() []subject {
	subjectOf := func(name string, poll votes.Poll) subject {
		poll.Retract = true
		return subject{name: name, model: voteModel(poll.Change), single: true, timed: true,
			open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
				find := func(_ context.Context, name string) (votes.Poll, error) {
					at, found := w.bases.Load(name)
					if !found {
						return votes.Poll{}, votes.ErrNoPoll
					}
					poll := poll
					poll.Opens = at.(time.Time)
					poll.Closes = poll.Opens.Add(pollCloses)
					return poll, nil
				}
				var guards []*votes.Guard
				for _, e := range w.engines {
					name := fmt.Sprint("poll-", poll.PerVoter)
					guards = append(guards, votes.New(e, name, votes.Options{Find: find}))
				}
				return func(*history) error { return nil }, func(c *caller, process int) {
					pollCall(t, c, guards[process])
				}
			}}
	}
	return []subject{
		subjectOf("votes: change", votes.Poll{Change: true, PerVoter: 1}),
		subjectOf("votes: two each", votes.Poll{PerVoter: 2}),
	}
}

func choiceOf(name string) int8 { return int8(name[len(name)-1] - '0') }

func voteAnswer(d core.Decision, resent bool) voteOut {
	out := voteOut{Reason: d.Reason, Replay: d.Replayed, Kept: d.Kept, Resent: resent}
	for i, name := range votes.Choices(d) {
		out.Choices[i] = choiceOf(name) + 1
	}
	return out
}

// pollCall casts a vote, and may ask again or take it back; or it makes another call.
func pollCall(t *testing.T, c *caller, g *votes.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := voteIn{Op: "cast", Voter: c.rng.IntN(pollVoters), Choice: c.rng.IntN(pollChoices), ID: n, Call: n,
		At: c.at}
	a := core.Attempt{Actor: fmt.Sprint("voter ", in.Voter), Resource: c.name,
		Item: fmt.Sprint("choice ", in.Choice), ID: fmt.Sprint("op ", n)}
	switch c.rng.IntN(8) {
	case 0:
		if c.seed%4 != 0 { // tallies make the check expensive
			break
		}
		in.Op = "tally"
		c.do(in, func() (any, error) {
			sums, err := g.Tally(t.Context(), c.name)
			var out voteOut
			for name, n := range sums {
				out.Tally[choiceOf(name)] = n
			}
			return out, err
		})
		return
	case 1, 2:
		in.Op = "retract"
		retract := func() (any, error) {
			d, err := g.Retract(t.Context(), a)
			return voteAnswer(d, c.resends), err
		}
		if !c.do(in, retract) {
			c.do(in, retract)
		}
		return
	}
	for {
		var d core.Decision
		known := c.do(in, func() (_ any, err error) {
			d, err = g.Check(t.Context(), a)
			return voteAnswer(d, c.resends), err
		})
		end := in
		end.Op = "undo"
		switch kind := c.rng.IntN(6); {
		case !known:
			c.later(end)
		case !d.Allowed:
			c.sentTwice(in, end)
		case d.Allowed && kind < 3:
			c.do(end, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Rollback) })
		case d.Allowed && kind == 3:
			end.Op = "keep"
			c.do(end, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Commit) })
		}
		if n, ok = c.next(); !ok || c.rng.IntN(2) == 0 && known || c.rng.IntN(4) == 0 {
			return
		}
		in.Call = n // asks again, with the same ID
		c.world.healthy()
	}
}
