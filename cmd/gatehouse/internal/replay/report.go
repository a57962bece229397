package replay

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/accesslog"
)

// maxActors is how many actors each limit counts at a time.
const maxActors = 1 << 20

// ruleCounts is what a rule has decided.
type ruleCounts struct {
	asked, refused, wouldRefuse int
	reasons                     map[core.Reason]int
	actors                      map[string]*actorCounts
	lost                        int // requests of further actors
	names                       bool
}

type actorCounts struct{ asked, refused int }

func newRuleCounts(names bool) *ruleCounts {
	return &ruleCounts{reasons: map[core.Reason]int{}, actors: map[string]*actorCounts{}, names: names}
}

// decided counts a decision. In the shadow of a rollout, it would refuse.
func (c *ruleCounts) decided(d *core.Decision) {
	c.asked++
	refused := !d.Allowed
	switch {
	case refused && d.Attempt.Shadow:
		c.wouldRefuse++
	case refused:
		c.refused++
	}
	if refused {
		c.reasons[d.Reason]++
	}
	if !refused && !c.names || d.Attempt.Actor == "" {
		return
	}
	a := c.actors[d.Attempt.Actor]
	if a == nil {
		if len(c.actors) >= maxActors {
			c.lost++
			return
		}
		a = new(actorCounts)
		c.actors[strings.Clone(d.Attempt.Actor)] = a // the text is a part of a whole line
	}
	if a.asked++; refused {
		a.refused++
	}
}

func (c *ruleCounts) refusedActors() (n int) {
	for _, a := range c.actors {
		if a.refused > 0 {
			n++
		}
	}
	return n
}

// report is the result of the command replay.
type report struct {
	Rules       string        `json:"rules"`
	Notes       []string      `json:"notes,omitempty"`
	Logs        []logReport   `json:"logs"`
	Requests    int           `json:"requests"`
	From        time.Time     `json:"from"`
	To          time.Time     `json:"to"`
	OutOfOrder  int           `json:"out_of_order"`
	Late        int           `json:"late"`
	Unusable    int           `json:"unusable"`
	Options     int           `json:"options_requests"`
	RefusedThen int           `json:"refused_then"` // 429 in the log
	Results     []ruleReport  `json:"results"`
	Sweeps      []ruleReport  `json:"sweeps,omitempty"`
	NotReplayed []skippedRule `json:"not_replayed,omitempty"`
}

// logReport is what was read of a log.
type logReport struct {
	Name    string             `json:"name"`
	Format  string             `json:"format"`
	Lines   int                `json:"lines"`
	Broken  int                `json:"broken"`
	Other   int                `json:"other_lines,omitempty"` // of something else
	First   []accesslog.Broken `json:"first_broken,omitempty"`
	Unknown map[string]int     `json:"fields_not_used,omitempty"`
	NoUnit  string             `json:"duration_without_unit,omitempty"`
}

// ruleReport is what a rule would have done.
type ruleReport struct {
	List          string              `json:"list"`
	Guard         string              `json:"guard"`
	Kind          string              `json:"kind"`
	Limits        string              `json:"limits"`
	Requests      int                 `json:"requests"`
	Refused       int                 `json:"refused"`
	WouldRefuse   int                 `json:"would_refuse,omitempty"` // in the shadow of a rollout
	Reasons       map[core.Reason]int `json:"reasons"`
	Actors        int                 `json:"actors,omitempty"`
	ActorsRefused int                 `json:"actors_refused"`
	Top           []actorReport       `json:"top,omitempty"`
	Notes         []string            `json:"notes,omitempty"`
}

// actorReport is an actor that a rule would have refused.
type actorReport struct {
	Actor    string `json:"actor"`
	Requests int    `json:"requests"`
	Refused  int    `json:"refused"`
}

func (p *report) addLog(name string, in *accesslog.Reader) {
	p.Logs = append(p.Logs, logReport{name, in.Format, in.Lines, in.Broken, in.Other, in.First, in.Unused,
		in.NoUnit})
}

func (p *report) add(e *accesslog.Entry) {
	if p.Requests++; p.Requests == 1 {
		p.From = e.Time
	}
	p.To = e.Time
	if e.Method == http.MethodOptions {
		p.Options++
	}
	if e.Status == http.StatusTooManyRequests {
		p.RefusedThen++
	}
}

// top returns the actors that were refused most.
func (c *ruleCounts) top(n int) (all []actorReport) {
	for name, a := range c.actors {
		if a.refused > 0 {
			all = append(all, actorReport{name, a.asked, a.refused})
		}
	}
	slices.SortFunc(all, func(a, b actorReport) int {
		return cmp.Or(b.Refused-a.Refused, strings.Compare(a.Actor, b.Actor))
	})
	return slices.Clone(all[:min(n, len(all))])
}

func share(part, whole int) string {
	return fmt.Sprintf("%d of %d (%.1f %%)", part, whole, 100*float64(part)/float64(max(whole, 1)))
}

// write writes the result as text.
func (p *report) write(w *strings.Builder) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	for _, note := range p.Notes {
		line("note       %s", cli.Printable(note))
	}
	for _, log := range p.Logs {
		other := ""
		if log.Other > 0 {
			other = fmt.Sprintf(", %d of something else", log.Other)
		}
		line("log        %s: %s, %s, %d broken%s", cli.Printable(log.Name), log.Format,
			cli.Count(log.Lines, "line"), log.Broken, other)
		for _, b := range log.First {
			line("             line %d: %s", b.Line, cli.Printable(b.Why))
		}
		if len(log.Unknown) > 0 {
			var names []string
			for _, name := range slices.Sorted(maps.Keys(log.Unknown)) {
				names = append(names, cli.Printable(name))
			}
			line("             not used: %.200s", strings.Join(names, ", "))
		}
		if log.NoUnit != "" {
			line("             %s has no unit, so a request counts when it ended: -field duration=%[1]s:ms, with s, "+
				"ms, us or ns", cli.Printable(log.NoUnit))
		}
	}
	line("requests   %d, %s to %s", p.Requests, p.From.UTC().Format(time.RFC3339),
		p.To.UTC().Format(time.RFC3339))
	if p.OutOfOrder > 0 {
		line("           %d out of order; %d too late to be put in order", p.OutOfOrder, p.Late)
	}
	if p.Unusable > 0 {
		line("           %d with a target that is no URL", p.Unusable)
	}
	for _, one := range p.Results {
		one.write(line)
	}
	if len(p.Sweeps) > 0 {
		line("\nother limits")
	}
	for _, one := range p.Sweeps {
		line("  %s %s  %-12s refused %s, %s", one.List, one.Guard, one.Limits,
			share(one.Refused+one.WouldRefuse, one.Requests), cli.Count(one.ActorsRefused, "actor"))
	}
	if len(p.NotReplayed) > 0 {
		line("\nnot replayed, as if they allowed all")
	}
	for _, one := range p.NotReplayed {
		line("  %s", one)
	}
}

func (r *ruleReport) write(line func(format string, args ...any)) {
	line("\n%s %s (%s %s)", r.List, r.Guard, r.Kind, r.Limits)
	line("  refused  %s, %d of %d actors", share(r.Refused, r.Requests), r.ActorsRefused, r.Actors)
	if r.WouldRefuse > 0 {
		line("  shadow   would refuse %s", share(r.WouldRefuse, r.Requests))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		line("  reason   %s: %d", reason, r.Reasons[reason])
	}
	for _, a := range r.Top {
		line("  actor    %s: %s", cli.Printable(a.Actor), share(a.Refused, a.Requests))
	}
	for _, note := range r.Notes {
		line("  note     %s", note)
	}
}

// writeCSV writes a line for each rule, actor, limit of a sweep, and rule that is not replayed.
func (p *report) writeCSV(w *strings.Builder) {
	out := csv.NewWriter(w)
	number := strconv.Itoa
	rows := [][]string{{"what", "list", "guard", "limits", "actor", "requests", "refused", "would_refuse",
		"actors_refused", "note"}}
	row := func(what string, r *ruleReport, a actorReport, note string) {
		rows = append(rows, []string{what, r.List, r.Guard, r.Limits, cell(a.Actor), number(a.Requests),
			number(a.Refused), number(r.WouldRefuse), number(r.ActorsRefused), note})
	}
	for _, note := range p.Notes {
		row("note", &ruleReport{}, actorReport{}, note)
	}
	for i := range p.Results {
		r := &p.Results[i]
		row("rule", r, actorReport{"", r.Requests, r.Refused}, strings.Join(r.Notes, "; "))
		for _, a := range r.Top {
			row("actor", r, a, "")
		}
	}
	for i := range p.Sweeps {
		r := &p.Sweeps[i]
		row("sweep", r, actorReport{"", r.Requests, r.Refused}, "")
	}
	for _, n := range p.NotReplayed {
		rows = append(rows, []string{"not_replayed", n.List, n.Guard, "", "", "", "", "", "",
			strings.Join(n.Why, "; ")})
	}
	_ = out.WriteAll(rows) // into a buffer, which takes all
}

// cell returns a text of clients so that no spreadsheet takes it for a formula.
func cell(text string) string {
	text = cli.Printable(text)
	if strings.ContainsAny(text[:min(1, len(text))], "=+-@") {
		return "'" + text
	}
	return text
}
