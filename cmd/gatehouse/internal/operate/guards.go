package operate

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/connect"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/rules"
	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// guardFlags are the flags that say which guard of which Redis is meant.
type guardFlags struct {
	connect.Redis
	rules.Functions
	file, name            string
	kind, limits, options string
	only                  string // the only kind that the command knows, or ""
	yes                   bool
}

// register registers the flags. only is the only kind that the command knows, or empty.
func (f *guardFlags) register(fs *flag.FlagSet, only string) {
	f.Redis.Register(fs)
	f.Functions.Register(fs)
	f.only = only
	fs.StringVar(&f.file, "file", "", "the `file` of rules that has the guard, in place of -kind, -limits and -options")
	fs.StringVar(&f.name, "guard", "", "the `name` of the guard, as the application makes it")
	if only == "" {
		fs.StringVar(&f.kind, "kind", "", "the `kind` of the guard, as in a file: sliding_window, fixed_window, ...")
		fs.StringVar(&f.limits, "limits", "", "the `limits` of a rate limit, such as \"10/s, 100/min\"")
	}
	fs.StringVar(&f.options, "options", "", "further `options` of the guard, as in a file: '{keep: 48h}'")
}

// registerYes registers the flag of commands that change something.
func (f *guardFlags) registerYes(fs *flag.FlagSet) {
	fs.BoolVar(&f.yes, "yes", false, "do not ask before the change")
}

// definition returns the file that defines the guard, or one with what the flags say.
func (f *guardFlags) definition() (*config.Config, error) {
	if f.name == "" {
		return nil, cli.Usagef("-guard is missing: pass the name that the application gives to the guard")
	}
	if f.file != "" {
		if f.kind+f.limits+f.options != "" {
			return nil, cli.Usagef("-file has the kind and the options of the guard: leave out -kind, -limits and " +
				"-options")
		}
		return f.inFile()
	}
	kind, options := cmp.Or(f.only, f.kind), cmp.Or(f.options, "{}")
	switch {
	case kind == "":
		return nil, cli.Usagef("-kind is missing: pass the kind of the guard, such as sliding_window, or pass " +
			"-file")
	case f.limits != "" && f.options != "":
		return nil, cli.Usagef("-limits and -options are both given: write the limits into the options")
	case f.limits != "":
		options = fmt.Sprintf("{limits: %q}", f.limits)
	}
	// A file needs a rule, which nobody uses.
	file := fmt.Appendf(nil, "guards:\n  %q:\n    %q:\n      %s\n  %[4]q: {fixed_window: {limits: 1/s}}\n"+
		"rules:\n  unused: [{guard: %[4]q, who: ip}]\n", f.name, kind, options, f.name+"_")
	cfg, err := config.Parse("flags", file, f.Options()...)
	if mistakes := (*config.Error)(nil); errors.As(err, &mistakes) {
		first := mistakes.Mistakes[0]
		return nil, cli.Usagef("-kind, -limits or -options: %s: %s", first.Path, first.Text)
	}
	return cfg, err
}

// inFile reads the file, which must have the guard.
func (f *guardFlags) inFile() (*config.Config, error) {
	cfg, err := rules.Load(f.file, f.Options())
	if err != nil {
		return nil, err
	}
	switch kind := cfg.Kind(f.name); {
	case kind == "":
		return nil, cli.Usagef("%s has no guard %q: it has %s", f.file, f.name, strings.Join(cfg.Guards(), ", "))
	case f.only != "" && kind != f.only:
		return nil, cli.Usagef("the guard %q of %s is of the kind %s, not %s", f.name, f.file, kind, f.only)
	}
	return cfg, nil
}

// open connects and makes the guard. The caller calls the function that it returns.
func (f *guardFlags) open(ctx context.Context, e *cli.Env) (guard core.Guard, done func(), err error) {
	cfg, err := f.definition()
	if err != nil {
		return nil, nil, err
	}
	engine, rdb, err := f.Connect(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	set, err := cfg.Build(engine)
	if err != nil {
		_ = rdb.Close()
		return nil, nil, fmt.Errorf("the guards of %s cannot be made: %w", cmp.Or(f.file, "the flags"), err)
	}
	return set.Guard(f.name), func() { _ = rdb.Close() }, nil
}

// fields reads operands of the form FIELD=VALUE.
func fields(operands []string) (map[string]string, error) {
	texts := map[string]string{}
	for _, operand := range operands {
		name, value, ok := strings.Cut(operand, "=")
		if _, twice := texts[name]; !ok || name == "" || twice {
			return nil, cli.Usagef("%q is not a new FIELD=VALUE, such as actor=203.0.113.7", operand)
		}
		texts[name] = value
	}
	return texts, nil
}

// run connects, makes the guard, and performs the first of some operations that it has.
func (f *guardFlags) run(
	ctx context.Context, e *cli.Env, texts map[string]string, names ...string,
) (any, error) {
	guard, done, err := f.open(ctx, e)
	if err != nil {
		return nil, err
	}
	defer done()
	return f.perform(ctx, e, guard, texts, names...)
}

// named is a guard or a tool.
type named interface{ Name() string }

// perform performs the first of some operations that a guard has with the texts of its fields, after a
// confirmation if it changes something.
func (f *guardFlags) perform(
	ctx context.Context, e *cli.Env, guard named, texts map[string]string, names ...string,
) (any, error) {
	do, err := operation(guard, names...)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, field := range do.Fields {
		known = append(known, field.Name)
		if field.Caller && texts[field.Name] == "" {
			texts[field.Name] = e.Getenv("USER")
		}
	}
	in, err := do.Read(texts)
	if err != nil {
		return nil, cli.Usagef("%s of %q: %w; its fields are %s", do.Name, guard.Name(), err,
			strings.Join(known, ", "))
	}
	if do.Changes {
		what := fmt.Sprintf("%s of guard %q", do.Name, guard.Name())
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			what += fmt.Sprintf(", %s %q", name, texts[name])
		}
		if err := f.confirm(e, what); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	return do.Run(ctx, in)
}

// operation finds the first of some operations that the guard has.
func operation(guard named, names ...string) (kit.Operation, error) {
	says := kit.DescriptionOf(guard)
	var known []string
	for _, name := range names {
		for _, o := range says.Operations {
			if o.Name != name {
				continue
			}
			if _, limits := guard.(interface {
				Spend(context.Context, core.Decision, int64) error
			}); limits { // the item is the tier, for a limit of a file that has some
				o.Fields = append(slices.Clone(o.Fields), kit.Field{Name: "item"})
			}
			return o, nil
		}
	}
	for _, o := range says.Operations {
		known = append(known, o.Name)
	}
	return kit.Operation{}, cli.Usagef("the guard %q (%s) has no operation %s: it has %s", guard.Name(),
		says.Kind, names[0], strings.Join(known, ", "))
}

// confirm asks before a change.
func (f *guardFlags) confirm(e *cli.Env, what string) error {
	if f.yes {
		return nil
	}
	e.Tell("%s: go on? [y/N] ", what)
	line, err := bufio.NewReader(e.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	if err != nil {
		_, _ = fmt.Fprintln(e.Errs)
	}
	return errors.New("nothing was changed: answer y, or pass -yes")
}
