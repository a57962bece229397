package answers_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

const (
	asProblem = "application/problem+json"
	asPlain   = "text/plain; charset=utf-8"
	asPage    = "text/html; charset=utf-8"
)

// formOf returns the media type of a refusal for a request with these Accept fields.
func formOf(accept ...string) string {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["Accept"] = accept
	w := httptest.NewRecorder()
	(&answers.Refusal{Status: http.StatusConflict, Reason: core.ReasonSoldOut}).Reply(w, r)
	return w.Header().Get("Content-Type")
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		accept []string
		want   string
	}{
		{nil, asProblem},
		{[]string{""}, asProblem},
		{[]string{"text/html"}, asPage},
		{[]string{"TEXT/HTML"}, asPage},
		{[]string{" text/html ; charset=utf-8 "}, asPage},
		{[]string{"text/plain"}, asPlain},
		{[]string{"text/*"}, asPlain},
		{[]string{"text/html, text/*;q=0.5"}, asPage},
		{[]string{"*/*"}, asProblem},
		{[]string{"application/*, text/html;q=0.9"}, asProblem},
		{[]string{"application/json"}, asProblem},
		{[]string{"application/problem+json;q=0.1, text/plain;q=0.2"}, asPlain},
		{[]string{"text/html, application/xhtml+xml, */*"}, asPage}, // Internet Explorer
		{[]string{"text/html;q=0.5", "text/plain;q=0.8"}, asPlain},  // two lines
		{[]string{"text/html;q=0"}, asProblem},
		{[]string{"*/*;q=0"}, asProblem}, // nothing, so the standard one
		{[]string{"*/*, application/problem+json;q=0, text/plain;q=0"}, asPage},
		{[]string{"*/*;q=0.9, application/problem+json;q=0.1"}, asPlain},
		{[]string{"text/html;q=1.000, text/plain;q=0.999"}, asPage},
		{[]string{"text/html;q=0.001"}, asPage},
		{[]string{"text/html;Q=0.4, text/plain;q=0.5"}, asPlain},
		{[]string{`text/html;note="a,b;q=0";q=0.5, text/plain;q=0.4`}, asPage},
		{[]string{`text/html;note="\",text/plain", */*;q=0.1`}, asPage},
		// What is malformed does not count.
		{[]string{"text/html;q=2, text/plain;q=0.1"}, asPlain},
		{[]string{"text/html;q=1.5, text/plain;q=0.1"}, asPlain},
		{[]string{"text/html;q=-1, text/plain;q=0.1"}, asPlain},
		{[]string{"text/html;q=0.1234, text/plain;q=0.1"}, asPlain},
		{[]string{"text/html;q=0.x, text/plain;q=0.1"}, asPlain},
		{[]string{"text/html;q=, text/plain;q=0.1"}, asPlain},
		{[]string{"text/html;q, text/plain;q=0.1"}, asPlain},
		{[]string{"html, text, /, */html, text/plain;q=0.1"}, asPlain},
		{[]string{",,;,"}, asProblem},
		{[]string{`text/html;note="open`}, asPage},
		{[]string{`text/plain;note="\`}, asPlain},
	} {
		if got := formOf(c.accept...); got != c.want {
			t.Errorf("Accept %q: %s, want %s", c.accept, got, c.want)
		}
	}
}

// TestFormsAgainstAModel: the form is the one that the ranges say, judged from the ranges themselves rather
// than from their text.
func TestFormsAgainstAModel(t *testing.T) {
	type mediaRange struct {
		name   string
		weight int // in thousandths
	}
	names := []string{"*/*", "text/*", "text/html", "text/plain", "application/*", "application/problem+json",
		"image/png"}
	fits := map[string][]string{ // from the least exact one on
		asProblem: {"*/*", "application/*", "application/problem+json"},
		asPlain:   {"*/*", "text/*", "text/plain"},
		asPage:    {"*/*", "text/*", "text/html"},
	}
	rapid.Check(t, func(t *rapid.T) {
		var ranges []mediaRange
		var elements []string
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 7, rapid.ID[string]).Draw(t,
			"names") {
			weight := rapid.OneOf(rapid.IntRange(0, 1000), rapid.SampledFrom([]int{0, 500, 1000})).Draw(t, "weight")
			ranges = append(ranges, mediaRange{name, weight})
			text := fmt.Sprintf("%s;q=%d.%03d", name, weight/1000, weight%1000)
			if weight == 1000 && rapid.Bool().Draw(t, "without a weight") {
				text = name
			}
			elements = append(elements, text)
		}
		want, best := asProblem, [2]int{0, 0}
		for _, form := range []string{asProblem, asPlain, asPage} {
			var said [2]int // weight and how exactly
			for exact, name := range fits[form] {
				if i := slices.IndexFunc(ranges, func(r mediaRange) bool { return r.name == name }); i >= 0 {
					said = [2]int{ranges[i].weight, exact}
				}
			}
			if said[0] > best[0] || said[0] == best[0] && said[0] > 0 && said[1] > best[1] {
				want, best = form, said
			}
		}
		accept := strings.Join(elements, rapid.SampledFrom([]string{",", ", ", " , "}).Draw(t, "separator"))
		if got := formOf(accept); got != want {
			t.Fatalf("Accept %q: %s, want %s", accept, got, want)
		}
	})
}

func FuzzAccept(f *testing.F) {
	for _, seed := range []string{"text/html,*/*;q=0.8", `text/plain;a="\",`, "a/b;q=0.5;;,", "\x00\"\\"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		got := formOf(accept)
		lower := strings.ToLower(accept)
		switch {
		case got == asProblem:
		case strings.Contains(lower, "*/*") || strings.Contains(lower, "text/"):
		default:
			t.Errorf("Accept %q: %s, which it has not asked for", accept, got)
		}
		if again := formOf("", accept, ""); again != got {
			t.Errorf("Accept %q: %s, and with empty lines around it %s", accept, got, again)
		}
	})
}

func TestVaryIsAddedTo(t *testing.T) {
	for there, want := range map[string][]string{
		"":                        {"Accept"},
		"Origin":                  {"Origin", "Accept"},
		"Accept-Encoding":         {"Accept-Encoding", "Accept"},
		"Origin, accept , Cookie": {"Origin, accept , Cookie"},
		"*":                       {"*"},
	} {
		w := httptest.NewRecorder()
		if there != "" {
			w.Header().Set("Vary", there)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		(&answers.Refusal{Status: http.StatusConflict, Reason: core.ReasonSoldOut}).Reply(w, r)
		if got := w.Header().Values("Vary"); !slices.Equal(got, want) {
			t.Errorf("Vary %q became %q, want %q", there, got, want)
		}
	}
}

// TestPagesKeepTheApplicationsPolicy: a Content-Security-Policy of the application holds as well.
func TestPagesKeepTheApplicationsPolicy(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'self'")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "text/html")
	(&answers.Refusal{Status: http.StatusConflict, Reason: core.ReasonSoldOut}).Reply(w, r)
	_, style, _ := strings.Cut(w.Body.String(), "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	own := fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'", base64.StdEncoding.EncodeToString(sum[:]))
	if got := w.Header().Values("Content-Security-Policy"); !slices.Equal(got,
		[]string{"frame-ancestors 'self'", own}) {
		t.Errorf("%q, want %q too", got, own)
	}
}
