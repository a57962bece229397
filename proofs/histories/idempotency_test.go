package histories

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
)

// operationIDs is how many operations the callers of a history begin.
const operationIDs = 3

type operationIn struct {
	Op   string // begin, commit, release
	ID   int
	Call int // the number of the begin
}

type operationOut struct {
	Reason  core.Reason
	Outcome int // of an operation that is done: the call that has committed it, plus 1
}

// operationState is one operation.
type operationState struct {
	runs, done int8 // the call that runs or has committed it, plus 1
	dead       set  // calls that were released before they arrived
}

var operationModel = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, operationIDs)
		for _, op := range ops {
			id := op.Input.(operationIn).ID
			parts[id] = append(parts[id], op)
		}
		return parts
	},
	Init: func() any { return operationState{} },
	Step: func(state, in, out any) (bool, any) {
		s, op := state.(operationState), in.(operationIn)
		call := int8(op.Call + 1)
		switch op.Op {
		case "begin":
			if s.dead.has(op.Call) { // too late
				return true, s
			}
			right := operationOut{Reason: core.ReasonOK}
			switch {
			case s.done != 0:
				right = operationOut{Reason: core.ReasonDone, Outcome: int(s.done)}
			case s.runs != 0:
				right.Reason = core.ReasonInProgress
			default:
				s.runs = call
			}
			return isUnknown(out) || out == right, s
		case "commit":
			if s.runs == call {
				s.runs, s.done = 0, call
			}
			return true, s
		}
		if s.runs == call {
			s.runs = 0
		} else if s.done != call {
			s.dead = s.dead.with(op.Call)
		}
		return true, s
	},
}

// operationsOnce: a lease is a TTL, so a clock that jumps changes nothing.
func operationsOnce() subject {
	return subject{name: "idempotency", model: operationModel, single: true, timed: true,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var guards []*idempotency.Guard
			for _, e := range w.engines {
				guards = append(guards, idempotency.New(e, "once", idempotency.Options{Lease: time.Hour}))
			}
			return func(*history) error { return nil }, func(c *caller, process int) {
				operationCall(t, c, guards[process])
			}
		}}
}

// operationCall begins an operation, and ends it if it could.
func operationCall(t *testing.T, c *caller, g *idempotency.Guard) {
	n, ok := c.next()
	if !ok {
		return
	}
	in := operationIn{Op: "begin", ID: c.rng.IntN(operationIDs), Call: n}
	var d core.Decision
	known := c.do(in, func() (_ any, err error) {
		d, err = g.Check(t.Context(), core.Attempt{Actor: c.name, ID: fmt.Sprint("op ", in.ID)})
		out := operationOut{Reason: d.Reason}
		if outcome := core.OutcomeOf(d); outcome != nil {
			out.Outcome = outcome.Status
		}
		return out, err
	})
	switch {
	case !known:
		in.Op = "release"
		c.later(in)
	case !d.Allowed:
		release := in
		release.Op = "release"
		c.sentTwice(in, release)
	case c.rng.IntN(5) == 0:
		in.Op = "commit"
		end := core.CommitWith(&core.Outcome{Status: n + 1})
		c.do(in, func() (any, error) { return nil, g.Settle(t.Context(), d, end) })
	default:
		in.Op = "release"
		c.do(in, func() (any, error) { return nil, g.Settle(t.Context(), d, core.Rollback) })
	}
}
