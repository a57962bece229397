package everyguard_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
)

const module = "github.com/gatehouse-go/gatehouse/"

// guards returns the kinds of keys of the packages that make a guard or a tool, by their folders below core.
// The kind is empty where several kinds share a package.
func guards(t *testing.T) map[string]string {
	t.Helper()
	registers, found := regexp.MustCompile(`kit\.Register\(\w+, (?:"(\w+)")?`), map[string]string{}
	err := filepath.WalkDir("../../../core", func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		folder := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), filepath.Clean("../../../core")+"/"))
		if m := registers.FindStringSubmatch(string(text)); m != nil && folder != "kit" {
			found[folder] = m[1]
		}
		return err
	})
	if err != nil || len(found) < 10 {
		t.Fatalf("found only %q: %v", found, err)
	}
	return found
}

// TestAGuardThatIsLeftOutFails: each package that registers a guard or a tool is here, so that the tests of
// what all guards say of themselves see it, and is named in each place that a user, an operator or a test
// looks for it.
func TestAGuardThatIsLeftOutFails(t *testing.T) {
	known := everyguard.Kinds()
	tools := everyguard.Tools()
	for folder, kind := range guards(t) {
		_, guard := known[folder]
		if _, tool := tools[folder]; !guard && !tool {
			t.Errorf("core/%s: add it to Kinds or Tools of internal/testkit/everyguard", folder)
		}
		scripts := folder
		if folder == "lock" { // lua/lock says so
			scripts = "semaphore"
		}
		for place, text := range map[string]string{
			"docs/contracts.md":  "core/" + folder + "/Test",
			"docs/redis-keys.md": "`prefix:" + kind,
		} {
			page, err := os.ReadFile("../../../" + place)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(page), text) {
				t.Errorf("core/%s: %s does not have %q", folder, place, text)
			}
		}
		if files, err := filepath.Glob("../../../lua/" + scripts + "/*.lua"); err != nil || len(files) == 0 {
			t.Errorf("core/%s: there are no scripts in lua/%s: %v", folder, scripts, err)
		}
		if !guard {
			continue
		}
		for user, what := range map[string]string{
			"ops/config/internal/rulefile": "a file of rules cannot make it",
			"adapters/adaptertest":         "no row of the adapters' conformance has it",
		} {
			if strings.HasPrefix(user, "ops/config/") && (folder == "waitingroom" || folder == "budget") {
				continue // a program makes it, since a file of rules has no secrets and no functions
			}
			if !imports(t, user, module+"core/"+folder) {
				t.Errorf("core/%s: %s: import it in %s", folder, what, user)
			}
		}
	}
}

// imports reports whether a package imports another, tests apart.
func imports(t *testing.T, folder, path string) bool {
	t.Helper()
	files, err := filepath.Glob("../../../" + folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, each := range parsed.Imports {
			if each.Path.Value == strconv.Quote(path) && !strings.HasSuffix(file, "_test.go") {
				return true
			}
		}
	}
	return false
}
