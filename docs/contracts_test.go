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

// TestContractsNameTestsThatExist: each test that docs/contracts.md and docs/systems.md name, as
// `folder/TestName`, exists in that folder, each promise of the contracts' tables names one, and so does each
// row of the table of systems.
func TestContractsNameTestsThatExist(t *testing.T) {
	page, systems := read(t, "docs/contracts.md"), read(t, "docs/systems.md")
	tests := regexp.MustCompile("`([a-z][\\w/]*)/((?:Test|Fuzz|Example)\\w+)`").
		FindAllStringSubmatch(page+systems, -1)
	if len(tests) < 50 {
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
	tables := regexp.MustCompile(`(?m)^\| promise \| held by \|\n\|---\|---\|\n((?:\|.*\n)+)`).
		FindAllStringSubmatch(page, -1)
	tables = append(tables, regexp.MustCompile(`(?m)^\| system \|.*\|\n\|[-|]+\|\n((?:\|.*\n)+)`).
		FindAllStringSubmatch(systems, -1)...)
	if len(tables) < 11 {
		t.Fatalf("found only %d tables", len(tables))
	}
	for _, table := range tables {
		for _, row := range strings.Split(strings.TrimSpace(table[1]), "\n") {
			if !regexp.MustCompile("`[\\w/]+/(Test|Fuzz|Example)\\w+` *\\|$").MatchString(row) {
				t.Errorf("no test holds this promise: %s", row)
			}
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
	if len(functions) < 5 {
		t.Errorf("found only the folders %q", slices.Collect(maps.Keys(functions)))
	}
}

// TestTheTrackRecordShowsEachDefectMended: each row of docs/track-record.md ends with a command, and each part
// of its -run finds a test in the folders that it names.
func TestTheTrackRecordShowsEachDefectMended(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| .+ \|[\w ]+\| (.+) \|$`).
		FindAllStringSubmatch(read(t, "docs/track-record.md"), -1)
	run := regexp.MustCompile(`-run '?([^'` + "`" + ` ]+)`)
	folder := regexp.MustCompile("\\./([a-z][\\w/]*)|in `([\\w/]+)`")
	functions := map[string]map[string]bool{} // by folder
	for _, row := range rows[1:] {            // without the heading
		var names []string
		for _, in := range folder.FindAllStringSubmatch(row[1], -1) {
			path := in[1] + in[2]
			if functions[path] == nil {
				functions[path] = functionsOf(t, path)
			}
			names = slices.AppendSeq(names, maps.Keys(functions[path]))
		}
		wanted := run.FindStringSubmatch(row[1])
		if wanted == nil {
			if len(names) == 0 && !strings.Contains(row[1], "`make ") {
				t.Errorf("no command: %s", row[0])
			}
			continue
		}
		tests := strings.ReplaceAll(wanted[1], `\|`, "|")                            // a table escapes it
		tests = regexp.MustCompile(`/(\([^)]*\)|[^|])*`).ReplaceAllString(tests, "") // subtests
		for _, test := range strings.Split(tests, "|") {
			if !slices.ContainsFunc(names, regexp.MustCompile(test).MatchString) {
				t.Errorf("there is no %s: %s", test, row[0])
			}
		}
	}
	if len(rows) < 150 {
		t.Errorf("found only %d rows", len(rows))
	}
}

// functionsOf returns the names of the tests, fuzz tests and examples of a folder.
func functionsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	if more, err := filepath.Glob(filepath.Join(folder, "*.go")); err == nil {
		files = append(files, more...) // internal/conformance
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
