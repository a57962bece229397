package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/attack"
)

// attackFlags are the flags of the command attack.
type attackFlags struct {
	attack.Options
	race, spoof     bool
	stock           int64
	limit, admitted string
	header          headerFlag
}

// attacked is the result of an attack.
type attacked struct {
	Target string           `json:"target"`
	Edge   *attack.Edge     `json:"edge,omitempty"`
	Race   *attack.Race     `json:"race,omitempty"`
	Spoof  []attack.Spoofed `json:"spoof,omitempty"`
	Seen   attack.Seen      `json:"seen"`
	// Ended says why the attack did not come to its end.
	Ended string `json:"ended,omitempty"`
	// Problems are what got through.
	Problems []string `json:"problems"`
}

func attackURL(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	f := attackFlags{header: headerFlag{}}
	f.register(fs)
	operands, err := parse()
	if err != nil {
		return err
	}
	if len(operands) != 1 {
		return usagef("%d operands: pass one URL", len(operands))
	}
	f.URL, f.Header = operands[0], http.Header(f.header)
	if f.Admits, err = admits(f.admitted); err != nil {
		return err
	}
	most, err := f.limits()
	if err != nil {
		return err
	}
	attacker, err := attack.New(f.Options)
	if err != nil {
		return usageError{err}
	}
	defer attacker.Close()
	result := attacked{Target: attacker.Method + " " + f.URL, Problems: []string{}}
	err = f.run(ctx, attacker, most, &result)
	return e.report(ctx, attacker, &result, err)
}

// report writes what an attack has found, and returns the error with which the command ends. err is why the
// attack did not come to its end, or nil.
func (e *env) report(ctx context.Context, a *attack.Attacker, result *attacked, err error) error {
	result.Seen = a.Seen()
	seen := &result.Seen
	switch {
	case err != nil && ctx.Err() != nil:
		err, result.Ended = ctx.Err(), "interrupted"
	case err != nil && seen.Requests == seen.Failed: // there is nothing to tell
		if errors.Is(err, attack.ErrRefused) {
			return usageError{err}
		}
		return err
	case err == nil && seen.Failed*failedMost > seen.Requests:
		err = fmt.Errorf("%d of %d requests got no answer, so this tells little: try a larger -timeout or a "+
			"smaller -c", seen.Failed, seen.Requests)
	}
	if err != nil && result.Ended == "" {
		result.Ended = err.Error()
	}
	if bad := e.write(result, func(w io.Writer) { result.write(w, a) }); bad != nil {
		return bad
	}
	switch {
	case len(result.Problems) > 0:
		return errProblem
	case err == nil || ctx.Err() != nil:
		return err
	}
	return fmt.Errorf("the attack ended early: %w", err)
}

// failedMost is how many requests of an attack, as a part of all, may get no answer.
const failedMost = 10

func (f *attackFlags) register(fs *flag.FlagSet) {
	fs.BoolVar(&f.race, "race", false, "race for a stock: send as fast as -c allows, and count the answers 2xx")
	fs.Int64Var(&f.stock, "stock", 0, "with -race: the number of `units` on sale")
	fs.BoolVar(&f.spoof, "spoof", false, "use up the limit, and then claim other addresses in header fields")
	fs.StringVar(&f.limit, "limit", "", "the `limit` to attack, such as 100/min (default: that of RateLimit-Policy)")
	fs.StringVar(&f.admitted, "admitted", "2xx,3xx", "the `statuses` of answers that were admitted, such as 2xx,401")
	fs.StringVar(&f.Method, "X", "GET", "the `method`")
	fs.Var(f.header, "H", "a header `field`, such as 'X-User: u{n}'; may be repeated. {n} is replaced by the number of\n"+
		"the request, here, in the URL and in the body")
	fs.StringVar(&f.Body, "body", "", "the `body` of each request")
	fs.StringVar(&f.AllowHost, "allow-host", "", "the `host` of the URL, typed again, if it is not a loopback address")
	fs.IntVar(&f.Requests, "n", attack.DefaultRequests,
		fmt.Sprintf("the most requests, up to %d", attack.MostRequests))
	fs.IntVar(&f.Concurrency, "c", attack.DefaultConcurrency,
		fmt.Sprintf("how many requests are under way at a time, up to %d", attack.MostConcurrency))
	fs.DurationVar(&f.Duration, "for", attack.DefaultDuration, fmt.Sprintf("the longest time, up to %v",
		attack.MostDuration))
	fs.DurationVar(&f.Timeout, "timeout", attack.DefaultTimeout, "how long to wait for an answer")
}

// limits reads the flag -limit. The zero limit is one to learn from the first answer.
func (f *attackFlags) limits() (most limit.Limit, err error) {
	switch {
	case f.race && f.spoof:
		return most, usagef("-race and -spoof are different attacks: make one after the other")
	case f.limit != "" && (f.race || f.spoof):
		return most, usagef("-limit is for attacks on the edge of a window: leave it out")
	case f.stock != 0 && !f.race:
		return most, usagef("-stock needs -race")
	case f.stock < 0:
		return most, usagef("-stock is %d: pass the number of units on sale", f.stock)
	case f.limit == "":
		return most, nil
	}
	if most, err = limit.Parse(f.limit); err != nil {
		return most, usagef("-limit: %w", err)
	}
	return most, nil
}

// run makes the attack, and notes what it finds.
func (f *attackFlags) run(ctx context.Context, a *attack.Attacker, most limit.Limit, result *attacked) error {
	switch {
	case f.race:
		race, err := a.Race(ctx, f.stock)
		result.Race = &race
		if !race.Holds() {
			result.problem("sold %d of %d units", race.Sold, race.Stock)
		}
		return err
	case f.spoof:
		spoofed, err := a.Spoof(ctx)
		result.Spoof = spoofed
		for _, s := range spoofed {
			if s.Effect == attack.ChangesKey {
				result.problem("a forged %s changes the key: anybody can have as many limits as they like", s.Field)
			}
		}
		return err
	}
	edge, err := a.Edge(ctx, most.Max, most.Window)
	result.Edge = &edge
	if edge.Limit > 0 && !edge.Holds() {
		result.problem("one window admitted %d of %d", edge.Worst, edge.Limit)
	}
	return err
}

func (r *attacked) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// write writes the report.
func (r *attacked) write(w io.Writer, a *attack.Attacker) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("target", "%s", r.Target)
	writeSeen(line, &r.Seen)
	if e := r.Edge; e != nil && e.Limit > 0 {
		line("limit", "%d in %v (%s)", e.Limit, e.Window, e.Source)
		line("worst window", "%d admitted, %.2f of the limit", e.Worst, float64(e.Worst)/float64(e.Limit))
	}
	if race := r.Race; race != nil {
		of := ""
		if race.Stock > 0 {
			of = fmt.Sprintf(" of %d", race.Stock)
		}
		line("sold", "%d%s, and %d replays", race.Sold, of, race.Replayed)
		if !a.Varies() {
			line("note", "all requests are the same: write {n} where the buyer is named")
		}
	}
	for _, s := range r.Spoof {
		line("forged", "%-18s %s (%d)", s.Field, s.Effect, s.Status)
	}
	if r.Ended != "" {
		line("ended early", "%s", r.Ended)
	}
	for _, problem := range r.Problems {
		line("PROBLEM", "%s", problem)
	}
	if len(r.Problems) == 0 && r.Ended == "" {
		line("result", "nothing got through that should not")
	}
}

// writeSeen writes what was seen of all answers.
func writeSeen(line func(name, format string, args ...any), seen *attack.Seen) {
	line("requests", "%d, of which %d were admitted", seen.Requests, seen.Admitted)
	for _, status := range slices.Sorted(maps.Keys(seen.Statuses)) {
		line("", "%6d x %d %s", seen.Statuses[status], status, http.StatusText(status))
	}
	if seen.Failed > 0 {
		line("", "%6d x no answer", seen.Failed)
	}
	for _, host := range slices.Sorted(maps.Keys(seen.Redirects)) {
		line("", "%6d lead to %s: not followed", seen.Redirects[host], printable(host))
	}
	for _, field := range seen.WhenAdmitted {
		line("admitted has", "%s", printable(field))
	}
	for _, field := range seen.WhenRefused {
		line("refused has", "%s", printable(field))
	}
}

// admits reads a list of statuses and of their classes.
func admits(text string) (func(status int) bool, error) {
	var statuses, classes []int
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		number, class := strings.CutSuffix(part, "xx")
		n, err := strconv.Atoi(number)
		switch {
		case err == nil && class && n >= 1 && n <= 5:
			classes = append(classes, n)
		case err == nil && !class && n >= 100 && n <= 599:
			statuses = append(statuses, n)
		default:
			return nil, usagef("-admitted has %q: write statuses and classes, such as 2xx,401", part)
		}
	}
	return func(status int) bool {
		return slices.Contains(statuses, status) || slices.Contains(classes, status/100)
	}, nil
}

// headerFlag is a flag that is repeated.
type headerFlag http.Header

// String implements flag.Value.
func (h headerFlag) String() string { return "" }

// Set implements flag.Value.
func (h headerFlag) Set(text string) error {
	name, value, ok := strings.Cut(text, ":")
	if !ok || strings.TrimSpace(name) == "" {
		return errors.New("write it as 'Name: value'")
	}
	http.Header(h).Add(strings.TrimSpace(name), strings.TrimSpace(value))
	return nil
}
