package lua_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// budgets: together the sides admit what user and organisation may, and each knows what the other gives back,
// charges, pauses, overrides, restores and bills.
func budgets(p *pair) {
	limits := map[string][]budget.Limit{
		budget.Path("acme"): {{Max: 10, Window: time.Hour}, {Max: 90, Period: period.Monthly(time.UTC)}},
	}
	g := both(p, func(e *core.Engine) *budget.Guard {
		return budget.New(e, "api", budget.Options{Levels: []string{"org", "user"},
			Find: func(path []string) ([]budget.Limit, error) {
				if len(path) == 2 {
					return []budget.Limit{{Max: 6, Window: time.Hour}}, nil
				}
				return limits[budget.Path(path...)], nil
			}})
	})
	ended, end := context.WithCancel(p.ctx)
	end() // nobody follows
	var desks [2]*control.Desk
	for i := range g {
		desks[i] = control.New(ended, g[i].Engine(), "desk")
		desks[i].Budget(g[i])
	}
	of := func(user string) core.Attempt { return core.Attempt{Actor: budget.Path("acme", user)} }
	used := func(i int, user string) (all []int64) {
		figures, err := g[i].Usage(p.ctx, of(user))
		p.must("usage", err)
		for _, f := range figures {
			all = append(all, f.Used)
		}
		return all
	}
	agree := func(what, user string, want ...int64) {
		for i := range g {
			p.is(what, used(i, user), want)
		}
	}
	admitted := map[string][]core.Decision{}
	for _, user := range []string{"ann", "bob"} {
		for turn := range 8 {
			d, err := g[turn%2].Check(p.ctx, of(user))
			p.must("budget", err)
			if err == nil && d.Allowed {
				admitted[user] = append(admitted[user], d)
			}
		}
	}
	p.is("admitted", []int{len(admitted["ann"]), len(admitted["bob"])}, []int{6, 4})
	if len(p.errs) > 0 {
		return
	}
	agree("used", "bob", 10, 10, 4)
	p.must("refund", g[1].Refund(p.ctx, admitted["bob"][0]))
	p.must("spend", g[0].Spend(p.ctx, admitted["bob"][1], 3))
	agree("after a refund and a charge", "bob", 11, 11, 5)
	for i := range g {
		until := p.clock.Now().Add(3 * time.Hour)
		x := control.Decision{Kind: control.Pause, Name: "api", Of: "acme", Value: "on"}
		p.must("pause", desks[i].Decide(p.ctx, x, "sue", ""))
		p.check("paused", g[1-i], of("cid"), budget.ReasonPaused)
		p.must("resume", desks[1-i].Withdraw(p.ctx, x, "sue", ""))
		p.check("full", g[i], of("cid"), core.ReasonLimited)
		x = control.Decision{Kind: control.Budget, Name: "api", Of: of("cid").Actor, Value: "2/h", Until: until}
		p.must("override", desks[i].Decide(p.ctx, x, "sue", ""))
		p.clock.Advance(2 * time.Hour)
		p.check("what an operator allows", g[1-i], of("cid"), core.ReasonOK)
		p.check("what an operator allows", g[i], of("cid"), core.ReasonOK)
		p.check("no more", g[1-i], of("cid"), core.ReasonLimited)
	}
	before, moment := used(0, "bob")[1], p.clock.Now()
	for range 2 { // the same again changes nothing
		counts, err := g[0].Restore(p.ctx, core.Attempt{Actor: budget.Path("acme")}, moment, 7, "sue", "")
		p.must("restore", err)
		p.is("restored", counts, before+7)
	}
	p.is("both see what was restored", used(1, "bob")[1], before+7)
	p.clock.Advance(40 * 24 * time.Hour)
	finals, err := g[1].Ended(p.ctx, core.Attempt{Actor: budget.Path("acme")})
	p.must("ended", err)
	p.is("ended", finals, 1)
	for i := range g {
		rows, _, err := g[i].Export(p.ctx, core.Attempt{Actor: budget.Path("acme")}, 0)
		p.must("export", err)
		p.is("rows", len(rows), 1)
		if len(rows) == 1 {
			p.is("a bill", []any{rows[0].Used, rows[0].Restored, rows[0].Final}, []any{before, 7, true})
		}
	}
	p.check("the next month", g[0], of("ann"), core.ReasonOK)
	agree("the next month", "ann", 1, 1, 1)
	undone(p, g[1], of("dan"))
	agree("undone", "dan", 1, 1, 0)
}

// undone has a guard undo an attempt whose reply is lost.
func undone(p *pair, g core.Guard, a core.Attempt) {
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	if _, err := g.Check(ctx, a); err == nil {
		p.must("a check", errors.New("a check whose context is over is no error"))
	}
	drained, end := context.WithTimeout(p.ctx, 10*time.Second)
	defer end()
	for _, e := range p.sides {
		p.must("drain", e.Drain(drained))
	}
}

// desks: what one side decides the other obeys, and what Redis has lost either puts back.
func desks(p *pair) {
	over, end := context.WithCancel(p.ctx)
	end() // nobody follows: a desk reads when it decides
	type seat struct {
		*control.Desk
		api *limit.SlidingWindow
	}
	g := both(p, func(e *core.Engine) seat {
		s := seat{control.New(over, e, "desk"), limit.NewSlidingWindow(e, "api", limit.PerHour(60))}
		s.Limits(s.api)
		return s
	})
	decide := func(i int, actor, value string) {
		p.clock.Advance(time.Second)
		p.must("decide", g[i].Decide(p.ctx, control.Decision{Kind: control.Limits, Name: "api", Of: actor,
			Value: value}, "sue", ""))
	}
	look := func(i int) { // a desk reads for the time, before it finds that the value is no limit
		all := g[i].Describe().Operations
		op := all[slices.IndexFunc(all, func(o kit.Operation) bool { return o.Name == "decide" })]
		in, err := op.Read(map[string]string{"kind": control.Limits, "name": "api", "value": "none", "for": "1h",
			"who": "sue"})
		p.must("look", err)
		if _, err := op.Run(p.ctx, in); !errors.Is(err, core.ErrInvalid) {
			p.must("look", fmt.Errorf("no limit is %w", err))
		}
	}
	obeys := func(i int, actor string, most int64) {
		d, err := g[i].api.Peek(p.ctx, core.Attempt{Actor: actor})
		p.must("peek", err)
		p.is("a limit of "+actor, d.Limit, most)
	}
	for i := range g {
		decide(i, "ann", "100/h")
		decide(1-i, "bob", "7/h")
		obeys(i, "ann", 100)
		obeys(1-i, "ann", 100)
		decide(i, "ann", "101/h")
		look(1 - i)
		obeys(1-i, "ann", 101)
		keys, err := p.rdb.Keys(p.ctx, p.key+":*").Result()
		p.must("keys", err)
		if len(keys) > 0 {
			p.must("loss", p.rdb.Del(p.ctx, keys...).Err())
		}
		decide(i, "cid", "8/h") // and puts back what it knows
		decide(1-i, "dan", "9/h")
		obeys(1-i, "ann", 101)
		obeys(1-i, "cid", 8)
		all, err := g[i].Decided(p.ctx, control.Decision{})
		p.must("decided", err)
		p.is("decided", len(all), 4)
		p.clock.Advance(time.Second)
		p.must("withdraw", g[1-i].Withdraw(p.ctx, all[0], "sue", ""))
		decide(i, "dan", "10/h")
		obeys(i, "ann", 60)
		obeys(1-i, "ann", 60)
	}
}

// rooms: no more are inside of both sides together, and a place that is given back on one is taken on the other.
func rooms(p *pair) {
	g := both(p, func(e *core.Engine) *waitingroom.Guard {
		return waitingroom.New(e, "shop", waitingroom.Options{Capacity: 2, Poll: time.Second,
			Secrets: [][]byte{[]byte("a secret of the scenario")}})
	})
	tickets := map[string]string{}
	ask := func(i int, actor string) core.Reason {
		p.clock.Advance(time.Second)
		d, err := g[i].Check(p.ctx, core.Attempt{Actor: actor, Token: tickets[actor]})
		p.must(actor, err)
		if d.Token != "" {
			tickets[actor] = d.Token
		}
		return d.Reason
	}
	come := func(i int, actor string, want core.Reason) { p.is(actor, ask(i, actor), want) }
	soon := func(i int, actor string, want core.Reason) { // a side may remember the room for a while
		for n := 0; n < 5 && ask(i, actor) != want; n++ {
			p.clock.Advance(time.Second)
		}
		come(i, actor, want)
	}
	come(0, "ann", core.ReasonOK)
	come(1, "bob", core.ReasonOK)
	come(0, "cid", waitingroom.ReasonWaiting)
	come(1, "dan", waitingroom.ReasonWaiting)
	come(1, "cid", waitingroom.ReasonWaiting)
	p.must("leave", g[1].Leave(p.ctx, core.Decision{Token: tickets["ann"]}))
	come(0, "cid", core.ReasonOK)
	come(0, "dan", waitingroom.ReasonWaiting)
	p.must("a larger room", g[1].SetCapacity(p.ctx, 3))
	soon(1, "dan", core.ReasonOK)
	for i := range g {
		s, err := g[i].Peek(p.ctx)
		p.must("peek", err)
		p.is("inside", s.Inside, 3)
	}
	p.must("close", g[0].Close(p.ctx, "Sold out"))
	soon(1, "eve", core.ReasonClosed)
	p.must("open", g[1].Open(p.ctx))
	soon(0, "eve", waitingroom.ReasonWaiting)
	come(1, "bob", core.ReasonOK)
}
