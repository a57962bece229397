package browser

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
	"github.com/gatehouse-go/gatehouse/pipeline/answers"
)

func itoa(n int) string { return strconv.Itoa(n) }

// static serves a page.
func static(page string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(page))
	})
}

// refusals serves a refusal for each reason: /limited?wait=42s.
func refusals(w http.ResponseWriter, r *http.Request) {
	reason := core.Reason(strings.TrimPrefix(r.URL.Path, "/"))
	wait, _ := time.ParseDuration(r.FormValue("wait")) // none: 0
	statuses := map[core.Reason]int{core.ReasonLimited: 429, core.ReasonDuplicate: 409, core.ReasonNotReady: 503,
		answers.ReasonDenied: 403, answers.ReasonNoKey: 400}
	if statuses[reason] == 0 {
		w.WriteHeader(http.StatusNoContent) // such as /favicon.ico
		return
	}
	d := core.Decision{RetryAfter: wait}
	(&answers.Refusal{Status: statuses[reason], Reason: reason, Decision: d}).Reply(w, r)
}

func TestRefusalPages(t *testing.T) {
	t.Parallel()
	home := serve(t, http.HandlerFunc(refusals))
	for _, v := range views {
		b := open(t, v, home+"/limited?wait=75m")
		for _, path := range []string{"/limited?wait=75m", "/limited?wait=49h", "/duplicate", "/not_ready?wait=90s",
			"/denied", "/no_key"} {
			b.visit(home + path)
			b.audit(v)
			if text := b.text("main"); strings.Contains(text, "Quota") || strings.Contains(text, "later") ||
				strings.Contains(text, "try again now") { // it was seen from the beginning
				t.Errorf("%s says %q", path, text)
			}
		}
	}
}

// TestARefusalPageCountsDown: in words, and when the time has come it says so once, with a link.
func TestARefusalPageCountsDown(t *testing.T) {
	t.Parallel()
	home := serve(t, http.HandlerFunc(refusals))
	b := open(t, views[0], home+"/limited?wait=3s")
	if got := b.text("h1"); got != "Too many requests" {
		t.Errorf("the heading is %q", got)
	}
	b.eventually(`/^in [12] seconds?$/.test(document.querySelector("[role=timer]").innerText)||` +
		`document.querySelector("#ready a").checkVisibility()`)
	b.eventually(`document.querySelector("#ready a").checkVisibility()`)
	if got := b.text("[role=status]"); got != "You can try again now." {
		t.Errorf("the status is %q", got)
	}
	if eval[bool](b, `document.querySelector("#wait").checkVisibility()`) {
		t.Error("the time that is over is still there")
	}
	b.audit(views[0])
	b.follow(chromedp.Click("#ready a"))
	if n := len(b.asked); n < 2 || b.asked[n-1] != "/limited" {
		t.Errorf("the link led to %v", b.asked)
	}
}

// refusing is a guard that refuses everything for two hours.
type refusing struct{}

func (refusing) Name() string                                             { return "refusing" }
func (refusing) Traits() core.Traits                                      { return core.Traits{} }
func (refusing) Settle(context.Context, core.Decision, core.Ending) error { return nil }
func (refusing) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	const wait = 2 * time.Hour
	return core.Decision{Guard: "refusing", Attempt: a, Reason: core.ReasonLimited, RetryAfter: wait}, nil
}

// TestARefusalPageInAnotherLanguage: the browser has the words.
func TestARefusalPageInAnotherLanguage(t *testing.T) {
	for lang, want := range map[string]string{"de": "in 2 Stunden", "xx_wrong": "in 2 hours"} {
		text := answers.Text{Title: "Zu viele Anfragen", Detail: "Bitte warten Sie.", Lang: lang}
		rule := pipeline.Rule{
			Guard: refusing{}, Who: keyfuncs.Const("ann"),
			Texts: func(*http.Request, *answers.Refusal) answers.Text { return text },
		}
		b := open(t, views[0], serve(t, nethttpmw.HTTP(rule)(http.NotFoundHandler())))
		if got := b.text("[role=timer]"); got != want {
			t.Errorf("%s: %q, want %q", lang, got, want)
		}
		if got := b.text("time"); got == "" || strings.Contains(got, "UTC") {
			t.Errorf("%s: the time is %q, want that of the reader", lang, got)
		}
	}
}

// TestARefusalPageWithoutScripts: the moment and the time until then are in the page.
func TestARefusalPageWithoutScripts(t *testing.T) {
	home := serve(t, http.HandlerFunc(refusals))
	b := open(t, view{width: 390, noJS: true}, home+"/limited?wait=90m")
	if got := b.text("#wait"); !strings.HasPrefix(got, "You can come back at ") ||
		!strings.HasSuffix(got, "UTC, in 90 minutes") {
		t.Errorf("without scripts: %q", got)
	}
}
