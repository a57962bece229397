package docs_test

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

// TestTheTestsThatMeasureTimeAreListed: docs/testing.md names each function of a test that calls timed.Test.
func TestTheTestsThatMeasureTimeAreListed(t *testing.T) {
	function := regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)\(`)
	byFolder := map[string][]string{}
	for _, file := range filesOf(t, ".", func(path string) bool { return strings.HasSuffix(path, "_test.go") }) {
		folder := path.Dir(file)
		if folder == "internal/testkit/timed" || folder == "docs" {
			continue
		}
		before, rest, calls := strings.Cut(read(t, file), "timed.Test(")
		for text := before; calls; {
			all := function.FindAllStringSubmatch(text, -1)
			if name := all[len(all)-1][1]; !slices.Contains(byFolder[folder], name) {
				byFolder[folder] = append(byFolder[folder], name)
			}
			before, rest, calls = strings.Cut(rest, "timed.Test(")
			text += before
		}
	}
	folders, count := []string{}, 0
	for folder, names := range byFolder {
		slices.Sort(names)
		count += len(names)
		folders = append(folders, fmt.Sprintf("- %s: `%s`\n", folder, strings.Join(names, "`, `")))
	}
	slices.Sort(folders)
	guardtest.WantOnPage(t, "docs/testing.md", "timed tests",
		fmt.Sprintf("\n%d tests measure time:\n\n%s", count, strings.Join(folders, "")), *update)
}
