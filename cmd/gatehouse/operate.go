package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gatehouse-go/gatehouse/control"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/seckill"
)

func peek(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var f guardFlags
	f.register(fs, "")
	f.looks = true
	return e.operate(ctx, &f, parse, "peek", "status", "used")
}

func reset(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var f guardFlags
	f.register(fs, "")
	f.registerYes(fs)
	return e.operate(ctx, &f, parse, "reset", "unban")
}

// operate runs the first of some operations that the guard has, with the fields of the operands.
func (e *env) operate(
	ctx context.Context, f *guardFlags, parse func() ([]string, error), names ...string,
) error {
	operands, err := parse()
	if err != nil {
		return err
	}
	texts, err := fields(operands)
	if err != nil {
		return err
	}
	guard, done, err := f.open(ctx, e)
	if err != nil {
		return err
	}
	defer done()
	do, err := operation(guard, names...)
	if err != nil {
		return err
	}
	result, err := e.perform(ctx, f, guard, do, texts)
	if err != nil {
		return err
	}
	return e.writeResult(result)
}

// controls runs an operation of a desk, or of a budget, of which only the name has to be known.
func controls(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var f guardFlags
	f.redisFlags.register(fs)
	f.registerYes(fs)
	desk := fs.String("desk", "", "the `name` of the desk, as the application makes it")
	fs.StringVar(&f.name, "budget", "", "the `name` of a budget, in place of a desk")
	operands, err := parse()
	switch {
	case err != nil:
		return err
	case (*desk == "") == (f.name == ""):
		return usagef("pass the name of a desk by -desk, or that of a budget by -budget")
	case len(operands) == 0:
		return usagef("no operation is named, such as decided")
	}
	texts, err := fields(operands[1:])
	if err != nil {
		return err
	}
	engine, rdb, err := f.connect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	var of named
	err = caught(func() {
		if f.name != "" { // overrides know no limits and no names of levels
			of = budget.New(engine, f.name, budget.Options{Levels: []string{"1", "2", "3", "4", "5", "6", "7", "8"},
				Find: func([]string) ([]budget.Limit, error) { return nil, nil }})
			return
		}
		ended, cancel := context.WithCancel(ctx)
		cancel() // it obeys nothing, so it need not follow
		of = control.New(ended, engine, *desk)
	})
	if err != nil {
		return err
	}
	do, err := operation(of, operands[0])
	if err != nil {
		return err
	}
	if do.Name == "usage" || do.Name == "restore" {
		return usagef("only the application knows the limits of a budget, which %s needs", do.Name)
	}
	result, err := e.perform(ctx, &f, of, do, texts)
	if err != nil {
		return err
	}
	return e.writeResult(result)
}

func tally(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var f guardFlags
	f.register(fs, "votes")
	f.looks = true
	operands, err := parse()
	if err != nil {
		return err
	}
	if len(operands) != 1 {
		return usagef("%d operands: name one poll", len(operands))
	}
	guard, done, err := f.open(ctx, e)
	if err != nil {
		return err
	}
	defer done()
	do, err := operation(guard, "tally")
	if err != nil {
		return err
	}
	result, err := e.perform(ctx, &f, guard, do, map[string]string{"poll": operands[0]})
	if err != nil {
		return err
	}
	votes, _ := result.(map[string]int64)
	return e.write(result, func(w io.Writer) { writeTally(w, votes) })
}

// writeTally writes a tally, the choice with the most votes first.
func writeTally(w io.Writer, votes map[string]int64) {
	if len(votes) == 0 {
		_, _ = fmt.Fprintln(w, "nobody has voted in this poll")
		return
	}
	sum, width := int64(0), len("total")
	for choice, n := range votes {
		sum, width = sum+n, max(width, len(printable(choice)))
	}
	byVotes := slices.SortedFunc(maps.Keys(votes), func(a, b string) int {
		return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(a, b))
	})
	for _, choice := range byVotes {
		_, _ = fmt.Fprintf(w, "%-*s %10d\n", width, printable(choice), votes[choice])
	}
	_, _ = fmt.Fprintf(w, "%-*s %10d\n", width, "total", sum)
}

// printable returns a text of a user as it may be written to a terminal: in quotes if it has control
// characters.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// saleFlags are the flags of the command sale.
type saleFlags struct {
	guardFlags
	terms         seckill.Sale
	opens, closes string
	id            string
	units         int64
}

func sale(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var f saleFlags
	f.register(fs, "seckill")
	f.registerYes(fs)
	fs.Int64Var(&f.terms.Stock, "stock", 0, "open: the number of `units` to sell")
	fs.Int64Var(&f.terms.PerBuyer, "per-buyer", 1, "open: the number of `units` that one buyer may have")
	fs.DurationVar(&f.terms.Hold, "hold", 5*time.Minute,
		"open: how long a reservation waits for its confirmation")
	fs.StringVar(&f.opens, "opens", "",
		"open: when the sale opens, such as 2030-11-11T00:00:00+08:00 (default now)")
	fs.StringVar(&f.closes, "closes", "", "open: when the sale closes (default never)")
	fs.Int64Var(&f.units, "units", 0, "restock: the number of `units` to add, or to take away if negative")
	fs.StringVar(&f.id, "id", "", "restock: the `ID` of the delivery; the same one is counted once")
	operands, err := parse()
	if err != nil {
		return err
	}
	actions := []string{"status", "verify", "open", "restock", "close"}
	if len(operands) != 2 || !slices.Contains(actions, operands[0]) {
		return usagef("the operands are %q: name an action (%s) and one item", operands,
			strings.Join(actions, ", "))
	}
	action, item := operands[0], operands[1]
	f.looks = action == "status" || action == "verify"
	if f.terms.Opens, err = moment("-opens", f.opens); err != nil {
		return err
	}
	if f.terms.Closes, err = moment("-closes", f.closes); err != nil {
		return err
	}
	guard, done, err := f.open(ctx, e)
	if err != nil {
		return err
	}
	defer done()
	if action == "open" {
		return e.openSale(ctx, &f, guard, item)
	}
	texts := map[string]string{"item": item}
	if action == "restock" {
		texts["id"], texts["units"] = f.id, fmt.Sprint(f.units)
	}
	do, err := operation(guard, action)
	if err != nil {
		return err
	}
	result, err := e.perform(ctx, &f.guardFlags, guard, do, texts)
	if err != nil {
		return err
	}
	return e.writeSale(result)
}

// moment reads a time of RFC 3339. Empty is the zero time.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("%s is %q: write a time such as 2030-11-11T00:00:00+08:00", name, text)
	}
	return t, nil
}

// opened is the result of opening a sale.
type opened struct {
	Opened bool `json:"opened"`
	seckill.Status
}

// sales are a guard of the package seckill, or of buckets.
type sales interface {
	core.Guard
	Open(ctx context.Context, item string, sale seckill.Sale) (bool, error)
	Status(ctx context.Context, item string) (seckill.Status, error)
}

func (e *env) openSale(ctx context.Context, f *saleFlags, guard core.Guard, item string) error {
	g, ok := guard.(sales)
	if !ok {
		return usagef("the guard %q sells nothing", guard.Name())
	}
	if f.terms.Stock < 1 {
		return usagef("-stock is %d: pass the number of units to sell", f.terms.Stock)
	}
	if err := e.confirm(&f.guardFlags, fmt.Sprintf("open of guard %q, item %q, stock %d", g.Name(), item,
		f.terms.Stock)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	isNew, err := g.Open(ctx, item, f.terms)
	if err != nil {
		return err
	}
	status, err := g.Status(ctx, item)
	if err != nil {
		return err
	}
	return e.write(opened{isNew, status}, func(w io.Writer) {
		if !isNew {
			_, _ = fmt.Fprintln(w, "the sale was open already, and stays as it was")
		}
		writeStatus(w, status)
	})
}

// writeSale writes the result of an operation on a sale. Parts that do not agree are a problem.
func (e *env) writeSale(result any) error {
	switch r := result.(type) {
	case seckill.Status:
		return e.write(r, func(w io.Writer) { writeStatus(w, r) })
	case interface { // a Verification
		Consistent() bool
		String() string
	}:
		if err := e.write(r, func(w io.Writer) { _, _ = io.WriteString(w, r.String()) }); err != nil {
			return err
		}
		if !r.Consistent() {
			return errProblem
		}
		return nil
	}
	return e.writeResult(result)
}

func writeStatus(w io.Writer, s seckill.Status) {
	_, _ = fmt.Fprintf(w, "stock %d: left %d, held %d, sold %d\n", s.Stock, s.Left, s.Held, s.Sold)
}

// figures are the figures of a decision.
type figures struct {
	Allowed    bool        `json:"allowed"`
	Reason     core.Reason `json:"reason"`
	Limit      int64       `json:"limit"`
	Remaining  int64       `json:"remaining"`
	Window     string      `json:"window"`
	RetryAfter string      `json:"retry_after"`
}

func figuresOf(d core.Decision) figures {
	return figures{d.Allowed, d.Reason, d.Limit, d.Remaining, d.Window.String(), d.RetryAfter.String()}
}

// writeResult writes the result of an operation: the figures of a decision, or its fields in JSON's order.
func (e *env) writeResult(result any) error {
	if result == nil {
		result = map[string]bool{"done": true}
	}
	if d, ok := result.(core.Decision); ok {
		result = figuresOf(d)
	}
	data, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return e.write(json.RawMessage(data), func(w io.Writer) { writeMembers(w, data) })
}

// writeMembers writes the members of a JSON object, one per line, or those of each object of an array, with
// an empty line between them.
func writeMembers(w io.Writer, data []byte) {
	var all []json.RawMessage
	if json.Unmarshal(data, &all) == nil {
		for i, one := range all {
			if i > 0 {
				_, _ = fmt.Fprintln(w)
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
			text = printable(unquoted)
		}
		_, _ = fmt.Fprintf(w, "%-12v %s\n", name, text)
	}
}

// errUnconfirmed means that a change was not confirmed.
var errUnconfirmed = errors.New("nothing was changed: answer y, or pass -yes")

// confirm asks before a change.
func (e *env) confirm(f *guardFlags, what string) error {
	if f.yes {
		return nil
	}
	e.tell(what + ": go on? [y/N] ")
	line, err := bufio.NewReader(e.in).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	if err != nil {
		_, _ = fmt.Fprintln(e.errs)
	}
	return errUnconfirmed
}
