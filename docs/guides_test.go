package docs_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// TestTheGuideKnowsTheAnswers: the table of reasons and statuses is the one that is answered by.
func TestTheGuideKnowsTheAnswers(t *testing.T) {
	told, differs := map[core.Reason]int{}, map[string]int{} // by the kind of guard and the reason
	rows := regexp.MustCompile("(?m)^\\| <a id=\"(\\w+)\"></a>`(\\w+)` \\| (\\d+)(?:; of a (\\w+) (\\d+))? \\|").
		FindAllStringSubmatch(read(t, "docs/guides/answers.md"), -1)
	for _, row := range rows {
		status, err := strconv.Atoi(row[3])
		if err != nil || row[1] != row[2] {
			t.Errorf("row %q", row[0])
		}
		told[core.Reason(row[2])] = status
		if row[4] != "" {
			differs[row[4]+" "+row[2]], err = strconv.Atoi(row[5])
			if err != nil {
				t.Errorf("row %q", row[0])
			}
		}
	}
	const page = "https://github.com/gatehouse-go/gatehouse/blob/main/docs/guides/answers.md#"
	answered := map[core.Reason]bool{}
	for _, g := range everyguard.Kinds() {
		for _, a := range (ratelimit.Rule{Guard: g, Defer: &deferred.Requests{}}).Answers() {
			status := cmp.Or(differs[kit.DescriptionOf(g).Kind+" "+string(a.Reason)], told[a.Reason])
			if status != a.Status {
				t.Errorf("%s answers %s with %d, the page says %d", g.Name(), a.Reason, a.Status, status)
			}
			explained := a.Type == kit.TypeQuotaExceeded || a.Type == kit.TypeAbnormalUsage
			if !explained && a.Type != page+string(a.Reason) {
				t.Errorf("%s: the type of %s is %s", g.Name(), a.Reason, a.Type)
			}
			answered[a.Reason] = true
		}
	}
	for reason := range told {
		if !answered[reason] {
			t.Errorf("nobody answers %s", reason)
		}
	}
}

// TestTheGuideStepsThroughTheScript: the lines that the debugger shows in docs/scripts.md are those of the
// script, by their numbers.
func TestTheGuideStepsThroughTheScript(t *testing.T) {
	script := strings.Split(read(t, "lua/limit/sliding_window.lua"), "\n")
	shown := regexp.MustCompile(`(?m)^(?:->| ) ?#? *(\d+)  (.*)$`).FindAllStringSubmatch(
		read(t, "docs/scripts.md"), -1)
	if len(shown) < 5 {
		t.Fatalf("found only %d lines", len(shown))
	}
	for _, line := range shown {
		number, err := strconv.Atoi(line[1])
		if err != nil || number > len(script) || strings.TrimSpace(script[number-1]) != strings.TrimSpace(line[2]) {
			t.Errorf("the page has line %s as %q", line[1], line[2])
		}
	}
}

// TestTheGuideExplainsEveryError: docs/guides/errors.md has a row for each error that a package exports, and no
// row for another one.
func TestTheGuideExplainsEveryError(t *testing.T) {
	explained := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+\\.Err\\w+)` \\| [^|]+ \\| [^|]+ \\| [^|]+ \\|$|^\\| `(core\\.Err\\w+)` \\|").
		FindAllStringSubmatch(read(t, "docs/guides/errors.md"), -1) {
		explained[row[1]+row[2]] = true
	}
	exported := exportedErrors(t)
	if len(exported) < 20 {
		t.Fatalf("found only %v", exported)
	}
	for name := range exported {
		if !explained[name] {
			t.Errorf("docs/guides/errors.md does not explain %s", name)
		}
	}
	for name := range explained {
		if !exported[name] {
			t.Errorf("docs/guides/errors.md explains %s, which nobody exports", name)
		}
	}
}

// exportedErrors returns the names of all variables Err… that applications can import from this module.
func exportedErrors(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			name := entry.Name()
			outside := []string{"examples", "internal", "proofs", "testdata", "script"} // core has script's errors too
			if slices.Contains(outside, name) || len(name) > 1 && name[0] == '.' {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, name := range namesOfVariables(file) {
			if strings.HasPrefix(name, "Err") {
				found[file.Name.Name+"."+name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// namesOfVariables returns the names of a file's variables outside of functions.
func namesOfVariables(file *ast.File) (names []string) {
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.VAR {
			continue
		}
		for _, spec := range group.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
