package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/clitest"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

func TestMain(m *testing.M) { clitest.Main(m, Peek, Reset, Tally, Sale, Control) }

func TestPeekAndResetSeeWhatTheApplicationCounts(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		api := limit.NewSlidingWindow(guardtest.NewEngine(b), "api", limit.PerMinute(3))
		a := core.Attempt{Actor: "ann", Resource: "/things"}
		for range 3 {
			guardtest.WantReason(t, guardtest.Check(t, api, a), core.ReasonOK)
		}
		environ, flags := clitest.OnRedis(b)
		run := func(input, command string, more ...string) clitest.Answer {
			args := append([]string{command, "-guard", "api", "-kind", "sliding_window", "-limits", "3/min",
				"actor=ann", "resource=/things"}, more...)
			return clitest.Run(t, environ, input, append(args, flags...)...)
		}
		run("", "peek").Want(t, 0, "reason       limited\nlimit        3\nremaining    0\n", "")
		if got := run("", "peek", "-json").JSON(t); got["allowed"] != false || got["limit"] != 3.0 {
			t.Errorf("peek -json: %v", got)
		}
		run("", "peek", "id=x").Want(t, 2, "", `there is no field "id"`)

		const question = `reset of guard "api", actor "ann", resource "/things": go on? [y/N] `
		run("", "reset").Want(t, 2, "", question)
		run("n\n", "reset").Want(t, 2, "", "nothing was changed")
		run("", "peek").Want(t, 0, "remaining    0\n", "")
		run("y\n", "reset").Want(t, 0, "done         true\n", question)
		run("", "peek").Want(t, 0, "remaining    3\n", "")
		run("", "reset", "-yes", "-json").Want(t, 0, `"done": true`, "")
	})
}

// TestACommandThatLooksWritesNothing: also one with limits that are not those of the application, which a
// limit would otherwise announce to the processes of the application.
func TestACommandThatLooksWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	rdb := server.Client(t)
	for _, args := range [][]string{
		{"peek", "-guard", "api", "-kind", "sliding_window", "-limits", "3/min, 7/day", "actor=ann"},
		{"peek", "-guard", "api", "-kind", "fixed_window", "-limits", "3/min", "actor=ann"},
		{"peek", "-guard", "api", "-kind", "token_bucket", "-limits", "3/min", "actor=ann"},
		{"tally", "-guard", "poll", "final"},
	} {
		a := clitest.Run(t, []string{"REDIS_URL=redis://" + server.Addr()}, "", append(args, "-timeout", "1m")...)
		if keys := rdb.Keys(t.Context(), "*").Val(); a.Code != 0 || len(keys) != 0 {
			t.Errorf("%v: exit code %d, errors %q, keys %q", args, a.Code, a.Errs, keys)
		}
	}
}

func TestTallyOfAPoll(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		poll := votes.New(guardtest.NewEngine(b), "poll", votes.Options{})
		for i, choice := range []string{"red", "blue", "red", "red\x1b[2J"} {
			guardtest.Check(t, poll, core.Attempt{Actor: fmt.Sprint("voter", i), Resource: "final", Item: choice})
		}
		environ, flags := clitest.OnRedis(b)
		run := func(args ...string) clitest.Answer {
			return clitest.Run(t, environ, "", append(append([]string{"tally", "-guard", "poll"}, args...), flags...)...)
		}
		const escaped = `"red\x1b[2J"`
		run("final").Want(t, 0, fmt.Sprintf("%-12s %10d\n%-12s %10d\n%-12s %10d\n%-12s %10d\n", "red", 2, "blue", 1,
			escaped, 1, "total", 4), "")
		if got := run("final", "-json").JSON(t); got["red"] != 2.0 || got["blue"] != 1.0 {
			t.Errorf("tally -json: %v", got)
		}
		run("none").Want(t, 0, "nobody has voted", "")
	})
}

func TestASaleFromItsOpeningToItsClose(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		environ, flags := clitest.OnRedis(b)
		run := func(args ...string) clitest.Answer {
			return clitest.Run(t, environ, "", append(append([]string{"sale", "-guard", "sale"}, args...), flags...)...)
		}
		run("status", "shoe").Want(t, 2, "", "no such sale")
		run("open", "shoe", "-yes").Want(t, 2, "", "-stock is 0")
		run("open", "shoe", "-stock", "10").Want(t, 2, "", `open of guard "sale", item "shoe", stock 10: go on? [y/N]`)
		run("open", "shoe", "-stock", "10", "-yes").Want(t, 0, "stock 10: left 10, held 0, sold 0\n", "")
		run("open", "shoe", "-stock", "20", "-yes").Want(t, 0, "was open already", "")

		shop := seckill.New(guardtest.NewEngine(b), "sale", seckill.Options{})
		guardtest.WantReason(t, guardtest.Check(t, shop, core.Attempt{Actor: "ann", Resource: "shoe"}),
			core.ReasonOK)
		run("status", "shoe").Want(t, 0, "left         9\nheld         1\nsold         0\n", "")
		if got := run("status", "shoe", "-json").JSON(t); got["held"] != 1.0 {
			t.Errorf("status -json: %v", got)
		}
		run("restock", "shoe", "-units", "5", "-yes").Want(t, 2, "", "id is missing")
		for range 2 { // the same delivery counts once
			run("restock", "shoe", "-units", "5", "-id", "d1", "-yes").Want(t, 0, "stock 15: left 14", "")
		}
		run("verify", "shoe").Want(t, 0, `sale "shoe": consistent`, "")
		run("close", "shoe", "-yes").Want(t, 0, "done         true\n", "")
		guardtest.WantReason(t, guardtest.Check(t, shop, core.Attempt{Actor: "bob", Resource: "shoe"}),
			core.ReasonClosed)
	})
}

func TestASaleWhosePartsDifferIsAProblem(t *testing.T) {
	b := redistest.Single(t)
	environ, flags := clitest.OnRedis(b)
	run := func(args ...string) clitest.Answer {
		return clitest.Run(t, environ, "", append(append([]string{"sale", "-guard", "sale"}, args...), flags...)...)
	}
	run("open", "shoe", "-stock", "10", "-yes").Want(t, 0, "stock 10", "")
	shop := seckill.New(guardtest.NewEngine(b), "sale", seckill.Options{})
	ann := guardtest.Check(t, shop, core.Attempt{Actor: "ann", Resource: "shoe"})
	guardtest.WantReason(t, ann, core.ReasonOK)
	key := ""
	for _, k := range b.Client.(*redis.Client).Keys(t.Context(), b.Prefix+":*:buyers").Val() {
		key = k
	}
	if b.Client.HSet(t.Context(), key, "ann", 7).Err() != nil {
		t.Fatal("no counters of buyers")
	}
	run("verify", "shoe").Want(t, 1, "NOT consistent", "")
}

// TestControlOfADeskAndABudget: by their names alone.
func TestControlOfADeskAndABudget(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		environ, flags := clitest.OnRedis(b)
		run := func(args ...string) clitest.Answer {
			return clitest.Run(t, environ, "", append(append([]string{"control"}, args...), flags...)...)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gate := guardtest.NewEngine(b)
		api := limit.NewSlidingWindow(gate, "api", limit.PerMinute(3))
		control.New(ctx, gate, "desk").Limits(api)
		ann := []string{"kind=limits", "name=api", "of=ann", "who=sue"}
		decide := append([]string{"-desk", "desk", "decide", "value=600/min", "for=1h"}, ann...)
		run(decide...).Want(t, 2, "", `of "ann", value "600/min", who "sue": go on? [y/N]`)
		run(append(decide, "-yes")...).Want(t, 0, "done         true\n", "")
		redistest.Eventually(t, time.Minute, func() bool {
			d, err := api.Peek(t.Context(), core.Attempt{Actor: "ann"})
			return err == nil && d.Limit == 600
		}, "the application obeys")
		run("-desk", "desk", "decided").Want(t, 0,
			"kind         limits\nname         api\nof           ann\nvalue        600/min\n", "")
		run(append([]string{"-desk", "desk", "withdraw", "-yes"}, ann...)...).Want(t, 0, "done", "")
		run("-desk", "desk", "decided").Want(t, 0, "", "")
		if got := run("-desk", "desk", "audit", "-json"); got.Code != 0 || strings.Count(got.Out, `"who": "sue"`) != 2 {
			t.Errorf("the audit is %+v", got)
		}

		node := []string{"name=calls", "of=acme|dev"}
		pause := append([]string{"-desk", "desk", "decide", "kind=pause", "value=on", "who=sue", "-yes"}, node...)
		run(pause...).Want(t, 0, "done         true\n", "")
		run("-desk", "desk", "decide", "kind=budget", "name=calls", "of=acme", "value=5000/min", "who=sue", "-yes").
			Want(t, 0, "done         true\n", "")
		if got := run(append([]string{"-desk", "desk", "budget"}, node...)...); got.Code != 0 ||
			strings.Count(got.Out, `"of":"acme|dev","value":"on"`) != 2 ||
			strings.Count(got.Out, `"of":"acme","value":"5000/min"`) != 2 {
			t.Errorf("the budget has %+v", got)
		}
		run("-budget", "calls", "export", "actor=acme").Want(t, 0, "rows         \nnext         0\n", "")
		run("-budget", "calls", "usage", "actor=acme").Want(t, 2, "", "needs a desk, or the application")

		run("decided").Want(t, 2, "", "pass the name of a desk")
		run("-desk", "desk").Want(t, 2, "", "no operation is named")
		run("-desk", "desk", "reset").Want(t, 2, "", "it has decided, audit, budget, decide, withdraw")
		run("-desk", "no name", "decided").Want(t, 2, "", "has ' ' in it")
		run(append([]string{"-desk", "desk", "decide", "value=many", "-yes"}, ann...)...).Want(t, 2, "",
			"want units/window")
	})
}

// TestNoTextOfAUserSteersATerminal: members of objects in results, and errors, were written as they were.
//
// Promise (Requests and answers): No text of a user steers the terminal of `gatehouse`.
func TestNoTextOfAUserSteersATerminal(t *testing.T) {
	t.Parallel()
	const evil = "a\u009b31mb\u202ec\x1b[2Jd"
	for name, result := range map[string]any{
		"text":   map[string]any{"actor": evil},
		"list":   map[string]any{"path": []string{evil}},
		"object": map[string]any{"fields": map[string]string{evil: evil}},
		"name":   map[string]any{evil: 1},
		"all":    []map[string]any{{"of": map[string]any{"who": []any{evil}}}},
	} {
		for _, asJSON := range []bool{false, true} {
			var out strings.Builder
			e := &cli.Env{Out: &out, JSON: asJSON}
			if err := writeResult(e, result); err != nil || !strings.Contains(out.String(), `\u202e`) ||
				strings.ContainsAny(out.String(), "\u009b\u202e\x1b") {
				t.Errorf("%s: %q, %v", name, out.String(), err)
			}
		}
	}
	fails := cli.Command{Name: "peek", Run: func(context.Context, *cli.Env) error { return errors.New(evil) }}
	a := clitest.Here(t, &cli.Env{}, fails)
	if a.Code != 2 || strings.ContainsAny(a.Errs, "\u009b\u202e\x1b") {
		t.Errorf("exit code %d, %q", a.Code, a.Errs)
	}
}

func TestGuardsOfAFile(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	file, environ := clitest.RulesFile(t, clitest.Rules), []string{"REDIS_URL=redis://" + server.Addr()}
	run := func(args ...string) clitest.Answer {
		return clitest.Run(t, environ, "", append(args, "-file", file, "-timeout", "1m")...)
	}
	run("peek", "-guard", "site", "actor=ann").Want(t, 0, "remaining    3\n", "")
	run("peek", "-guard", "plan", "actor=ann").Want(t, 2, "", "item is missing") // the tier decides
	run("peek", "-guard", "plan", "actor=ann", "item=*").Want(t, 0, "remaining    2\n", "")
	run("peek", "-guard", "plan", "actor=ann", "item=paid").Want(t, 0, "remaining    9\n", "")
	run("tally", "-guard", "poll", "final").Want(t, 0, "nobody has voted", "")
	run("tally", "-guard", "site", "final").Want(t, 2, "", "is of the kind sliding_window, not votes")
	run("peek", "-guard", "sight", "actor=ann").Want(t, 2, "", `has no guard "sight": it has site, plan, poll, sale`)
	run("peek", "-guard", "poll", "poll=final").Want(t, 2, "", "has no operation peek: it has tally, top")
	run("peek", "-guard", "site", "-kind", "votes").Want(t, 2, "", "leave out -kind")
	clitest.Run(t, environ, "", "peek", "-guard", "door", "-kind", "lock", "thing=x", "-timeout", "1m").
		Want(t, 0, "held         false\n", "")
	clitest.Run(t, nil, "", "peek", "-guard", "pool", "-kind", "semaphore", "-options", "{max: -1}").
		Want(t, 2, "", "-kind, -limits or -options: ")
}
