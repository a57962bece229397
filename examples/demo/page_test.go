package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// TestThePageLoadsNothingFromElsewhere: the page works without the Internet, and its policy says so.
func TestThePageLoadsNothingFromElsewhere(t *testing.T) {
	a := start(t, redistest.Mini(t), limit.PerMinute(100))
	for path, kind := range map[string]string{"/": "text/html", "/page/page.css": "text/css",
		"/page/page.js": "text/javascript"} {
		w := send(a, "GET", path)
		want(t, w, 200, "")
		h := w.Header()
		if !strings.HasPrefix(h.Get("Content-Type"), kind) || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") ||
			strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: header %v", path, h)
		}
		links := regexp.MustCompile(`<a href="https://github\.com/gatehouse-go/gatehouse/blob/main/docs/[\w/.-]+"`)
		body := links.ReplaceAllString(w.Body.String(), "<a") // a link loads nothing
		if found := regexp.MustCompile(`https?:|[("'= ]//\w|@import|url\(`).FindString(body); found != "" {
			t.Errorf("%s loads something from elsewhere: %s", path, found)
		}
		if found := regexp.MustCompile(`(?i) (style|on\w+)="|<style|<script>`).FindString(w.Body.String()); found != "" {
			t.Errorf("%s has what the policy forbids: %s", path, found)
		}
	}
	want(t, send(a, "GET", "/page/page.html"), 404, "")
}

// TestThePagesNamesExist: IDs are unique, references lead somewhere, and each button has a scenario.
func TestThePagesNamesExist(t *testing.T) {
	a := start(t, redistest.Mini(t), limit.PerMinute(100))
	a.switchable = true
	page := send(a, "GET", "/").Body.String()
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] {
			t.Errorf("two elements have the ID %s", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(` (?:aria-labelledby|for)="([^"]*)"|href="#([^"]*)"`).
		FindAllStringSubmatch(page, -1) {
		for id := range strings.FieldsSeq(m[1] + m[2]) {
			if !ids[id] {
				t.Errorf("%s refers to nothing", m[0])
			}
		}
	}
	script, err := pageFiles.ReadFile("page.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`byID\("([^"]*)"\)(\?)?`).FindAllStringSubmatch(string(script), -1) {
		if !ids[m[1]] && m[2] == "" {
			t.Errorf("the script asks for the ID %s, which the page does not have", m[1])
		}
	}
	started := map[string]bool{}
	for _, m := range regexp.MustCompile(`data-run="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		started[m[1]] = true
		if scenarios[m[1]] == nil {
			t.Errorf("a button starts %s, which is no scenario", m[1])
		}
	}
	if len(started) != len(scenarios) {
		t.Errorf("buttons for %v, %d scenarios", started, len(scenarios))
	}
	for id := range ids {
		if name, ok := strings.CutSuffix(id, "-run"); ok && (!ids[name] || !ids[name+"-status"]) {
			t.Errorf("the scenario %s has no element, or no status", name)
		}
	}
}
