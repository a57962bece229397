package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// card is a guard or a tool on the page of the list.
type card struct {
	Name, Kind string
	Settings   []pair
	Glances    []seen
	Forms      []kit.Operation
}

// glance is an action whose result the page of the list shows.
type glance struct {
	action Action
	do     *kit.Operation
	in     kit.Input
}

// seen is the result of a glance: figures, or why there are none.
type seen struct {
	Title  string
	Value  value
	Failed string
}

// glancesAll is how long all glances of a page may take together.
const glancesAll = 2 * time.Second

// glancesOf returns what is shown of each guard: actions without fields that only read, and those of
// Options.Shown.
func (h *Handler) glancesOf(shown []Action) map[string][]glance {
	all := map[string][]glance{}
	add := func(a Action) error {
		do := h.find(a)
		if do == nil {
			return errors.New("there is no such action")
		}
		if do.Changes {
			return errors.New("it changes something")
		}
		a.Changes, a.Fields = false, maps.Clone(a.Fields)
		in, err := do.Read(h.targets.texts(a))
		if err == nil {
			all[a.Guard] = append(all[a.Guard], glance{a, do, in})
		}
		return err
	}
	for _, t := range h.targets {
		for _, o := range t.operations {
			if a := (Action{Guard: t.Name, Name: o.Name}); !o.Changes && len(o.Fields) == 0 {
				_ = add(a) // it has no fields that could be wrong
			}
		}
	}
	for _, a := range shown {
		if err := add(a); err != nil {
			panic(fmt.Sprintf("operator: Options.Shown has %q of the guard %q: %v: name an action that only reads, "+
				"with its fields", a.Name, a.Guard, err))
		}
	}
	return all
}

// cards returns the cards on the page of the list for this operator. Errors of guards are not logged: pages
// ask every few seconds.
func (h *Handler) cards(r *keyfuncs.Request) []card {
	ctx, cancel := context.WithTimeout(r.Context(), glancesAll)
	defer cancel()
	all := make([]card, 0, len(h.targets))
	for _, t := range h.targets {
		c := card{Name: t.Name, Kind: t.Kind, Forms: t.operations}
		for _, s := range t.settings {
			c.Settings = append(c.Settings, pair{s.Name, fmt.Sprint(s.Value)})
		}
		for _, g := range h.glances[t.Name] {
			a := g.action
			a.Fields = maps.Clone(a.Fields)
			if _, err := h.may(r, a); err == nil {
				c.Glances = append(c.Glances, g.look(ctx))
			}
		}
		all = append(all, c)
	}
	return all
}

func (g *glance) look(ctx context.Context) seen {
	s := seen{Title: g.action.Name}
	for _, field := range g.do.Fields {
		if text := g.action.Fields[field.Name]; text != "" {
			s.Title += " " + text
		}
	}
	result, err := g.do.Run(ctx, g.in)
	if err == nil {
		s.Value, err = valueOf(shown(result))
	}
	if err != nil {
		_, s.Failed = explained(err)
	}
	return s
}
