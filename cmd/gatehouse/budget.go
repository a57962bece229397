package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gatehouse-go/gatehouse/core/budget"
)

// budgets shows and changes what operators decide about the nodes of a budget, and what was used.
func budgets(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var f guardFlags
	f.redisFlags.register(fs)
	f.registerYes(fs)
	fs.StringVar(&f.name, "guard", "", "the `name` of the budget, as the application makes it")
	operands, err := parse()
	if err != nil {
		return err
	}
	actions := []string{"overrides", "audit", "export", "override", "pause", "resume"}
	switch {
	case len(operands) < 2 || !slices.Contains(actions, operands[0]):
		return usagef("the operands are %q: name an action (%s), a path such as 'acme|dev', and fields", operands,
			strings.Join(actions, ", "))
	case f.name == "":
		return usagef("-guard is missing: pass the name that the application gives to the budget")
	}
	texts, err := fields(operands[2:])
	if err != nil {
		return err
	}
	texts["actor"] = operands[1]
	f.looks = slices.Index(actions, operands[0]) < 3
	if user := e.getenv("USER"); !f.looks && texts["who"] == "" && user != "" {
		texts["who"] = user
	}
	engine, rdb, err := f.connect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	levels := make([]string, 8) // what is looked at here has no names of levels, and no limits
	for i := range levels {
		levels[i] = fmt.Sprint("level", i+1)
	}
	guard := budget.New(engine, f.name, budget.Options{Levels: levels,
		Find: func([]string) ([]budget.Limit, error) { return nil, nil }})
	do, err := operation(guard, operands[0])
	if err != nil {
		return err
	}
	result, err := e.perform(ctx, &f, guard, do, texts)
	if err != nil {
		return err
	}
	return e.writeBudget(result)
}

// writeBudget writes a table, a line for each node, change or row.
func (e *env) writeBudget(result any) error {
	var lines []string
	add := func(columns ...any) {
		texts := make([]string, len(columns))
		for i, column := range columns {
			texts[i] = printable(fmt.Sprint(column))
		}
		lines = append(lines, strings.Join(texts, "\t"))
	}
	switch r := result.(type) {
	case []budget.Decided:
		for _, d := range r {
			add(budget.Path(d.Path...), decidedText(d), ending(d.Until))
		}
	case []budget.Audited:
		for _, a := range r {
			ends := ""
			if !a.Until.IsZero() {
				ends = "until " + dated(a.Until)
			}
			add(dated(a.At), a.Who, budget.Path(a.Path...), a.What, ends, a.Why)
		}
	case budget.Exported:
		for _, row := range r.Rows {
			add(budget.Path(row.Path...), dated(row.Begins), dated(row.Ends), row.Used, row.Restored, row.Sequence)
		}
	default:
		return e.writeResult(result)
	}
	return e.write(result, func(w io.Writer) {
		var b strings.Builder
		table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, strings.Join(lines, "\n"))
		_ = table.Flush()
		for line := range strings.Lines(b.String()) {
			_, _ = fmt.Fprintln(w, strings.TrimSpace(line))
		}
	})
}

func decidedText(d budget.Decided) string {
	if d.Paused {
		return "paused"
	}
	var texts []string
	for _, l := range d.Limits {
		per := "period"
		if l.Window > 0 {
			per = l.Window.String()
		}
		texts = append(texts, fmt.Sprintf("%d per %s", l.Max, per))
	}
	return strings.Join(texts, ", ")
}

func dated(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func ending(t time.Time) string {
	switch {
	case t.IsZero():
		return "for ever"
	case t.Before(time.Now()):
		return "over"
	}
	return "until " + dated(t)
}
