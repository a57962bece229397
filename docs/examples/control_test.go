package examples_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

func controlled(
	ctx context.Context, gate *core.Engine, blocked *keyfuncs.List, try *ratelimit.Rollout, calls *budget.Guard,
) (*control.Desk, *limit.SlidingWindow) {
	desk := control.New(ctx, gate, "desk") // follows until ctx ends
	api := limit.NewSlidingWindow(gate, "api", limit.PerMinute(60))
	desk.Limits(api) // any limit, leases too, under the guard's name
	desk.List("blocked", blocked)
	desk.Rollout("tighter", try)
	desk.Budget(calls) // a budget, under its name
	return desk, api
}

func decideForAnHour(ctx context.Context, desk *control.Desk) error {
	hour := time.Now().Add(time.Hour)
	acme := control.Decision{Kind: control.Limits, Name: "api", Of: "acme", Value: "600/min", Until: hour}
	err := desk.Decide(ctx, acme, "sue", "launch day")
	return errors.Join(err, desk.Withdraw(ctx, acme, "sue", "done early"))
}

func TestTheDeskOfThePage(t *testing.T) {
	b := redistest.Single(t)
	gate := core.New(b.Client, core.WithPrefix(b.Prefix))
	calls := budget.New(gate, "calls", budget.Options{Levels: []string{"org"}, Find: find})
	desk, api := controlled(t.Context(), gate, keyfuncs.NewList(keyfuncs.IP()), ratelimit.Shadow(), calls)
	if err := decideForAnHour(t.Context(), desk); err != nil {
		t.Fatal(err)
	}
	d, err := api.Peek(t.Context(), core.Attempt{Actor: "acme"})
	all, audited := desk.Audit(t.Context(), control.Decision{})
	if err != nil || audited != nil || d.Limit != 60 || len(all) != 2 {
		t.Errorf("%+v, %v, %+v, %v", d, err, all, audited)
	}
}
