package histories

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core/delay"
)

const (
	delayIDs   = 3
	delayTries = 2
)

type taskIn struct {
	Op    string // schedule, claim, release, ack, nack, cancel, retry, look
	ID    int
	Claim int // the number of the claim that ack, nack and release are about
	Fence int64
}

type taskOut struct {
	Word    string // ok, known, lost, not_found, not_now
	Claimed set    // the tasks that a claim got
	Tries   [delayIDs]int64
	Fence   int64
	Strange bool // it got a task that nobody has scheduled
	Pending int64
	Running int64
	Dead    int64
	Resent  bool
}

// taskState is the state of one task.
type taskState struct {
	state byte // 0: unknown; otherwise as the scripts have it
	claim int8 // the number of the last claim, and 1
	try   int8
	fence int64 // the last one that a caller has heard
}

type queueState struct {
	tasks [delayIDs]taskState
	dead  set // claims that were given back before they arrived
}

func (s *queueState) in(state byte) (ids set) {
	for id, task := range s.tasks {
		if task.state == state {
			ids = ids.with(id)
		}
	}
	return ids
}

// queueModel: a claim gets all that is pending, since all tasks are due at once and their leases outlast a
// history.
var queueModel = deterministic(func(s queueState, in, out any) (bool, queueState) {
	op := in.(taskIn)
	answer, known := out.(taskOut)
	word, right := "ok", true
	switch op.Op {
	case "claim":
		right = s.claim(op, answer, known)
	case "release":
		s.release(op)
	case "look":
		right = answer.Pending == count(s.in('p')) && answer.Running == count(s.in('r')) &&
			answer.Dead == count(s.in('x'))
	case "schedule":
		task := &s.tasks[op.ID]
		if task.state != 0 {
			word = "known"
		} else {
			*task = taskState{state: 'p'}
		}
	default:
		word = s.tasks[op.ID].end(op)
		if op.Op == "nack" && word == "ok" && answer.Resent && answer.Word == "lost" {
			word = "lost" // it was done, the reply was lost, and another claim had the task when it was sent again
		}
	}
	return !known || right && answer.Word == word, s
})

func count(ids set) int64 { return int64(bits.OnesCount64(uint64(ids))) }

// claim claims all pending tasks, and reports whether the answer is right.
func (s *queueState) claim(op taskIn, answer taskOut, known bool) bool {
	if s.dead.has(op.Claim) { // too late
		return !known || answer.Claimed == 0
	}
	right := !known || !answer.Strange && answer.Claimed == s.in('p')
	for id := range s.tasks {
		task := &s.tasks[id]
		if task.state != 'p' {
			continue
		}
		task.state, task.claim = 'r', int8(op.Claim+1)
		task.try++
		if known {
			right = right && answer.Tries[id] == int64(task.try) && answer.Fence > task.fence
			task.fence = answer.Fence
		}
	}
	return right
}

// release gives back what a claim took.
func (s *queueState) release(op taskIn) {
	took := false
	for id := range s.tasks {
		if task := &s.tasks[id]; task.state == 'r' && int(task.claim) == op.Claim+1 {
			task.state, took = 'p', true
			task.try--
		}
	}
	if !took {
		s.dead = s.dead.with(op.Claim)
	}
}

// end is what a call does to a task that it names. It returns the answer.
func (task *taskState) end(op taskIn) string {
	mine := int(task.claim) == op.Claim+1
	switch {
	case op.Op == "ack" && mine && (task.state == 'r' || task.state == 'd'):
		task.state = 'd'
	case op.Op == "nack" && mine && task.state == 'r':
		task.state = 'p'
		if task.try >= delayTries {
			task.state = 'x'
		}
	case op.Op == "nack" && mine && (task.state == 'p' || task.state == 'x'): // it was done before
	case op.Op == "ack" || op.Op == "nack":
		return "lost"
	case task.state == 0:
		return "not_found"
	case op.Op == "cancel" && task.state == 'p':
		*task = taskState{fence: task.fence}
	case op.Op == "retry" && task.state == 'x':
		task.state, task.try = 'p', 0
	default:
		return "not_now"
	}
	return "ok"
}

// queues are a queue for each history, since a claim gets what is due, whoever has scheduled it.
func queues() subject {
	return subject{name: "delay", model: queueModel, single: true, fenced: true,
		open: func(t *testing.T, w *world) (func(*history) error, func(*caller, int)) {
			var mu sync.Mutex
			made := map[string]*delay.Queue{}
			of := func(process int, name string) *delay.Queue {
				mu.Lock()
				defer mu.Unlock()
				key := fmt.Sprint(process, " ", name)
				if made[key] == nil {
					made[key] = delay.New(w.engines[process], "queue-of-"+name,
						delay.Options{Lease: time.Hour, MaxTries: delayTries})
				}
				return made[key]
			}
			return func(*history) error { return nil }, func(c *caller, process int) {
				n, ok := c.next()
				if !ok {
					return
				}
				q := of(process, c.name)
				if c.rng.IntN(5) < 2 {
					claimTasks(t, c, q, n)
				} else {
					changeTask(t, c, q, c.rng.IntN(delayIDs))
				}
			}
		}}
}

func taskName(id int) string { return fmt.Sprint("op ", id) }

// worded returns an answer for what a call returned, and the error only where the outcome is unknown.
func worded(err error) (taskOut, error) {
	for word, kind := range map[string]error{"lost": delay.ErrLost, "not_found": delay.ErrNoTask,
		"not_now": delay.ErrOtherState} {
		if errors.Is(err, kind) {
			return taskOut{Word: word}, nil
		}
	}
	return taskOut{Word: "ok"}, err
}

// changeTask makes a call about one task, or looks.
func changeTask(t *testing.T, c *caller, q *delay.Queue, id int) {
	ctx, in := t.Context(), taskIn{ID: id}
	switch c.rng.IntN(8) {
	case 0:
		in.Op = "cancel"
		c.do(in, func() (any, error) { return worded(q.Cancel(ctx, taskName(id))) })
	case 1:
		in.Op = "retry"
		c.do(in, func() (any, error) { return worded(q.Retry(ctx, taskName(id))) })
	case 2:
		in = taskIn{Op: "look"}
		c.do(in, func() (any, error) {
			n, err := q.Counts(ctx)
			return taskOut{Word: "ok", Pending: n.Pending, Running: n.Running, Dead: n.Dead}, err
		})
	default:
		in.Op = "schedule"
		c.do(in, func() (any, error) {
			created, err := q.Schedule(ctx, taskName(id), time.Time{}, nil)
			out := taskOut{Word: "known", Resent: c.resends}
			if created {
				out.Word = "ok"
			}
			return out, err
		})
	}
}

// claimTasks claims what is pending, and mostly ends it.
func claimTasks(t *testing.T, c *caller, q *delay.Queue, n int) {
	in := taskIn{Op: "claim", Claim: n}
	var tasks []delay.Task
	known := c.do(in, func() (_ any, err error) {
		tasks, err = q.Claim(t.Context(), 100, 0)
		return claimed(tasks), err
	})
	release := in
	release.Op = "release"
	if !known {
		c.later(release)
		return
	}
	if len(tasks) == 0 {
		c.sentTwice(in, release)
	}
	for _, task := range tasks {
		end := taskIn{Claim: n}
		if _, err := fmt.Sscanf(task.ID, "op %d", &end.ID); err != nil {
			continue // strange, which the record says
		}
		switch c.rng.IntN(6) {
		case 0: // it runs until the end
		case 1, 2:
			end.Op = "ack"
			c.do(end, func() (any, error) { return worded(q.Ack(t.Context(), task, nil)) })
		default:
			end.Op = "nack"
			c.do(end, func() (any, error) {
				out, err := worded(q.Nack(t.Context(), task, "", 0))
				out.Resent = c.resends
				return out, err
			})
		}
		if c.rng.IntN(3) == 0 { // late, when somebody else may have the task
			end.Op = "ack"
			c.do(end, func() (any, error) { return worded(q.Ack(t.Context(), task, nil)) })
		}
	}
}

// claimed is the answer of a claim.
func claimed(tasks []delay.Task) taskOut {
	out := taskOut{Word: "ok"}
	for _, task := range tasks {
		var id int
		if n, _ := fmt.Sscanf(task.ID, "op %d", &id); n != 1 || out.Claimed.has(id) {
			out.Strange = true
			continue
		}
		out.Claimed, out.Tries[id], out.Fence = out.Claimed.with(id), int64(task.Try), task.Fence()
	}
	return out
}
