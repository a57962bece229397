package gatehouse_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/deferred"
	"github.com/gatehouse-go/gatehouse/internal/everyguard"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestREADMEShowsCodeThatCompiles: each block of Go in the README stands in a file of examples, here or in
// the nested module that the block is about, whatever its indent.
func TestREADMEShowsCodeThatCompiles(t *testing.T) {
	var files []string
	for _, pattern := range []string{"example_*test.go", "*/example_*test.go", "observe/*/example_*test.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	compiled := ""
	for _, file := range files {
		compiled += "\n" + dedent(read(t, file)) + "\n"
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(blocks) < 10 {
		t.Fatalf("found only %d blocks", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(compiled, "\n"+dedent(block[1])) {
			t.Errorf("this is in no example_*test.go:\n%s", block[1])
		}
	}
}

func dedent(code string) string {
	return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(code, "")
}

// TestREADMEKnowsTheAnswers: the table of reasons and statuses is the one that is answered by.
func TestREADMEKnowsTheAnswers(t *testing.T) {
	told, differs := map[core.Reason]int{}, map[string]int{} // by the kind of guard and the reason
	rows := regexp.MustCompile("(?m)^\\| <a id=\"(\\w+)\"></a>`(\\w+)` \\| (\\d+)(?:; of a (\\w+) (\\d+))? \\|").
		FindAllStringSubmatch(read(t, "README.md"), -1)
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
	answered := map[core.Reason]bool{}
	for _, g := range everyguard.Kinds() {
		for _, a := range (nethttpmw.Rule{Guard: g, Defer: &deferred.Requests{}}).Answers() {
			status := cmp.Or(differs[core.DescriptionOf(g).Kind+" "+string(a.Reason)], told[a.Reason])
			if status != a.Status {
				t.Errorf("%s answers %s with %d, the README says %d", g.Name(), a.Reason, a.Status, status)
			}
			explained := a.Type == core.TypeQuotaExceeded || a.Type == core.TypeAbnormalUsage
			if !explained && a.Type != "https://github.com/gatehouse-go/gatehouse#"+string(a.Reason) {
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

// TestREADMEStepsThroughTheScript: the lines that the debugger shows in the README are those of the script,
// by their numbers.
func TestREADMEStepsThroughTheScript(t *testing.T) {
	script := strings.Split(read(t, "lua/sliding_window.lua"), "\n")
	shown := regexp.MustCompile(`(?m)^(?:->| ) ?#? *(\d+)  (.*)$`).FindAllStringSubmatch(read(t, "README.md"),
		-1)
	if len(shown) < 5 {
		t.Fatalf("found only %d lines", len(shown))
	}
	for _, line := range shown {
		number, err := strconv.Atoi(line[1])
		if err != nil || number > len(script) || strings.TrimSpace(script[number-1]) != strings.TrimSpace(line[2]) {
			t.Errorf("the README has line %s as %q", line[1], line[2])
		}
	}
}

// TestREADMENamesWhatIsThere: files, headings, make targets and directories that the documents name exist.
func TestREADMENamesWhatIsThere(t *testing.T) {
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range append(files, "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md") {
		text := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(read(t, file), "") // code has brackets of its own
		for _, link := range regexp.MustCompile(`\]\(([^):#]*)(#[^)]+)?\)`).FindAllStringSubmatch(text, -1) {
			target := file
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(file), link[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", file, err)
			} else if anchor := strings.TrimPrefix(link[2], "#"); anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s has no heading for #%s", file, target, anchor)
			}
		}
		makefile := read(t, "Makefile")
		for _, target := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(read(t, file),
			-1) {
			if !strings.Contains(makefile, "\n"+target[1]+": ") {
				t.Errorf("%s: there is no make %s", file, target[1])
			}
		}
	}
}

// anchors are what links into a document can name: its headings in the form that they get on a web page, and
// the IDs that it sets itself.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all[strings.ReplaceAll(kept, " ", "-")] = true
	}
	for _, id := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(text, -1) {
		all[id[1]] = true
	}
	return all
}
