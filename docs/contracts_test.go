package docs_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// heldByATest is a row that ends with the name of a test, as `folder/TestName`.
var heldByATest = regexp.MustCompile("`[\\w/]+/(Test|Fuzz|Example)\\w+` *\\|$")

// namedTestsExist fails for each test that a page names, as `folder/TestName`, and that folder does not have.
func namedTestsExist(t *testing.T, page string, atLeast int) {
	t.Helper()
	tests := regexp.MustCompile("`([a-z][\\w/]*)/((?:Test|Fuzz|Example)\\w+)`").FindAllStringSubmatch(page, -1)
	if len(tests) < atLeast {
		t.Fatalf("found only %d tests", len(tests))
	}
	functions := map[string]map[string]bool{} // by folder
	for _, test := range tests {
		folder, name := test[1], test[2]
		if functions[folder] == nil {
			functions[folder] = functionsOf(t, folder)
		}
		if !functions[folder][name] {
			t.Errorf("there is no %s in %s", name, folder)
		}
	}
}

// TestDocumentsNameTestsThatExist: for each command `go test ./FOLDER -run TestName` in a document there is a
// test in that folder whose name begins so.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	command := regexp.MustCompile(
		`(?:cd ([\w/]+) && )?go test (?:-v )?(?:\./([a-z][\w/]*) )?-run '?\^?(Test\w+)`)
	functions := map[string]map[string]bool{} // by folder
	for _, document := range documents(t) {
		for _, test := range command.FindAllStringSubmatch(read(t, document), -1) {
			folder := filepath.Join(test[1], test[2])
			if folder == "" {
				continue // of the folder that the text is about
			}
			if functions[folder] == nil {
				functions[folder] = functionsOf(t, folder)
			}
			names := slices.Collect(maps.Keys(functions[folder]))
			if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, test[3]) }) {
				t.Errorf("%s: there is no %s in %s", document, test[3], folder)
			}
		}
	}
	if len(functions) < 4 {
		t.Errorf("found only the folders %q", slices.Collect(maps.Keys(functions)))
	}
}

// TestTheTrackRecordShowsEachDefectMended: each row of docs/track-record.md names tests, and each test is there.
func TestTheTrackRecordShowsEachDefectMended(t *testing.T) {
	page := read(t, "docs/track-record.md")
	namedTestsExist(t, page, 40)
	rows := regexp.MustCompile(`(?m)^\| [^|]+ \| [^|]+ \|[\w ,]*\| ([^|]+) \|$`).FindAllStringSubmatch(page, -1)
	if lines := strings.Count(page, "\n|"); len(rows) != lines-1 || len(rows) < 40 { // one line has dashes
		t.Errorf("%d rows of %d lines are well formed", len(rows), lines)
	}
	for _, row := range rows[1:] { // without the heading
		if !heldByATest.MatchString(row[1] + " |") {
			t.Errorf("no test shows this: %s", row[0])
		}
	}
}

// functionsOf returns the names of the tests, fuzz tests and examples of a folder, and of the packages inside it
// that only it may import: those of cmd/gatehouse have a program each.
func functionsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	if more, err := filepath.Glob(filepath.Join(folder, "internal", "*", "*_test.go")); err == nil {
		files = append(files, more...)
	}
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`).FindAllSubmatch(text, -1) {
			names[string(f[1])] = true
		}
	}
	return names
}
