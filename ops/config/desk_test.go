package config_test

import (
	"context"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// TestOperatorsDecideAboutAFile: about its limits, lists and roll-outs, also when the file has changed.
//
// Promise: A file that changes keeps the decisions about it.
func TestOperatorsDecideAboutAFile(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		gate := guardtest.NewEngine(b, quiet)
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		desk := control.New(ctx, gate, "desk")
		text := `
guards:
  api: {sliding_window: {limits: 5/h}}
  plans: {token_bucket: {tiers: {by: {header: Plan}, of: {paid: 50/h}, others: 5/h}}}
  hot: {leased_window: {limits: 1000/h}}
lists:
  blocked: {key: ip, entries: [198.51.100.7]}
rules:
  r:
    - {guard: api, who: ip, deny: blocked, rollout: {enforced: 100}}
    - {guard: plans, who: ip}
    - {guard: hot, who: ip}
`
		f := newFile(t, text)
		live := watch(t, gate, f, config.WithDesk(desk))
		h := guarded(live)
		decide := func(kind, name, of, value string) {
			t.Helper()
			x := control.Decision{Kind: kind, Name: name, Of: of, Value: value}
			if err := desk.Decide(t.Context(), x, "sue", ""); err != nil {
				t.Fatal(err)
			}
		}
		most := func(guard string) int64 {
			t.Helper()
			g := live.Set().Guard(guard).(interface {
				Peek(context.Context, core.Attempt) (core.Decision, error)
			})
			d, err := g.Peek(t.Context(), core.Attempt{Actor: "192.0.2.1"})
			if err != nil {
				t.Fatal(err)
			}
			return d.Limit
		}
		for _, guard := range []string{"api", "plans", "hot"} {
			decide(control.Limits, guard, "192.0.2.1", "900/h")
			if got := most(guard); got != 900 {
				t.Errorf("%s has a limit of %d", guard, got)
			}
		}
		want := func(status int) {
			t.Helper()
			if got := get(h); got != status {
				t.Errorf("status %d, want %d", got, status)
			}
		}
		want(200)
		decide(control.List, "blocked", "192.0.2.0/24", "in")
		want(403)
		decide(control.Rollout, "r api", "", "0 0")
		if r := live.Set().Rules("r")[0].Rollout.Report(); r.Enabled != 0 {
			t.Errorf("%+v", r)
		}
		want(200) // the rule is off, and its list with it
		decide(control.Rollout, "r api", "", "100 100")

		f.write(t, text[:len(text)-len("    - {guard: hot, who: ip}\n")]+"# the same guards, lists made anew\n")
		reload(t, live)
		want(403)
		f.write(t, "guards: {api: {sliding_window: {limits: 7/h}}}\n"+
			"lists: {blocked: {key: ip, entries: [198.51.100.7]}}\n"+
			"rules: {r: [{guard: api, who: ip, deny: blocked}]}\n") // a guard that is made anew
		reload(t, live)
		if got := most("api"); got != 900 {
			t.Errorf("api has a limit of %d", got)
		}
		want(403)
		decide(control.List, "blocked", "192.0.2.0/24", "out")
		want(200)
		desk.Limits(limit.NewSlidingWindow(gate, "plans", limit.PerHour(1))) // the file has it no more
		if err := gate.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
