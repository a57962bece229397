package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
)

// guardFlags are the flags that say which guard of which Redis is meant.
type guardFlags struct {
	redisFlags
	name, kind, limits string
	sale               seckill.Options
	yes                bool
}

// register registers the flags. kind is the only kind that the command knows, or empty.
func (f *guardFlags) register(fs *flag.FlagSet, kind string) {
	f.redisFlags.register(fs)
	f.kind = kind
	fs.StringVar(&f.name, "guard", "", "the `name` of the guard, as the application makes it")
	switch kind {
	case "":
		fs.StringVar(&f.kind, "kind", "", "the `kind` of the guard: "+strings.Join(kinds(), ", "))
		fs.StringVar(&f.limits, "limits", "", "the `limits` of the guard, such as \"10/s, 100/min\"")
	case "seckill":
		fs.DurationVar(&f.sale.Keep, "keep", 30*24*time.Hour, "how long a sale is kept, as the application sets it")
		fs.BoolVar(&f.sale.NoOutbox, "no-outbox", false, "the application keeps no record of events")
	}
}

// registerYes registers the flag of commands that change something.
func (f *guardFlags) registerYes(fs *flag.FlagSet) {
	fs.BoolVar(&f.yes, "yes", false, "do not ask before the change")
}

// guardKinds makes guards by their kind.
var guardKinds = map[string]func(e *core.Engine, f *guardFlags) (core.Guard, error){
	"sliding_window": func(e *core.Engine, f *guardFlags) (core.Guard, error) {
		return limited(f, func(l []limit.Limit) core.Guard { return limit.NewSlidingWindow(e, f.name, l[0], l[1:]...) })
	},
	"fixed_window": func(e *core.Engine, f *guardFlags) (core.Guard, error) {
		return limited(f, func(l []limit.Limit) core.Guard { return limit.NewFixedWindow(e, f.name, l[0], l[1:]...) })
	},
	"token_bucket": func(e *core.Engine, f *guardFlags) (core.Guard, error) {
		return limited(f, func(l []limit.Limit) core.Guard { return limit.NewTokenBucket(e, f.name, l[0], l[1:]...) })
	},
	"votes": func(e *core.Engine, f *guardFlags) (core.Guard, error) {
		return votes.New(e, f.name, votes.Options{}), nil
	},
	"seckill": func(e *core.Engine, f *guardFlags) (core.Guard, error) { return seckill.New(e, f.name, f.sale), nil },
}

func kinds() []string { return slices.Sorted(maps.Keys(guardKinds)) }

// limited makes a guard with the limits of the flags.
func limited(f *guardFlags, guard func([]limit.Limit) core.Guard) (core.Guard, error) {
	if f.limits == "" {
		return nil, usagef("-limits is missing: pass those of the guard, such as -limits \"10/s, 100/min\"")
	}
	limits, err := limit.ParseAll(f.limits)
	if err != nil {
		return nil, usagef("-limits: %w", err)
	}
	return guard(limits), nil
}

// open connects and makes the guard. The caller calls the function that it returns.
func (f *guardFlags) open(ctx context.Context, e *env) (guard core.Guard, done func(), err error) {
	if f.name == "" {
		return nil, nil, usagef("-guard is missing: pass the name that the application gives to the guard")
	}
	make, ok := guardKinds[f.kind]
	if !ok {
		return nil, nil, usagef("-kind is %q: it may be %s", f.kind, strings.Join(kinds(), ", "))
	}
	engine, rdb, err := f.connect(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	mistake := caught(func() { guard, err = make(engine, f) })
	if mistake != nil {
		err = mistake
	}
	if err != nil {
		_ = rdb.Close()
		return nil, nil, err
	}
	return guard, func() { _ = rdb.Close() }, nil
}

// operation finds the first of some operations that the guard has.
func operation(guard core.Guard, names ...string) (core.Operation, error) {
	says := core.DescriptionOf(guard)
	var known []string
	for _, name := range names {
		for _, o := range says.Operations {
			if o.Name == name {
				return o, nil
			}
		}
	}
	for _, o := range says.Operations {
		known = append(known, o.Name)
	}
	return core.Operation{}, usagef("the guard %q (%s) has no operation %s: it has %s", guard.Name(), says.Kind,
		names[0], strings.Join(known, ", "))
}

// fields reads operands of the form FIELD=VALUE.
func fields(operands []string) (map[string]string, error) {
	texts := map[string]string{}
	for _, operand := range operands {
		name, value, ok := strings.Cut(operand, "=")
		if _, twice := texts[name]; !ok || name == "" || twice {
			return nil, usagef("%q is not a new FIELD=VALUE, such as actor=203.0.113.7", operand)
		}
		texts[name] = value
	}
	return texts, nil
}

// perform runs an operation of a guard with the texts of its fields, after a confirmation if it changes
// something.
func (e *env) perform(
	ctx context.Context, f *guardFlags, guard core.Guard, do core.Operation, texts map[string]string,
) (any, error) {
	in, err := do.Read(texts)
	if err != nil {
		return nil, usagef("%s of %q: %w", do.Name, guard.Name(), err)
	}
	if do.Changes {
		what := fmt.Sprintf("%s of guard %q", do.Name, guard.Name())
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			what += fmt.Sprintf(", %s %q", name, texts[name])
		}
		if err := e.confirm(f, what); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return do.Run(ctx, in)
}
