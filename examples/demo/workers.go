package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// story is a small scenario that is told in steps. After an error its methods do nothing.
type story struct {
	ctx     context.Context // of the run
	in      *instance
	tape    *tape
	lease   time.Duration
	begin   time.Time
	workers []*worker
	err     error // the first one
}

// told makes a scenario of what is told. Events: "step" with a step, and "done".
func told(tell func(s *story)) scenario {
	return func(ctx context.Context, in *instance, t *tape) error {
		s := &story{ctx: ctx, in: in, tape: t, lease: in.sizes.Lease, begin: time.Now()}
		tell(s)
		for _, w := range s.workers {
			w.kill()
		}
		if s.err == nil {
			t.send("done", nil)
		}
		return s.err
	}
}

// say sends a step: what has happened, when, and the figures of that moment.
func (s *story) say(figures object, format string, args ...any) {
	if s.err == nil {
		s.tape.send("step", object{"step": fmt.Sprintf(format, args...), "figures": figures,
			"ms": time.Since(s.begin).Milliseconds()})
	}
}

// must keeps an error, and reports whether there is none.
func (s *story) must(err error) bool {
	if s.err == nil {
		s.err = err
	}
	return s.err == nil
}

func (s *story) hire() *worker {
	w := s.in.store.hire()
	s.workers = append(s.workers, w)
	return w
}

// check has an actor try to take something.
func (s *story) check(g core.Guard, actor, what string) (d core.Decision) {
	if s.err == nil {
		d, s.err = g.Check(s.ctx, core.Attempt{Actor: actor, Resource: what})
	}
	return d
}

// take has an actor take something, as soon as it is free.
func (s *story) take(g core.Guard, actor, what string) core.Decision {
	d := s.check(g, actor, what)
	for !d.Allowed && s.must(pause(s.ctx, s.lease/20)) {
		d = s.check(g, actor, what)
	}
	return d
}

// killTheCashier: a worker that has reserved tickets dies. They are held for their time, and then on sale
// again.
func killTheCashier(s *story) {
	const stock, reserved = 10, 4
	item := fresh("held")
	_, err := s.in.orders.Open(s.ctx, item, seckill.Sale{Stock: stock, Hold: s.in.sizes.Hold})
	s.must(err)
	sale := func() object {
		_, err := s.in.orders.Sweep(s.ctx, item)
		s.must(err)
		now, err := statusOf(s.ctx, s.in.orders, item)
		s.must(err)
		return object{"left": now.Left, "held": now.Held, "sold": now.Sold}
	}
	s.say(sale(), "%d tickets are on sale.", stock)
	cashier := s.hire()
	orders := seckill.New(cashier.gate, s.in.orders.Name(), seckill.Options{})
	for buyer := range reserved {
		s.check(orders, fmt.Sprint("buyer-", buyer), item)
	}
	cashier.kill() // neither confirmed nor given back
	now := sale()
	s.say(now, "A worker has reserved %d for its buyers, and was killed before they paid.", reserved)
	for now["held"] != int64(0) && s.must(pause(s.ctx, s.in.sizes.Hold/10)) {
		now = sale()
	}
	s.say(now, "Their time of %v is over, and all %d can be bought again.", s.in.sizes.Hold, stock)
}

// killAPermitHolder: a semaphore has two permits. One of their holders dies, and its permit comes back when
// its lease is over.
func killAPermitHolder(s *story) {
	pool := fresh("pool")
	hire := func() (*worker, *semaphore.Guard) {
		w := s.hire()
		return w, semaphore.New(w.gate, "desks", semaphore.Options{Max: 2, Lease: s.lease})
	}
	ann, anns := hire()
	_, bobs := hire()
	_, cids := hire()
	held := func() object {
		now, err := bobs.Peek(s.ctx, core.Attempt{Resource: pool})
		s.must(err)
		return object{"held": now.Held, "max": now.Max}
	}
	s.take(anns, "ann", pool)
	s.take(bobs, "bob", pool)
	s.say(held(), "Ann and Bob work.")
	s.say(held(), "Cid is refused: %s.", s.check(cids, "cid", pool).Reason)
	ann.kill()
	s.say(held(), "Ann's process was killed. Her lease of %v runs on.", s.lease)
	s.take(cids, "cid", pool)
	s.say(held(), "Her lease was over, and Cid has her permit.")
}

// killALockHolder: the holder of a lock dies, and writes late all the same. The fence of the next holder is
// greater, so the storage refuses the late write.
func killALockHolder(s *story) {
	ledger := fresh("ledger")
	hire := func() (*worker, *lock.Guard) {
		w := s.hire()
		return w, lock.New(w.gate, "ledger", lock.Options{Lease: s.lease})
	}
	ann, anns := hire()
	_, bobs := hire()
	last := int64(0)
	write := func(fence int64) string { // as UPDATE … WHERE fence <= $1 does
		if fence < last {
			return "refused by the storage"
		}
		last = fence
		return "accepted"
	}
	first, _ := anns.Fence(s.take(anns, "ann", ledger))
	s.say(object{"fence": first}, "Ann has the lock, and her write is %s.", write(first))
	s.say(nil, "Bob is refused: %s.", s.check(bobs, "bob", ledger).Reason)
	ann.kill()
	s.say(nil, "Ann's process lost its network. Her lease of %v runs on.", s.lease)
	second, _ := bobs.Fence(s.take(bobs, "bob", ledger))
	s.say(object{"fence": second}, "Bob has the lock, and his write is %s.", write(second))
	s.say(object{"fence": first}, "Ann writes late, with her old fence: %s.", write(first))
}

// killATaskWorker: the first worker of a task dies while it runs the task. Another one gets it when the lease
// is over.
func killATaskWorker(s *story) {
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	id, due := fresh("mail"), s.lease*3/10
	runs := make(chan struct{}, 2)
	work := func(run func(ctx context.Context) error) (*worker, *delay.Queue) {
		w := s.hire()
		queue := delay.New(w.gate, "mails", delay.Options{Lease: s.lease, Keep: longestRun})
		// Its error says that a handler still runs: that of the dead worker does.
		go func() {
			_ = delay.Work(ctx, queue, func(ctx context.Context, t delay.Task) error {
				if t.ID != id {
					return nil // left by a run that was ended
				}
				runs <- struct{}{}
				return run(ctx)
			}, delay.WorkOptions{Poll: max(10*time.Millisecond, s.lease/20), Stop: -1})
		}()
		return w, queue
	}
	wait := func() {
		select {
		case <-runs:
		case <-ctx.Done():
			s.must(context.Cause(ctx))
		}
	}

	first, queue := work(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
	_, err := queue.Schedule(ctx, id, time.Now().Add(due), []byte("to Ann"))
	s.must(err)
	s.say(nil, "A task is scheduled, due in %v.", due)
	wait()
	s.say(object{"delivery": 1}, "Worker A runs it.")
	first.kill()
	s.say(nil, "Worker A was killed in the middle. Its lease of %v runs on.", s.lease)
	_, queue = work(func(ctx context.Context) error { return delay.Result(ctx, []byte("sent")) })
	wait()
	s.say(object{"delivery": 2}, "Its lease was over, and worker B runs it, apart from others.")
	task, err := queue.Find(ctx, id)
	for s.must(err) && task.State != delay.Done && s.must(pause(ctx, s.lease/50)) {
		task, err = queue.Find(ctx, id)
	}
	s.say(nil, "The task is done, and its result is %q.", task.Result)
}

// spendTokens: costs are known afterwards. A request takes an estimate, the handler says bit by bit what it
// has used, and the difference goes back or is charged.
func spendTokens(s *story) {
	const units, estimate = 100, 40
	user := fresh("user")
	tokens := limit.NewSlidingWindow(s.hire().gate, "tokens", limit.PerMinute(units))
	left := func() object {
		d, err := tokens.Peek(s.ctx, core.Attempt{Actor: user})
		s.must(err)
		return object{"left": d.Remaining}
	}
	rule := ratelimit.HTTP(ratelimit.Rule{
		Guard: tokens,
		Who:   keyfuncs.Const(user),
		Cost:  func(*keyfuncs.Request) (int64, error) { return estimate, nil },
	})
	ask := func(answer http.HandlerFunc) int {
		return serve(rule(answer), httptest.NewRequestWithContext(s.ctx, http.MethodGet, "/chat", nil))
	}
	s.say(left(), "A user has %d tokens per minute. Each request is estimated at %d.", units, estimate)
	for i, used := range []int64{20, 70} {
		ask(func(_ http.ResponseWriter, r *http.Request) {
			for range used / 10 { // as the parts of the answer are made
				s.must(ratelimit.Spend(r.Context(), tokens.Name(), 10))
			}
			s.say(left(), "While request %d runs, its estimate is taken.", i+1)
		})
		difference := "goes back"
		if used > estimate {
			difference = "is charged"
		}
		s.say(left(), "It has used %d. The difference %s.", used, difference)
	}
	status := ask(func(http.ResponseWriter, *http.Request) {})
	s.say(left(), "Another request gets %d: its estimate does not fit.", status)
}
