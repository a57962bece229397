package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-go/gatehouse/cmd/gatehouse/internal/rules"
	"github.com/gatehouse-go/gatehouse/ops/config"
)

// Check is the command check.
var Check = cli.Command{Name: "check", Args: "[flags] FILE ...",
	Does: "every mistake in files of rules", Run: check}

// checked is what was found in a file.
type checked struct {
	File     string           `json:"file"`
	Guards   []string         `json:"guards"`
	Lists    []string         `json:"lists"`
	Mistakes []config.Mistake `json:"mistakes"`
	Whole    bool             `json:"whole"` // it ends as config.Watch demands
}

func check(_ context.Context, e *cli.Env) error {
	var own rules.Functions
	own.Register(e.Flags)
	files, err := e.Operands()
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return cli.Usagef("no file is named")
	}
	all, problem := []checked{}, false
	for _, file := range files {
		found, err := checkFile(file, own.Options())
		if err != nil {
			return err
		}
		all, problem = append(all, found), problem || len(found.Mistakes) > 0
	}
	err = e.Write(map[string]any{"files": all}, func(w *strings.Builder) {
		for _, found := range all {
			writeChecked(w, found)
		}
	})
	if err == nil && problem {
		err = cli.ErrProblem
	}
	return err
}

func writeChecked(w *strings.Builder, found checked) {
	for _, mistake := range found.Mistakes {
		fmt.Fprintln(w, mistake)
	}
	if len(found.Mistakes) == 0 {
		note := ""
		if !found.Whole {
			note = `; config.Watch also wants a last line "..."`
		}
		fmt.Fprintf(w, "%s: ok, with %s and %s of rules%s\n", found.File, cli.Count(len(found.Guards), "guard"),
			cli.Count(len(found.Lists), "list"), note)
	}
}

// checkFile returns all mistakes of a file. Some only show when its guards and rules are made, so they are
// made, on an engine that sends nothing.
func checkFile(file string, own []config.Option) (checked, error) {
	result := checked{File: file, Guards: []string{}, Lists: []string{}, Mistakes: []config.Mistake{}}
	cfg, err := config.Load(file, own...)
	if err == nil {
		result.Whole = cfg.Whole()
		result.Guards, result.Lists = append(result.Guards, cfg.Guards()...), append(result.Lists, cfg.Lists()...)
		_, err = dryBuild(cfg, new(recorder), "gatehouse")
	}
	if mistakes := (*config.Error)(nil); errors.As(err, &mistakes) {
		result.Mistakes, err = mistakes.Mistakes, nil
	}
	return result, err
}
