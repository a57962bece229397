package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
)

// guardPages are the pages of docs/guards, with what they have to know of the code: structs of options, as
// folder.Name, and the guard by which the reasons are checked.
var guardPages = map[string]struct {
	structs []string
	guard   string
}{
	"limits":       {[]string{"core/limit.Limit"}, "limit"},
	"bans":         {[]string{"core/bans.Options"}, "bans"},
	"votes":        {[]string{"core/votes.Options", "core/votes.Poll", "core/votes.VoidOptions"}, "votes"},
	"seckill":      {[]string{"core/seckill.Options", "core/seckill.Sale"}, "seckill"},
	"quota":        {[]string{"core/quota.Options"}, "quota"},
	"redpacket":    {[]string{"core/redpacket.Options", "core/redpacket.Packet"}, "redpacket"},
	"idempotency":  {[]string{"core/idempotency.Options"}, "idempotency"},
	"semaphore":    {[]string{"core/semaphore.Options"}, "semaphore"},
	"lock":         {[]string{"core/lock.Options"}, "lock"},
	"delay":        {[]string{"core/delay.Options", "core/delay.WorkOptions"}, ""},
	"deferred":     {[]string{"pipeline/deferred.Options"}, ""},
	"waiting-room": {[]string{"core/waitingroom.Options"}, "waitingroom"},
	"budget":       {[]string{"core/budget.Options", "core/budget.Limit"}, "budget"},
}

// TestEachGuardHasAPage: each package of a guard has a page, and each page has the same sections.
func TestEachGuardHasAPage(t *testing.T) {
	sections := []string{"How it counts", "A rule", "Options", "Answers", "Keys in Redis",
		"Operation IDs and retries", "Outages and failover", "Operating it", "Pitfalls", "Numbers", "Without HTTP"}
	for page := range guardPages {
		var found []string
		for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(proseOf(t, page), -1) {
			found = append(found, heading[1])
		}
		if !slices.Equal(found, sections) {
			t.Errorf("docs/guards/%s.md has the sections %q, want %q", page, found, sections)
		}
	}
	for name := range everyguard.Kinds() {
		if name == "waitingroom" {
			name = "waiting-room"
		}
		if _, ok := guardPages[name]; !ok && !strings.HasPrefix(name, "limit") &&
			name != "seckill/buckets" { // which is on the page of sales
			t.Errorf("docs/guards has no page for %s", name)
		}
	}
	for name := range everyguard.Tools() {
		if _, ok := guardPages[name]; !ok {
			t.Errorf("docs/guards has no page for %s", name)
		}
	}
	files, err := filepath.Glob("docs/guards/*.md")
	if err != nil || len(files) != len(guardPages) {
		t.Errorf("docs/guards has %q, want %d pages, %v", files, len(guardPages), err)
	}
}

// proseOf returns the text of a page of docs/guards, without blocks of code.
func proseOf(t *testing.T, page string) string {
	t.Helper()
	return fence.ReplaceAllString(read(t, "docs/guards/"+page+".md"), "")
}

// section returns a section of a page.
func section(t *testing.T, page, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(proseOf(t, page), "\n## "+title+"\n")
	if !found {
		t.Errorf("docs/guards/%s.md has no section %q", page, title)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// TestGuardPagesHaveEveryOption: the tables of options have a row for each exported field of the structs, in
// their order, and no other.
func TestGuardPagesHaveEveryOption(t *testing.T) {
	for page, about := range guardPages {
		var want, got []string
		for _, name := range about.structs {
			folder, typeName, _ := strings.Cut(name, ".")
			want = append(want, fieldsOf(t, folder, typeName)...)
		}
		rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|(?: [^|]+ \\|){3}$").
			FindAllStringSubmatch(section(t, page, "Options"), -1)
		for _, row := range rows {
			got = append(got, row[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("docs/guards/%s.md has rows for %q, the fields are %q", page, got, want)
		}
	}
}

// fieldsOf returns the exported fields of a struct.
func fieldsOf(t *testing.T, folder, name string) (fields []string) {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != name {
				return true
			}
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				for _, name := range field.Names {
					if name.IsExported() {
						fields = append(fields, name.Name)
					}
				}
			}
			return false
		})
	}
	if len(fields) == 0 {
		t.Fatalf("%s has no struct %s", folder, name)
	}
	return fields
}

// TestGuardPagesKnowTheAnswers: the table of answers has the reasons and statuses of the guard's description,
// and no other.
func TestGuardPagesKnowTheAnswers(t *testing.T) {
	kinds := everyguard.Kinds()
	for page, about := range guardPages {
		told := map[core.Reason]int{}
		rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d+) \\| [^|]+ \\| [^|]+ \\|$").
			FindAllStringSubmatch(section(t, page, "Answers"), -1)
		for _, row := range rows {
			status, err := strconv.Atoi(row[2])
			if err != nil {
				t.Error(err)
			}
			told[core.Reason(row[1])] = status
		}
		if about.guard == "" {
			continue // no guard: it answers nothing itself
		}
		answers := kit.DescriptionOf(kinds[about.guard]).Answers
		for _, a := range answers {
			if told[a.Reason] != a.Status {
				t.Errorf("docs/guards/%s.md: %s has status %d, the guard says %d", page, a.Reason,
					told[a.Reason], a.Status)
			}
			delete(told, a.Reason)
		}
		if len(told) > 0 || len(answers) == 0 {
			t.Errorf("docs/guards/%s.md has %v, which the guard does not answer", page, told)
		}
	}
}

// TestTheIndexHasEveryPage: docs/README.md links to each page below docs, and to those of the root folder that
// a reader may look for.
func TestTheIndexHasEveryPage(t *testing.T) {
	linked := map[string]bool{"docs/README.md": true}
	for _, link := range linksOf(read(t, "docs/README.md")) {
		target, _, _ := strings.Cut(link, "#")
		linked[filepath.ToSlash(filepath.Join("docs", target))] = true
	}
	pages := filesOf(t, "docs", func(path string) bool { return strings.HasSuffix(path, ".md") })
	for _, page := range append(pages, "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md") {
		if !linked[page] {
			t.Errorf("docs/README.md does not link to %s", page)
		}
	}
}
