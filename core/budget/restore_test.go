package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// export returns all rows that have changed since, as text and as they are.
func export(t *testing.T, g *Guard, after int64) (texts []string, rows []Row, next int64) {
	t.Helper()
	for next = after; ; {
		page, following, err := g.Export(t.Context(), of(1, "acme"), next)
		if err != nil {
			t.Fatal(err)
		}
		if following == next {
			return texts, rows, next
		}
		for _, r := range page {
			texts = append(texts, fmt.Sprintf("%s %s %d+%d", strings.Join(r.Path, "/"), r.Begins.Format("Jan"),
				r.Used, r.Restored))
		}
		rows, next = append(rows, page...), following
	}
}

// lose deletes all keys of the test.
func lose(t *testing.T, b redistest.Backend) {
	t.Helper()
	err := b.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, "*"+b.Prefix+"*").Result()
		for _, key := range keys {
			err = errors.Join(err, c.Del(ctx, key).Err())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestABillSurvivesALossOfRedis: Redis is flushed in mid-month. The bill has what was exported before, the new
// count has a First of its own and greater sequences, Compare tells which nodes lack what, and Restore, however
// often it is repeated, makes decisions count it and no bill twice.
//
// Promise: After a loss of Redis in mid-period, exports have another count and greater sequences. `Compare`
// returns the missing units; `Restore` makes decisions count them, and bills nothing twice.
func TestABillSurvivesALossOfRedis(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		p := plan{"acme": monthly(100, Hard), "acme|dev|ann": monthly(60, Hard), "acme|dev|bob": monthly(60, Hard)}
		g, clock := newBudget(t, b, p)
		guardtest.WantReason(t, guardtest.Check(t, g, of(40, "acme", "dev", "ann")), core.ReasonOK)
		guardtest.WantReason(t, guardtest.Check(t, g, of(9, "acme", "dev", "bob")), core.ReasonOK)
		_, billed, next := export(t, g, 0)
		lose(t, b)
		clock.Advance(time.Second)
		guardtest.WantReason(t, guardtest.Check(t, g, of(5, "acme", "dev", "ann")), core.ReasonOK)
		texts, rows, _ := export(t, g, next)
		if got := strings.Join(texts, ", "); got != "acme May 5+0, acme/dev/ann May 5+0" {
			t.Errorf("exported after the loss: %s", got)
		}
		if rows[0].First == billed[0].First {
			t.Error("the count after the loss has the First of the one before")
		}
		stale := slices.Clone(billed) // a bill that has not seen the new count
		billed = append(billed, rows...)
		lost := func(billed []Row) (all []string) {
			differ, err := g.Compare(t.Context(), of(1, "acme"), billed)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range differ {
				all = append(all, fmt.Sprintf("%s %d", strings.Join(d.Path, "/"), d.Lost))
			}
			return all
		}
		for _, bill := range [][]Row{billed, stale} {
			if got := strings.Join(lost(bill), ", "); got != "acme 49, acme/dev/ann 40, acme/dev/bob 9" {
				t.Errorf("compared: %s", got)
			}
		}
		differ, _ := g.Compare(t.Context(), of(1, "acme"), billed)
		for _, d := range slices.Repeat(differ, 2) { // a repeated one changes nothing
			if _, err := g.Restore(t.Context(), of(1, d.Path...), d.Begins, d.Lost, "sue", "lost"); err != nil {
				t.Fatal(err)
			}
		}
		if got := lost(billed); len(got) > 0 {
			t.Errorf("restored, and yet %q differ", got)
		}
		wantUsed(t, g, []int64{54, 45}, "acme", "dev", "ann")
		guardtest.WantReason(t, guardtest.Check(t, g, of(16, "acme", "dev", "ann")), core.ReasonQuota)
		guardtest.WantReason(t, guardtest.Check(t, g, of(15, "acme", "dev", "ann")), core.ReasonOK)
		texts, _, _ = export(t, g, next)
		want := "acme/dev/bob May 0+9, acme May 20+49, acme/dev/ann May 20+40"
		if got := strings.Join(texts, ", "); got != want {
			t.Errorf("exported at last: %s, want %s", got, want)
		}
		// A new month begins, and May can still be restored; a month that has not begun cannot.
		clock.Set(time.Date(2030, 6, 2, 0, 0, 0, 0, time.UTC))
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "acme", "dev", "ann")), core.ReasonOK)
		n, err := g.Restore(t.Context(), of(1, "acme", "dev", "ann"), start, 50, "sue", "")
		if n != 70 || err != nil {
			t.Errorf("restored May: %d, %v, want 70", n, err)
		}
		wantUsed(t, g, []int64{1, 1}, "acme", "dev", "ann")
		for _, wrong := range []struct {
			who    string
			used   int64
			moment time.Time
			path   []string
		}{{"", 1, start, []string{"acme"}}, {"sue", -1, start, []string{"acme"}},
			{"sue", 1 << 62, start, []string{"acme"}},
			{"sue", 1, start.AddDate(0, 2, 0), []string{"acme"}}, {"sue", 1, start.AddDate(-3, 0, 0), []string{"acme"}},
			{"sue", 1, start, []string{"acme", "dev"}}} {
			if _, err := g.Restore(t.Context(), of(1, wrong.path...), wrong.moment, wrong.used, wrong.who,
				""); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%+v: %v, want it refused", wrong, err)
			}
		}
	})
}

// TestARestoredPeriodThatNobodyCountedYet: Restore comes before the first call after the loss.
func TestARestoredPeriodThatNobodyCountedYet(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, clock := newBudget(t, b, plan{"acme": monthly(10, Hard)})
		if n, err := g.Restore(t.Context(), of(1, "acme"), start, 9, "sue", ""); n != 9 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		guardtest.WantReason(t, guardtest.Check(t, g, of(2, "acme", "", "")), core.ReasonQuota)
		guardtest.WantReason(t, guardtest.Check(t, g, of(1, "acme", "", "")), core.ReasonOK)
		clock.Set(time.Date(2030, 6, 2, 0, 0, 0, 0, time.UTC))
		if n, err := g.Restore(t.Context(), of(1, "acme"), clock.Now(), 3, "sue", ""); n != 3 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		texts, _, _ := export(t, g, 0)
		if got := strings.Join(texts, ", "); got != "acme May 1+9, acme Jun 0+3" {
			t.Errorf("exported: %s", got)
		}
	})
}

// TestRowsOfLongAgoLeaveTheExport: a node that nobody calls any more leaves Redis, and so does its row.
func TestRowsOfLongAgoLeaveTheExport(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		g, clock := newBudget(t, b, plan{"acme": monthly(10, Hard), "acme||ann": monthly(10, Hard)})
		guardtest.Check(t, g, of(1, "acme", "", "ann"))
		clock.Advance(4 * 366 * 24 * time.Hour)
		guardtest.Check(t, g, of(1, "acme", "", ""))
		key := g.Key(kit.TagOf(of(1, "acme")), "rows")
		if names, err := b.Client.ZRange(t.Context(), key, 0, -1).Result(); len(names) != 1 || err != nil {
			t.Errorf("rows %q, %v: want that of the organisation", names, err)
		}
	})
}

// TestARestoreThatIsSentAgainUndoesNoLaterOne: the reply of a Restore is lost, so another operator says what
// is right. A client that sent the first one again would undo that.
func TestARestoreThatIsSentAgainUndoesNoLaterOne(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults := redistest.NewFaults(t)
		p := plan{"acme": monthly(10, Metered)}
		b.Client = b.NewClientWith(t, faults)
		g, clock := newBudget(t, b, p)
		if err := g.Engine().Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		faults.SwallowReply(restoreScript.SHA())
		if _, err := g.Restore(t.Context(), of(1, "acme"), clock.Now(), 3, "sue", ""); err == nil {
			t.Error("a lost reply is no error: the call was sent again")
		}
		wantUsed(t, g, []int64{3}, "acme", "", "")
	})
}
