package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCapacityHasMeasuredFigures: each size in the table of memory, and each time in that of calls, stands in
// a page that has the measurements.
func TestCapacityHasMeasuredFigures(t *testing.T) {
	page := read(t, "docs/operations/capacity.md")
	sizes := regexp.MustCompile(`(?m)^\| .+ \| ([\d.,]+)(?: to ([\d.,]+))?(?: B)? \| [^|]+ \|$`).
		FindAllStringSubmatch(page, -1)
	if len(sizes) < 15 {
		t.Fatalf("found only %d sizes", len(sizes))
	}
	measured := read(t, "docs/redis-keys.md") + read(t, "docs/performance.md")
	for _, row := range sizes {
		for _, figure := range row[1:3] {
			if figure != "" && !regexp.MustCompile(`(^|[^\d.,])`+regexp.QuoteMeta(figure)+`([^\d]|$)`).MatchString(measured) {
				t.Errorf("no page with measurements has %s: %s", figure, row[0])
			}
		}
	}
	_, table, _ := strings.Cut(page, "| call |")
	table, _, _ = strings.Cut(table, "\n\n")
	times := regexp.MustCompile(`[\d.]+(?: to [\d.]+)? µs`).FindAllString(table, -1)
	if len(times) < 8 {
		t.Fatalf("found only %d times", len(times))
	}
	performance := read(t, "docs/performance.md") + read(t, "proofs/bench/results/moment.md")
	for _, text := range times {
		for _, figure := range regexp.MustCompile(`[\d.]+`).FindAllString(text, -1) {
			if !regexp.MustCompile(`[ |]` + regexp.QuoteMeta(figure) + `( µs|,)`).MatchString(performance) {
				t.Errorf("docs/performance.md and proofs/bench/results/moment.md do not have %s µs", figure)
			}
		}
	}
}

// TestOperationsNameWhatIsThere: files and headings to which the pages on operations, and that of the
// production example, link exist.
func TestOperationsNameWhatIsThere(t *testing.T) {
	files, err := filepath.Glob("docs/operations/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range append(files, "examples/production/README.md") {
		text := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(read(t, file), "")
		for _, link := range regexp.MustCompile(`\]\(([^):#]*)(#[^)]+)?\)`).FindAllStringSubmatch(text, -1) {
			target := file
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(file), link[1])
			}
			if anchor := strings.TrimPrefix(link[2], "#"); anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s has no heading for #%s", file, target, anchor)
			} else if found, err := filepath.Glob(target); err != nil || len(found) != 1 {
				t.Errorf("%s: there is no %s", file, target)
			}
		}
	}
}
