package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

const lostLine = "Redis has lost"

// lines returns how many lines of loss all processes have logged.
func lines(all ...*process) (n int) {
	for _, p := range all {
		n += p.log.count(lostLine)
	}
	return n
}

// again has the processes read once more, whatever they know.
func again(t *testing.T, all ...*process) {
	t.Helper()
	for _, p := range all {
		if err := p.desk.read(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
}

// restored returns the entries of the audit that no operator made.
func (p *process) restored() (all []Audited) {
	p.t.Helper()
	entries, err := p.desk.Audit(p.t.Context(), Decision{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Who == RestoredBy {
			all = append(all, e)
		}
	}
	return all
}

// root is what Redis has of a desk at a moment.
func root(t *testing.T, rdb redis.UniversalClient, d *Desk) (restore func()) {
	t.Helper()
	dump, err := rdb.Dump(t.Context(), d.root).Result()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := rdb.RestoreReplace(t.Context(), d.root, time.Hour, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestALossOfRedisDropsNoDecision: an emergency tightening was gone in all processes, and nobody was told. Two
// processes live, and each puts back what it knows; one line a loss, and one entry of the audit a decision.
//
// Promise: Running processes put back a decision that Redis has lost, and say so in log and audit. A later
// decision wins.
func TestALossOfRedisDropsNoDecision(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	rdb := server.Client(t)
	one := start(t, server.Client(t), "gatehouse", 10*time.Millisecond)
	two := start(t, server.Client(t), "gatehouse", 10*time.Millisecond)
	emergency := Decision{Kind: Limits, Name: "api", Value: "1/h"}
	hour := bobIn
	hour.Until = one.until(time.Hour)
	one.decide(emergency)
	two.decide(hour)
	one.decide(tenth)
	obeys := func(p *process) bool { return p.max("cid") == 1 && p.has("bob") && p.shares() == "true 100 10" }
	eventually(t, "both obey", func() bool { return obeys(one) && obeys(two) })
	for loss := 1; loss <= 2; loss++ {
		before := lines(one, two)
		if err := rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all is back", func() bool {
			if !obeys(one) || !obeys(two) {
				t.Error("a process has dropped a decision")
				return true
			}
			all, err := one.desk.Decided(t.Context(), Decision{})
			return err == nil && len(all) == 3 && all[0] == emergency && all[1] == hour && all[2] == tenth
		})
		again(t, one, two)
		if n := lines(one, two) - before; n < 1 || n > 2 {
			t.Errorf("%d lines, want one of each process that saw it", n)
		}
		if all := one.restored(); len(all) != 3 {
			t.Errorf("the audit has %+v, want each decision once", all)
		}
		if !obeys(one) || !obeys(two) {
			t.Error("it is not obeyed")
		}
		late := start(t, server.Client(t), "gatehouse", onlyMessages)
		if !obeys(late) || late.log.count(lostLine) != 0 {
			t.Error("a process that begins later does not obey, or thinks that something is lost")
		}
	}
}

// TestWhatIsDecidedAfterALossWins: over what processes knew, whether it was decided anew, withdrawn or over.
// Nobody looks by themselves here, so that the order is fixed.
func TestWhatIsDecidedAfterALossWins(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		begin := func() *process {
			return start(t, deaf{b.NewClient(t)}, b.Prefix, onlyMessages, guardtest.WithClock(clock))
		}
		one, two, fresh := begin(), begin(), begin() // fresh never hears of anything lost
		short := eveOut
		short.Until = one.until(time.Minute)
		for _, x := range []Decision{forAll, forAnn, bobIn, tenth, short} {
			one.decide(x)
		}
		again(t, two)
		if err := b.Client.Del(t.Context(), one.desk.root, one.desk.audit).Err(); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
		anew := forAnn
		anew.Value = "700/h"
		fresh.decide(anew)
		fresh.withdraw(bobIn)
		clock.Advance(time.Minute + time.Millisecond) // one has not looked
		again(t, two, one, two, fresh)
		for i, p := range []*process{one, two, fresh} {
			if p.max("ann") != 700 || p.max("cid") != 100 || p.has("bob") || !p.has("eve") ||
				p.shares() != "true 100 10" {
				t.Errorf("process %d: %d %d %v %v %s", i, p.max("ann"), p.max("cid"), p.has("bob"), p.has("eve"),
					p.shares())
			}
		}
		all, err := fresh.desk.Decided(t.Context(), Decision{})
		if err != nil || len(all) != 3 {
			t.Errorf("decided are %+v, %v", all, err)
		}
		what := ""
		for _, e := range one.restored() {
			what += fmt.Sprintf("%s %s %s; ", e.Kind, e.Of, e.Value)
		}
		if strings.Count(what, ";") != 2 || !strings.Contains(what, "limits  100/h; ") ||
			!strings.Contains(what, "rollout  100 10; ") {
			t.Errorf("the audit has %s", what)
		}
		if one.log.count(lostLine)+two.log.count(lostLine) != 1 || fresh.log.count(lostLine) != 0 {
			t.Error("want one line, of the process that saw the loss")
		}
	})
}

// TestWhatReplacesALostStateIsNoticed: what was put back, or decided anew, by a process that had not heard the
// last decision, had the version that the other process knew, if the clock was set back or stood still. So that
// process read nothing: it did not obey, and did not put back the later decision.
func TestWhatReplacesALostStateIsNoticed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := core.WithClock(func() time.Time { return time.UnixMilli(1_800_000_000_000) })
		one := start(t, deaf{b.NewClient(t)}, b.Prefix, onlyMessages, clock)
		two := start(t, deaf{b.NewClient(t)}, b.Prefix, onlyMessages, clock)
		first, later := forAnn, forAnn
		later.Value = "700/h"
		one.decide(first)
		two.decide(later) // the last one by its version alone
		for _, replace := range []func(){
			func() { _ = one.desk.read(t.Context(), false) },
			func() { one.decide(tenth) },
		} {
			if err := b.Client.Del(t.Context(), one.desk.root, one.desk.audit).Err(); err != nil {
				t.Fatal(err)
			}
			replace()
			for _, p := range []*process{two, one} {
				if err := p.desk.read(t.Context(), false); err != nil {
					t.Fatal(err)
				}
			}
			if one.max("ann") != 700 || two.max("ann") != 700 {
				t.Errorf("ann has %d and %d, want 700 of the later decision", one.max("ann"), two.max("ann"))
			}
		}
		if two.shares() != "true 100 10" {
			t.Errorf("the second process does not obey what was decided anew: %s", two.shares())
		}
	})
}

// TestAFailoverToAnOlderStateDropsNoDecision: a replica that lagged had neither the last decision nor the last
// withdrawal. What was decided there before anybody looked stays too.
func TestAFailoverToAnOlderStateDropsNoDecision(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		one := start(t, deaf{b.NewClient(t)}, b.Prefix, onlyMessages)
		two := start(t, deaf{b.NewClient(t)}, b.Prefix, onlyMessages)
		one.decide(forAnn)
		one.decide(bobIn)
		back := root(t, b.Client, one.desk)
		emergency := forAnn
		emergency.Value = "1/h"
		one.decide(emergency)
		one.withdraw(bobIn)
		back()
		again(t, two)
		two.decide(tenth)
		if two.max("ann") != 600 || !two.has("bob") {
			t.Fatalf("%d %v: this is not the older state", two.max("ann"), two.has("bob"))
		}
		again(t, one, two)
		for i, p := range []*process{one, two} {
			if p.max("ann") != 1 || p.has("bob") || p.shares() != "true 100 10" {
				t.Errorf("process %d: %d %v %s", i, p.max("ann"), p.has("bob"), p.shares())
			}
		}
		if all := one.restored(); len(all) != 2 || one.log.count(lostLine) != 1 || two.log.count(lostLine) != 0 {
			t.Errorf("the audit has %+v; lines %d, %d", all, one.log.count(lostLine), two.log.count(lostLine))
		}
	})
}

// TestAProcessThatWasAwayPutsNothingBack: what others decided, withdrew and let end meanwhile is no loss.
//
// Promise: A process that was away for less than 30 days puts back no withdrawn decision.
func TestAProcessThatWasAwayPutsNothingBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		away := start(t, deaf{b.NewClient(t)}, b.Prefix, onlyMessages)
		here := start(t, deaf{b.NewClient(t)}, b.Prefix, onlyMessages)
		here.decide(forAnn)
		here.decide(bobIn)
		here.decide(eveOut)
		again(t, away)
		short := bobIn
		short.Until = here.until(time.Millisecond)
		here.decide(short) // replaces the one without an end
		here.withdraw(forAnn)
		eventually(t, "it is over", func() bool {
			return here.until(time.Millisecond).After(short.Until.Add(time.Millisecond))
		})
		here.decide(tenth) // drops what is over
		again(t, away, here)
		if away.max("ann") != 60 || away.has("bob") || away.has("eve") || lines(away, here) != 0 {
			t.Errorf("%d %v %v, %d lines", away.max("ann"), away.has("bob"), away.has("eve"), lines(away, here))
		}
		if all, err := here.desk.Decided(t.Context(), Decision{}); err != nil || len(all) != 2 {
			t.Errorf("decided are %+v, %v", all, err)
		}
	})
}
