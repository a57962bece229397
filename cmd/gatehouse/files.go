package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/config"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// ownFlags name what programs add to their files (config.WithKey, config.WithCost), which the command cannot
// know.
type ownFlags struct {
	keys  map[string]string
	costs map[string]int64
}

func (f *ownFlags) register(fs *flag.FlagSet) {
	f.keys, f.costs = map[string]string{}, map[string]int64{}
	fs.Func("key", "a key function of the program, as `NAME` or NAME=VALUE; may be repeated", func(text string) error {
		name, value, _ := strings.Cut(text, "=")
		f.keys[name] = value
		return caught(func() { config.WithKey(name, found(value)) })
	})
	fs.Func("cost", "a cost function of the program, as `NAME` or NAME=UNITS; may be repeated", func(text string) error {
		name, units, given := strings.Cut(text, "=")
		f.costs[name] = 1
		if given {
			n, err := strconv.ParseInt(units, 10, 64)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no number of units", units)
			}
			f.costs[name] = n
		}
		return caught(func() { config.WithCost(name, costs(1)) })
	})
}

// options returns the options with which a file of the program is read.
func (f *ownFlags) options() (all []config.Option) {
	for name, value := range f.keys {
		all = append(all, config.WithKey(name, found(value)))
	}
	for name, units := range f.costs {
		all = append(all, config.WithCost(name, costs(units)))
	}
	return all
}

func found(value string) keyfuncs.Func {
	return func(*keyfuncs.Request) (string, error) {
		if value == "" {
			return "", keyfuncs.ErrMissing
		}
		return value, nil
	}
}

func costs(units int64) func(*keyfuncs.Request) (int64, error) {
	return func(*keyfuncs.Request) (int64, error) { return units, nil }
}

// checked is what was found in a file.
type checked struct {
	File     string           `json:"file"`
	Guards   []string         `json:"guards"`
	Lists    []string         `json:"lists"`
	Mistakes []config.Mistake `json:"mistakes"`
	Whole    bool             `json:"whole"` // it ends as config.Watch demands
}

func check(_ context.Context, e *env, fs *flag.FlagSet, parse func() ([]string, error)) error {
	var own ownFlags
	own.register(fs)
	files, err := parse()
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return usagef("no file is named")
	}
	all, problem := []checked{}, false
	for _, file := range files {
		found, err := checkFile(file, own.options())
		if err != nil {
			return err
		}
		all, problem = append(all, found), problem || len(found.Mistakes) > 0
	}
	err = e.write(map[string]any{"files": all}, func(w io.Writer) {
		for _, found := range all {
			writeChecked(w, found)
		}
	})
	if err == nil && problem {
		err = errProblem
	}
	return err
}

func writeChecked(w io.Writer, found checked) {
	for _, mistake := range found.Mistakes {
		_, _ = fmt.Fprintln(w, mistake)
	}
	if len(found.Mistakes) == 0 {
		note := ""
		if !found.Whole {
			note = `; config.Watch also wants a last line "..."`
		}
		_, _ = fmt.Fprintf(w, "%s: ok, with %s and %s of rules%s\n", found.File, count(len(found.Guards), "guard"),
			count(len(found.Lists), "list"), note)
	}
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// checkFile returns all mistakes of a file: also those that only show when its guards and rules are made,
// which is done on an engine that sends nothing.
func checkFile(file string, own []config.Option) (checked, error) {
	result := checked{File: file, Guards: []string{}, Lists: []string{}, Mistakes: []config.Mistake{}}
	cfg, err := config.Load(file, own...)
	if err == nil {
		result.Whole = cfg.Whole()
		result.Guards, result.Lists = append(result.Guards, cfg.Guards()...), append(result.Lists, cfg.Lists()...)
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"}) // nobody calls it
		defer rdb.Close()
		engine, bad := newEngine(rdb, "gatehouse", time.Second, silent{})
		if bad != nil {
			return result, bad
		}
		_, err = cfg.Build(engine)
	}
	if mistakes := (*config.Error)(nil); errors.As(err, &mistakes) {
		result.Mistakes, err = mistakes.Mistakes, nil
	}
	return result, err
}

// load reads a file for a command that works with its guards or rules.
func (f *ownFlags) load(file string) (*config.Config, error) {
	return loadFile(file, f.options())
}

// loadFile reads a file, and returns the first of its mistakes as an error.
func loadFile(file string, options []config.Option) (*config.Config, error) {
	cfg, err := config.Load(file, options...)
	if mistakes := (*config.Error)(nil); errors.As(err, &mistakes) {
		return nil, fmt.Errorf("%v (gatehouse check shows all of %s)", mistakes.Mistakes[0],
			count(len(mistakes.Mistakes), "mistake"))
	}
	return cfg, err
}
