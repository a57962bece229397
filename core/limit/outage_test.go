package limit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// takeLocal takes units as in an outage until it is refused, and returns how many it took and the refusal.
func takeLocal(t *testing.T, g rateLimit, a core.Attempt) (n int, refused core.Decision) {
	t.Helper()
	for ; n < 100; n++ {
		d, err := g.(kit.LocalGuard).CheckLocal(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			return n, d
		}
	}
	return n, refused
}

// TestAnOutageGoesOnFromWhatIsLeft: an outage began with empty counters in the process, so one process let 2N
// through. With 7 of 10 used through Redis the process admits 3 more, and then what comes back.
//
// Promise (Outages): In an outage each process goes on from the last remaining count that it saw of the
// binding limit. Other limits, and actors without a reply within a window, have N.
func TestAnOutageGoesOnFromWhatIsLeft(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", PerMinute(10))
		a := core.Attempt{Actor: "ann"}
		var last core.Decision
		for range 7 {
			last = guardtest.Check(t, g, a)
			guardtest.WantReason(t, last, core.ReasonOK)
		}
		clock.Advance(time.Second)
		n, refused := takeLocal(t, g, a)
		if n != 3 {
			t.Errorf("%d more in the outage, want 3", n)
		}
		if late := refused.RetryAfter - (last.ResetAfter - time.Second); late < 0 || late > time.Second {
			t.Errorf("%+v: want a unit when Redis has it back, %v after the last answer", refused, last.ResetAfter)
		}
		clock.Advance(refused.RetryAfter)
		if n, _ := takeLocal(t, g, a); n == 0 {
			t.Error("no unit came back in the outage")
		}
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "bob"}), core.ReasonOK)
		if n, _ := takeLocal(t, g, core.Attempt{Actor: "bob"}); n != 9 {
			t.Errorf("%d of another actor, want 9", n)
		}
		if n, _ := takeLocal(t, g, core.Attempt{Actor: "carl"}); n != 10 {
			t.Errorf("%d of an actor that Redis was not asked about, want 10", n)
		}
	})
}

// TestASecondOutageKnowsTheFirst: units that the process took in an outage are not in Redis, whose answers
// say that more is left. They count in the next outage, until their window is over.
func TestASecondOutageKnowsTheFirst(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock), core.WithRefusalMemory(0)), "w",
			PerMinute(10))
		a := core.Attempt{Actor: "ann"}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		if n, _ := takeLocal(t, g, a); n != 9 {
			t.Fatalf("%d more in the outage, want 9", n)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		if n, _ := takeLocal(t, g, a); n != 0 {
			t.Errorf("%d more in the second outage, want 0", n)
		}
		clock.Advance(2 * time.Minute)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Cost: 4}), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, core.Attempt{Actor: "ann", Cost: 9}), core.ReasonLimited)
		if n, _ := takeLocal(t, g, a); n != 6 {
			t.Errorf("%d more in the third outage, want 6", n)
		}
	})
}

// TestAnswersOfRedisAreNotedCheaply: each answer is noted for an outage, so it must not cost an allocation.
func TestAnswersOfRedisAreNotedCheaply(t *testing.T) {
	for _, k := range append(kinds[:len(kinds):len(kinds)], byParts) {
		limits := limiterOf(k.make(core.NewMemory(), "w", PerHour(100))).limits.limits
		said, now := newLastAnswers(64), int64(1e15)
		note := func() {
			now += 1000
			said.note("ann", limits[0], verdict{allowed: true, remaining: 50, resets: 1e6}, 1, now)
		}
		note()
		if n := testing.AllocsPerRun(1000, note); n > 0 {
			t.Errorf("%s: %v allocations", k.name, n)
		}
	}
}

// TestAnOutageGoesOnFromTheLastAnswerAboutEachLimit: the binding limit changes from answer to answer, and the
// process remembers what it has heard about each.
func TestAnOutageGoesOnFromTheLastAnswerAboutEachLimit(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", Per(3, time.Second), PerMinute(5))
		a := core.Attempt{Actor: "ann"}
		for range 2 { // of a second: 1 left; of a minute: 3 left
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		}
		clock.Advance(2 * time.Second)
		for range 2 { // of a minute: 1 left, which is the least now
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		}
		if n, _ := takeLocal(t, g, a); n != 1 {
			t.Errorf("%d more in the outage, want 1", n)
		}
		if err := g.Reset(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if n, _ := takeLocal(t, g, a); n != 3 {
			t.Errorf("%d more after a reset, want 3", n)
		}
	})
}

// TestACostOfAnOutageCountsBesideALaterAnswer: what an attempt of an outage has really cost is charged after
// Redis has answered again.
func TestACostOfAnOutageCountsBesideALaterAnswer(t *testing.T) {
	eachKindAndParts(t, func(t *testing.T, b redistest.Backend, k kind) {
		clock := guardtest.NewClock()
		g := k.make(guardtest.NewEngine(b, guardtest.WithClock(clock)), "w", PerHour(10))
		a := core.Attempt{Actor: "ann"}
		d, err := g.(kit.LocalGuard).CheckLocal(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
		guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK) // Redis: 9 left; here: 9 less than before
		clock.Advance(time.Second)
		guardtest.Settle(t, g, d, core.CommitCost(5))
		if n, _ := takeLocal(t, g, a); n != 5 {
			t.Errorf("%d more in the outage, want 5: of 10 the first attempt has cost 5", n)
		}
	})
}

// answered returns the memory of a process that asks Redis.
func answered(newCounter func() counter) *memory {
	m := newMemory(newCounter, 1<<20, false)
	m.store.ordered, m.last = true, newLastAnswers(1<<10)
	return m
}

// TestTheLastAnswerIsKnownToAllCallers: callers of one actor at the begin of an outage. One that had taken the
// answer out, and had no counters yet, let the others have the whole limit.
func TestTheLastAnswerIsKnownToAllCallers(t *testing.T) {
	m, l, now := answered(newSlidingLog), PerHour(100), int64(1e15)
	for i := range 2000 {
		a := &core.Attempt{Actor: fmt.Sprint("a", i), Cost: 1}
		m.last.note(a.Actor, l, verdict{remaining: 0, moment: 3e9}, 1, now)
		var admitted atomic.Int64
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			all.Go(func() {
				<-start
				for range 3 {
					if m.decide(a, []Limit{l}, 1, now+1000).allowed {
						admitted.Add(1)
					}
				}
			})
		}
		close(start)
		all.Wait()
		if n := admitted.Load(); n > 0 {
			t.Fatalf("actor %d: %d are admitted, and Redis has said that nothing is left", i, n)
		}
	}
}

// TestADebtOfAnOutageIsNotForgottenByAnAnswer: Redis does not know of the debt.
func TestADebtOfAnOutageIsNotForgottenByAnAnswer(t *testing.T) {
	m, l, a, now := answered(newBucket), Per(10, time.Minute), &core.Attempt{Actor: "ann", Cost: 1}, int64(1e15)
	m.decide(a, []Limit{l}, 1, now)
	m.charge(a, []Limit{l}, now+1, 40) // the attempt of the outage has cost 41
	before := m.decide(a, []Limit{l}, 1, now+2e6)
	m.last.note("ann", l, verdict{allowed: true, remaining: 9, resets: 6e6}, 1, now+3e6)
	after := m.decide(a, []Limit{l}, 1, now+4e6)
	if before.allowed || after.allowed || before.moment-after.moment != 2e6 {
		t.Errorf("a wait of %d us, and two seconds and an answer of Redis later %+v", before.moment, after)
	}
}

// TestAnAnswerCountsFromWhenItArrived: also where the process has gone on from an earlier one of the same part.
func TestAnAnswerCountsFromWhenItArrived(t *testing.T) {
	l, now := Per(10, time.Hour).WithResolution(6), int64(1e15)/3600e6*3600e6+60e6 // a minute into a part of ten
	for _, asked := range []bool{false, true} {
		m, a := answered(newSlidingLog), &core.Attempt{Actor: "ann", Cost: 1}
		m.last.note("ann", l, verdict{moment: 1140e6}, 1, now)
		if asked {
			m.decide(a, []Limit{l}, 0, now+1)
		}
		m.last.note("ann", l, verdict{moment: 1139e6}, 1, now+1e6)
		if v := m.decide(a, []Limit{l}, 1, now+1e6); v.allowed || v.moment != 1139e6 {
			t.Errorf("asked before: %t: %+v, want a wait of 1139 s", asked, v)
		}
	}
}

// TestAnAnswerFromAfterTheTimeWasRead sets no clock back.
func TestAnAnswerFromAfterTheTimeWasRead(t *testing.T) {
	m, l, now := answered(newFixedCount), Per(10, time.Minute), int64(1e15)
	a := &core.Attempt{Actor: "ann", Cost: 1}
	m.last.note("ann", l, verdict{moment: 30e6}, 1, now+1e6)
	m.decide(a, []Limit{l}, 1, now)
	if v := m.decide(a, []Limit{l}, 1, now+1e6); v.allowed || v.moment != 30e6 {
		t.Errorf("%+v, want a wait of 30 s", v)
	}
}
