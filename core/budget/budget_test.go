package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// plan knows the limits of nodes, by their paths; others have none.
type plan map[string][]Limit

func (p plan) find(path []string) ([]Limit, error) {
	if path[0] == "stranger" {
		return nil, ErrUnknown
	}
	return p[Path(path...)], nil
}

var start = time.Date(2030, 5, 20, 12, 0, 0, 0, time.UTC)

// newBudget makes a budget of organisations, teams and users, and its clock.
func newBudget(t testing.TB, b redistest.Backend, p plan) (*Guard, *guardtest.Clock) {
	t.Helper()
	clock := guardtest.NewClockAt(start)
	g := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "api",
		Options{Levels: []string{"org", "team", "user"}, Find: p.find})
	return g, clock
}

func of(cost int64, path ...string) core.Attempt {
	return core.Attempt{Actor: Path(path...), Cost: cost}
}

// used returns what counts at each limit of the path.
func used(t *testing.T, g *Guard, path ...string) (units []int64) {
	t.Helper()
	figures, err := g.Usage(t.Context(), of(1, path...))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		units = append(units, f.Used)
	}
	return units
}

func wantUsed(t *testing.T, g *Guard, want []int64, path ...string) {
	t.Helper()
	if got := used(t, g, path...); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q has used %v, want %v", path, got, want)
	}
}

func hourly(most int64) []Limit { return []Limit{{Max: most, Window: time.Hour}} }

func monthly(most int64, o Overage) []Limit {
	return []Limit{{Max: most, Period: period.Monthly(time.UTC), Overage: o}}
}

// TestAllLevelsOrNone: what one level refuses counts at no other, and the answer names the level that binds.
//
// Promise: All levels fit, or nothing is taken.
func TestAllLevelsOrNone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, clock := newBudget(t, b, plan{"acme": hourly(5), "acme|dev": hourly(4), "acme|dev|ann": hourly(3),
			"acme|dev|bob": hourly(3)})
		guardtest.WantReason(t, guardtest.Check(t, g, of(3, "acme", "dev", "ann")), core.ReasonOK)
		clock.Advance(time.Minute)
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "acme", "dev", "bob")), core.ReasonOK)
		d := guardtest.Check(t, g, of(1, "acme", "dev", "bob"))
		guardtest.WantReason(t, d, core.ReasonLimited)
		if f, _ := Binding(d); f.Level != "team" || d.RetryAfter != 59*time.Minute || d.Limit != 4 {
			t.Errorf("%+v: %+v, want the team to bind for 59 minutes", d, f)
		}
		wantUsed(t, g, []int64{4, 4, 1}, "acme", "dev", "bob")
		guardtest.WantReason(t, guardtest.Check(t, g, of(4, "acme", "dev", "ann")), core.ReasonOverLimit)
		// A user without a team, and a user who moves to another team, leave what was spent where it was.
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "acme", "", "bob")), core.ReasonOK)
		wantUsed(t, g, []int64{5, 4, 1}, "acme", "dev", "bob")
		wantUsed(t, g, []int64{5}, "acme", "ops", "bob")
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "acme", "ops", "bob")), core.ReasonLimited)
	})
}

// TestNamesOfAPath: paths are apart whatever is in their names.
//
// Promise: An unknown path is refused. Paths are apart, whatever their names contain.
func TestNamesOfAPath(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := plan{}
		paths := [][]string{{"a", "b", "c"}, {"a|b", "", "c"}, {`a\`, "b", "c"}, {`a\|b`, "c", "d"}, {"{a}", "b", "c"},
			{"b", "b", "c"}, {long, "b", "c"}, {"a", long, long + "y"}}
		for _, path := range paths {
			p[Path(path...)] = hourly(1)
		}
		g, _ := newBudget(t, b, p)
		for range 2 {
			for _, path := range paths {
				if got := splitPath(Path(path...)); fmt.Sprint(got) != fmt.Sprint(path) {
					t.Errorf("%.50q became %.50q", path, got)
				}
			}
		}
		for i, want := range []core.Reason{core.ReasonOK, core.ReasonLimited} {
			for _, path := range paths {
				d := guardtest.Check(t, g, of(1, path...))
				if d.Reason != want {
					t.Errorf("round %d: %.50q got %s, want %s", i, path, d.Reason, want)
				}
			}
		}
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "stranger", "b", "c")), ReasonUnknown)
		for _, actor := range []string{"a", "a|b", "a|b|c|d", "|b|c"} {
			if _, err := g.Check(t.Context(), core.Attempt{Actor: actor}); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%q: %v, want an invalid attempt", actor, err)
			}
		}
	})
}

// TestOneToEightLevels: each has its own limit, and the narrowest binds.
func TestOneToEightLevels(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		for n := 1; n <= 8; n++ {
			levels, path := make([]string, n), make([]string, n)
			for i := range levels {
				levels[i], path[i] = fmt.Sprint("level", i), fmt.Sprint("node", i)
			}
			g := New(e, fmt.Sprint("deep", n), Options{Levels: levels, Find: func(path []string) ([]Limit, error) {
				return hourly(int64(10 - len(path))), nil // the last level has the least
			}})
			for range 10 - n {
				guardtest.WantReason(t, guardtest.Check(t, g, of(1, path...)), core.ReasonOK)
			}
			d := guardtest.Check(t, g, of(1, path...))
			guardtest.WantReason(t, d, core.ReasonLimited)
			if f, _ := Binding(d); f.Level != levels[n-1] || len(Figures(d)) != n {
				t.Errorf("%d levels: %+v of %d limits binds", n, f, len(Figures(d)))
			}
		}
	})
}

// TestPeriodsOfABill: an upgrade keeps what was used, a downgrade refuses and refunds never go below zero; what
// was metered is counted; a new month begins at zero.
//
// Promise: An upgrade in mid-period keeps the count, a downgrade refuses, and nothing goes below zero. A
// clock set back gives nobody two periods.
func TestPeriodsOfABill(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := plan{"acme": monthly(10, UpTo(20))}
		g, clock := newBudget(t, b, p)
		guardtest.WantReason(t, guardtest.Check(t, g, of(12, "acme", "", "")), core.ReasonOK)
		d := guardtest.Check(t, g, of(1, "acme", "", ""))
		guardtest.WantReason(t, d, core.ReasonQuota)
		if ends := time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC); d.RetryAfter != ends.Sub(start) ||
			d.Window != 31*24*time.Hour {
			t.Errorf("%+v: want a retry when the month ends", d)
		}
		p["acme"] = monthly(20, Hard)
		more := guardtest.Check(t, g, of(8, "acme", "", ""))
		guardtest.WantReason(t, more, core.ReasonOK)
		p["acme"] = monthly(5, Hard)
		d = guardtest.Check(t, g, of(1, "acme", "", ""))
		guardtest.WantReason(t, d, core.ReasonQuota)
		if d.Remaining != 0 {
			t.Errorf("%d left after a downgrade, want 0", d.Remaining)
		}
		p["acme"] = monthly(5, Metered)
		guardtest.WantReason(t, guardtest.Check(t, g, of(100, "acme", "", "")), core.ReasonOK)
		clock.Set(time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC))
		guardtest.WantReason(t, guardtest.Check(t, g, of(7, "acme", "", "")), core.ReasonOK)
		if err := g.Refund(t.Context(), more); err != nil { // of the month before
			t.Fatal(err)
		}
		wantUsed(t, g, []int64{7}, "acme", "", "")

		rows, next, err := g.Export(t.Context(), of(1, "acme"), 0)
		if err != nil || len(rows) != 2 || rows[0].Used != 7 || rows[0].Final || rows[1].Used != 112 ||
			!rows[1].Final {
			t.Errorf("exported %+v, %d, %v; want 112 of May and 7 of June", rows, next, err)
		}
		if again, last, err := g.Export(t.Context(), of(1, "acme"), next); len(again) > 0 || last != next {
			t.Errorf("exported %+v, %d, %v again", again, last, err)
		}
		// The clock is set back into May: nobody gets a second June.
		clock.Set(start)
		p["acme"] = monthly(7, Hard)
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "acme", "", "")), core.ReasonQuota)
	})
}

// TestAlertsComeOncePerPeriod at 80 and 100 percent.
//
// Promise: Alerts come once per node, period, Max and percentage, unless their reply is lost. Redis remembers
// the last four Max.
func TestAlertsComeOncePerPeriod(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, _ := newBudget(t, b, plan{"acme": monthly(10, Metered)})
		var mu sync.Mutex
		var heard []int
		g.options.Alert = func(_ context.Context, a Alert) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, a.Percent)
		}
		for range 20 {
			d := guardtest.Check(t, g, of(2, "acme", "", ""))
			if err := g.Spend(t.Context(), d, 1); err != nil {
				t.Fatal(err)
			}
		}
		redistest.Eventually(t, time.Minute, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(heard) == "[80 100]" || fmt.Sprint(heard) == "[100 80]"
		}, "one alert at 80 and one at 100 percent")
	})
}

// deskOf returns a desk that has bound a budget. It decides, and need not follow.
func deskOf(t *testing.T, g *Guard) *control.Desk {
	t.Helper()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	desk := control.New(ended, g.Engine(), "desk")
	desk.Budget(g)
	return desk
}

// TestEveryProcessObeysWithItsNextCall: overrides, pauses, and their ends.
//
// Promise: Each process obeys overrides and pauses with its next call. They end by themselves.
func TestEveryProcessObeysWithItsNextCall(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := plan{"acme": append(hourly(1), monthly(9, Hard)...), "acme|dev|ann": hourly(9)}
		g, clock := newBudget(t, b, p)
		other := New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "api", g.options) // in another process
		desk := deskOf(t, g)
		limits := control.Decision{Kind: control.Budget, Name: "api", Of: "acme"}
		pause := control.Decision{Kind: control.Pause, Name: "api", Of: "acme", Value: "on"}
		decide := func(x control.Decision, value string, after time.Duration) {
			t.Helper()
			if x.Value = cmp.Or(value, x.Value); after > 0 {
				x.Until = clock.Now().Add(after)
			}
			if err := desk.Decide(t.Context(), x, "sue", "launch"); err != nil {
				t.Fatal(err)
			}
		}
		withdraw := func(x control.Decision) {
			t.Helper()
			if err := desk.Withdraw(t.Context(), x, "sue", ""); err != nil {
				t.Fatal(err)
			}
		}
		check := func(want core.Reason) core.Decision {
			t.Helper()
			d := guardtest.Check(t, other, of(1, "acme", "dev", "ann"))
			guardtest.WantReason(t, d, want)
			return d
		}
		decided := func(want ...control.Decision) {
			t.Helper()
			all, err := desk.Decided(t.Context(), control.Decision{Kind: control.Pause, Name: "api", Of: "acme|x"})
			for i := range all {
				all[i].Until = time.Time{}
			}
			if err != nil || !slices.Equal(all, want) {
				t.Errorf("decided are %+v, %v, want %+v", all, err, want)
			}
		}
		check(core.ReasonOK)
		check(core.ReasonLimited)
		decide(limits, "3/h", time.Minute)
		check(core.ReasonOK)
		team := pause
		team.Of = "acme|dev"
		decide(team, "", 30*time.Second)
		if d := check(ReasonPaused); d.RetryAfter != 30*time.Second {
			t.Errorf("paused for %v, want 30s", d.RetryAfter)
		}
		limits.Value = "3/h"
		decided(limits, team)
		clock.Advance(30 * time.Second)
		check(core.ReasonOK)
		decided(limits)
		clock.Advance(30 * time.Second)
		check(core.ReasonLimited) // the override is over
		decide(pause, "", 0)
		clock.Advance(2 * time.Hour)
		check(ReasonPaused)
		decide(limits, "4/period, 99/h", 0) // which does not end the pause
		check(ReasonPaused)
		withdraw(pause)
		clock.Advance(-time.Hour) // what was withdrawn stays so, when the clock is set back
		check(core.ReasonOK)
		check(core.ReasonQuota)
		decide(limits, "4 per period", 0) // in place of both
		clock.Advance(time.Hour)
		check(core.ReasonQuota)
		withdraw(limits)
		check(core.ReasonOK)
		withdraw(limits) // told twice
		check(core.ReasonLimited)
		decided()
		all, err := desk.Audit(t.Context(), limits)
		if err != nil || len(all) != 8 || all[0].Who != "sue" || all[0].Why != "launch" ||
			all[1].Of != "acme|dev" || all[2].Kind != control.Pause || all[3].Value != "4/period, 99/h" ||
			all[7].Value != "" {
			t.Errorf("the audit has %+v, %v", all, err)
		}
	})
}

// TestDecisionsAboutNodesOfAnyName: of braces, bars, 10 kB; and those of one Resource say nothing of another.
func TestDecisionsAboutNodesOfAnyName(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, _ := newBudget(t, b, plan{})
		desk := deskOf(t, g)
		guardtest.WantPanic(t, "bind each once", func() { desk.Budget(g) })
		for _, text := range guardtest.Hostile {
			if text == "" {
				continue
			}
			x := control.Decision{Kind: control.Pause, Name: "api", Of: Path(text, "", text), Resource: text,
				Value: "on"}
			a := core.Attempt{Actor: x.Of, Resource: text, Cost: 1}
			if err := desk.Decide(t.Context(), x, "sue", text); err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, a), ReasonPaused)
			for _, other := range []core.Attempt{{Actor: x.Of, Cost: 1},
				{Actor: Path(text, text, text), Resource: text, Cost: 1}} {
				guardtest.WantReason(t, guardtest.Check(t, g, other), core.ReasonOK)
			}
			if all, err := desk.Decided(t.Context(), x); err != nil || len(all) != 1 || all[0] != x {
				t.Errorf("%.40q: decided are %+v, %v", text, all, err)
			}
			audit, err := desk.Audit(t.Context(), x)
			if err != nil || len(audit) != 1 || audit[0].Decision != x || audit[0].Why != text {
				t.Errorf("%.40q: the audit has %+v, %v", text, audit, err)
			}
			if err := desk.Withdraw(t.Context(), x, "sue", ""); err != nil {
				t.Fatal(err)
			}
			guardtest.WantReason(t, guardtest.Check(t, g, a), core.ReasonOK)
		}
	})
}

// TestDecisionsStayAsLongAsTheyAreNeeded: those in force while calls come, those that are over for 30 days.
func TestDecisionsStayAsLongAsTheyAreNeeded(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, clock := newBudget(t, b, plan{"acme": hourly(1)})
		desk := deskOf(t, g)
		x := control.Decision{Kind: control.Budget, Name: "api", Of: "acme", Value: "2/h"}
		root, _, _, err := g.Decisions(of(1, "acme"))
		err = errors.Join(err, desk.Decide(t.Context(), x, "sue", ""),
			b.Client.PExpire(t.Context(), root, time.Hour).Err())
		guardtest.Check(t, g, of(1, "acme", "", ""))
		if left := b.Client.PTTL(t.Context(), root).Val(); err != nil || left < 365*24*time.Hour {
			t.Errorf("%v, an override in force stays for %v", err, left)
		}
		pause := control.Decision{Kind: control.Pause, Name: "api", Of: "acme", Value: "on"}
		err = errors.Join(desk.Decide(t.Context(), pause, "sue", ""), desk.Withdraw(t.Context(), x, "sue", ""))
		for _, c := range []struct {
			days   int
			fields int64
		}{{29, 3}, {2, 2}} { // the pause, the version, and for a month what was withdrawn
			clock.Advance(time.Duration(c.days) * 24 * time.Hour)
			err = errors.Join(err, desk.Decide(t.Context(), pause, "sue", ""))
			if n := b.Client.HLen(t.Context(), root).Val(); err != nil || n != c.fields {
				t.Errorf("%v, %d fields, want %d", err, n, c.fields)
			}
		}
	})
}

// TestAPathWithoutLimitsRaisesNoAlert: the reply had figures of no limit, which were taken for an alert of 0 %.
func TestAPathWithoutLimitsRaisesNoAlert(t *testing.T) {
	b := redistest.Single(t)
	var alerts atomic.Int64
	e := guardtest.NewEngine(b)
	g := New(e, "free", Options{Levels: []string{"org"}, Find: plan{}.find,
		Alert: func(context.Context, Alert) { alerts.Add(1) }})
	d := guardtest.Check(t, g, of(1, "acme"))
	guardtest.WantReason(t, d, core.ReasonOK)
	if err := e.Drain(t.Context()); err != nil || alerts.Load() > 0 || len(Figures(d)) > 0 {
		t.Errorf("%v, %d alerts, %+v", err, alerts.Load(), Figures(d))
	}
}

// TestMistakesOfOperatorsAreTold: what would have no effect is refused, with the reason.
func TestMistakesOfOperatorsAreTold(t *testing.T) {
	b := redistest.Single(t)
	g, clock := newBudget(t, b, plan{"acme": {hourly(5)[0], monthly(9, Hard)[0]}, "acme|dev": hourly(3)})
	desk := deskOf(t, g)
	about := func(kind, of, value string) control.Decision {
		return control.Decision{Kind: kind, Name: "api", Of: of, Value: value}
	}
	for want, x := range map[string]control.Decision{
		"the node has no limit per 1m: it has [5/1h 9/period]": about(control.Budget, "acme", "9/min"),
		"unknown path":          about(control.Budget, "stranger", "9/h"),
		"is no path":            about(control.Pause, "|ann", "on"),
		"a pause is on":         about(control.Pause, "acme", "off"),
		"no budget named \"x\"": {Kind: control.Pause, Name: "x", Of: "acme", Value: "on"},
		"only budgets have one": {Kind: control.Limits, Name: "x", Resource: "y", Value: "1/h"},
		"until is over":         {Kind: control.Pause, Name: "api", Of: "acme", Value: "on", Until: clock.Now()},
	} {
		if err := desk.Decide(t.Context(), x, "sue", ""); !errors.Is(err, core.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := desk.Decide(t.Context(), about(control.Pause, "acme", "on"), "", ""); !errors.Is(err,
		core.ErrInvalid) || !strings.Contains(err.Error(), "say who") {
		t.Error(err)
	}
	for text, want := range map[string]string{"": "two parts", "5": "two parts", "5/": "5/", "x/1m": "x/1m",
		"5000/1m, 9/period": " w60000=5000 w0=9", "5_000 per minute, 9 per period": " w60000=5000 w0=9",
		"7/2 days": " w172800000=7", "5/day/24": "two parts", "-1/1m": "-1/1m", "5/0s": "5/0s",
		"1/h, ": "two parts", "999999999999999999/h": "too many units"} {
		got, err := g.Override("acme|free", text)
		if got != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	// A path may end at any level, also for Usage.
	guardtest.Check(t, g, of(2, "acme", "dev", "ann"))
	wantUsed(t, g, []int64{2, 2}, "acme")
	wantUsed(t, g, []int64{2, 2, 2}, "acme", "dev")
}

// TestABurstOfOneStarvesNobody: whatever the order, over several processes.
//
// Promise: In a burst of one user, all attempts of other users that fit pass.
func TestABurstOfOneStarvesNobody(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		p := plan{"acme": hourly(52), "acme||ann": hourly(10)}
		var guards []*Guard
		for range 3 {
			guards = append(guards, New(guardtest.NewEngine(b, core.WithDeadline(time.Minute)), "api",
				Options{Levels: []string{"org", "team", "user"}, Find: p.find}))
		}
		var ann, others atomic.Int64
		var all sync.WaitGroup
		for i := range 542 {
			all.Go(func() {
				user, passed := "ann", &ann
				if i%13 == 0 {
					user, passed = fmt.Sprint("user", i%9), &others
				}
				if d, err := guards[i%3].Check(t.Context(), of(1, "acme", "", user)); err != nil {
					t.Error(err)
				} else if d.Allowed {
					passed.Add(1)
				}
			})
		}
		all.Wait()
		if ann.Load() != 10 || others.Load() != 42 {
			t.Errorf("%d of one and %d of the others, want 10 and 42", ann.Load(), others.Load())
		}
	})
}

// TestMeteredUnitsCountOnceUnderLostReplies: a check whose reply is lost is taken back, and one that arrives
// after that takes nothing; endings that are sent again change nothing.
//
// Promise: In a period, a check whose reply is lost is taken back, unless 64 later calls of the same last
// level came between. Endings count once, and are tried for two minutes.
func TestMeteredUnitsCountOnceUnderLostReplies(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		p := plan{"acme": append(hourly(1000), monthly(10, Metered)...)}
		witness, _ := newBudget(t, b, p)
		b.Client = b.NewClientWith(t, faults)
		g, _ := newBudget(t, b, p)
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept := guardtest.Check(t, g, of(5, "acme", "", ""))
		for range 3 {
			faults.SwallowReply(checkScript.SHA())
			if _, err := g.Check(t.Context(), of(3, "acme", "", "")); err == nil {
				t.Error("a lost reply is no error")
			}
		}
		redistest.Eventually(t, time.Minute, func() bool { return used(t, witness, "acme", "", "")[1] == 5 },
			"lost checks to be taken back")
		for _, actual := range []int64{9, 9} {
			faults.SwallowReply(checkScript.SHA())
			_ = g.Spend(t.Context(), kept, actual)
		}
		if err := g.Spend(t.Context(), kept, 9); err != nil {
			t.Fatal(err)
		}
		wantUsed(t, witness, []int64{9, 9}, "acme", "", "")

		// An undo that comes first makes a late arrival void.
		keys, nodes, err := g.nodesOf(of(1, "acme", "", ""))
		if err != nil {
			t.Fatal(err)
		}
		late := &taken{keys: keys, nodes: nodes, call: "abcdef", stamp: start.UnixMicro()}
		if err := g.refund(t.Context(), late, 1, "undo"); err != nil {
			t.Fatal(err)
		}
		if _, err := g.send(t.Context(), late, 1, "0"); err != nil {
			t.Fatal(err)
		}
		wantUsed(t, witness, []int64{9, 9}, "acme", "", "")
	})
}

// TestAChargeThatHasNotRunIsNotTakenForOneThatHas: its first sending failed, and the user has had more calls
// before than Redis remembers. As long as it remembers the attempt, it knows that the charge has not run.
func TestAChargeThatHasNotRunIsNotTakenForOneThatHas(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		b.Client = b.NewClientWith(t, faults)
		g, _ := newBudget(t, b, plan{"acme": monthly(1, Metered)})
		var d core.Decision
		for range 70 {
			d = guardtest.Check(t, g, of(1, "acme", "", ""))
		}
		faults.Refuse(true)
		faults.CutAll()
		if err := g.Spend(t.Context(), d, 5); err == nil {
			t.Error("a call that reached no server is no error")
		}
		faults.Heal()
		for range 2 {
			if err := g.Spend(t.Context(), d, 5); err != nil {
				t.Fatal(err)
			}
		}
		wantUsed(t, g, []int64{74}, "acme", "", "")
	})
}

// TestARealCostBeyondAllIsTheLargest: whoever reports nonsense is charged with no less than that.
func TestARealCostBeyondAllIsTheLargest(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, _ := newBudget(t, b, plan{Path("acme"): monthly(mostUnits, Hard)})
		var taken []core.Decision
		for range 40 {
			taken = append(taken, guardtest.Check(t, g, of(1, "acme", "core", "ann")))
		}
		for i, d := range taken {
			guardtest.Settle(t, g, d, core.CommitCost(math.MaxInt64))
			counts := used(t, g, "acme", "core", "ann")[0]
			if counts < mostUnits || i == 0 && counts != mostUnits+39 {
				t.Fatalf("%d have cost more than all, and %d units count", i+1, counts)
			}
			if guardtest.Check(t, g, of(1, "acme", "core", "ann")).Allowed {
				t.Fatal("one more is allowed")
			}
		}
		if err := g.Spend(t.Context(), taken[0], -1); !errors.Is(err, core.ErrInvalid) {
			t.Error(err)
		}
	})
}

// TestSetUpThatCannotWork panics with the remedy.
func TestSetUpThatCannotWork(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		e := guardtest.NewEngine(b)
		guardtest.WantPanic(t, "name 1 to 8", func() { New(e, "a", Options{Find: plan{}.find}) })
		guardtest.WantPanic(t, "Find is missing", func() { New(e, "a", Options{Levels: []string{"org"}}) })
		for _, bad := range []Limit{{Max: 1}, {Max: 1, Window: time.Hour, Period: period.Monthly(time.UTC)},
			{Max: -1, Window: time.Hour}, {Max: 20_000, Window: time.Hour}, {Max: 1, Window: 1},
			{Max: 1, Window: time.Hour, Overage: Metered}, {Max: 1, Window: time.Hour, Resolution: 1}} {
			n := node{path: []string{"acme"}, limits: []Limit{bad}}
			if err := n.check(); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%+v: %v, want an invalid limit", bad, err)
			}
		}
	})
}
