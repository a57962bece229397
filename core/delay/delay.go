package delay

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/lua"
)

var (
	scheduleScript = script.New("delay_schedule", lua.Source("delay/schedule"), script.Idempotent)
	claimScript    = script.New("delay_claim", lua.Source("delay/claim"), script.Idempotent)
	releaseScript  = script.New("delay_release", lua.Source("delay/release"), script.Idempotent)
	extendScript   = script.New("delay_extend", lua.Source("delay/extend"), script.Idempotent)
	ackScript      = script.New("delay_ack", lua.Source("delay/ack"), script.Idempotent)
	nackScript     = script.New("delay_nack", lua.Source("delay/nack"), script.Idempotent)
	removeScript   = script.New("delay_remove", lua.Source("delay/remove"), script.Idempotent)
	moveScript     = script.New("delay_move", lua.Source("delay/move"), script.Idempotent)
	findScript     = script.New("delay_find", lua.Source("delay/find"), script.Idempotent)
	peekScript     = script.New("delay_peek", lua.Source("delay/peek"), script.Idempotent)
)

var (
	// ErrLost is returned by Extend, Ack and Nack for a task that does not run under this claim any more: its
	// lease was over and it was taken back, or the claim has ended it. It is also the cause with which the
	// context of a handler ends when its lease is lost. It wraps core.ErrGone.
	ErrLost = kit.NewError("delay: the task does not run under this claim any more", core.ErrGone)
	// ErrNoTask is returned for an ID that the queue does not know, or has forgotten. It wraps
	// core.ErrNotFound.
	ErrNoTask = kit.NewError("delay: there is no such task", core.ErrNotFound)
	// ErrOtherState is returned for a task in another state than the call needs: a task that runs or has ended
	// cannot be cancelled. It wraps core.ErrNotNow.
	ErrOtherState = kit.NewError("delay: the task is in another state", core.ErrNotNow)
	// ErrFull is returned by ScheduleWithin where the queue has no room for the task. It wraps core.ErrNotNow.
	ErrFull = kit.NewError("delay: the queue has no room for the task", core.ErrNotNow)
)

// Options configure a [Queue]. The zero value is valid. All processes that share a queue must have the same
// options. Durations are whole milliseconds.
type Options struct {
	// Lease is how long a claimed task is left to its worker without a renewal, 1 s to 24 hours. The default is
	// 30 s. A worker that has died is noticed so much later.
	Lease time.Duration
	// MaxTries is how often a task is tried at most, 1 to 1,000. The default is 10. A task that fails for the
	// last time is dead: see [Queue.Retry]. A lease that is over counts as a try if the task ran apart.
	MaxTries int
	// MaxPayload is the size in bytes of the longest payload and result, up to 1 MiB. The default is 64 KiB.
	MaxPayload int
	// Spread is the number of slots of a cluster over which the tasks are spread by their IDs, 1 to 64. The
	// default is 1. Tasks are in order within a slot, not across slots. More slots need more calls of an idle
	// worker: one for each.
	//
	// After a change, tasks that were scheduled before are not found by their ID, and tasks of removed slots
	// do not run. So a queue with another Spread should have another name.
	Spread int
	// Keep is how long a task that is done is remembered, with its result, so that its ID is not scheduled
	// again: 1 minute to 366 days. The default is 24 hours. Dead tasks are remembered for a week, or for Keep
	// if that is longer.
	Keep time.Duration
}

const (
	// MaxID is the length of the longest ID of a task, in bytes.
	MaxID = 256
	// MaxClaim is the largest number of tasks that one Claim returns.
	MaxClaim = 10_000

	minLease   = time.Second
	maxLease   = 24 * time.Hour
	maxPayload = 1 << 20
	maxSpread  = 64
	deadKeep   = 7 * 24 * time.Hour
	maxReason  = 1000                       // bytes
	maxPause   = 100 * 365 * 24 * time.Hour // what is due after the year 2286 would be a suspect of the scripts

	// chunk is how many tasks one run of a script claims or renews, so that it stays short.
	chunk = 500
	// claimBytes is how many bytes of payloads one run of a script claims.
	claimBytes = 4 << 20
)

// fields are the keys of a slot.
var fields = []string{"head", "tasks", "bodies", "due", "running", "done", "dead"}

// Queue keeps tasks until they are due, and hands each to one worker at a time. Make a Queue with [New]. It
// is safe for concurrent use.
//
// # Delivery
//
// A task is delivered at least once. [Queue.Claim] takes due tasks, in the order in which they are due.
// Tasks due at the same millisecond are in the order of their IDs. Each has a lease by the server's clock,
// and a fence. While the lease holds, no other claim gets the task. When it is over, the next claim takes
// the task back, and it becomes due again. Ack and Nack of a claim whose task was taken back return
// [ErrLost]. Until then they count, even after the lease.
//
// # Tasks that kill their process
//
// When a process dies, nobody knows which task killed it. So each task that was taken back is suspect,
// until it has ended once. Suspects come with Task.Suspect and without other tasks, and [Work] runs them
// apart: half of the due suspects, and then the other half. If a process dies of a group of n, half of n
// run together the next time. So the tasks of a killed process run again in two rounds, and a task that
// kills its process is alone after log2 n further deaths.
//
// A try in which a task ran beside others does not count. A try counts if the task ran alone and its lease
// ended. Then it waits for a second, and for twice as long each time, up to an hour. After Options.MaxTries
// of these tries it is dead. So a task that kills its process makes no other task dead.
//
// # Calls whose reply is lost
//
// Each call can be repeated. Schedule is idempotent by the task's ID, Ack and Nack by the claim. A claim
// that the client library sends again gets the same tasks. A claim that returns an error is given back in
// the background, and its tries do not count. Only when Redis stays silent for ten minutes do these tasks
// wait for their lease to end.
//
// A failover of Redis can lose the last changes: a task that was scheduled, or the word that one is done.
// Then that task runs again, under a greater fence.
//
// # Memory
//
// All keys of a slot expire at one moment: 30 days after the last moment at which any task of it was to be
// due or to be forgotten, as known when the queue changed last. So a task that is due in a year is safe, and
// a queue that nobody uses vanishes. Tasks that nobody claims for 30 days vanish with it.
type Queue struct {
	kit.Base
	options Options
	turn    atomic.Uint32 // the slot that the next claim asks first
}

// New makes a queue with the given name. It panics when the name is taken or malformed, when the options are
// invalid, or when the engine has no Redis.
func New(e *core.Engine, name string, o Options) *Queue {
	kit.NeedRedis(e, "delay", name)
	o = o.filled()
	if err := o.check(); err != nil {
		panic(fmt.Sprintf("delay: %v (queue %q)", err, name))
	}
	return &Queue{
		Base: kit.Register(e, "delay", name, scheduleScript, claimScript, releaseScript, extendScript, ackScript,
			nackScript, removeScript, moveScript, findScript, peekScript),
		options: o,
	}
}

// filled returns the options with their defaults.
func (o Options) filled() Options {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.MaxTries == 0 {
		o.MaxTries = 10
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = 64 << 10
	}
	if o.Spread == 0 {
		o.Spread = 1
	}
	if o.Keep == 0 {
		o.Keep = 24 * time.Hour
	}
	return o
}

// check returns an error for options that are out of range.
func (o Options) check() error {
	switch {
	case o.Lease < minLease || o.Lease > maxLease || o.Lease%time.Millisecond != 0:
		return fmt.Errorf("the Lease is %v: set whole milliseconds from %v to %v", o.Lease, minLease, maxLease)
	case o.MaxTries < 1 || o.MaxTries > 1000:
		return fmt.Errorf("the MaxTries is %d: set 1 to 1000", o.MaxTries)
	case o.MaxPayload < 1 || o.MaxPayload > maxPayload:
		return fmt.Errorf("the MaxPayload is %d: set 1 to %d bytes", o.MaxPayload, maxPayload)
	case o.Spread < 1 || o.Spread > maxSpread:
		return fmt.Errorf("the Spread is %d: set 1 to %d slots", o.Spread, maxSpread)
	case o.Keep < time.Minute || o.Keep > kit.MaxTTL || o.Keep%time.Millisecond != 0:
		return fmt.Errorf("the Keep is %v: set whole milliseconds from a minute to %v", o.Keep, kit.MaxTTL)
	}
	return nil
}

// MaxPayload returns the size of the longest payload and result: see [Options].
func (q *Queue) MaxPayload() int { return q.options.MaxPayload }

// Schedule schedules a task for a moment, once per ID. It returns false when the ID is known already: then
// nothing changes, whatever the moment and the payload are. An ID is known while its task is pending,
// running or dead, and for Options.Keep after it was done. The ID of a cancelled task is free again. A
// moment in the past, and the zero Time, mean at once.
//
// The error is core.ErrInvalid for an ID that is empty or longer than [MaxID], a payload over
// Options.MaxPayload, or a moment after the year 2200. After another error the task may have been
// scheduled. Calling again with the same ID is safe.
func (q *Queue) Schedule(
	ctx context.Context, id string, at time.Time, payload []byte,
) (created bool, err error) {
	return q.ScheduleWithin(ctx, id, at, payload, 0, 0)
}

// ScheduleWithin is [Queue.Schedule], unless the queue would then have more than most bytes: the error is
// [ErrFull], and nothing has changed. A task counts the bytes of its payload, or of its result once it is
// done, and 300 more. Until it has ended, it also counts result bytes for its future result. Each slot of
// Options.Spread has a share of most. 0 is any number.
func (q *Queue) ScheduleWithin(
	ctx context.Context, id string, at time.Time, payload []byte, most, result int64,
) (created bool, err error) {
	return kit.Look(ctx, &q.Base, "schedule", about(id), func() (bool, error) {
		moment, err := momentOf(at)
		if err == nil {
			err = q.checkTask(id, payload)
		}
		if err != nil {
			return false, err
		}
		slot := q.slotOf(id)
		value, err := q.run(ctx, scheduleScript, slot, q.op(slot), script.EncodeUpTo(script.MaxRecord, id), moment,
			payload, q.options.Keep.Milliseconds(), most/int64(q.options.Spread), result,
			kit.TombstoneTTL.Milliseconds())
		if err != nil {
			return false, err
		}
		n, err := script.ReadNumber(value)
		if err == nil && n < 0 {
			err = ErrFull
		}
		return n == 1, err
	})
}

// Cancel removes a task that is pending. It returns [ErrNoTask] for a task that the queue does not know,
// and [ErrOtherState] for a task that runs or has ended.
func (q *Queue) Cancel(ctx context.Context, id string) error {
	return q.Call(ctx, "cancel", about(id), func() error { return q.byName(ctx, removeScript, id, "p") })
}

// Reschedule gives a task that is pending another moment, as [Queue.Schedule] takes it. It returns
// [ErrNoTask] and [ErrOtherState] as Cancel does.
func (q *Queue) Reschedule(ctx context.Context, id string, at time.Time) error {
	return q.Call(ctx, "reschedule", about(id), func() error {
		moment, err := momentOf(at)
		if err != nil {
			return err
		}
		return q.byName(ctx, moveScript, id, "p", moment)
	})
}

// Retry makes a dead task pending, due at once, with all its tries. It returns [ErrNoTask] for a task that
// the queue does not know, and [ErrOtherState] for a task that is not dead.
func (q *Queue) Retry(ctx context.Context, id string) error {
	return q.Call(ctx, "retry", about(id), func() error { return q.byName(ctx, moveScript, id, "x", 0) })
}

// Discard removes a dead task. It returns the errors of Retry.
func (q *Queue) Discard(ctx context.Context, id string) error {
	return q.Call(ctx, "discard", about(id), func() error { return q.byName(ctx, removeScript, id, "x") })
}

// byName runs a script that changes a task which has to be in a state.
func (q *Queue) byName(ctx context.Context, s *script.Script, id, state string, args ...any) error {
	if err := checkID(id); err != nil {
		return err
	}
	slot := q.slotOf(id)
	args = append([]any{script.EncodeUpTo(script.MaxRecord, id), state}, args...)
	value, err := q.run(ctx, s, slot, q.op(slot), append(args, kit.TombstoneTTL.Milliseconds())...)
	if err != nil {
		return err
	}
	r := script.ReadReply(value, 1, 1)
	switch answer := r.Text(); answer {
	case "ok", "":
	case "not_found":
		return ErrNoTask
	case "not_now":
		return ErrOtherState
	default:
		return fmt.Errorf("unexpected answer %.100q", answer)
	}
	return r.Err
}

// run runs a script that changes a slot: its keys, then more keys; the arguments, then the time.
func (q *Queue) run(
	ctx context.Context, s *script.Script, slot int, more []string, args ...any,
) (any, error) {
	keys := append(q.keys(slot, fields...), more...)
	return q.Engine().RunWithin(ctx, q.Engine().SettleTimeout(), s, keys,
		append(args, q.Engine().ScriptNow(time.Millisecond))...)
}

// keys returns keys of a slot.
func (q *Queue) keys(slot int, fields ...string) []string {
	keys := make([]string, len(fields))
	for i, field := range fields {
		keys[i] = q.Key(q.tag(slot), field)
	}
	return keys
}

// tag returns the hash tag of a slot: with the queue's name, so that queues are in different slots.
func (q *Queue) tag(slot int) string { return script.JoinTag(q.Name(), strconv.Itoa(slot)) }

// slotOf returns the slot of a task.
func (q *Queue) slotOf(id string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id)) // it never fails
	return int(hash.Sum32() % uint32(q.options.Spread))
}

// op returns the key under which a call of its own notes its answer, for a resend after a lost reply.
func (q *Queue) op(slot int) []string { return []string{q.Key(q.tag(slot), "op", newCall())} }

// newCall names a call, for a resend after a lost reply.
func newCall() string { return core.Attempt{}.WithCall().Call() }

// about is what observers are told that a call is about.
func about(id string) core.Attempt { return core.Attempt{Item: id} }

func checkID(id string) error {
	if id == "" || len(id) > MaxID {
		return fmt.Errorf("%w: the ID of a task has %d bytes: give it 1 to %d", core.ErrInvalid, len(id), MaxID)
	}
	return nil
}

func (q *Queue) checkTask(id string, payload []byte) error {
	if err := checkID(id); err != nil {
		return err
	}
	return q.checkSize("payload", payload)
}

// checkSize returns an error for a payload or a result that is too long.
func (q *Queue) checkSize(what string, body []byte) error {
	if len(body) > q.options.MaxPayload {
		return fmt.Errorf("%w: the %s has %d bytes: %d are allowed", core.ErrInvalid, what, len(body),
			q.options.MaxPayload)
	}
	return nil
}

// momentOf returns a moment as scripts take it, rounded up, so that no task runs early. 0 means at once.
func momentOf(at time.Time) (int64, error) {
	if at.Unix() < 1 {
		return 0, nil
	}
	if !schedule.Countable(at) {
		return 0, fmt.Errorf("%w: a task is due at %v: give it a time up to the year 2200", core.ErrInvalid, at)
	}
	return at.Add(time.Millisecond - 1).UnixMilli(), nil
}
