package histories

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// places are some calls of a history, by their places in its record.
type places [2]uint64

func (p places) with(i int) places {
	p[i/64] |= 1 << (i % 64)
	return p
}

func (p places) has(i int) bool { return p[i/64]&(1<<(i%64)) != 0 }

func (p places) in(other places) bool { return p[0]&^other[0] == 0 && p[1]&^other[1] == 0 }

// sought is a call whose place in the order is sought.
type sought struct {
	porcupine.Operation
	place int
	// alike are those with the same input and output that neither began nor ended later.
	alike places
	// before are those that had ended when it began.
	before places
	known  bool
}

// soughtState is a state of a guard, and the calls that have led there.
type soughtState struct {
	state any
	done  places
}

// eagerly looks for an order in which each call that changes nothing comes as soon as its answer fits, and
// calls that are alike come in the order of their times. Such an order is one of the model, too. It need not
// exist where the model has one, but where it exists it is found soon, also among many calls at once: these
// are most of what makes the search long.
func eagerly(m porcupine.Model, ops []porcupine.Operation, patience time.Duration) bool {
	parts := [][]porcupine.Operation{ops}
	if m.Partition != nil {
		parts = m.Partition(ops)
	}
	for _, part := range parts {
		part = slices.Clone(part)
		if len(part) > 128 {
			return false
		}
		calls := soughtOf(part)
		for i := range part {
			part[i].Input = calls[i]
		}
		if porcupine.CheckOperationsTimeout(eager(m, calls), part, patience) != porcupine.Ok {
			return false
		}
	}
	return true
}

// soughtOf says of each call what has to come before it.
func soughtOf(ops []porcupine.Operation) []sought {
	calls := make([]sought, len(ops))
	what := make([]string, len(ops))
	used := map[int]int{}
	for _, op := range ops {
		if in, is := op.Input.(named); is {
			id, call := in.names()
			used[id]++
			if call != id {
				used[call]++
			}
		}
	}
	for i, op := range ops {
		what[i] = fmt.Sprint(nameless(op.Input, used), op.Output)
	}
	for i, op := range ops {
		calls[i] = sought{Operation: op, place: i, known: op.Return != never && op.Output != nil}
		for j, other := range ops {
			if other.Return < op.Call {
				calls[i].before = calls[i].before.with(j)
			}
			if i != j && what[i] == what[j] && other.Call <= op.Call && other.Return <= op.Return &&
				(j < i || other.Call < op.Call || other.Return < op.Return) {
				calls[i].alike = calls[i].alike.with(j)
			}
		}
	}
	return calls
}

// eager is the model for eagerly.
func eager(m porcupine.Model, calls []sought) porcupine.Model {
	equal := m.Equal
	if equal == nil {
		equal = func(a, b any) bool { return a == b }
	}
	// changesNothing finds a call that can be next and leaves the state as it is.
	changesNothing := func(s soughtState) int {
		return slices.IndexFunc(calls, func(c sought) bool {
			if !c.known || s.done.has(c.place) || !c.before.in(s.done) {
				return false
			}
			right, next := m.Step(s.state, c.Input, c.Output)
			return right && equal(s.state, next)
		})
	}
	return porcupine.Model{
		Init: func() any { return soughtState{state: m.Init()} },
		Step: func(state, in, out any) (bool, any) {
			s, call := state.(soughtState), in.(sought)
			if !call.alike.in(s.done) {
				return false, nil
			}
			right, next := m.Step(s.state, call.Input, out)
			if !right {
				return false, nil
			}
			if !call.known || !equal(s.state, next) {
				if changesNothing(s) >= 0 {
					return false, nil
				}
			}
			return true, soughtState{state: next, done: s.done.with(call.place)}
		},
		Equal: func(a, b any) bool { return equal(a.(soughtState).state, b.(soughtState).state) },
	}
}

// named is the input of a call that has a number and the number of an operation, by which others may name it.
type named interface {
	names() (id, call int)
	unnamed() any
}

func (in limitIn) names() (id, call int)  { return in.Call, in.Call }
func (in voteIn) names() (id, call int)   { return in.ID, in.Call }
func (in saleIn) names() (id, call int)   { return in.ID, in.Call }
func (in packetIn) names() (id, call int) { return in.ID, in.Call }
func (in quotaIn) names() (id, call int)  { return in.ID, in.Call }
func (in permitIn) names() (id, call int) { return in.Call, in.Call }
func (in budgetIn) names() (id, call int) { return in.Call, in.Call }

func (in limitIn) unnamed() any  { in.Call = -1; return in }
func (in voteIn) unnamed() any   { in.ID, in.Call = -1, -1; return in }
func (in saleIn) unnamed() any   { in.ID, in.Call = -1, -1; return in }
func (in packetIn) unnamed() any { in.ID, in.Call = -1, -1; return in }
func (in quotaIn) unnamed() any  { in.ID, in.Call = -1, -1; return in }
func (in permitIn) unnamed() any { in.Call = -1; return in }
func (in budgetIn) unnamed() any { in.Call = -1; return in }

// nameless is an input without its names, if no other call uses them.
func nameless(in any, used map[int]int) any {
	n, is := in.(named)
	if !is {
		return in
	}
	if id, call := n.names(); used[id] > 1 || used[call] > 1 {
		return in
	}
	return n.unnamed()
}
