package lives

import (
	"context"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
)

// The definition of a quota of two items a day:
//   - a period has the items of those who were told yes in it and did not give back
//   - an attempt is allowed exactly if its item is one of them, or they are fewer than two
//   - giving back counts once, in the period of the attempt; what arrives a second time changes nothing
var _ = explore(life{
	name: "quota", of: []string{"quota"},
	events: alphabet("a b c bob-c give-back give-first-back check-again give-back-again reset",
		"just-before midnight second-earlier flush"),
	world: func(p *place) world {
		gate := p.Engine()
		day := period.Daily(time.UTC)
		return &quotaWorld{place: p, day: day, guard: quota.New(gate, "points", quota.Options{Items: 2, Period: day})}
	},
	row: row{
		over:      "The period ends; `Reset`.",
		remembers: "Nothing.",
		forgets:   "The items, and which operations they had.",
		back:      "An item of yesterday counts as new. Giving it back changes yesterday only.",
	},
})

type quotaWorld struct {
	*place
	guard *quota.Guard
	day   period.Period

	name   string
	given  []*grant // in their order
	undone []int    // the calls that gave back
}

// A grant is an item that was given, or refused.
type grant struct {
	actor, item string
	d           core.Decision
	day         int64
	call        int
	over        bool // was given back, or forgotten
}

func (w *quotaWorld) begin(name string) { w.name, w.given, w.undone = name, nil, nil }
func (w *quotaWorld) end() error        { return nil }

func (w *quotaWorld) today() int64 {
	s, _ := w.day.At(w.Now().UnixMilli())
	return s.Begins
}

// items returns the items that the actor has today.
func (w *quotaWorld) items(actor string) map[string]bool {
	has := map[string]bool{}
	for _, g := range w.given {
		if g.actor == actor && g.day == w.today() && !g.over {
			has[g.item] = true
		}
	}
	return has
}

func (w *quotaWorld) do(event string) (string, error) {
	ctx := context.Background()
	switch event {
	case "a", "b", "c", "bob-c":
		actor := "ann"
		if event == "bob-c" {
			actor, event = "bob", "c"
		}
		return w.attempt(actor, event)
	case "give-back", "give-first-back":
		open := []*grant{}
		for _, g := range w.given {
			if !g.over {
				open = append(open, g)
			}
		}
		if len(open) == 0 || event == "give-first-back" && len(open) == 1 {
			return "", errImpossible
		}
		g := open[len(open)-1]
		if event == "give-first-back" {
			g = open[0]
		}
		g.over = true
		w.undone = append(w.undone, w.Sent())
		if err := w.guard.Settle(ctx, g.d, core.Rollback); err != nil {
			return "", broken("Giving back is no error", "%v", err)
		}
	case "check-again": // the last but one that was allowed
		if len(w.given) < 2 || w.given[len(w.given)-2].over {
			return "", errImpossible
		}
		if err := w.Again(w.given[len(w.given)-2].call); err != nil {
			return "", broken("A call that arrives twice is no error", "%v", err)
		}
	case "give-back-again":
		if len(w.undone) == 0 {
			return "", errImpossible
		}
		if err := w.Again(w.undone[max(0, len(w.undone)-2)]); err != nil {
			return "", broken("A call that arrives twice is no error", "%v", err)
		}
	case "reset":
		for _, g := range w.given {
			g.over = g.over || g.actor == "ann" && g.day == w.today()
		}
		if err := w.guard.Reset(ctx, core.Attempt{Actor: w.name + "ann"}); err != nil {
			return "", broken("Reset is no error", "%v", err)
		}
	case "flush":
		for _, g := range w.given {
			g.over = true
		}
		w.Flush()
	case "just-before", "midnight":
		at := w.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
		if event == "just-before" {
			at = at.Add(-time.Millisecond)
		}
		if !at.After(w.Now()) {
			return "", errImpossible
		}
		w.PassUntil(at)
	case "second-earlier":
		w.Pass(-time.Second)
	}
	return w.check()
}

// attempt checks one attempt.
func (w *quotaWorld) attempt(actor, item string) (string, error) {
	has, call := w.items(actor), w.Sent()
	d, err := w.guard.Check(context.Background(), core.Attempt{Actor: w.name + actor, Item: item})
	if err != nil {
		return "", broken("A check is no error", "%v", err)
	}
	want := core.ReasonOK
	switch {
	case has[item]:
		want = core.ReasonAgain
	case len(has) == 2:
		want = core.ReasonQuota
	}
	if d.Reason != want || d.Replayed {
		return "", broken("An item is free if it is known, and else if there are fewer than two", "%s, want %s", d.Reason, want)
	}
	if d.Allowed {
		has[item] = true
		w.given = append(w.given, &grant{actor: actor, item: item, d: d, day: w.today(), call: call})
	}
	if d.Remaining != int64(2-len(has)) {
		return "", broken("Remaining is what is left of two", "%d, want %d", d.Remaining, 2-len(has))
	}
	return string(d.Reason), nil
}

// check compares what is kept for ann with the definition.
func (w *quotaWorld) check() (string, error) {
	has := w.items("ann")
	items, left, err := w.guard.Used(context.Background(), core.Attempt{Actor: w.name + "ann"})
	told := strings.Join(items, " ")
	if err != nil || len(items) != len(has) || left != int64(2-len(has)) {
		return told, broken("What is used is what was given", "%q and %d left, want %v: %v", items, left, has, err)
	}
	for _, item := range items {
		if !has[item] {
			return told, broken("What is used is what was given", "%q, want %v", items, has)
		}
	}
	return told, nil
}
