package pipeline_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

// pageOf is the answer to a browser that was refused for so long.
func pageOf(method string, wait time.Duration, texts ...answers.Text) *httptest.ResponseRecorder {
	rule := ruleOf(&refuser{fake{name: "site"}, core.Decision{Reason: core.ReasonLimited, RetryAfter: wait}})
	if len(texts) > 0 {
		rule.Texts = func(*http.Request, *answers.Refusal) answers.Text { return texts[0] }
	}
	r := httptest.NewRequest(method, "/", nil)
	r.Header.Set("Accept", "text/html")
	w := httptest.NewRecorder()
	nethttpmw.HTTP(rule)(http.NotFoundHandler()).ServeHTTP(w, r)
	return w
}

// TestAPageSaysWhenToComeBack: it said "Try again later".
func TestAPageSaysWhenToComeBack(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		time.Second:                  "in 1 second",
		41*time.Second + 1e8:         "in 42 seconds",
		119 * time.Second:            "in 119 seconds",
		2 * time.Minute:              "in 2 minutes",
		2*time.Minute + time.Second:  "in 3 minutes", // never too early
		2 * time.Hour:                "in 2 hours",
		30*time.Hour + 1*time.Minute: "in 31 hours",
		49 * time.Hour:               "in 3 days",
	} {
		before := time.Now()
		w := pageOf(http.MethodGet, wait)
		body := w.Body.String()
		if !strings.Contains(body, "<p>You have sent more requests than are allowed in this time.</p>") ||
			!strings.Contains(body, ">"+want+"</span></p>\n") || strings.Contains(body, "later") {
			t.Errorf("%v, want %s:\n%s", wait, want, body)
		}
		found := regexp.MustCompile(`You can come back at <time datetime="([^"]+)">([^<]+) UTC</time>, `).
			FindStringSubmatch(body)
		if found == nil {
			t.Fatalf("no time:\n%s", body)
		}
		at, err := time.Parse(time.RFC3339, found[1])
		latest := time.Now().Add(wait + time.Minute + 2*time.Second)
		if err != nil || at.Before(before.Add(wait-time.Millisecond)) || at.After(latest) {
			t.Errorf("%v after %v: %s (%v)", wait, before, found[1], err)
		}
		if len(body) > 3000 {
			t.Errorf("%d bytes", len(body))
		}
	}
	if body := pageOf(http.MethodGet, 0).Body.String(); strings.Contains(body, "script") ||
		strings.Contains(body, "come back") || strings.Contains(body, "try again") {
		t.Errorf("waiting does not help, but:\n%s", body)
	}
}

// TestAPageAllowsItsOwnScriptOnly: the policy has the hashes of the script and of the style sheet that are in
// the page.
func TestAPageAllowsItsOwnScriptOnly(t *testing.T) {
	w := pageOf(http.MethodGet, time.Minute, answers.Text{
		Title: "<script>alert(1)</script>", Detail: `"><img src=x>`, Lang: `"><b>`, Wait: "<i>", Ready: "</a><u>",
	})
	body := w.Body.String()
	hash := func(element string) string {
		_, text, _ := strings.Cut(body, "<"+element+">")
		text, _, _ = strings.Cut(text, "</"+element+">")
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	want := fmt.Sprintf("default-src 'none'; style-src %s; script-src %s", hash("style"), hash("script"))
	if got := w.Header().Get("Content-Security-Policy"); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if n := strings.Count(body, "<script"); n != 1 {
		t.Errorf("%d scripts", n)
	}
	for _, raw := range []string{"<img", "<b>", "<i>", "<u>"} {
		if strings.Contains(body, raw) {
			t.Errorf("%s is in the page:\n%s", raw, body)
		}
	}
}

// TestPagesOfOtherLanguagesHaveNoEnglishWords: the words are the application's, or there are none.
func TestPagesOfOtherLanguagesHaveNoEnglishWords(t *testing.T) {
	german := answers.Text{Title: "Zu viele Anfragen", Detail: "Bitte warten Sie.", Lang: "de-AT"}
	if body := pageOf(http.MethodGet, time.Minute, german).Body.String(); strings.Contains(body, "come back") ||
		strings.Contains(body, "in 60 seconds") || strings.Contains(body, "try again") ||
		!strings.Contains(body, ` UTC</time>, <span role="timer" data-wait="60"></span></p>`) ||
		!strings.Contains(body, `<a href="" hidden></a>`) {
		t.Errorf("without words:\n%s", body)
	}
	german.Wait, german.Ready = "Weiter geht es um", "Jetzt geht es weiter."
	if body := pageOf(http.MethodGet, time.Minute, german).Body.String(); !strings.Contains(body,
		`<p id="wait">Weiter geht es um <time `) ||
		!strings.Contains(body, `<a href="" hidden>Jetzt geht es weiter.</a>`) {
		t.Errorf("with words:\n%s", body)
	}
}

// TestAPageRepeatsNoPost: a link would send another request than the one that was refused.
func TestAPageRepeatsNoPost(t *testing.T) {
	if body := pageOf(http.MethodPost, time.Minute).Body.String(); strings.Contains(body, "<a ") ||
		!strings.Contains(body, `<span hidden>You can try again now.</span>`) {
		t.Error(body)
	}
}

// TestAPageOfAStoredRequestLeadsToItsAnswer: the Location field is of no use to people.
func TestAPageOfAStoredRequestLeadsToItsAnswer(t *testing.T) {
	stored := &answers.Deferral{Location: "/deferred/a&b", RetryAfter: time.Minute}
	rule := deferring(limited(core.ReasonLimited), &storing{stored: stored})
	r := blankRequest()
	r.Header.Set("Accept", "text/html")
	w := httptest.NewRecorder()
	nethttpmw.HTTP(rule)(http.NotFoundHandler()).ServeHTTP(w, r)
	if body := w.Body.String(); w.Code != http.StatusAccepted ||
		!strings.Contains(body, `<a href="/deferred/a&amp;b">See how your request stands.</a>`) {
		t.Errorf("%d %s", w.Code, body)
	}
}

// TestEveryAnswerHasWordsForPeople: each built-in guard has a title and a sentence for pages.
func TestEveryAnswerHasWordsForPeople(t *testing.T) {
	for _, g := range everyguard.Kinds() {
		for _, a := range ruleOf(g).Answers() {
			if a.PageTitle == "" || !strings.HasSuffix(a.PageDetail, ".") || strings.Contains(a.PageDetail, "later") {
				t.Errorf("%s: %q says %q, %q", g.Name(), a.Reason, a.PageTitle, a.PageDetail)
			}
		}
	}
}

// TestAPageNamesTheFieldThatIsMissing, as text: the name may be anything.
func TestAPageNamesTheFieldThatIsMissing(t *testing.T) {
	rule := ruleOf(&refuser{fake{name: "site"}, core.Decision{Reason: core.ReasonLimited}})
	rule.Who = keyfuncs.Form("<choice>")
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Accept", "text/html")
	w := httptest.NewRecorder()
	nethttpmw.HTTP(rule)(http.NotFoundHandler()).ServeHTTP(w, r)
	if want := "<p>What you have sent lacks “&lt;choice&gt;”. Go back and fill it in.</p>"; w.Code != 400 ||
		!strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
