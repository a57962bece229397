// Package operate has the commands that look at guards, desks and sales, and change them.
package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/ops/control"
)

// The commands of this package, but for [Sale].
var (
	Peek = cli.Command{Name: "peek", Args: "[flags] [FIELD=VALUE ...]",
		Does: "what is left of a limit, who holds a lock, whether an actor is banned", Run: peek}
	Reset = cli.Command{Name: "reset", Args: "[flags] FIELD=VALUE ...",
		Does: "forget what an actor has used", Run: reset}
	Tally = cli.Command{Name: "tally", Args: "[flags] POLL", Does: "the votes of a poll", Run: tally}
	// Control needs to know nothing of a desk or a budget but its name.
	Control = cli.Command{Name: "control", Args: "[flags] OPERATION [FIELD=VALUE ...]",
		Does: "what operators have decided about limits, lists, roll-outs and budgets", Run: controls}
)

func peek(ctx context.Context, e *cli.Env) error {
	var f guardFlags
	f.register(e.Flags, "")
	f.Looks = true
	return f.operate(ctx, e, "peek", "status", "used")
}

func reset(ctx context.Context, e *cli.Env) error {
	var f guardFlags
	f.register(e.Flags, "")
	f.registerYes(e.Flags)
	return f.operate(ctx, e, "reset", "unban")
}

// operate runs the first of some operations that the guard has, with the fields of the operands.
func (f *guardFlags) operate(ctx context.Context, e *cli.Env, names ...string) error {
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	texts, err := fields(operands)
	if err != nil {
		return err
	}
	result, err := f.run(ctx, e, texts, names...)
	if err != nil {
		return err
	}
	return writeResult(e, result)
}

func controls(ctx context.Context, e *cli.Env) error {
	var f guardFlags
	f.Redis.Register(e.Flags)
	f.registerYes(e.Flags)
	desk := e.Flags.String("desk", "", "the `name` of the desk, as the application makes it")
	e.Flags.StringVar(&f.name, "budget", "", "the `name` of a budget, whose bill is exported, in place of a desk")
	operands, err := e.Operands()
	switch {
	case err != nil:
		return err
	case (*desk == "") == (f.name == ""):
		return cli.Usagef("pass the name of a desk by -desk, or that of a budget by -budget")
	case len(operands) == 0:
		return cli.Usagef("no operation is named, such as decided")
	}
	texts, err := fields(operands[1:])
	if err != nil {
		return err
	}
	engine, rdb, err := f.Connect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	if op := operands[0]; f.name != "" && op != "export" && op != "ended" {
		return cli.Usagef("of a budget there are export and ended: %s needs a desk, or the application", op)
	}
	var of named
	err = cli.Caught(func() {
		calls := func(name string) *budget.Guard { // decisions know no limits and no names of levels
			return budget.New(engine, name, budget.Options{Levels: []string{"1", "2", "3", "4", "5", "6", "7", "8"},
				Find: func([]string) ([]budget.Limit, error) { return nil, nil }})
		}
		if f.name != "" {
			of = calls(f.name)
			return
		}
		ended, cancel := context.WithCancel(ctx)
		cancel() // it obeys nothing, so it need not follow
		d := control.New(ended, engine, *desk)
		if about := cmp.Or(texts["kind"], operands[0]); about == control.Budget || about == control.Pause {
			d.Budget(calls(texts["name"]))
		}
		of = d
	})
	if err != nil {
		return err
	}
	result, err := f.perform(ctx, e, of, texts, operands[0])
	if err != nil {
		return err
	}
	return writeResult(e, result)
}

func tally(ctx context.Context, e *cli.Env) error {
	var f guardFlags
	f.register(e.Flags, "votes")
	f.Looks = true
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	if len(operands) != 1 {
		return cli.Usagef("%d operands: name one poll", len(operands))
	}
	result, err := f.run(ctx, e, map[string]string{"poll": operands[0]}, "tally")
	if err != nil {
		return err
	}
	votes, _ := result.(map[string]int64)
	return e.Write(result, func(w *strings.Builder) { writeTally(w, votes) })
}

// writeTally writes a tally, the choice with the most votes first.
func writeTally(w *strings.Builder, votes map[string]int64) {
	if len(votes) == 0 {
		fmt.Fprintln(w, "nobody has voted in this poll")
		return
	}
	sum, width := int64(0), len("total")
	for choice, n := range votes {
		sum, width = sum+n, max(width, len(cli.Printable(choice)))
	}
	byVotes := slices.SortedFunc(maps.Keys(votes), func(a, b string) int {
		return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(a, b))
	})
	for _, choice := range byVotes {
		fmt.Fprintf(w, "%-*s %10d\n", width, cli.Printable(choice), votes[choice])
	}
	fmt.Fprintf(w, "%-*s %10d\n", width, "total", sum)
}

// writeResult writes the result of an operation: the figures of a decision, or its fields in JSON's order.
func writeResult(e *cli.Env, result any) error {
	if result == nil {
		result = map[string]bool{"done": true}
	}
	if d, ok := result.(core.Decision); ok {
		result = cli.FiguresOf(d)
	}
	data, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return e.Write(json.RawMessage(data), func(w *strings.Builder) { writeMembers(w, data) })
}

// writeMembers writes the members of a JSON object, one per line. Between the objects of an array it leaves a
// line empty.
func writeMembers(w *strings.Builder, data []byte) {
	var all []json.RawMessage
	if json.Unmarshal(data, &all) == nil {
		for i, one := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			writeMembers(w, one)
		}
		return
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	if _, err := decoder.Token(); err != nil {
		return
	}
	for decoder.More() {
		name, err := decoder.Token()
		var value json.RawMessage
		if err != nil || decoder.Decode(&value) != nil {
			return
		}
		text := string(value)
		if unquoted := ""; json.Unmarshal(value, &unquoted) == nil {
			text = cli.Printable(unquoted)
		}
		fmt.Fprintf(w, "%-12v %s\n", name, text)
	}
}
