package operator

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/idempotency"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

// target is one guard, and what can be asked of it.
type target struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Actions []string `json:"actions"`
	// Rollout is that of the guard's rule, if it has one.
	Rollout *nethttpmw.Rollout `json:"-"`

	actions []action
}

// action is one thing that can be asked of a guard.
type action struct {
	Name    string
	Fields  []string // a '*' in front: it can not be left out
	changes bool
	read    func(in *input) // finds fields that can not be read, before anything is recorded or changed
	run     func(ctx context.Context, in input) (any, error)
}

// targetsOf returns the guards of the options, each once. It panics on those that can not be told apart.
func targetsOf(o Options) []*target {
	var targets []*target
	known := map[string]core.Guard{}
	add := func(g core.Guard) *target {
		if g == nil {
			panic("operator: New was given a nil guard")
		}
		name := g.Name()
		switch known[name] {
		case nil:
			t := &target{Name: name, Kind: kindOf(g)}
			t.actions = actionsOf(g)
			known[name], targets = g, append(targets, t)
			return t
		case g:
		default:
			panic(fmt.Sprintf("operator: two guards are named %q, of two engines: give them a handler each", name))
		}
		for _, t := range targets {
			if t.Name == name {
				return t
			}
		}
		return nil
	}
	for _, rule := range o.Rules {
		t := add(rule.Guard)
		if rule.Bans != nil {
			add(rule.Bans)
		}
		if rule.Rollout == nil || rule.Rollout == t.Rollout {
			continue
		}
		if t.Rollout != nil {
			panic(fmt.Sprintf("operator: two rules of the guard %q have different Rollouts: let them share one", t.Name))
		}
		t.Rollout = rule.Rollout
		t.actions = append(t.actions, rolloutActions(rule.Rollout)...)
	}
	for _, g := range o.Guards {
		add(g)
	}
	if len(targets) == 0 {
		panic("operator: New without rules or guards has nothing to show: give it those of the application")
	}
	for _, t := range targets {
		for _, a := range t.actions {
			t.Actions = append(t.Actions, a.Name)
		}
	}
	return targets
}

func kindOf(g core.Guard) string {
	switch g.(type) {
	case *limit.SlidingWindow, *limit.FixedWindow, *limit.TokenBucket:
		return "limit"
	case *bans.Guard:
		return "bans"
	case *votes.Guard:
		return "votes"
	case *quota.Guard:
		return "quota"
	case *seckill.Guard:
		return "sale"
	case *redpacket.Guard:
		return "red packet"
	case *idempotency.Guard:
		return "idempotency"
	}
	return "guard"
}

// done is the result of a change that has nothing else to say.
var done = map[string]bool{"done": true}

func nothing(*input) {}

// actionsOf returns what can be asked of a guard: of an application's own, what it has methods for.
func actionsOf(g core.Guard) []action {
	var all []action
	look := func(name string, run func(context.Context, input) (any, error), fields ...string) {
		all = append(all, action{Name: name, Fields: fields, read: nothing, run: run})
	}
	change := func(name string, run func(context.Context, input) (any, error), fields ...string) {
		all = append(all, action{Name: name, Fields: fields, changes: true, read: nothing, run: run})
	}
	if g, ok := g.(interface {
		Peek(context.Context, core.Attempt) (core.Decision, error)
	}); ok {
		look("peek", func(ctx context.Context, in input) (any, error) {
			d, err := g.Peek(ctx, in.attempt())
			return decisionOf(d), err
		}, "*actor", "resource")
	}
	switch g := g.(type) {
	case *bans.Guard:
		look("status", func(ctx context.Context, in input) (any, error) {
			s, err := g.Status(ctx, in.attempt())
			return map[string]any{"banned_for": s.Left.String(), "level": s.Level, "strikes": s.Strikes}, err
		}, "*actor")
		change("ban", func(ctx context.Context, in input) (any, error) {
			return done, g.Ban(ctx, in.attempt(), in.duration("length"))
		}, "*actor", "*length")
		change("unban", func(ctx context.Context, in input) (any, error) { return done, g.Unban(ctx, in.attempt()) }, "*actor")
	case *votes.Guard:
		look("tally", func(ctx context.Context, in input) (any, error) { return g.Tally(ctx, in.text("poll")) }, "*poll")
		look("top", func(ctx context.Context, in input) (any, error) {
			return g.Top(ctx, in.text("poll"), int(in.number("choices")))
		}, "*poll", "*choices")
		look("recount", func(ctx context.Context, in input) (any, error) { return g.Verify(ctx, in.text("poll")) }, "*poll")
		look("find-votes", func(ctx context.Context, in input) (any, error) { return voidVotes(ctx, g, in, true) }, "*poll", "voter", "origin")
		change("void-votes", func(ctx context.Context, in input) (any, error) { return voidVotes(ctx, g, in, false) },
			"*poll", "voter", "origin")
		change("repair", func(ctx context.Context, in input) (any, error) { return g.Repair(ctx, in.text("poll")) }, "*poll")
	case *quota.Guard:
		look("used", func(ctx context.Context, in input) (any, error) {
			items, left, err := g.Used(ctx, in.attempt())
			return map[string]any{"items": items, "remaining": left}, err
		}, "*actor", "resource")
	case *seckill.Guard:
		look("status", func(ctx context.Context, in input) (any, error) { return g.Status(ctx, in.text("item")) }, "*item")
		look("reconcile", func(ctx context.Context, in input) (any, error) { return g.Verify(ctx, in.text("item")) }, "*item")
		change("restock", func(ctx context.Context, in input) (any, error) {
			return g.Restock(ctx, in.text("item"), in.text("id"), in.number("units"))
		}, "*item", "*id", "*units")
		change("sweep", func(ctx context.Context, in input) (any, error) {
			n, err := g.Sweep(ctx, in.text("item"))
			return map[string]int{"swept": n}, err
		}, "*item")
		change("close", func(ctx context.Context, in input) (any, error) { return done, g.Close(ctx, in.text("item")) }, "*item")
	case *redpacket.Guard:
		look("audit", func(ctx context.Context, in input) (any, error) { return g.Verify(ctx, in.text("packet")) }, "*packet")
		change("refund", func(ctx context.Context, in input) (any, error) {
			amount, err := g.Refund(ctx, in.text("packet"))
			return map[string]int64{"amount": amount}, err
		}, "*packet")
	}
	switch g := g.(type) {
	case *idempotency.Guard:
		change("reset", func(ctx context.Context, in input) (any, error) {
			a := in.attempt()
			a.ID = in.text("id")
			return done, g.Reset(ctx, a)
		}, "*actor", "resource", "*id")
	case interface {
		Reset(context.Context, core.Attempt) error
	}:
		change("reset", func(ctx context.Context, in input) (any, error) { return done, g.Reset(ctx, in.attempt()) }, "*actor", "resource")
	}
	for i := range all {
		all[i].read = all[i].check
	}
	return all
}

// voidVotes voids the votes of a voter, or those that came from one origin, or both: those that a voter has sent from there. Their
// voters can not vote again. A dry run says how many there are.
func voidVotes(ctx context.Context, g *votes.Guard, in input, dry bool) (any, error) {
	voter, origin := in.text("voter"), in.text("origin")
	if voter == "" && origin == "" {
		return nil, fmt.Errorf("%w: name a voter or an origin, or all votes of the poll would be meant", core.ErrInvalid)
	}
	return g.Void(ctx, in.text("poll"), votes.VoidOptions{
		Match: func(e votes.Event) bool {
			return (voter == "" || e.Voter == voter) && (origin == "" || e.Origin == origin)
		},
		DryRun: dry,
	})
}

func rolloutActions(r *nethttpmw.Rollout) []action {
	actions := []action{
		{Name: "rollout", run: func(context.Context, input) (any, error) { return r.Report(), nil }},
		{Name: "set-rollout", Fields: []string{"*enabled", "*enforced"}, changes: true, run: func(_ context.Context, in input) (any, error) {
			if err := r.Set(in.percent("enabled"), in.percent("enforced")); err != nil {
				return nil, fmt.Errorf("%w: %w", core.ErrInvalid, err)
			}
			return r.Report(), nil
		}},
		{Name: "switch", Fields: []string{"*on"}, changes: true, run: func(_ context.Context, in input) (any, error) {
			r.Switch(in.flag("on"))
			return r.Report(), nil
		}},
	}
	for i := range actions {
		actions[i].read = actions[i].check
	}
	return actions
}

// input is what an action is asked with. The first field that can not be read sets the error.
type input struct {
	fields map[string]string
	err    error
}

// check reads all fields of the action once.
func (a action) check(in *input) {
	wanted := map[string]bool{}
	for _, field := range a.Fields {
		name, needed := field, false
		if field[0] == '*' {
			name, needed = field[1:], true
		}
		wanted[name] = true
		if needed && in.fields[name] == "" {
			in.fail("%s is missing", name)
		}
		switch name {
		case "units", "choices":
			in.number(name)
		case "length":
			in.duration(name)
		case "enabled", "enforced":
			in.percent(name)
		case "on":
			in.flag(name)
		}
	}
	for name := range in.fields {
		if !wanted[name] {
			in.fail("there is no field %.100q", name)
		}
	}
}

func (in *input) fail(format string, args ...any) {
	if in.err == nil {
		in.err = fmt.Errorf(format, args...)
	}
}

func (in *input) text(name string) string { return in.fields[name] }

func (in *input) attempt() core.Attempt {
	return core.Attempt{Actor: in.text("actor"), Resource: in.text("resource")}
}

func (in *input) number(name string) int64 {
	n, err := strconv.ParseInt(in.text(name), 10, 64)
	if err != nil {
		in.fail("%s is no whole number: %.100q", name, in.text(name))
	}
	return n
}

func (in *input) percent(name string) float64 {
	p, err := strconv.ParseFloat(in.text(name), 64)
	if err != nil {
		in.fail("%s is no percentage: %.100q", name, in.text(name))
	}
	return p
}

func (in *input) duration(name string) time.Duration {
	d, err := time.ParseDuration(in.text(name))
	if err != nil {
		in.fail("%s is no duration, such as 90m: %.100q", name, in.text(name))
	}
	return d
}

func (in *input) flag(name string) bool {
	on, err := strconv.ParseBool(in.text(name))
	if err != nil {
		in.fail("%s is neither true nor false: %.100q", name, in.text(name))
	}
	return on
}

// decision is what an operator sees of a core.Decision.
type decision struct {
	Allowed    bool        `json:"allowed"`
	Reason     core.Reason `json:"reason"`
	Limit      int64       `json:"limit"`
	Remaining  int64       `json:"remaining"`
	Window     string      `json:"window"`
	RetryAfter string      `json:"retry_after"`
}

func decisionOf(d core.Decision) decision {
	return decision{d.Allowed, d.Reason, d.Limit, d.Remaining, d.Window.String(), d.RetryAfter.String()}
}
