package delay

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// State is the state of a task.
type State string

const (
	// Pending means that the task is due later, or due and not claimed yet.
	Pending State = "pending"
	// Running means that the task is claimed. Its lease may be over.
	Running State = "running"
	// Done means that the task was acknowledged.
	Done State = "done"
	// Dead means that the task has failed for the last time: see [Queue.Retry] and [Queue.Discard].
	Dead State = "dead"
)

// states are the states as the scripts have them.
var states = map[string]State{"p": Pending, "s": Pending, "r": Running, "a": Running, "d": Done, "x": Dead}

// Status is what is known of a task.
type Status struct {
	// ID is the task's ID.
	ID string
	// State is its state.
	State State
	// At is when the task is or was due.
	At time.Time
	// Try is how often it was claimed.
	Try int
	// Ends is when the lease of a running task ends, or when an ended task is forgotten, by the server's
	// clock. Else zero.
	Ends time.Time
	// Reason is why the task failed the last time, or why it is dead.
	Reason string
	// Payload is the scheduled payload, until the task is done. Result is the result that Ack stored. Only
	// Find sets them.
	Payload, Result []byte
}

// Find returns the status of a task. It returns [ErrNoTask] for a task that the queue does not know, or has
// forgotten.
func (q *Queue) Find(ctx context.Context, id string) (Status, error) {
	return kit.Look(ctx, &q.Base, "find", about(id), func() (Status, error) {
		if err := checkID(id); err != nil {
			return Status{}, err
		}
		value, err := q.Engine().RunWithin(ctx, q.Engine().SettleTimeout(), findScript,
			q.keys(q.slotOf(id), "tasks", "bodies", "running", "done", "dead"),
			script.EncodeUpTo(script.MaxRecord, id), q.Engine().ScriptNow(time.Millisecond))
		if err != nil {
			return Status{}, err
		}
		r := script.ReadReply(value, 1, 6)
		state := r.Text()
		if r.Err != nil {
			return Status{}, r.Err
		}
		if !r.More() {
			return Status{}, ErrNoTask
		}
		s := Status{ID: id, State: states[state]}
		s.At, s.Try, s.Ends = time.UnixMilli(r.Number()), int(r.Number()), timeOf(r.Number())
		s.Reason = r.Text()
		switch body := r.Text(); {
		case body == "": // nil
		case s.State == Done:
			s.Result = []byte(body)
		default:
			s.Payload = []byte(body)
		}
		return s, r.Err
	})
}

// timeOf returns a time in milliseconds, the zero Time for 0.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Counts says how many tasks of each kind a queue has.
type Counts struct {
	// Pending counts the tasks that are not claimed, and Due those of them that are due.
	Pending int64 `json:"pending"`
	Due     int64 `json:"due"`
	// Running counts the tasks that are claimed, those whose lease is over among them.
	Running int64 `json:"running"`
	// Dead counts the dead tasks.
	Dead int64 `json:"dead"`
}

// Counts counts the tasks. Those of several slots are counted one slot after the other.
func (q *Queue) Counts(ctx context.Context) (Counts, error) {
	return kit.Look(ctx, &q.Base, "counts", core.Attempt{}, func() (Counts, error) {
		c, _, err := q.peek(ctx, "", 0)
		return c, err
	})
}

// Peek returns the first n tasks of a state, 1 to 1,000: pending ones in the order in which they are due,
// running ones in that in which their leases end, dead ones in that in which they are forgotten. Tasks that
// are done are not listed: the error is then core.ErrInvalid.
func (q *Queue) Peek(ctx context.Context, state State, n int) ([]Status, error) {
	return kit.Look(ctx, &q.Base, "peek", core.Attempt{}, func() ([]Status, error) {
		letter := map[State]string{Pending: "p", Running: "r", Dead: "x"}[state]
		if letter == "" || n < 1 || n > 1000 {
			return nil, fmt.Errorf("%w: %d tasks that are %.20q: ask for 1 to 1000 that are pending, running or dead",
				core.ErrInvalid, n, state)
		}
		_, found, err := q.peek(ctx, letter, n)
		return found, err
	})
}

// peek counts the tasks of all slots, and returns the first n of a state.
func (q *Queue) peek(ctx context.Context, letter string, n int) (all Counts, found []Status, err error) {
	type ordered struct {
		Status
		score int64
	}
	var some []ordered
	for slot := range q.options.Spread {
		value, err := q.Engine().RunWithin(ctx, q.Engine().SettleTimeout(), peekScript,
			q.keys(slot, "tasks", "due", "running", "dead"), letter, n, q.Engine().ScriptNow(time.Millisecond))
		if err != nil {
			return all, nil, err
		}
		r := script.ReadReply(value, 4, math.MaxInt)
		all.Pending, all.Due = all.Pending+r.Number(), all.Due+r.Number()
		all.Running, all.Dead = all.Running+r.Number(), all.Dead+r.Number()
		for r.More() {
			s := ordered{Status: Status{ID: script.Decode(r.Text()), State: states[letter]}}
			s.At, s.Try, s.score, s.Reason = time.UnixMilli(r.Number()), int(r.Number()), r.Number(), r.Text()
			if s.State != Pending {
				s.Ends = timeOf(s.score)
			}
			some = append(some, s)
		}
		if r.Err != nil {
			return all, nil, r.Err
		}
	}
	slices.SortStableFunc(some, func(a, b ordered) int {
		if a.score != b.score {
			return int(max(min(a.score-b.score, 1), -1))
		}
		return strings.Compare(a.ID, b.ID)
	})
	for _, s := range some[:min(n, len(some))] {
		found = append(found, s.Status)
	}
	return all, found, nil
}
