package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
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
	Title   string
	Figures []pair
	Failed  string
}

// pair is a name and a value, as people read them.
type pair struct{ Name, Value string }

// glancesAll is how long all glances of a page may take together.
const glancesAll = 2 * time.Second

// glancesOf returns what is shown of each guard: actions without fields that only read, and those of
// Options.Shown.
func (h *handler) glancesOf(shown []Action) map[string][]glance {
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

// cards returns what the page of the list shows to this operator. What a guard cannot tell is not logged:
// pages ask every few seconds.
func (h *handler) cards(r *http.Request) []card {
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
			if _, err := h.options.Authorize(r, a); err == nil {
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
		s.Figures, err = pairsOf(shown(result))
	}
	if err != nil {
		_, s.Failed = explain(err)
	}
	return s
}

// down returns the servers of Redis that the guards' engines do not call at the moment.
func (h *handler) down() (all []script.OpenBreaker) {
	var asked []*core.Engine
	for _, t := range h.targets {
		g, ok := t.guard.(interface{ Engine() *core.Engine })
		if !ok {
			continue
		}
		if e := g.Engine(); e != nil && !slices.Contains(asked, e) {
			asked = append(asked, e)
			all = append(all, e.OpenBreakers()...)
		}
	}
	for i := range all {
		all[i].For = all[i].For.Round(time.Second)
	}
	return all
}

// pairsOf returns the members of a result in their order, or the result as one value without a name.
func pairsOf(result any) ([]pair, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return []pair{{"", string(text)}}, err
	}
	var all []pair
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		all = append(all, pair{strings.ReplaceAll(fmt.Sprint(name), "_", " "), plain(value)})
	}
	return all, nil
}

// plain returns a text without its quotes, and anything else as JSON.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}
