package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// monthlyOn is a limit of ten per month from a day on.
func monthlyOn(day int) []Limit { return []Limit{{Max: 10, Period: period.MonthlyOn(day, time.UTC)}} }

// TestAMovedAnchorGivesNoSecondMax: a plan that moves its day, also twice, changes nothing until the period in
// force ends. A refund goes to the period that was in force, and Restore counts in it.
//
// Promise: A period in force lasts until it ends, whatever the plan says. Refunds and Restore find it.
func TestAMovedAnchorGivesNoSecondMax(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := plan{"acme": monthlyOn(10)}
		g, clock := newBudget(t, b, p) // May 20, in a period from May 10 to June 10
		first := guardtest.Check(t, g, of(9, "acme", "", ""))
		for _, day := range []int{15, 18, 5, 20} {
			p["acme"] = monthlyOn(day)
			wantUsed(t, g, []int64{9}, "acme", "", "")
			guardtest.WantReason(t, guardtest.Check(t, g, of(2, "acme", "", "")), core.ReasonQuota)
		}
		if n, err := g.Restore(t.Context(), of(1, "acme"), clock.Now(), 1, "sue", ""); n != 10 || err != nil {
			t.Errorf("restored: %d, %v, want 10 in the period in force", n, err)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "acme", "", "")), core.ReasonQuota)
		clock.Set(time.Date(2030, 6, 10, 0, 0, 0, 0, time.UTC)) // the next one is the plan's: from May 20 on
		guardtest.WantReason(t, guardtest.Check(t, g, of(10, "acme", "", "")), core.ReasonOK)
		if err := g.Refund(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		wantUsed(t, g, []int64{10}, "acme", "", "")
		var got []string
		_, rows, _ := export(t, g, 0)
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%s %d+%d %t", r.Begins.UTC().Format("Jan 2"), r.Used, r.Restored, r.Final))
		}
		slices.Sort(got)
		if want := "May 10 0+1 true, May 20 10+0 false"; strings.Join(got, ", ") != want {
			t.Errorf("exported %q, want %s", got, want)
		}
	})
}

// TestAnAlertBelongsToItsMax: after an upgrade, and under an override, alerts are told for the new Max, and
// what was told for a Max is not told again.
func TestAnAlertBelongsToItsMax(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := plan{"acme": monthly(10, Metered)}
		g, _ := newBudget(t, b, p)
		var mu sync.Mutex
		var heard []string
		g.options.Alert = func(_ context.Context, a Alert) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, fmt.Sprintf("%d of %d", a.Percent, a.Max))
		}
		want := func(all ...string) {
			t.Helper()
			redistest.Eventually(t, time.Minute, func() bool {
				mu.Lock()
				defer mu.Unlock()
				slices.Sort(heard)
				return slices.Equal(heard, all)
			}, "alerts "+strings.Join(all, ", "))
		}
		guardtest.Check(t, g, of(10, "acme", "", ""))
		want("100 of 10")
		p["acme"] = monthly(20, Metered)
		guardtest.Check(t, g, of(6, "acme", "", ""))
		want("100 of 10", "80 of 20")
		p["acme"] = monthly(10, Metered) // another release still has the former plan
		guardtest.Check(t, g, of(1, "acme", "", ""))
		p["acme"] = monthly(20, Metered)
		guardtest.Check(t, g, of(3, "acme", "", ""))
		want("100 of 10", "100 of 20", "80 of 20")
		limits := control.Decision{Kind: control.Budget, Name: "api", Of: "acme", Value: "25/period"}
		if err := deskOf(t, g).Decide(t.Context(), limits, "sue", ""); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			guardtest.Check(t, g, of(1, "acme", "", ""))
		}
		want("100 of 10", "100 of 20", "80 of 20", "80 of 25")
		for most := range int64(30) { // the texts of a plan that changes all the time stay short
			p["acme"] = monthly(most, Metered)
			guardtest.Check(t, g, of(1, "acme", "", ""))
		}
	})
}

// TestAnEndedPeriodIsExportedAsFinal once more than it was exported before: when the next one begins, and by
// Ended for those who never come back.
//
// Promise: An ended period is exported as final when the next one begins, or after `Ended`.
func TestAnEndedPeriodIsExportedAsFinal(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := plan{"acme|dev|ann": monthly(10, Hard), "acme|dev|bob": monthly(10, Hard)}
		g, clock := newBudget(t, b, p)
		guardtest.Check(t, g, of(3, "acme", "dev", "ann"))
		guardtest.Check(t, g, of(4, "acme", "dev", "bob"))
		_, rows, next := export(t, g, 0)
		if len(rows) != 2 || rows[0].Final || rows[1].Final {
			t.Fatalf("%+v, want two rows that are not final", rows)
		}
		final := func(want ...string) {
			t.Helper()
			var got []string
			var all []Row
			_, all, next = export(t, g, next)
			for _, r := range all {
				if r.Final {
					got = append(got, fmt.Sprintf("%s %d", r.Path[2], r.Used))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("final rows %q, want %q", got, want)
			}
		}
		ended := func(want int64) {
			t.Helper()
			if n, err := g.Ended(t.Context(), of(1, "acme")); n != want || err != nil {
				t.Errorf("Ended: %d, %v, want %d", n, err, want)
			}
		}
		ended(0)
		final()
		clock.Set(time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC))
		final()
		guardtest.Check(t, g, of(1, "acme", "dev", "ann")) // ann's next period begins
		final("ann 3")
		ended(1)
		ended(0)
		final("bob 4")
		final()
		wantUsed(t, g, []int64{1}, "acme", "dev", "ann")
		// The clock is set back into the period that was ended: what was used in it still counts.
		clock.Set(time.Date(2030, 5, 31, 23, 0, 0, 0, time.UTC))
		wantUsed(t, g, []int64{4}, "acme", "dev", "bob")
	})
}

// TestEndedReadsAllNodes: more than one call has, also where their sequences are ahead of a clock that was set
// back.
func TestEndedReadsAllNodes(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		const users = 250
		p := plan{}
		for i := range users {
			p[fmt.Sprint("acme|dev|", i)] = monthly(10, Hard)
		}
		g, clock := newBudget(t, b, p)
		june := time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC)
		clock.Set(june.Add(time.Hour))
		guardtest.Check(t, g, of(1, "acme", "dev", "0"))
		clock.Set(june.Add(-time.Hour)) // the sequences go on from the later moment
		for i := 1; i < users; i++ {
			guardtest.Check(t, g, of(1, "acme", "dev", fmt.Sprint(i)))
		}
		clock.Set(june)
		for _, want := range []int64{users - 1, 0} {
			if n, err := g.Ended(t.Context(), of(1, "acme")); n != want || err != nil {
				t.Errorf("Ended: %d, %v, want %d", n, err, want)
			}
		}
	})
}

// TestNamesOfCallsAreKeptForMinutes, not with the period.
func TestNamesOfCallsAreKeptForMinutes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, _ := newBudget(t, b, plan{"acme": monthly(1000, Hard)})
		for range 100 {
			guardtest.Check(t, g, of(1, "acme", "", ""))
		}
		keys, _, err := g.nodesOf(of(1, "acme", "", ""))
		if err != nil {
			t.Fatal(err)
		}
		left, err := b.Client.PTTL(t.Context(), keys[2]).Result()
		size := b.Client.StrLen(t.Context(), keys[2]).Val()
		if err != nil || left <= 0 || left > 2*time.Minute || size != 64*24 {
			t.Errorf("names of %d bytes live for %v: %v, want 64 names and two minutes", size, left, err)
		}
		if fields := b.Client.HKeys(t.Context(), keys[len(keys)-1]).Val(); !slices.Equal(fields, []string{"p"}) {
			t.Errorf("a node has %q, want its period alone", fields)
		}
	})
}

// TestAnEndingIsNotTriedAgainForLong: beyond the time for which Redis remembers calls, nobody knows whether the
// first try has run, so units go back once at most, and the caller is told.
func TestAnEndingIsNotTriedAgainForLong(t *testing.T) {
	b := redistest.Single(t)
	faults := redistest.NewFaults(t)
	own := b
	own.Client = b.NewClientWith(t, faults)
	g, clock := newBudget(t, own, plan{"acme": monthly(10, Hard)})
	if err := g.Engine().Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := guardtest.Check(t, g, of(6, "acme", "", ""))
	faults.SwallowReplies(refundScript.SHA(), 100) // that of each try of the client
	if err := g.Refund(t.Context(), d); err == nil {
		t.Fatal("a refund without a reply is no error")
	}
	faults.Heal()
	clock.Advance(3 * time.Minute)
	if err := g.Refund(t.Context(), d); !errors.Is(err, core.ErrUnsettled) {
		t.Errorf("the second try: %v, want core.ErrUnsettled", err)
	}
	wantUsed(t, g, []int64{0}, "acme", "", "")
}

// TestAWindowThatOnlyRefusesIsNotForgotten: two releases run side by side. The older one has 50 a minute and
// takes 41, the newer one has 50 in three minutes and is refused. However long that goes on, no three minutes
// have more than 50 units when the newer one is admitted.
func TestAWindowThatOnlyRefusesIsNotForgotten(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClockAt(start)
		release := func(window time.Duration) *Guard {
			return New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "api", Options{Levels: []string{"org"},
				Find: func([]string) ([]Limit, error) { return []Limit{{Max: 50, Window: window}}, nil }})
		}
		older, newer := release(time.Minute), release(3*time.Minute)
		guardtest.WantReason(t, guardtest.Check(t, newer, of(1, "acme")), core.ReasonOK)
		for minute := range 8 {
			guardtest.WantReason(t, guardtest.Check(t, older, of(41, "acme")), core.ReasonOK)
			for range 6 {
				clock.Advance(10 * time.Second)
				if d := guardtest.Check(t, newer, of(9, "acme")); d.Allowed {
					t.Fatalf("minute %d: the newer release is admitted beside 41 units a minute", minute)
				}
			}
		}
	})
}
