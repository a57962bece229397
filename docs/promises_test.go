package docs_test

import (
	"flag"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
)

var update = flag.Bool("update", false, "write the promises in docs/contracts.md")

// sectionOf names the section of docs/contracts.md for the promises of a folder and of the folders below it,
// unless a longer path has another.
var sectionOf = map[string]string{
	"core":                   "Every guard",
	"core/bans":              "Bans",
	"core/budget":            "Budget",
	"core/delay":             "Delay queue",
	"core/idempotency":       "Idempotency",
	"core/limit":             "Rate limits",
	"core/limit/lease":       "Leases",
	"core/lock":              "Lock",
	"core/period":            "Quota",
	"core/quota":             "Quota",
	"core/redpacket":         "Red packet",
	"core/seckill":           "Seckill",
	"core/semaphore":         "Semaphore",
	"core/votes":             "Votes",
	"core/waitingroom":       "Waiting room",
	"internal/leases":        "Semaphore",
	"internal/testkit/lives": "Lives",
	"ops/config":             "Control",
	"ops/control":            "Control",
	"ops/operator":           "Requests and answers",
	"pipeline":               "Requests and answers",
	"pipeline/deferred":      "Deferred requests",
	"adapters":               "Requests and answers",
	"echomw":                 "Requests and answers",
	"ginmw":                  "Requests and answers",
	"keyfuncs":               "Requests and answers",
	"nethttpmw":              "Requests and answers",
	"cmd/gatehouse":          "The command",
	"internal/accesslog":     "The command",
	"internal/everyscript":   "The command",
}

var (
	documented = regexp.MustCompile(`(?m)((?:^//.*\n)+)func ((?:Test|Fuzz|Example)\w*)\(`)
	promise    = regexp.MustCompile(`(?ms)^// Promise(?: \(([^)]+)\))?: (.+?)\n(?://\n|//\w|\z)`)
)

// TestContractsHaveThePromisesOfTests: a promise stands in the doc comment of the test that holds it, as a
// paragraph "Promise: …", or "Promise (SECTION): …" where its section is not that of the folder. The lists of
// docs/contracts.md are printed from these paragraphs.
func TestContractsHaveThePromisesOfTests(t *testing.T) {
	lists := map[string]string{} // by section
	for _, file := range filesOf(t, ".", func(path string) bool { return strings.HasSuffix(path, "_test.go") }) {
		text, found := read(t, file), 0
		for _, test := range documented.FindAllStringSubmatch(text, -1) {
			for _, p := range promise.FindAllStringSubmatch(test[1], -1) {
				found++
				folder, section := path.Dir(file), p[1]
				for above := folder; section == "" && above != "."; above = path.Dir(above) {
					section = sectionOf[above]
				}
				if section == "" {
					t.Errorf("%s: the promise of %s has no section: write \"Promise (SECTION): …\"", file, test[2])
					continue
				}
				lists[section] += "- " + strings.ReplaceAll(p[2], "\n// ", " ") + " `" + folder + "/" + test[2] + "`\n"
			}
		}
		if all := strings.Count(text, "\n// Promise"); all != found {
			t.Errorf("%s: %d of %d promises are paragraphs of a test's comment", file, found, all)
		}
	}
	for _, section := range slices.Sorted(maps.Keys(lists)) {
		guardtest.WantOnPage(t, "docs/contracts.md", "promises: "+section, lists[section], *update)
	}
	if parts := strings.Count(read(t, "docs/contracts.md"), "<!-- promises: "); parts != len(lists) {
		t.Errorf("docs/contracts.md has %d lists of promises, the tests have promises for %d", parts, len(lists))
	}
}
