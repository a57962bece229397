package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/schedule"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// Limiter is a rate limit: one of package limit, or of package lease.
type Limiter interface {
	Name() string
	Override(by func(own limit.Func) limit.Func)
	Accepts(limits ...limit.Limit) error
}

// binding is a thing of this process.
type binding struct {
	accepts func(Decision) error // or nil
	obey    func([]Decision)     // all that are in force
	obeys   []Decision
	keeper  Keeper // or nil
}

// Limits lets operators decide about the limits of a guard, under its name. Call it before the guard is used.
// It panics when the desk has a guard of that name.
func (d *Desk) Limits(g Limiter) {
	var now atomic.Pointer[map[string][]limit.Limit] // by actor
	g.Override(func(own limit.Func) limit.Func {
		return func(ctx context.Context, a core.Attempt) ([]limit.Limit, error) {
			all := now.Load()
			if all == nil || len(*all) == 0 {
				return own(ctx, a)
			}
			for _, of := range []string{a.Actor, ""} {
				if limits := (*all)[of]; limits != nil {
					return limits, nil
				}
			}
			return own(ctx, a)
		}
	})
	d.bind(Limits, g.Name(), &binding{
		accepts: func(x Decision) error {
			limits, err := limit.ParseAll(x.Value)
			if err == nil {
				err = g.Accepts(limits...)
			}
			return err
		},
		obey: func(decided []Decision) {
			all := make(map[string][]limit.Limit, len(decided))
			for _, x := range decided {
				all[x.Of], _ = limit.ParseAll(x.Value) // accepted
			}
			now.Store(&all)
		},
	})
}

// List lets operators put entries into a list, and take entries out that the application has in it. It panics
// when the desk has a list of that name.
func (d *Desk) List(name string, l *keyfuncs.List) {
	accepts := func(x Decision) error { return l.Accepts(x.Of) }
	d.bind(List, name, &binding{accepts: accepts, obey: func(decided []Decision) {
		var added, removed []string
		for _, x := range decided {
			if x.Value == "in" {
				added = append(added, x.Of)
			} else {
				removed = append(removed, x.Of)
			}
		}
		_ = l.Overlay(added, removed) // accepted
	}})
}

// anyList accepts any entry that a list may have. It does not know what it looks up.
var anyList = keyfuncs.NewList(keyfuncs.User("any"))

// Rollout lets operators decide for how many clients a rule is enabled and enforced, in place of the
// application's values. It panics when the desk has a roll-out of that name.
func (d *Desk) Rollout(name string, r *pipeline.Rollout) {
	d.bind(Rollout, name, &binding{obey: func(decided []Decision) {
		if len(decided) == 0 {
			r.Uncover()
			return
		}
		enabled, enforced, _ := percentages(decided[0].Value) // the only one, and accepted
		_ = r.Overlay(enabled, enforced)
	}})
}

// Keeper is a budget: a guard of package budget. It keeps the decisions about it beside what it counts. Its
// script reads them, so the next call of each process obeys.
type Keeper interface {
	Name() string
	Decisions(a core.Attempt) (root, audit, field string, err error)
	Override(path, text string) (words string, err error)
}

// Budget lets operators give a node of a budget other limits, and pause it, under the guard's name. It panics
// when the desk has a budget of that name.
func (d *Desk) Budget(g Keeper) {
	d.bind(Budget, g.Name(), &binding{keeper: g, obey: func([]Decision) {}})
}

func (d *Desk) bind(kind, name string, b *binding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what := thing{kind, name}
	if _, taken := d.bound[what]; taken || name == "" {
		panic(fmt.Sprintf("control: the desk %q has a thing of kind %s named %q, or that is no name: "+
			"bind each once, under a name of its own", d.Name(), kind, name))
	}
	d.bound[what] = b
	d.apply()
}

// Release forgets a thing of that kind and name, so that another can be bound in its place. The former one
// stays as it is.
func (d *Desk) Release(kind, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.bound, thing{kind, name})
}

// check returns the value of a decision as Redis has it. It is an error for a decision that no process could
// obey, or that this one could not.
func (d *Desk) check(x Decision) (value string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.accepts(x); err != nil {
		return "", err
	}
	if !x.Until.IsZero() && schedule.Milli(x.Until) <= d.now() {
		return "", errors.New("until is over: give a later time, or the zero Time for ever")
	}
	if !x.ofBudget() {
		return x.Value, nil
	}
	words := ""
	if x.Kind == Budget {
		words, err = d.bound[thing{Budget, x.Name}].keeper.Override(x.Of, x.Value)
	}
	return x.Value + "|" + x.field() + words, err
}

// kinds check the decisions about things that a process need not have bound.
var kinds = map[string]func(Decision) error{
	Limits: func(x Decision) error {
		_, err := limit.ParseAll(x.Value)
		return err
	},
	List: func(x Decision) error {
		if x.Value != "in" && x.Value != "out" {
			return fmt.Errorf(`%.40q: want in or out`, x.Value)
		}
		return anyList.Accepts(x.Of) // rejects entries that no list takes; other processes may have it
	},
	Rollout: func(x Decision) error {
		if x.Of != "" {
			return fmt.Errorf("of is %.40q: a roll-out is for all", x.Of)
		}
		_, _, err := percentages(x.Value)
		return err
	},
	Budget: func(Decision) error { return nil }, // see check
	Pause: func(x Decision) error {
		if x.Value != "on" {
			return fmt.Errorf(`%.40q: a pause is on, or withdrawn`, x.Value)
		}
		return nil
	},
}

// accepts is check for a decision that was read. The caller holds mu.
func (d *Desk) accepts(x Decision) (err error) {
	switch {
	case kinds[x.Kind] == nil:
		return fmt.Errorf("kind %.40q: want one of %s", x.Kind, slices.Sorted(maps.Keys(kinds)))
	case x.Name == "":
		return errors.New("name is missing")
	case x.Resource != "" && !x.ofBudget():
		return fmt.Errorf("resource is %.40q: only budgets have one", x.Resource)
	case !x.Until.IsZero() && !schedule.Countable(x.Until):
		return fmt.Errorf("until %v: give a time from 1970 to 2200, or the zero Time for ever", x.Until)
	}
	err = kinds[x.Kind](x)
	if b := d.bound[thing{x.Kind, x.Name}]; err == nil && b != nil && b.accepts != nil {
		err = b.accepts(x)
	}
	return err
}

// percentages reads for how many percent a rule is enabled and enforced.
func percentages(text string) (enabled, enforced float64, err error) {
	first, second, _ := strings.Cut(text, " ")
	enabled, err = strconv.ParseFloat(first, 64)
	if err == nil {
		enforced, err = strconv.ParseFloat(second, 64)
	}
	if err != nil {
		return 0, 0, fmt.Errorf(`%.40q: want percent enabled and enforced, such as "100 10"`, text)
	}
	return enabled, enforced, new(pipeline.Rollout).Set(enabled, enforced)
}
