package delay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
)

// Task is a task that a worker has claimed.
type Task struct {
	// ID is the ID under which the task was scheduled.
	ID string
	// Payload is what was scheduled with it.
	Payload []byte
	// At is when the task was due: its scheduled moment, or the moment of its last retry.
	At time.Time
	// Try counts the tries of the task, from 1 on, without those that do not count. So a first try may be a
	// second delivery.
	Try int
	// Suspect says that a lease of the task was over, and that its process may have died of it: see Queue. Run
	// what came with it, and nothing else, until these have ended. It is so until the task has ended once, by
	// Ack or Nack.
	Suspect bool
	// Deadline is when the lease ends, by the clock of this process, counted from before the claim was sent,
	// less a thousandth and a millisecond. The task is safe from others until then.
	Deadline time.Time

	fence int64
}

// Fence returns a number that is greater than the fences of all earlier claims of the task, also after a
// failover that lost some. A statement that compares it, as UPDATE … WHERE fence < $1, keeps out a worker
// that wakes up after its lease.
func (t Task) Fence() int64 { return t.fence }

// token is the fence as the scripts have it.
func (t Task) token() string { return strconv.FormatInt(t.fence, 10) }

// Claim claims up to n due tasks, 1 to [MaxClaim], for a lease: 0 means Options.Lease. It takes back tasks
// whose lease is over, and delivers them again: tasks with Suspect set come before others, and without them.
// A caller that runs several tasks at a time lets them end before it runs these, and claims nothing until
// they have ended. Claim returns nothing when no task is due.
//
// The tasks of all slots have the same chances. When some slots do not answer, Claim returns the tasks of the
// others, and an error only if there are none.
//
// Most workers use [Work] in place of Claim, Extend, Ack and Nack.
func (q *Queue) Claim(ctx context.Context, n int, lease time.Duration) ([]Task, error) {
	lease, err := q.leaseOf(lease)
	if err == nil && (n < 1 || n > MaxClaim) {
		err = fmt.Errorf("%w: a claim of %d tasks: ask for 1 to %d", core.ErrInvalid, n, MaxClaim)
	}
	if err != nil {
		return nil, err
	}
	got, err := q.claim(ctx, n, lease, true)
	return got.tasks, err
}

// leaseOf returns a lease, or an error if it is out of range.
func (q *Queue) leaseOf(lease time.Duration) (time.Duration, error) {
	if lease == 0 {
		return q.options.Lease, nil
	}
	if lease < minLease || lease > maxLease {
		return 0, fmt.Errorf("%w: a lease of %v: ask for %v to %v", core.ErrInvalid, lease, minLease, maxLease)
	}
	return lease, nil
}

// claimed is what a claim got.
type claimed struct {
	tasks []Task
	next  time.Duration // until there is something to claim; 0: there is; below 0: nothing is scheduled
	slot  int           // with a due suspect; below 0: none
}

// add adds what a claim of one slot got, and reports whether the slot has more.
func (c *claimed) add(one claimed) (more bool) {
	c.tasks = append(c.tasks, one.tasks...)
	if one.slot >= 0 {
		c.slot = one.slot
	}
	if one.next > 0 && (c.next < 0 || one.next < c.next) {
		c.next = one.next
	}
	return one.next == 0
}

// claim claims tasks of all slots. Each call begins with another one. Alone says that a suspect may be
// claimed, and then only that.
func (q *Queue) claim(
	ctx context.Context, n int, lease time.Duration, alone bool,
) (got claimed, err error) {
	slots := q.options.Spread
	open, first := make([]int, slots), int(q.turn.Add(1))
	for i := range open {
		open[i] = (first + i) % slots
	}
	got.next, got.slot = -1, -1
	for len(open) > 0 && len(got.tasks) < n {
		share := (n - len(got.tasks) + len(open) - 1) / len(open)
		more := open[:0:0]
		for _, slot := range open {
			want := min(share, chunk, n-len(got.tasks))
			if want == 0 {
				got.next = 0 // not all slots were asked
				return got, nil
			}
			one, failed := q.claimSlot(ctx, slot, want, lease, alone && len(got.tasks) == 0)
			if failed != nil {
				err = failed
				continue
			}
			if got.add(one) {
				more = append(more, slot)
			}
			if len(one.tasks) > 0 && one.tasks[0].Suspect {
				return got, nil
			}
		}
		open = more
	}
	if len(open) > 0 {
		got.next = 0
	}
	if len(got.tasks) > 0 {
		err = nil // it was observed
	}
	return got, err
}

// claimSlot claims tasks of one slot by one run of the script.
func (q *Queue) claimSlot(
	ctx context.Context, slot, n int, lease time.Duration, alone bool,
) (claimed, error) {
	begun := time.Now()
	got, err := q.askSlot(ctx, slot, n, lease, alone)
	return got, q.Observe(ctx, "claim", begun, q.observed(len(got.tasks)), err)
}

// observed is the decision that observers get of something that happened to a number of tasks.
func (q *Queue) observed(tasks int) core.Decision {
	return core.Decision{Guard: q.Name(), Attempt: core.Attempt{Cost: int64(tasks)}}
}

func (q *Queue) askSlot(
	ctx context.Context, slot, n int, lease time.Duration, alone bool,
) (got claimed, err error) {
	if err := kit.RoomToUndo(); err != nil {
		return claimed{}, err
	}
	watched, again := script.WatchSendings(ctx)
	claim := []string{q.Key(q.tag(slot), "claim", newCall())}
	release := func(ctx context.Context) error { return q.release(ctx, slot, claim) }
	sent := q.Engine().Now()
	value, err := q.run(watched, claimScript, slot, claim, n, lease.Milliseconds(), q.options.MaxTries,
		claimBytes, q.options.deadKeep().Milliseconds(), kit.TombstoneTTL.Milliseconds(), kit.FlagOf(alone))
	if err != nil { // the script may have run
		q.UndoLater(err, release)
		return claimed{}, err
	}
	r := script.ReadReply(value, 5, math.MaxInt)
	after, recovered, died, suspect := r.Number(), r.Number(), r.Number(), r.Number()
	fence, err := strconv.ParseInt(r.Text(), 10, 64)
	for r.More() {
		t := Task{ID: script.Decode(r.Text()), fence: fence, Deadline: sent.Add(schedule.Sure(lease))}
		t.At, t.Try, t.Payload = time.UnixMilli(r.Number()), int(r.Number()), []byte(r.Text())
		t.Suspect = suspect == 2
		got.tasks = append(got.tasks, t)
	}
	if err = errors.Join(r.Err, err); err != nil {
		q.UndoLater(err, release)
		return claimed{}, err
	}
	if len(got.tasks) == 0 && again() { // an earlier sending may still arrive, when something is due
		q.UndoLater(nil, release)
	}
	q.tell(ctx, "recovered", int(recovered))
	q.tell(ctx, "dead", int(died))
	if got.next = script.DurationOf(after, time.Millisecond); after < 0 {
		got.next = -1
	}
	if got.slot = -1; suspect == 1 {
		got.slot = slot
	}
	return got, nil
}

// tell tells the observer what happened to tasks.
func (q *Queue) tell(ctx context.Context, op string, tasks int) {
	if tasks > 0 {
		_ = q.Observe(ctx, op, time.Now(), q.observed(tasks), nil) // it returns the error that it was given
	}
}

// release gives back what a claim took whose reply did not come, and forbids it to take anything later.
func (q *Queue) release(ctx context.Context, slot int, claim []string) error {
	return q.Call(ctx, "release", core.Attempt{}, func() error {
		_, err := q.run(ctx, releaseScript, slot, claim, kit.TombstoneTTL.Milliseconds())
		return err
	})
}

// deadKeep is how long a dead task is remembered.
func (o Options) deadKeep() time.Duration { return max(o.Keep, deadKeep) }

// Extend renews the lease of a task, from now on: 0 means Options.Lease. It returns the task with its new
// Deadline, or [ErrLost].
func (q *Queue) Extend(ctx context.Context, t Task, lease time.Duration) (Task, error) {
	lease, err := q.leaseOf(lease)
	if err != nil {
		return t, err
	}
	sent := q.Engine().Now()
	lost, err := q.extend(ctx, q.slotOf(t.ID), lease, []Task{t})
	switch {
	case err != nil:
		return t, err
	case len(lost) > 0:
		return t, ErrLost
	}
	t.Deadline = sent.Add(schedule.Sure(lease))
	return t, nil
}

// extend renews the leases of tasks of one slot, at most chunk, and returns the indexes of tasks that do
// not run any more.
func (q *Queue) extend(ctx context.Context, slot int, lease time.Duration, tasks []Task) ([]int, error) {
	args := []any{lease.Milliseconds(), q.Engine().ScriptNow(time.Millisecond)}
	for _, t := range tasks {
		args = append(args, script.EncodeUpTo(script.MaxRecord, t.ID), t.token())
	}
	begun := time.Now()
	lost, err := q.askExtend(ctx, slot, lease, len(tasks), args)
	return lost, q.Observe(ctx, "extend", begun, q.observed(len(tasks)), err)
}

func (q *Queue) askExtend(
	ctx context.Context, slot int, lease time.Duration, n int, args []any,
) (lost []int, err error) {
	keys := q.keys(slot, fields...)
	most := min(q.Engine().SettleTimeout(), lease/3)
	value, err := q.Engine().RunWithin(ctx, most, extendScript, keys, args...)
	if err != nil {
		return nil, err
	}
	r := script.ReadReply(value, 0, n)
	for r.More() {
		if i := r.Number(); i >= 1 && i <= int64(n) {
			lost = append(lost, int(i-1))
		}
	}
	return lost, r.Err
}

// Ack ends a task that is done. Its payload is deleted. Its ID, and the result if it is not empty, are kept
// for Options.Keep: see [Queue.Find]. A result may be as long as a payload. Ack returns [ErrLost] when the
// task does not run under this claim any more. Another Ack of the same claim returns nil.
func (q *Queue) Ack(ctx context.Context, t Task, result []byte) error {
	return q.Call(ctx, "ack", about(t.ID), func() error {
		if err := q.checkSize("result", result); err != nil {
			return err
		}
		value, err := q.run(ctx, ackScript, q.slotOf(t.ID), nil, script.EncodeUpTo(script.MaxRecord, t.ID),
			t.token(), result, q.options.Keep.Milliseconds())
		if err != nil {
			return err
		}
		n, err := script.ReadNumber(value)
		if err == nil && n < 0 {
			return ErrLost
		}
		return err
	})
}

// Nack ends the try of a task that has failed. The task becomes due again when the time in has passed, after
// 100 years at most, or is dead, if it has had Options.MaxTries tries. The reason is kept with it for
// operators, up to 1,000 bytes. Nack returns [ErrLost] as Ack does. It also does if its first reply was lost
// and the task was claimed again since.
func (q *Queue) Nack(ctx context.Context, t Task, reason string, in time.Duration) error {
	return q.nack(ctx, t, failed{reason: reason, in: in, tries: q.options.MaxTries})
}

// failed says what becomes of a task whose try has failed.
type failed struct {
	reason string        // for operators
	in     time.Duration // until it is due again
	tries  int           // allowed; 0: it is dead at once
	unused bool          // this try does not count
}

func (q *Queue) nack(ctx context.Context, t Task, f failed) error {
	died := false
	err := q.Call(ctx, "nack", about(t.ID), func() error {
		value, err := q.run(ctx, nackScript, q.slotOf(t.ID), nil, script.EncodeUpTo(script.MaxRecord, t.ID),
			t.token(), shortened(f.reason), min(max(f.in, 0), maxPause).Milliseconds(), f.tries, kit.FlagOf(f.unused),
			q.options.deadKeep().Milliseconds())
		if err != nil {
			return err
		}
		r := script.ReadReply(value, 1, 1)
		answer := r.Text()
		if answer == "lost" {
			return ErrLost
		}
		died = answer == "dead"
		return r.Err
	})
	if died {
		q.tell(ctx, "dead", 1)
	}
	return err
}

// shortened returns a reason as it is kept.
func shortened(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}
