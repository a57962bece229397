package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readmes are the same text in two languages.
var readmes = []string{"README.md", "README.zh-CN.md"}

func TestREADMEIsShort(t *testing.T) {
	for _, file := range readmes {
		if lines := strings.Count(read(t, file), "\n"); lines > 170 {
			t.Errorf("%s has %d lines, want 170 at most", file, lines)
		}
	}
}

// TestREADMEShowsMeasuredFigures: the comparison and the cost of a check are those that the benchmark has
// written.
func TestREADMEShowsMeasuredFigures(t *testing.T) {
	written := tables(read(t, "proofs/bench/results/comparison.txt"))
	if len(written) != 1 {
		t.Fatalf("proofs/bench/results/comparison.txt has %d tables", len(written))
	}
	if !slices.ContainsFunc(tables(read(t, "README.md")), func(shown []string) bool {
		return slices.Equal(shown, written[0])
	}) {
		t.Error("README.md does not show the table of proofs/bench/results/comparison.txt as it is")
	}
	// of the first table of CPU time of the server, in the first column: allowed, one caller
	cost := regexp.MustCompile(`(?s)\| CPU time of the server, µs, × floor \|.*?\n\| SlidingWindow \| [\d.]+, ([\d.]+)×`).
		FindStringSubmatch(read(t, "proofs/bench/results/redis.txt"))
	if cost == nil {
		t.Fatal("proofs/bench/results/redis.txt does not have the cost of a SlidingWindow")
	}
	figures := regexp.MustCompile(`\d\.\d\d(?:\n| )?`)
	for _, file := range readmes {
		_, text, _ := strings.Cut(read(t, file), "BENCHFLAGS=")
		text, _, _ = strings.Cut(text, "\n## ")
		if shown := figures.FindString(text); strings.TrimSpace(shown) != cost[1] {
			t.Errorf("%s has %q times the CPU of the floor, proofs/bench/results/redis.txt %s", file, shown, cost[1])
		}
	}
}

// TestTheTableOfResultsHasMeasuredFigures: each figure of proofs/bench/results/README.md stands in the file of its
// part, and each part has a row.
func TestTheTableOfResultsHasMeasuredFigures(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| (?:\[([\w-]+)\]\(.+\.txt\) )?\| .+ \| (.+) \|$`).
		FindAllStringSubmatch(read(t, "proofs/bench/results/README.md"), -1)
	part, parts, measured := "", 0, ""
	for _, row := range rows {
		if row[1] != "" {
			part, parts = row[1], parts+1
			measured = read(t, "proofs/bench/results/"+part+".txt")
		}
		if part == "" || part == "comparison" {
			continue // the heading; TestREADMEShowsMeasuredFigures has its table
		}
		for _, figure := range regexp.MustCompile(`[\d.]+×?`).FindAllString(row[2], -1) {
			if !regexp.MustCompile(`[ |]` + regexp.QuoteMeta(figure) + `[ ,]`).MatchString(measured) {
				t.Errorf("%s.txt does not have %s", part, figure)
			}
		}
	}
	if files, err := filepath.Glob("proofs/bench/results/*.txt"); err != nil || len(files) != parts {
		t.Errorf("%d parts have rows, %d have files, %v", parts, len(files), err)
	}
}

// TestREADMEShowsTheCoverageThatCIEnforces: the badge has the figure below which .ci/coverage fails.
func TestREADMEShowsTheCoverageThatCIEnforces(t *testing.T) {
	enforced := regexp.MustCompile(`\$2 < (\d+) `).FindStringSubmatch(read(t, ".ci/coverage"))
	if enforced == nil {
		t.Fatal(".ci/coverage has no figure below which it fails")
	}
	for _, file := range readmes {
		if !strings.Contains(read(t, file), "/badge/coverage-%E2%89%A5%20"+enforced[1]+"%25-") {
			t.Errorf("the badge of %s does not have the %s %% of .ci/coverage", file, enforced[1])
		}
	}
}

// tables returns the lines of each table of a document.
func tables(text string) (all [][]string) {
	inside := false
	for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
		is := strings.HasPrefix(line, "|")
		if is && !inside {
			all = append(all, nil)
		}
		if inside = is; is {
			all[len(all)-1] = append(all[len(all)-1], line)
		}
	}
	return all
}

// TestChineseREADMEIsInStep: it has the headings, the blocks of code, the rows and columns, the figures and
// the links of the English one, in this order, and each links to the other.
func TestChineseREADMEIsInStep(t *testing.T) {
	english, chinese := read(t, readmes[0]), read(t, readmes[1])
	for what, of := range map[string]func(string) []string{
		"heading": func(text string) []string {
			return regexp.MustCompile(`(?m)^#+ `).FindAllString(fence.ReplaceAllString(text, "```mermaid\n```"), -1)
		},
		"block of code": func(text string) []string { // charts and comments have the language of their page
			charts := regexp.MustCompile("(?s)```mermaid.*?```")
			return fence.FindAllString(withoutComments(charts.ReplaceAllString(text, "```mermaid\n```")), -1)
		},
		"row": func(text string) (shapes []string) {
			kept := regexp.MustCompile("\\||`[^`]+`|\\d\\.\\d\\d") // columns, code and figures
			for _, table := range tables(text) {
				for _, row := range table {
					shapes = append(shapes, strings.Join(kept.FindAllString(row, -1), " "))
				}
			}
			return shapes
		},
		"link": func(text string) (links []string) {
			for _, link := range linksOf(text) {
				if strings.HasPrefix(link, "#") {
					link = "a heading"
				}
				if slices.Contains(readmes, link) {
					link = "the other language"
				}
				links = append(links, link)
			}
			return links
		},
	} {
		want, got := of(english), of(chinese)
		if len(want) < 5 {
			t.Fatalf("%s: found only %q", what, want)
		}
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || want[i] != got[i] {
				t.Errorf("%s %d differs:\n%q\n%q", what, i+1, want[min(i, len(want)):], got[min(i, len(got)):])
				break
			}
		}
	}
	for i, other := range []string{readmes[1], readmes[0]} {
		if !slices.Contains(linksOf(read(t, readmes[i])), other) {
			t.Errorf("%s does not link to %s", readmes[i], other)
		}
	}
}

// withoutComments removes comments at the ends of lines of code in Go and shell.
func withoutComments(code string) string {
	return regexp.MustCompile(`(?m)[ \t]+(//|#) .*$`).ReplaceAllString(code, "")
}

// TestChineseREADMEIsChinese: its charts and the comments in its code are, and where it links to pages, which are
// English, it says so.
func TestChineseREADMEIsChinese(t *testing.T) {
	text := read(t, readmes[1])
	han, comments := regexp.MustCompile(`\p{Han}`), 0
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		for _, comment := range regexp.MustCompile(`(?m)[ \t](?://|#) .*$`).FindAllString(block[3], -1) {
			comments++
			if !han.MatchString(comment) {
				t.Errorf("the comment%s is not Chinese", comment)
			}
		}
		if block[2] == "mermaid" && !han.MatchString(block[3]) {
			t.Errorf("a chart is not Chinese:\n%s", block[3])
		}
	}
	if comments < 5 {
		t.Errorf("found only %d comments", comments)
	}
	page := regexp.MustCompile(`\]\((?:docs|proofs|[A-Z]+)[^)]*\.md`)
	_, body, _ := strings.Cut(text, "\n\n") // behind the badges
	for _, paragraph := range strings.Split(body, "\n\n") {
		if page.MatchString(paragraph) && !strings.Contains(paragraph, "英文") {
			t.Errorf("this does not say that the pages are English:\n%s", paragraph)
		}
	}
}
