package pipeline

import (
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline/internal/mounted"
)

// claim is what the guard of a rule took for a request. It has to be settled, by the pipeline or by the
// caller of Take.
type claim struct {
	rule     *mounted.Rule
	decision core.Decision
	run      *mounted.Run // nil: see runsOf
	place    core.Place
	spending spending
	progress atomic.Uint32 // a state: Take and Spend may be called while the request ends
}

// state is how far a claim has come.
type state uint8

const (
	stateAsked     state = iota // the guard has not allowed anything
	stateOpen                   // allowed
	stateKept                   // the request has not failed
	stateFailed                 // the request has failed
	stateTaken                  // the caller of Take settles it
	stateKeeping                // kept, and too late for Take
	stateUndoing                // failed, and too late for Take
	stateConfirmed              // committed before the header was sent
	statePending                // confirmed, and the rest of the outcome is still to come
	stateUnsure                 // the commit failed, and is repeated: the operation has been done
	stateRevoked                // confirmed, and nobody heard of it
	stateSettled
	states
)

// event is what happens to a claim.
type event uint8

const (
	eventAllow   event = iota // its guard allows the attempt
	eventSucceed              // the request has not failed, by the status of its answer
	eventFail                 // the request has failed
	eventTake                 // the handler calls Take
	eventClose                // the pipeline is about to settle it, or has refused the request
	eventCommit               // it is committed before the header is sent
	eventBegin                // the same, with an outcome that is not complete
	eventMiss                 // that failed, and has to be repeated
	eventLose                 // the answer that was confirmed got to nobody
	eventSettle               // its ending is told to the guard, or left to the background
	events
)

// transitions has the state that follows. Where it has none, the event changes nothing. docs/contracts.md
// prints it.
var transitions = [states][events]state{
	stateAsked: {eventAllow: stateOpen},
	stateOpen: {eventSucceed: stateKept, eventFail: stateFailed, eventTake: stateTaken, eventClose: stateUndoing,
		eventSettle: stateSettled},
	stateKept: {eventFail: stateFailed, eventTake: stateTaken, eventClose: stateKeeping,
		eventSettle: stateSettled},
	stateFailed: {eventSucceed: stateKept, eventTake: stateTaken, eventClose: stateUndoing,
		eventSettle: stateSettled},
	stateKeeping: {eventFail: stateUndoing, eventCommit: stateConfirmed, eventBegin: statePending,
		eventMiss: stateUnsure, eventSettle: stateSettled},
	stateUndoing:   {eventSucceed: stateKeeping, eventSettle: stateSettled},
	stateConfirmed: {eventLose: stateRevoked, eventSettle: stateSettled},
	statePending:   {eventLose: stateRevoked, eventSettle: stateSettled},
	stateUnsure:    {eventSettle: stateSettled},
	stateRevoked:   {eventSettle: stateSettled},
}

// state returns how far the claim has come.
func (c *claim) state() state { return state(c.progress.Load()) }

// on moves the claim, and returns the state in which it is then.
func (c *claim) on(e event) state {
	for {
		from := c.progress.Load()
		to := transitions[from][e]
		if to == 0 {
			return state(from)
		}
		if c.progress.CompareAndSwap(from, uint32(to)) {
			return to
		}
	}
}

// goesBack reports whether all that the guard took will be given back when the handler has returned.
func (c *claim) goesBack() bool {
	switch c.state() {
	case stateFailed, stateUndoing, stateRevoked:
		return !c.spending.told() && c.decision.Reason == core.ReasonOK && !c.decision.Replayed
	default:
		return false
	}
}

// free is called when the claim has ended.
func (c *claim) free() {
	c.place.Free()
	c.run.End()
}

// isKept reports whether the request has not failed, and the claim is not confirmed yet.
func (c *claim) isKept() bool { s := c.state(); return s == stateKept || s == stateKeeping }

// isConfirmed reports whether the claim was committed before the header was sent.
func (c *claim) isConfirmed() bool { s := c.state(); return s == stateConfirmed || s == statePending }

// spending is the cost of a request as reported by its handler. It is 0 if nothing was reported, else the
// sum plus 1. Below 0, it is too late to report.
type spending struct{ sum atomic.Int64 }

// add reports whether it is not too late.
func (s *spending) add(n int64) bool {
	for {
		sum := s.sum.Load()
		if sum < 0 {
			return false
		}
		room := core.MaxAmount + 1 - max(sum, 1)
		if s.sum.CompareAndSwap(sum, max(sum, 1)+min(n, room)) {
			return true
		}
	}
}

// told reports whether the handler has said anything.
func (s *spending) told() bool { return s.sum.Load() > 0 }

// end returns the sum, and reports whether there is one. It is too late for more.
func (s *spending) end() (sum int64, told bool) {
	sum = s.sum.Swap(-1)
	return sum - 1, sum > 0
}
