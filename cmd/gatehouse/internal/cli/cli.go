// Package cli runs the command that a command line names, and writes its result or its error.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/redis/go-redis/v9/logging"

	"github.com/gatehouse-go/gatehouse/core"
)

// The exit codes.
const (
	ExitOK      = 0
	ExitProblem = 1
	ExitFailed  = 2
)

// Command is a command, such as peek.
type Command struct {
	Name, Args, Does string
	// Run does the work. It registers its flags with Env.Flags, and calls Env.Operands once.
	Run func(ctx context.Context, e *Env) error
}

// Env is what a command reads from and writes to.
type Env struct {
	In        io.Reader
	Out, Errs io.Writer
	Getenv    func(string) string
	Now       func() time.Time
	Flags     *flag.FlagSet // of the command
	JSON      bool          // the flag -json

	args []string
}

// Main runs the command that the arguments of the process name, and exits.
func Main(commands []Command) {
	logging.Disable() // of go-redis: failures come back as errors, and are reported once
	slog.SetDefault(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	e := &Env{In: os.Stdin, Out: os.Stdout, Errs: os.Stderr, Getenv: os.Getenv, Now: time.Now}
	os.Exit(e.Run(ctx, commands, os.Args[1:]))
}

// Run runs one of the commands and returns the exit code.
func (e *Env) Run(ctx context.Context, commands []Command, args []string) int {
	if len(args) == 0 {
		writeHelp(e.Errs, commands)
		return ExitFailed
	}
	name, args := args[0], args[1:]
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		if len(args) == 0 || name != "help" {
			writeHelp(e.Out, commands)
			return ExitOK
		}
		name, args = args[0], []string{"-h"}
	}
	for _, c := range commands {
		if c.Name == name {
			e.args = args
			return e.exitCode(c.Name, e.run(ctx, c))
		}
	}
	e.Tell("gatehouse: there is no command %q: gatehouse help lists them\n", name)
	return ExitFailed
}

func writeHelp(w io.Writer, commands []Command) {
	_, _ = fmt.Fprint(w, "usage: gatehouse COMMAND [flags] [operands]\n\n")
	for _, c := range commands {
		_, _ = fmt.Fprintf(w, "  %-8s %s\n", c.Name, c.Does)
	}
	_, _ = fmt.Fprint(w, "\ngatehouse help COMMAND lists the flags of a command.\n"+
		"Exit codes: 0 all is well, 1 a problem was found, 2 it could not be done.\n")
}

func (e *Env) run(ctx context.Context, c Command) error {
	e.Flags = flag.NewFlagSet(c.Name, flag.ContinueOnError)
	e.Flags.SetOutput(io.Discard) // mistakes are reported once, by exitCode
	e.Flags.BoolVar(&e.JSON, "json", false, "write JSON")
	err := c.Run(ctx, e)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintf(e.Out, "usage: gatehouse %s %s\n\n%s.\n\n", c.Name, c.Args,
			strings.ToUpper(c.Does[:1])+c.Does[1:])
		e.Flags.SetOutput(e.Out)
		e.Flags.PrintDefaults()
		return nil
	}
	return err
}

// Operands parses the flags, which may stand before, between and after the operands, and returns the
// operands.
func (e *Env) Operands() (all []string, err error) {
	for args := e.args; ; {
		if err := e.Flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, usageError{err}
		}
		rest := e.Flags.Args()
		if len(rest) == 0 {
			return all, nil
		}
		if consumed := len(args) - len(rest); consumed > 0 && args[consumed-1] == "--" {
			return append(all, rest...), nil
		}
		all, args = append(all, rest[0]), rest[1:]
	}
}

// ErrProblem means that the command did its work and found a problem, which it has reported.
var ErrProblem = errors.New("found a problem")

// usageError is a mistake in the command line.
type usageError struct{ error }

// Usagef returns a mistake in the command line.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Caught calls a function that panics on mistakes of set-up, and returns such a mistake as one of the command
// line.
func Caught(f func()) (err error) {
	defer func() {
		switch mistake := recover().(type) {
		case nil:
		case runtime.Error: // of this program
			panic(mistake)
		default:
			err = Usagef("%v", mistake)
		}
	}()
	f()
	return nil
}

// exitCode reports an error and returns the exit code.
func (e *Env) exitCode(command string, err error) int {
	usage := usageError{}
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrProblem):
		return ExitProblem
	case errors.As(err, &usage):
		e.Tell("gatehouse %s: %v (gatehouse help %[1]s lists the flags)\n", command, err)
	case errors.Is(err, context.Canceled):
		e.Tell("gatehouse %s: interrupted\n", command)
	default:
		e.Tell("gatehouse %s: %v\n", command, err)
	}
	return ExitFailed
}

// AddTo returns the function of a flag that adds a field to a header.
func AddTo(h http.Header) func(text string) error {
	return func(text string) error {
		name, value, ok := strings.Cut(text, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return errors.New("write it as 'Name: value'")
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	}
}

// Write writes a result: as JSON with -json, else by text.
func (e *Env) Write(result any, text func(w *strings.Builder)) error {
	var b strings.Builder
	if e.JSON {
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(result); err != nil {
			return err
		}
	} else {
		text(&b)
	}
	_, err := io.WriteString(e.Out, unobtrusive(b.String()))
	return err
}

// Tell writes to people, beside the result.
func (e *Env) Tell(format string, args ...any) {
	_, _ = io.WriteString(e.Errs, unobtrusive(fmt.Sprintf(format, args...)))
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

// Printable returns a text of a user as it may be written to a terminal: in quotes if it has control
// characters.
func Printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// Count returns a number of things: "1 line", "2 lines".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Figures are the figures of a decision.
type Figures struct {
	Allowed    bool        `json:"allowed"`
	Reason     core.Reason `json:"reason"`
	Limit      int64       `json:"limit"`
	Remaining  int64       `json:"remaining"`
	Window     string      `json:"window"`
	RetryAfter string      `json:"retry_after"`
}

// FiguresOf returns the figures of a decision.
func FiguresOf(d core.Decision) Figures {
	return Figures{d.Allowed, d.Reason, d.Limit, d.Remaining, d.Window.String(), d.RetryAfter.String()}
}
