// Command gatehouse checks files of rules, looks at guards and resets them, runs sales, and attacks a staging
// of your own.
//
//	go install github.com/gatehouse-go/gatehouse/cmd/gatehouse@latest
//
// The subcommands:
//
//	check    every mistake in files of rules
//	explain  which rules a request meets, with which keys, and what it is answered
//	peek     what is left of a limit, who holds a lock, whether an actor is banned
//	reset    forget what an actor has used
//	tally    the votes of a poll
//	sale     look at a sale, open, restock, verify and close it
//	control  what operators have decided about limits, lists, roll-outs and budgets
//	replay   what rules would have done to the requests of an access log
//	attack   what a limit or a sale of your own staging lets through
//	doctor   whether a Redis has what guards need
//	version  which version this is
//
// gatehouse help COMMAND lists the flags. docs/command.md in the repository shows each of them at work.
//
// The command exits with 0 when all is well, with 1 when it has found a problem (a mistake in a file, a sale
// whose parts differ, a Redis that breaks a promise, an attack that got through), and with 2 when it could
// not do what was asked: wrong flags, no such file, no Redis, a change that was not confirmed, an
// interruption.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/redis/go-redis/v9/logging"
)

// The exit codes.
const (
	exitOK      = 0
	exitProblem = 1
	exitFailed  = 2
)

func main() {
	logging.Disable() // of go-redis: failures come back as errors, and are reported once
	slog.SetDefault(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	e := &env{in: os.Stdin, out: os.Stdout, errs: os.Stderr, getenv: os.Getenv, now: time.Now}
	os.Exit(run(ctx, e, os.Args[1:]))
}

// env is what the command reads from and writes to.
type env struct {
	in        io.Reader
	out, errs io.Writer
	getenv    func(string) string
	now       func() time.Time
	json      bool // the flag -json
}

// command is a subcommand.
type command struct {
	name, args, does string
	// run does the work. It registers its flags with fs, and calls parse once, which returns the operands.
	run func(ctx context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error
}

func commands() []command {
	return []command{
		{"check", "[flags] FILE ...", "every mistake in files of rules", check},
		{"explain", "[flags] FILE", "which rules a request meets, with which keys, and what it is answered",
			explain},
		{"peek", "[flags] [FIELD=VALUE ...]",
			"what is left of a limit, who holds a lock, whether an actor is banned", peek},
		{"reset", "[flags] FIELD=VALUE ...", "forget what an actor has used", reset},
		{"tally", "[flags] POLL", "the votes of a poll", tally},
		{"sale", "status|verify|open|restock|close [flags] ITEM", "look at a sale, open it, change it", sale},
		{"control", "[flags] OPERATION [FIELD=VALUE ...]",
			"what operators have decided about limits, lists, roll-outs and budgets", controls},
		{"replay", "[flags] RULES LOG ...", "what rules would have done to the requests of access logs", replay},
		{"attack", "[flags] URL", "attack a limit or a sale of your own staging, and count what got through",
			attackURL},
		{"doctor", "[flags]", "whether a Redis has what guards need: scripts, commands, settings", doctor},
		{"version", "[flags]", "which version this is", version},
	}
}

// errProblem means that the command did its work and found a problem, which it has reported.
var errProblem = errors.New("found a problem")

// usageError is a mistake in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs a subcommand and returns the exit code.
func run(ctx context.Context, e *env, args []string) int {
	if len(args) == 0 {
		writeHelp(e.errs)
		return exitFailed
	}
	name, args := args[0], args[1:]
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		if len(args) == 0 || name != "help" {
			writeHelp(e.out)
			return exitOK
		}
		name, args = args[0], []string{"-h"}
	}
	for _, c := range commands() {
		if c.name == name {
			return e.exitCode(c.name, e.runCommand(ctx, c, args))
		}
	}
	e.tell(fmt.Sprintf("gatehouse: there is no command %q: gatehouse help lists them\n", name))
	return exitFailed
}

func (e *env) runCommand(ctx context.Context, c command, args []string) error {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // mistakes are reported once, below
	fs.BoolVar(&e.json, "json", false, "write JSON")
	err := c.run(ctx, e, fs, func() ([]string, error) { return operands(fs, args) })
	if errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintf(e.out, "usage: gatehouse %s %s\n\n%s.\n\n", c.name, c.args, upper(c.does))
		fs.SetOutput(e.out)
		fs.PrintDefaults()
		return nil
	}
	return err
}

// operands parses the flags, which may stand before, between and after the operands, and returns the
// operands.
func operands(fs *flag.FlagSet, args []string) (all []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, usageError{err}
		}
		rest := fs.Args()
		if len(rest) == 0 {
			return all, nil
		}
		if consumed := len(args) - len(rest); consumed > 0 && args[consumed-1] == "--" {
			return append(all, rest...), nil
		}
		all, args = append(all, rest[0]), rest[1:]
	}
}

// exitCode reports an error and returns the exit code.
func (e *env) exitCode(command string, err error) int {
	usage := usageError{}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errProblem):
		return exitProblem
	case errors.As(err, &usage):
		e.tell(fmt.Sprintf("gatehouse %s: %v (gatehouse help %[1]s lists the flags)\n", command, err))
	case errors.Is(err, context.Canceled):
		e.tell(fmt.Sprintf("gatehouse %s: interrupted\n", command))
	default:
		e.tell(fmt.Sprintf("gatehouse %s: %v\n", command, err))
	}
	return exitFailed
}

// tell writes to people, beside the result.
func (e *env) tell(text string) { _, _ = io.WriteString(e.errs, unobtrusive(text)) }

func writeHelp(w io.Writer) {
	_, _ = fmt.Fprint(w, "usage: gatehouse COMMAND [flags] [operands]\n\n")
	for _, c := range commands() {
		_, _ = fmt.Fprintf(w, "  %-8s %s\n", c.name, c.does)
	}
	_, _ = fmt.Fprint(w, "\ngatehouse help COMMAND lists the flags of a command.\n"+
		"Exit codes: 0 all is well, 1 a problem was found, 2 it could not be done.\n")
}

// write writes a result: as JSON with -json, else by text.
func (e *env) write(result any, text func(w io.Writer)) error {
	if !e.json {
		var b strings.Builder
		text(&b)
		_, err := io.WriteString(e.out, unobtrusive(b.String()))
		return err
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(result); err != nil {
		return err
	}
	_, err := io.WriteString(e.out, unobtrusive(b.String()))
	return err
}

// unobtrusive escapes what may steer a terminal or turn the direction of its text, as JSON does: users choose
// such texts. All that the command writes passes it.
func unobtrusive(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return b.String()
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
