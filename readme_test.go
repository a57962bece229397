package gatehouse_test

import (
	"cmp"
	"os"
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
