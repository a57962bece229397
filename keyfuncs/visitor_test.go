package keyfuncs_test

import (
	"net/http"
	"testing"

	"github.com/gatehouse-go/gatehouse/keyfuncs"
)

// TestVisitorTellsBrowsersApart: whatever one browser asks, it is one visitor; another browser is another one.
func TestVisitorTellsBrowsersApart(t *testing.T) {
	who := func(fields ...string) string {
		r := &http.Request{Header: http.Header{}}
		for i := 0; i < len(fields); i += 2 {
			r.Header.Add(fields[i], fields[i+1])
		}
		text, err := keyfuncs.Visitor()(&keyfuncs.Request{Request: r})
		if err != nil || text == "" {
			t.Fatalf("%q, %v", text, err)
		}
		return text
	}
	const firefox, chromium, languages = "Mozilla/5.0 Firefox/140", "Mozilla/5.0 Chrome/140", "de, en;q=0.5"
	page := who("User-Agent", firefox, "Accept-Language", languages, "Accept", "text/html",
		"Sec-Fetch-Mode", "navigate")
	fetch := who("User-Agent", firefox, "Accept-Language", languages, "Accept", "application/json",
		"Cookie", "a=b")
	if page != fetch {
		t.Error("a page and a fetch of one browser are two visitors")
	}
	for name, other := range map[string]string{
		"another browser":  who("User-Agent", chromium, "Accept-Language", languages),
		"another language": who("User-Agent", firefox, "Accept-Language", "en"),
		"no language":      who("User-Agent", firefox),
		"nothing":          who(),
		"moved":            who("User-Agent", firefox+"\t"+languages),
	} {
		if other == page {
			t.Error(name, "is the same visitor")
		}
	}
}
