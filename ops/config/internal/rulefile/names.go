package rulefile

import (
	"fmt"
	"strings"
)

// unknown says that a name is none of those that are allowed, and which one was probably meant.
func unknown(what, name string, allowed []string) string {
	text := fmt.Sprintf("unknown %s %s", what, quote(name))
	if len(allowed) == 0 {
		return text + ": there are none"
	}
	if meant := closest(name, allowed); meant != "" {
		text += fmt.Sprintf(": did you mean %q?", meant)
	}
	return text + "; allowed here: " + strings.Join(allowed, ", ")
}

// quote returns up to 60 characters of a text in quotes.
func quote(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return fmt.Sprintf("%q...", string(runes[:60]))
	}
	return fmt.Sprintf("%q", text)
}

// closest returns the allowed name that is most like name, or "" if none is alike.
func closest(name string, allowed []string) string {
	if len(name) > 64 {
		return ""
	}
	best, least := "", 0
	for _, candidate := range allowed {
		d := distance(plain(name), plain(candidate))
		if d <= max(1, len(candidate)/3) && (best == "" || d < least) {
			best, least = candidate, d
		}
	}
	return best
}

// plain returns a name without what people spell differently: case, and the marks between words.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
}

// distance returns how many characters have to be inserted, removed or replaced to make b out of a
// (Levenshtein). Two neighbours that changed places count as one.
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
