// Package edge has the command that tells proxies and firewalls which actors are banned.
package edge

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
	"github.com/gatehouse-go/gatehouse/core/bans"
)

// Bans is the command bans.
var Bans = cli.Command{Name: "bans", Args: "[flags] GUARD",
	Does: "who is banned now, also as a file for a proxy or a firewall", Run: run}

// leastEvery is the shortest -every. A proxy needs some time to read the file.
const leastEvery = 100 * time.Millisecond

// flags are the flags of the command.
type flags struct {
	connect.Redis
	guard       string
	name        string // of the format
	form        *format
	out         string
	most        int
	follow      bool
	every       time.Duration
	exec        string
	clearsAtEnd bool
}

func (f *flags) register(e *cli.Env) {
	f.Register(e.Flags)
	f.Looks = true
	e.Flags.StringVar(&f.name, "format", "", "write a file in this `format`: "+strings.Join(formatNames(), ", "))
	e.Flags.StringVar(&f.out, "out", "", "the `file` to write, which is replaced as a whole (default standard output)")
	e.Flags.IntVar(&f.most, "most", 10_000, "the largest `number` of bans to write; those that end last are kept")
	e.Flags.BoolVar(&f.follow, "follow", false, "keep the file as the bans are, until a signal ends the command")
	e.Flags.DurationVar(&f.every, "every", 500*time.Millisecond,
		"with -follow: how often the file changes at most")
	e.Flags.StringVar(&f.exec, "exec", "", "with -follow: a `command` for sh -c to run when the file has changed,\n"+
		"such as 'nginx -s reload'; it is killed after "+execLasts.String())
	e.Flags.BoolVar(&f.clearsAtEnd, "clear", false, "with -follow: leave a file without bans at the end")
}

// read reads the command line.
func (f *flags) read(e *cli.Env) error {
	operands, err := e.Operands()
	switch {
	case err != nil:
		return err
	case len(operands) != 1:
		return cli.Usagef("%s: name the guard, as the application does", cli.Count(len(operands), "operand"))
	case f.most < 1:
		return cli.Usagef("-most is %d: write 1 or more", f.most)
	}
	f.guard, f.form = operands[0], formatNamed(f.name)
	if err := f.fit(e.JSON); err != nil {
		return err
	}
	if f.out != "" {
		f.out, err = target(f.out)
	}
	return err
}

// fit returns an error for flags that do not go with each other.
func (f *flags) fit(asJSON bool) error {
	formats := strings.Join(formatNames(), ", ")
	switch {
	case f.name != "" && f.form == nil:
		return cli.Usagef("-format is %q: write one of %s", f.name, formats)
	case f.name != "" && asJSON:
		return cli.Usagef("-json and -format are both given: leave out one")
	case f.follow && f.out == "":
		return cli.Usagef("-follow needs -out FILE")
	case f.follow && f.every < leastEvery:
		return cli.Usagef("-every is %v: it must be %v or more", f.every, leastEvery)
	case !f.follow && (f.exec != "" || f.clearsAtEnd):
		return cli.Usagef("-exec and -clear need -follow")
	case f.out != "" && f.name == "":
		return cli.Usagef("-out needs -format: %s", formats)
	}
	return nil
}

func run(ctx context.Context, e *cli.Env) error {
	var f flags
	f.register(e)
	if err := f.read(e); err != nil {
		return err
	}
	engine, rdb, err := f.Connect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	var keys string
	if err := cli.Caught(func() { keys = bans.New(engine, f.guard, bans.Options{}).Key("") }); err != nil {
		return err
	}
	m := newMirror(rdb, strings.TrimSuffix(keys, "}"), f.Timeout)
	if f.follow {
		return f.keep(ctx, e, m)
	}
	if err := m.once(ctx); err != nil {
		return fmt.Errorf("the Redis at %s does not say who is banned: %w", f.Address, err)
	}
	now := time.Now()
	all := m.current(now).all
	if f.form == nil {
		return writeTable(e, all, f.most, now)
	}
	p := f.form.page(all, f.most, now)
	f.tellLeftOut(e, p)
	if f.out != "" {
		return replace(f.out, p.text)
	}
	// The formats hold printable text only, so that a terminal gets what a file would.
	return e.Write(nil, func(w *strings.Builder) { w.WriteString(p.text) })
}

// tellLeftOut says how many bans a page does not have.
func (f *flags) tellLeftOut(e *cli.Env, p page) {
	if p.beyond+p.unfit > 0 {
		e.Tell("gatehouse bans: left out: %s that end before those in the file (-most %d), %d that cannot be "+
			"written as %s\n", cli.Count(p.beyond, "ban"), f.most, p.unfit, f.form.name)
	}
}

// result is what is shown of the bans, with -json.
type result struct {
	Banned  []banned `json:"banned"`
	LeftOut int      `json:"left_out"`
}

// banned is what is shown of one ban.
type banned struct {
	Actor string    `json:"actor"`
	Left  string    `json:"left"`
	Until time.Time `json:"until"`
}

func writeTable(e *cli.Env, all []ban, most int, now time.Time) error {
	kept := all[:min(most, len(all))]
	l := result{Banned: make([]banned, len(kept)), LeftOut: len(all) - len(kept)}
	width := len("actor")
	for i, b := range kept {
		left := time.Duration(seconds(b.ends.Sub(now))) * time.Second
		l.Banned[i] = banned{b.actor, left.String(), e.Now().Add(left).UTC().Truncate(time.Second)}
		width = max(width, len(cli.Printable(b.actor)))
	}
	return e.Write(l, func(w *strings.Builder) {
		if len(all) == 0 {
			fmt.Fprintln(w, "nobody is banned")
			return
		}
		fmt.Fprintf(w, "%-*s  %-12s  %s\n", width, "actor", "left", "until")
		for _, b := range l.Banned {
			fmt.Fprintf(w, "%-*s  %-12s  %s\n", width, cli.Printable(b.Actor), b.Left, b.Until.Format(time.RFC3339))
		}
		if l.LeftOut > 0 {
			fmt.Fprintf(w, "and %d more, which end earlier (-most %d)\n", l.LeftOut, most)
		}
	})
}

// seconds returns whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// byEnd sorts bans: those that end last are first.
func byEnd(all []ban) {
	slices.SortFunc(all, func(a, b ban) int {
		return cmp.Or(cmp.Compare(b.finish, a.finish), cmp.Compare(a.actor, b.actor))
	})
}
