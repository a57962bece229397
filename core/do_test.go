package core_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

var errWork = errors.New("the work has failed")

// refusedAs returns the refusal that an error is, or one without a reason.
func refusedAs(err error) (r core.Refused) {
	var as *core.Refused
	if errors.As(err, &as) {
		r = *as
	}
	return r
}

// ends are the ways in which work ends.
var ends = map[string]func(context.Context) error{
	"returns": func(context.Context) error { return nil },
	"fails":   func(context.Context) error { return errWork },
	"panics":  func(context.Context) error { panic("of the work") },
	"exits":   func(context.Context) error { runtime.Goexit(); return nil },
}

// do calls Do in a goroutine of its own, which work may end. It reports whether Do has returned, and its error.
func do(
	ctx context.Context, g core.Guard, a core.Attempt, work func(context.Context) error,
) (returned bool, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { _ = recover() }()
		err = core.Do(ctx, g, a, work)
		returned = true
	}()
	<-ended
	return returned, err
}

// TestDoTellsTheGuardHowWorkEnded.
//
// Promise: core.Do commits the attempt when its work returns nil. It rolls it back when the work fails, panics
// or ends its goroutine, except for what a rate limit has counted.
func TestDoTellsTheGuardHowWorkEnded(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		polls := votes.New(e, "polls", votes.Options{})
		sale := seckill.New(e, "sale", seckill.Options{})
		slots := semaphore.New(e, "slots", semaphore.Options{Max: 1})
		calls := limit.NewSlidingWindow(e, "calls", limit.PerHour(10))
		if _, err := sale.Open(t.Context(), "sku", seckill.Sale{Stock: 100}); err != nil {
			t.Fatal(err)
		}
		for name, work := range ends {
			a := core.Attempt{Actor: name, Resource: "sku"}
			ok := name == "returns"
			check := func(g core.Guard, then core.Reason) {
				t.Helper()
				returned, err := do(t.Context(), g, a, work)
				want := map[string]error{"fails": errWork}[name]
				if returned != (ok || name == "fails") || !errors.Is(err, want) {
					t.Errorf("%s, %s: %t, %v", g.Name(), name, returned, err)
				}
				d := guardtest.Check(t, g, a)
				if d.Reason != then {
					t.Errorf("%s, %s: a second attempt is %s: want %s", g.Name(), name, d.Reason, then)
				}
				if d.Allowed {
					guardtest.Settle(t, g, d, core.Rollback)
				}
			}
			after := core.ReasonOK
			if ok {
				after = core.ReasonDuplicate
			}
			check(polls, after)
			check(slots, core.ReasonOK)
			check(calls, core.ReasonOK)
			if d, err := calls.Peek(t.Context(), a); err != nil || d.Remaining != 9 {
				t.Errorf("%s: %d left, %v: want that the attempt counts", name, d.Remaining, err)
			}
			if _, err := do(t.Context(), sale, a, work); ok != (err == nil) && name == "returns" {
				t.Error(err)
			}
		}
		s, err := sale.Status(t.Context(), "sku")
		if err != nil || s.Sold != 1 || s.Held != 0 {
			t.Errorf("%+v, %v: want one unit sold", s, err)
		}
	})
}

// TestDoReturnsWhatCannotBeConfirmed: the reservation was cancelled while the work ran.
//
// Promise: core.Do returns the error of a claim that has to be confirmed, and cannot be.
func TestDoReturnsWhatCannotBeConfirmed(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		sale := seckill.New(guardtest.NewEngine(b), "sale", seckill.Options{})
		if _, err := sale.Open(t.Context(), "sku", seckill.Sale{Stock: 1}); err != nil {
			t.Fatal(err)
		}
		a := core.Attempt{Actor: "ann", Resource: "sku", ID: "order-1"}
		err := core.Do(t.Context(), sale, a, func(ctx context.Context) error {
			_, err := sale.Cancel(ctx, a)
			return err
		})
		if !errors.Is(err, core.ErrGone) {
			t.Errorf("%v: want that the reservation is gone", err)
		}
		if s, err := sale.Status(t.Context(), "sku"); err != nil || s.Left != 1 {
			t.Errorf("%+v, %v: want one unit left", s, err)
		}
	})
}

// TestDoDoesNoWorkThatIsRefusedOrDone.
//
// Promise: core.Do calls its work for allowed attempts alone, and not again for one whose work is done. A
// refusal is a core.Refused, with its reason and how long to wait.
func TestDoDoesNoWorkThatIsRefusedOrDone(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		calls := limit.NewSlidingWindow(e, "calls", limit.PerHour(1))
		once := idempotency.New(e, "once", idempotency.Options{})
		n := 0
		work := func(context.Context) error { n++; return nil }
		if err := core.Do(t.Context(), calls, core.Attempt{Actor: "ann"}, work); err != nil {
			t.Fatal(err)
		}
		r := refusedAs(core.Do(t.Context(), calls, core.Attempt{Actor: "ann"}, work))
		if r.Reason != core.ReasonLimited || r.RetryAfter < 59*time.Minute || r.Attempt.Actor != "ann" || n != 1 {
			t.Errorf("%+v after %d runs: want a refusal", r, n)
		}
		if text := r.Error(); strings.Contains(text, "ann") || !strings.Contains(text, "limited") {
			t.Errorf("%q: want a text without what a client chose", text)
		}
		shadow := core.Attempt{Actor: "ann", Shadow: true}
		if err := core.Do(t.Context(), calls, shadow, work); err != nil || n != 2 {
			t.Errorf("%v after %d runs: want that a shadow refuses nobody", err, n)
		}
		pay := core.Attempt{Actor: "ann", ID: "payment-7"}
		if err := core.Do(t.Context(), once, pay, ends["fails"]); !errors.Is(err, errWork) {
			t.Error(err)
		}
		for range 3 {
			if err := core.Do(t.Context(), once, pay, work); err != nil || n != 3 {
				t.Errorf("%v after %d runs: want one run of an operation", err, n-2)
			}
		}
		if err := core.Do(t.Context(), calls, core.Attempt{}, work); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%v: want an invalid attempt", err)
		}
	})
}

// TestDoInsideDoIsAllOrNothing: when the inner guard refuses, the outer limit counts nothing.
func TestDoInsideDoIsAllOrNothing(t *testing.T) {
	e := core.NewMemory()
	outer, inner := limit.NewSlidingWindow(e, "outer", limit.PerHour(9)), limit.NewSlidingWindow(e, "inner",
		limit.PerHour(1))
	a := core.Attempt{Actor: "ann"}
	for i := range 3 {
		err := core.Do(t.Context(), outer, a, func(ctx context.Context) error {
			return core.Do(ctx, inner, a, func(context.Context) error { return nil })
		})
		if r := refusedAs(err); (i == 0) != (err == nil) || i > 0 && r.Guard != "inner" {
			t.Errorf("%d: %v", i, err)
		}
	}
	if d, err := outer.Peek(t.Context(), a); err != nil || d.Remaining != 8 {
		t.Errorf("%d are left of the outer limit, %v: want 8", d.Remaining, err)
	}
}

// TestDoEndsTheWorkOfALostLease.
//
// Promise: core.Do ends the context of its work when the lease is lost, and returns the cause.
func TestDoEndsTheWorkOfALostLease(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		g := lock.New(guardtest.NewEngine(b), "account", lock.Options{Lease: time.Second})
		a := core.Attempt{Actor: "ann", Resource: "a7"}
		err := core.Do(t.Context(), g, a, func(ctx context.Context) error {
			if _, err := g.Break(ctx, "a7"); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("%v: want that the lock is lost", err)
		}
	})
}

// TestDoInAnOutage: the guard's policy decides.
func TestDoInAnOutage(t *testing.T) {
	b := redistest.Single(t)
	f := redistest.NewFaults(t)
	e := guardtest.NewEngineOver(b, b.NewClientWith(t, f, func(o *redis.UniversalOptions) {
		o.MaxRetries, o.DialerRetries = -1, 1 // nobody is there
	}))
	polls, calls := votes.New(e, "polls", votes.Options{}), limit.NewSlidingWindow(e, "calls", limit.PerHour(1))
	f.Refuse(true)
	n := 0
	work := func(context.Context) error { n++; return nil }
	a := core.Attempt{Actor: "ann", Resource: "poll"}
	err := core.Do(t.Context(), polls, a, work)
	if !errors.Is(err, core.ErrUndecided) || n != 0 || refusedAs(err).Reason != "" {
		t.Errorf("%v after %d runs: want that the vote fails", err, n)
	}
	if err := core.Do(t.Context(), calls, a, work); err != nil || n != 1 {
		t.Errorf("%v after %d runs: want that the local limit allows one", err, n)
	}
	if r := refusedAs(core.Do(t.Context(), calls, a, work)); r.Source != core.SourceLocal || n != 1 {
		t.Errorf("%+v after %d runs: want that the local limit refuses the second", r, n)
	}
	shut := bans.New(e, "bans", bans.Options{})
	if err := core.Do(t.Context(), shut, a, work); err != nil || n != 2 {
		t.Errorf("%v after %d runs: want that work runs behind a guard that is open in an outage", err, n)
	}
	f.Heal()
	if err := e.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSpendInDo: the real cost of work, in a budget and a limit at once.
func TestSpendInDo(t *testing.T) {
	b := redistest.Single(t)
	e := guardtest.NewEngine(b)
	tokens := limit.NewTokenBucket(e, "tokens", limit.PerDay(1000))
	a := core.Attempt{Actor: "ann", Cost: 100}
	err := core.Do(t.Context(), tokens, a, func(ctx context.Context) error {
		if !core.Spend(ctx, "tokens", 15) || !core.Spend(ctx, "tokens", 25) || core.Spend(ctx, "others", 1) ||
			core.Spend(ctx, "tokens", -1) {
			t.Error("Spend says something else")
		}
		return errWork
	})
	if !errors.Is(err, errWork) {
		t.Error(err)
	}
	if d, err := tokens.Peek(t.Context(), a); err != nil || d.Remaining != 960 {
		t.Errorf("%d are left, %v: want 960", d.Remaining, err)
	}
	if core.Spend(t.Context(), "tokens", 1) {
		t.Error("there is no work")
	}
	var late context.Context
	err = core.Do(t.Context(), tokens, a, func(ctx context.Context) error { late = ctx; return nil })
	if err != nil || core.Spend(late, "tokens", 1) {
		t.Errorf("%v: want that it is too late to spend", err)
	}
}

// unheld is a guard of an application whose Hold panics.
type unheld struct{ settled []core.Ending }

func (*unheld) Name() string        { return "unheld" }
func (*unheld) Traits() core.Traits { return core.Traits{} }

func (*unheld) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	return core.Decision{Guard: "unheld", Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
}

func (g *unheld) Settle(_ context.Context, _ core.Decision, end core.Ending) error {
	g.settled = append(g.settled, end)
	return nil
}

func (*unheld) Hold(context.Context, core.Decision) (held context.Context, stop context.CancelFunc) {
	panic("of the guard")
}

// TestDoGivesBackWhatCannotBeHeld: the work does not run.
func TestDoGivesBackWhatCannotBeHeld(t *testing.T) {
	var g unheld
	returned, _ := do(t.Context(), &g, core.Attempt{Actor: "ann"}, func(context.Context) error {
		t.Error("the work ran")
		return nil
	})
	if returned || len(g.settled) != 1 || g.settled[0].Commits() {
		t.Errorf("returned: %v, settled %v: want the panic, and a rollback", returned, g.settled)
	}
}
