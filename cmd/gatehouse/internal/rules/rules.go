// Package rules reads the files of rules that commands work with.
package rules

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// Functions has the flags that name what programs add to their files (config.WithKey, config.WithCost). The
// command cannot know it.
type Functions struct {
	options map[string]config.Option // by kind and name: the last flag counts
}

// Register registers the flags.
func (f *Functions) Register(fs *flag.FlagSet) {
	f.options = map[string]config.Option{}
	fs.Func("key", "a key function of the program, as `NAME` or NAME=VALUE; may be repeated", func(text string) error {
		name, value, _ := strings.Cut(text, "=")
		return cli.Caught(func() { f.options["key "+name] = config.WithKey(name, found(value)) })
	})
	fs.Func("cost", "a cost function of the program, as `NAME` or NAME=UNITS; may be repeated", func(text string) error {
		name, given, ok := strings.Cut(text, "=")
		units, err := strconv.ParseInt(given, 10, 64)
		if !ok {
			units, err = 1, nil
		}
		if err != nil || units < 1 {
			return fmt.Errorf("%q is no number of units", given)
		}
		return cli.Caught(func() { f.options["cost "+name] = config.WithCost(name, Cost(units)) })
	})
}

// Options returns the options with which a file of the program is read.
func (f *Functions) Options() []config.Option { return slices.Collect(maps.Values(f.options)) }

func found(value string) keyfuncs.Func {
	return func(*keyfuncs.Request) (string, error) {
		if value == "" {
			return "", keyfuncs.ErrMissing
		}
		return value, nil
	}
}

// Cost returns a function by which each request costs so many units.
func Cost(units int64) func(*keyfuncs.Request) (int64, error) {
	return func(*keyfuncs.Request) (int64, error) { return units, nil }
}

// Load reads a file for a command that works with its guards or rules. Its error has the first mistake of the
// file.
func Load(file string, options []config.Option) (*config.Config, error) {
	cfg, err := config.Load(file, options...)
	if mistakes := (*config.Error)(nil); errors.As(err, &mistakes) {
		return nil, First(mistakes, "gatehouse check")
	}
	return cfg, err
}

// First returns the first mistake of a file as an error, which names the command that shows all.
func First(of *config.Error, command string) error {
	if len(of.Mistakes) == 1 {
		return of
	}
	return fmt.Errorf("%v (%s shows all of %d mistakes)", of.Mistakes[0], command, len(of.Mistakes))
}
