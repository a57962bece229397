// Package attack is the command attack.
package attack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/core/limit"
	attacks "github.com/gatehouse-go/gatehouse/internal/attack"
)

// Command is the command attack.
var Command = cli.Command{Name: "attack", Args: "[flags] URL",
	Does: "attack a limit or a sale of your own staging, and count what got through", Run: run}

// flags are the flags of the command.
type flags struct {
	attacks.Options
	race, spoof     bool
	stock           int64
	limit, admitted string
}

// report is what an attack has found.
type report struct {
	Target string            `json:"target"`
	Edge   *attacks.Edge     `json:"edge,omitempty"`
	Race   *attacks.Race     `json:"race,omitempty"`
	Spoof  []attacks.Spoofed `json:"spoof,omitempty"`
	Seen   attacks.Seen      `json:"seen"`
	// Ended says why the attack did not come to its end.
	Ended string `json:"ended,omitempty"`
	// Problems are what got through.
	Problems []string `json:"problems"`
}

func run(ctx context.Context, e *cli.Env) error {
	f := flags{Options: attacks.Options{Header: http.Header{}}}
	f.register(e.Flags)
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	if len(operands) != 1 {
		return cli.Usagef("%d operands: pass one URL", len(operands))
	}
	f.URL = operands[0]
	if f.Admits, err = admits(f.admitted); err != nil {
		return err
	}
	most, err := f.limits()
	if err != nil {
		return err
	}
	attacker, err := attacks.New(f.Options)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	defer attacker.Close()
	found := report{Target: attacker.Method + " " + f.URL, Problems: []string{}}
	err = f.attack(ctx, attacker, most, &found)
	return found.finish(ctx, e, attacker, err)
}

// finish writes the report, and returns the error with which the command ends. err is why the attack did not
// come to its end, or nil.
func (r *report) finish(ctx context.Context, e *cli.Env, a *attacks.Attacker, err error) error {
	r.Seen = a.Seen()
	seen := &r.Seen
	switch {
	case err != nil && ctx.Err() != nil:
		err, r.Ended = ctx.Err(), "interrupted"
	case err != nil && seen.Requests == seen.Failed: // there is nothing to tell
		if errors.Is(err, attacks.ErrRefused) {
			return cli.Usagef("%w", err)
		}
		return err
	case err == nil && seen.Failed*failedMost > seen.Requests:
		err = fmt.Errorf("%d of %d requests got no answer, so this tells little: try a larger -timeout or a "+
			"smaller -c", seen.Failed, seen.Requests)
	}
	if err != nil && r.Ended == "" {
		r.Ended = err.Error()
	}
	if bad := e.Write(r, func(w *strings.Builder) { r.write(w, a) }); bad != nil {
		return bad
	}
	switch {
	case len(r.Problems) > 0:
		return cli.ErrProblem
	case err == nil || ctx.Err() != nil:
		return err
	}
	return fmt.Errorf("the attack ended early: %w", err)
}

// failedMost is how many requests of an attack, as a part of all, may get no answer.
const failedMost = 10

func (f *flags) register(fs *flag.FlagSet) {
	fs.BoolVar(&f.race, "race", false, "race for a stock: send as fast as -c allows, and count the answers 2xx")
	fs.Int64Var(&f.stock, "stock", 0, "with -race: the number of `units` on sale")
	fs.BoolVar(&f.spoof, "spoof", false, "use up the limit, and then claim other addresses in header fields")
	fs.StringVar(&f.limit, "limit", "", "the `limit` to attack, such as 100/min (default: that of RateLimit-Policy)")
	fs.StringVar(&f.admitted, "admitted", "2xx,3xx", "the `statuses` of answers that were admitted, such as 2xx,401")
	fs.StringVar(&f.Method, "X", "GET", "the `method`")
	fs.Func("H", "a header `field`, such as 'X-User: u{n}'; may be repeated. {n} is replaced by the number of\n"+
		"the request, here, in the URL and in the body", cli.AddTo(f.Header))
	fs.StringVar(&f.Body, "body", "", "the `body` of each request")
	fs.StringVar(&f.AllowHost, "allow-host", "", "the `host` of the URL, typed again, if it is not a loopback address")
	fs.IntVar(&f.Requests, "n", attacks.DefaultRequests,
		fmt.Sprintf("the most requests, up to %d", attacks.MostRequests))
	fs.IntVar(&f.Concurrency, "c", attacks.DefaultConcurrency,
		fmt.Sprintf("how many requests are under way at a time, up to %d", attacks.MostConcurrency))
	fs.DurationVar(&f.Duration, "for", attacks.DefaultDuration, fmt.Sprintf("the longest time, up to %v",
		attacks.MostDuration))
	fs.DurationVar(&f.Timeout, "timeout", attacks.DefaultTimeout, "how long to wait for an answer")
}

// limits reads the flag -limit. The zero limit is one to learn from the first answer.
func (f *flags) limits() (most limit.Limit, err error) {
	switch {
	case f.race && f.spoof:
		return most, cli.Usagef("-race and -spoof are different attacks: make one after the other")
	case f.limit != "" && (f.race || f.spoof):
		return most, cli.Usagef("-limit is for attacks on the edge of a window: leave it out")
	case f.stock != 0 && !f.race:
		return most, cli.Usagef("-stock needs -race")
	case f.stock < 0:
		return most, cli.Usagef("-stock is %d: pass the number of units on sale", f.stock)
	case f.limit == "":
		return most, nil
	}
	if most, err = limit.Parse(f.limit); err != nil {
		return most, cli.Usagef("-limit: %w", err)
	}
	return most, nil
}

// attack makes the attack, and reports what it finds.
func (f *flags) attack(ctx context.Context, a *attacks.Attacker, most limit.Limit, found *report) error {
	switch {
	case f.race:
		race, err := a.Race(ctx, f.stock)
		found.Race = &race
		if !race.Holds() {
			found.problem("sold %d of %d units", race.Sold, race.Stock)
		}
		return err
	case f.spoof:
		spoofed, err := a.Spoof(ctx)
		found.Spoof = spoofed
		for _, s := range spoofed {
			if s.Effect == attacks.ChangesKey {
				found.problem("a forged %s changes the key: anybody can have as many limits as they like", s.Field)
			}
		}
		return err
	}
	edge, err := a.Edge(ctx, most.Max, most.Window)
	found.Edge = &edge
	if edge.Limit > 0 && !edge.Holds() {
		found.problem("one window admitted %d of %d", edge.Worst, edge.Limit)
	}
	return err
}

func (r *report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// write writes the report.
func (r *report) write(w *strings.Builder, a *attacks.Attacker) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-14s %s\n", name, fmt.Sprintf(format, args...))
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
func writeSeen(line func(name, format string, args ...any), seen *attacks.Seen) {
	line("requests", "%d, of which %d were admitted", seen.Requests, seen.Admitted)
	for _, status := range slices.Sorted(maps.Keys(seen.Statuses)) {
		line("", "%6d x %d %s", seen.Statuses[status], status, http.StatusText(status))
	}
	if seen.Failed > 0 {
		line("", "%6d x no answer", seen.Failed)
	}
	for _, host := range slices.Sorted(maps.Keys(seen.Redirects)) {
		line("", "%6d lead to %s: not followed", seen.Redirects[host], cli.Printable(host))
	}
	for _, field := range seen.WhenAdmitted {
		line("admitted has", "%s", cli.Printable(field))
	}
	for _, field := range seen.WhenRefused {
		line("refused has", "%s", cli.Printable(field))
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
			return nil, cli.Usagef("-admitted has %q: write statuses and classes, such as 2xx,401", part)
		}
	}
	return func(status int) bool {
		return slices.Contains(statuses, status) || slices.Contains(classes, status/100)
	}, nil
}
