package docs_test

import (
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestCapacityHasMeasuredFigures: each size in the table of memory, and each time in that of calls, stands in
// a page that has the measurements.
func TestCapacityHasMeasuredFigures(t *testing.T) {
	page := read(t, "docs/operations/capacity.md")
	sizes := regexp.MustCompile(`(?m)^\| .+ \| ([\d.,]+)(?: to ([\d.,]+))?(?: B)? \| [^|]+ \|$`).
		FindAllStringSubmatch(page, -1)
	if len(sizes) < 7 {
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
	performance := read(t, "docs/performance.md") + read(t, "proofs/bench/results/moment.txt")
	for _, text := range times {
		for _, figure := range regexp.MustCompile(`[\d.]+`).FindAllString(text, -1) {
			if !regexp.MustCompile(`[ |]` + regexp.QuoteMeta(figure) + `( µs|,)`).MatchString(performance) {
				t.Errorf("docs/performance.md and proofs/bench/results/moment.txt do not have %s µs", figure)
			}
		}
	}
}

// TestRatesOfScaleFollowFromTheTimes: each rate is half a second by the measured time and the share of the
// busiest of 16 masters.
func TestRatesOfScaleFollowFromTheTimes(t *testing.T) {
	_, server, _ := strings.Cut(read(t, "proofs/bench/results/scale.txt"), "CPU time of the server")
	page := read(t, "docs/operations/capacity.md")
	zipf := 0.0
	for i := range 10_000 {
		zipf += math.Pow(float64(i+1), -1.1)
	}
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for row, busiest := range map[[2]string]float64{
		{"even", "even"}: 0, {"Zipf 1.1", "Zipf, exponent 1.1"}: 1 / zipf,
		{"one tenant with half", "one tenant with half"}: 0.5,
	} {
		times := regexp.MustCompile(`(?m)^\| ` + row[0] + `, PoolSize 160 \| ([\d.]+), .+ \| .+ \| ` +
			`([\d.]+), .+ \| .+ \| .+ \| ([\d.]+), .+ \|$`).FindStringSubmatch(server)
		rates := regexp.MustCompile(`(?m)^\| ` + row[1] + ` \| .+ \| ([\d,]+)/s \| ([\d,]+)/s \| ([\d,]+)/s \|$`).
			FindStringSubmatch(page)
		if times == nil || rates == nil {
			t.Fatalf("%s: times %q, rates %q", row, times, rates)
		}
		for i := range 3 {
			want := 0.5e6 / number(times[i+1]) / (busiest + (1-busiest)/16)
			if got := number(rates[i+1]); math.Abs(got-want) > want/100 {
				t.Errorf("%s: %s/s, %.0f follow from %s µs", row[1], rates[i+1], want, times[i+1])
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
