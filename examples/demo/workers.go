package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
)

// step is a step of a small scenario: what happened, when, and the figures of that moment.
type step struct {
	Step    string           `json:"step"`
	MS      int64            `json:"ms"` // since the beginning
	Figures map[string]int64 `json:"figures,omitempty"`
}

// steps sends steps, with their moments.
func steps(send func(string, any)) func(event string, figures map[string]int64, format string, args ...any) {
	begin := time.Now()
	return func(event string, figures map[string]int64, format string, args ...any) {
		send(event, step{fmt.Sprintf(format, args...), time.Since(begin).Milliseconds(), figures})
	}
}

// take has an attempt take something that is free.
func take(ctx context.Context, g core.Guard, a core.Attempt) (core.Decision, error) {
	d, err := g.Check(ctx, a)
	if err == nil && !d.Allowed {
		err = fmt.Errorf("%s is refused: %s", a.Actor, d.Reason)
	}
	return d, err
}

// retry asks again, and again, until the attempt is allowed.
func retry(
	ctx context.Context, g core.Guard, a core.Attempt, wait time.Duration,
) (d core.Decision, err error) {
	for err == nil && !d.Allowed {
		if err = pause(ctx, wait); err == nil {
			d, err = g.Check(ctx, a)
		}
	}
	return d, err
}

// killAPermitHolder shows a semaphore of two permits, one of whose holders dies: its permit comes back when
// its lease is over. Events: "step" and "done", with steps; the figures are held and max.
func killAPermitHolder(ctx context.Context, in *instance, send func(string, any)) error {
	say := steps(send)
	lease := in.sizes.Lease
	pool := in.fresh("pool")
	ann, bob, cid := in.store.hire(), in.store.hire(), in.store.hire()
	defer func() { ann.kill(); bob.kill(); cid.kill() }()
	permits := bob.permits(lease)
	third := cid.permits(lease)

	held := func() (map[string]int64, error) {
		s, err := permits.Peek(ctx, core.Attempt{Resource: pool})
		return map[string]int64{"held": s.Held, "max": s.Max}, err
	}
	if _, err := take(ctx, ann.permits(lease), core.Attempt{Actor: "ann", Resource: pool}); err != nil {
		return err
	}
	bobs, err := take(ctx, permits, core.Attempt{Actor: "bob", Resource: pool})
	if err != nil {
		return err
	}
	defer func() { _ = permits.Settle(ctx, bobs, core.Commit) }()
	figures, err := held()
	if err != nil {
		return err
	}
	say("step", figures, "Ann and Bob work.")
	cids := core.Attempt{Actor: "cid", Resource: pool}
	d, err := third.Check(ctx, cids)
	if err != nil {
		return err
	}
	say("step", figures, "Cid is refused: %s.", d.Reason)
	ann.kill()
	say("step", figures, "Ann's process was killed. Her lease of %v runs on.", lease)
	if d, err = retry(ctx, third, cids, lease/20); err != nil {
		return err
	}
	defer func() { _ = third.Settle(ctx, d, core.Commit) }()
	if figures, err = held(); err != nil {
		return err
	}
	say("done", figures, "Her lease was over, and Cid has her permit.")
	return nil
}

// register is a storage that compares fences: it refuses a write whose fence is smaller than that of the last
// one, as UPDATE … WHERE fence < $1 does.
type register struct{ last int64 }

func (r *register) write(fence int64) string {
	if fence < r.last {
		return "refused by the storage"
	}
	r.last = fence
	return "accepted"
}

// killALockHolder shows a lock whose holder dies, and writes late all the same: the fence of the next holder
// is greater, so the storage refuses the late write. Events: "step" and "done"; the figure is the fence.
func killALockHolder(ctx context.Context, in *instance, send func(string, any)) error {
	say := steps(send)
	lease := in.sizes.Lease
	thing := in.fresh("ledger")
	ann, bob := in.store.hire(), in.store.hire()
	defer func() { ann.kill(); bob.kill() }()
	first, second := ann.lock(lease), bob.lock(lease)
	var ledger register

	d, err := take(ctx, first, core.Attempt{Actor: "ann", Resource: thing})
	if err != nil {
		return err
	}
	anns, _ := first.Fence(d)
	say("step", map[string]int64{"fence": anns}, "Ann has the lock, and her write is %s.", ledger.write(anns))
	next := core.Attempt{Actor: "bob", Resource: thing}
	if d, err = second.Check(ctx, next); err != nil {
		return err
	}
	say("step", nil, "Bob is refused: %s.", d.Reason)
	ann.kill()
	say("step", nil, "Ann's process lost its network. Her lease of %v runs on.", lease)
	if d, err = retry(ctx, second, next, lease/20); err != nil {
		return err
	}
	defer func() { _ = second.Settle(ctx, d, core.Commit) }()
	bobs, _ := second.Fence(d)
	say("step", map[string]int64{"fence": bobs}, "Bob has the lock, and his write is %s.", ledger.write(bobs))
	say("done", map[string]int64{"fence": anns}, "Ann writes late, with her old fence: %s.", ledger.write(anns))
	return nil
}

// killATaskWorker schedules a task whose first worker dies while it runs the task: another one gets it when
// the lease is over. Events: "step" and "done"; the figure counts the deliveries.
func killATaskWorker(ctx context.Context, in *instance, send func(string, any)) error {
	say := steps(send)
	lease := in.sizes.Lease
	id := in.fresh("mail")
	ann, bob := in.store.hire(), in.store.hire()
	defer func() { ann.kill(); bob.kill() }()
	first, second := ann.queue(lease), bob.queue(lease)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	runs := make(chan struct{}, 1) // of this task: the handlers are told to end, and do not send again
	work := func(q *delay.Queue, run func(ctx context.Context) error) {
		// An error says that a handler still runs: that of the dead worker does.
		_ = delay.Work(ctx, q, func(ctx context.Context, t delay.Task) error {
			if t.ID != id {
				return nil // left by a run that was ended
			}
			select {
			case runs <- struct{}{}:
			case <-ctx.Done():
			}
			return run(ctx)
		}, delay.WorkOptions{Poll: max(10*time.Millisecond, lease/20), Stop: -1})
	}
	wait := func() error {
		select {
		case <-runs:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}

	in30 := lease * 3 / 10
	if _, err := first.Schedule(ctx, id, time.Now().Add(in30), []byte("to Ann")); err != nil {
		return err
	}
	say("step", nil, "A task is scheduled, due in %v.", in30)
	go work(first, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
	if err := wait(); err != nil {
		return err
	}
	say("step", map[string]int64{"delivery": 1}, "Worker A runs it.")
	ann.kill()
	say("step", nil, "Worker A was killed in the middle. Its lease of %v runs on.", lease)
	go work(second, func(ctx context.Context) error { return delay.Result(ctx, []byte("sent")) })
	if err := wait(); err != nil {
		return err
	}
	say("step", map[string]int64{"delivery": 2}, "Its lease was over, and worker B runs it, apart from others.")
	for {
		found, err := second.Find(ctx, id)
		if err != nil {
			return err
		}
		if found.State == delay.Done {
			say("done", nil, "The task is done, and its result is %q.", found.Result)
			return nil
		}
		if err := pause(ctx, lease/50); err != nil {
			return err
		}
	}
}
