package histories

import (
	"fmt"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

const (
	pollVoters  = 3
	pollChoices = 3
)

// voteIn is a call of a poll. IDs are the numbers of the calls that used them first.
type voteIn struct {
	Op     string // cast, undo, retract, tally
	Voter  int
	Choice int
	ID     int
	Call   int // of cast and undo: the call that was made, and that is undone
}

type voteOut struct {
	Reason  core.Reason
	Choices [2]int8 // the voter's, plus 1; the newest last
	Resent  bool    // the call may have been sent again: then the choices are those of a later moment
	Tally   [pollChoices]int64
}

// vote is what an operation ID stands for.
type vote struct {
	known   bool // a vote was cast under the ID, and not undone
	retract bool // the ID is that of a retraction
	changed bool
	choice  int8
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

// cast casts a vote and returns the reason.
func (s *voteState) cast(in voteIn, change bool) core.Reason {
	v := &s.votes[in.ID]
	if v.known {
		v.calls = v.calls.with(in.Call)
		if v.changed {
			return core.ReasonChanged
		}
		return core.ReasonOK
	}
	mine, per := &s.standing[in.Voter], 2
	if change {
		per = 1
	}
	choices := s.choices(in.Voter)
	fresh := vote{known: true, choice: int8(in.Choice), calls: set(0).with(in.Call)}
	switch {
	case slices.Contains(choices[:], int8(in.Choice+1)):
		return core.ReasonDuplicate
	case mine[0] == 0:
		mine[0] = int8(in.ID + 1)
	case per == 2 && mine[1] == 0:
		mine[1] = int8(in.ID + 1)
	case change:
		fresh.changed, fresh.former = true, mine[0]
		mine[0] = int8(in.ID + 1)
		*v = fresh
		return core.ReasonChanged
	default:
		return core.ReasonQuota
	}
	*v = fresh
	return core.ReasonOK
}

// undo takes back a call of cast. Where the vote was changed since by another one that still counts, it may
// be forgotten or not: docs/contracts.md, Not kept yet, "Two failed requests for one vote leave none".
func (s voteState) undo(in voteIn) []voteState {
	v := &s.votes[in.ID]
	switch {
	case !v.known || !v.calls.has(in.Call):
		s.dead = s.dead.with(in.Call)
		return []voteState{s}
	case v.calls != set(0).with(in.Call):
		v.calls = v.calls.without(in.Call)
		return []voteState{s}
	}
	gone := *v
	*v = vote{}
	if s.replace(in.Voter, in.ID, gone.former) {
		return []voteState{s}
	}
	for i := range s.votes {
		if s.votes[i].known && s.votes[i].former == int8(in.ID+1) {
			kept := s
			kept.votes[in.ID] = vote{choice: gone.choice} // it can count again, under no ID
			s.votes[i].former = gone.former
			return []voteState{s, kept}
		}
	}
	return []voteState{s}
}

// retract takes back the standing vote for a choice, once per ID.
func (s *voteState) retract(in voteIn) core.Reason {
	if s.votes[in.ID].retract {
		return core.ReasonOK
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
	return nondeterministic(byVoter, func(s voteState, in, out any) []voteState {
		op, right := in.(voteIn), true
		answer, known := out.(voteOut)
		switch op.Op {
		case "cast":
			if s.dead.has(op.Call) { // too late
				return []voteState{s}
			}
			reason := s.cast(op, change)
			right = answer.Reason == reason && (answer.Resent || answer.Choices == s.choices(op.Voter))
		case "undo":
			return s.undo(op)
		case "retract":
			reason := s.retract(op)
			right = answer.Reason == reason && (answer.Resent || answer.Choices == s.choices(op.Voter))
		case "tally":
			right = answer.Tally == s.tally()
		}
		if known && !right {
			return nil
		}
		return []voteState{s}
	})
}

func polls() []subject {
	subjectOf := func(name string, poll votes.Poll) subject {
		poll.Retract = true
		return subject{name: name, model: voteModel(poll.Change), single: true,
			open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
				var guards []*votes.Guard
				for _, e := range w.engines {
					name := fmt.Sprint("poll-", poll.PerVoter)
					guards = append(guards, votes.New(e, name, votes.Options{Poll: poll}))
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
	out := voteOut{Reason: d.Reason, Resent: resent}
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
	in := voteIn{Op: "cast", Voter: c.rng.IntN(pollVoters), Choice: c.rng.IntN(pollChoices), ID: n, Call: n}
	a := core.Attempt{Actor: fmt.Sprint("voter ", in.Voter), Resource: c.name, Item: fmt.Sprint("choice ", in.Choice),
		ID: fmt.Sprint("op ", n)}
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
		undo := in
		undo.Op = "undo"
		if !known {
			c.later(undo)
		} else if d.Allowed && c.rng.IntN(3) == 0 {
			c.do(undo, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Rollback) })
		}
		if n, ok = c.next(); !ok || c.rng.IntN(2) == 0 && known || c.rng.IntN(4) == 0 {
			return
		}
		in.Call = n // asks again, with the same ID
		c.world.healthy()
	}
}
