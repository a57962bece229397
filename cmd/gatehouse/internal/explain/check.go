package explain

import (
	"context"
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
	operands, err := e.Operands()
	if err != nil {
		return err
	}
	if len(operands) == 0 {
		return cli.Usagef("no file is named")
	}
	all, files, problem := []checked{}, []rules.Checked{}, false
	for _, file := range operands {
		found, err := rules.Check(file, own.Options())
		if err != nil {
			return err
		}
		files, all = append(files, found), append(all, figures(found))
		problem = problem || len(found.Mistakes) > 0
	}
	err = e.Write(map[string]any{"files": all}, func(w *strings.Builder) {
		for i, found := range files {
			found.Write(w, all[i].summary)
		}
	})
	if err == nil && problem {
		err = cli.ErrProblem
	}
	return err
}

// figures returns what is written of a file.
func figures(found rules.Checked) checked {
	result := checked{File: found.File, Guards: []string{}, Lists: []string{}, Mistakes: found.Mistakes}
	if cfg := found.Config; cfg != nil {
		result.Guards, result.Lists = append(result.Guards, cfg.Guards()...), append(result.Lists, cfg.Lists()...)
		result.Whole = cfg.Whole()
	}
	return result
}

// summary is said of a file without mistakes.
func (c checked) summary() string {
	text := cli.Count(len(c.Guards), "guard") + " and " + cli.Count(len(c.Lists), "list") + " of rules"
	if !c.Whole {
		text += `; config.Watch also wants a last line "..."`
	}
	return text
}
