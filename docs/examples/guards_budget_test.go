package examples_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

var customers = map[string]struct {
	PerMinute, PerMonth int64
	Day                 int
}{"acme": {1000, 100_000, 15}}

func budgetRule(gate *core.Engine, org, team keyfuncs.Func) ratelimit.Rule {
	calls := budget.New(gate, "api", budget.Options{Levels: []string{"org", "team", "user"}, Find: find})
	rule := ratelimit.Rule{
		Guard: calls,
		Under: []keyfuncs.Func{org, team}, // functions of the application, the outermost first
		Who:   keyfuncs.User("uid"),
	}
	return rule
}

func find(path []string) ([]budget.Limit, error) {
	switch customer, known := customers[path[0]]; {
	case !known:
		return nil, budget.ErrUnknown // refused, never a default
	case len(path) == 1:
		return []budget.Limit{
			{Max: customer.PerMinute, Window: time.Minute},
			{Max: customer.PerMonth, Period: period.MonthlyOn(customer.Day, time.UTC)},
		}, nil
	case len(path) == 3:
		return []budget.Limit{{Max: 60, Window: time.Minute}}, nil
	}
	return nil, nil // teams have no limit of their own
}

func operateBudget(ctx context.Context, desk *control.Desk, calls *budget.Guard) error {
	desk.Budget(calls) // once, at the start

	hour := time.Now().Add(time.Hour)
	more := control.Decision{Kind: control.Budget, Name: "api", Of: "acme", Value: "5000/min", Until: hour}
	err := desk.Decide(ctx, more, "sue", "launch day")
	if err == nil {
		leaked := control.Decision{Kind: control.Pause, Name: "api", Of: "acme|dev", Value: "on"} // until Withdraw
		err = desk.Decide(ctx, leaked, "sue", "key leaked")
	}
	return err
}

func restoreBudget(ctx context.Context, calls *budget.Guard, acme core.Attempt, billed []budget.Row) error {
	lost, err := calls.Compare(ctx, acme, billed) // all rows that the bill has
	if err != nil {
		return err
	}
	for _, d := range lost {
		node := core.Attempt{Actor: budget.Path(d.Path...)}
		if _, err := calls.Restore(ctx, node, d.Begins, d.Lost, "sue", "failover of May 20"); err != nil {
			return err
		}
	}
	return nil
}

func exportBudget(ctx context.Context, calls *budget.Guard, acme core.Attempt, after int64,
	save func(rows []budget.Row, after int64) error,
) error {
	for {
		rows, next, err := calls.Export(ctx, acme, after)
		if err != nil || next == after {
			return err
		}
		after = next
		if err := save(rows, after); err != nil { // together, so that a repetition harms nothing
			return err
		}
	}
}

func TestTheBudgetOfThePage(t *testing.T) {
	_, _, _, _ = budgetRule, operateBudget, restoreBudget, exportBudget
	if _, err := find([]string{"a stranger"}); !errors.Is(err, budget.ErrUnknown) {
		t.Error(err)
	}
	if limits, err := find([]string{"acme"}); len(limits) != 2 || err != nil {
		t.Error(limits, err)
	}
}
