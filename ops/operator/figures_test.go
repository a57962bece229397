package operator_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestThePageShowsWhoIsLimited, and leads to the next step without typing a name.
//
// Promise: The operators' page shows who is limited or banned now, in 64 places per guard. A client with more
// than a 64th of the attempts has one.
func TestThePageShowsWhoIsLimited(t *testing.T) {
	b := redistest.Mini(t)
	figures := new(operator.Figures)
	gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithObserver(figures),
		core.WithDeadline(time.Minute))
	rule := pipeline.Rule{
		Guard: limit.NewSlidingWindow(gate, "site", limit.PerHour(2)), Who: keyfuncs.User("uid"),
		Bans: bans.New(gate, "bans", bans.Options{}),
	}
	denied := ""
	d := &desk{T: t, Handler: operator.New(operator.Options{
		Rules: []pipeline.Rule{rule}, Figures: figures,
		Authorize: func(_ *keyfuncs.Request, a operator.Action) (string, error) {
			if denied != "" && a.Name == denied {
				return "", http.ErrNotSupported
			}
			return "eve", nil
		},
	})}
	page := func() string { return d.send(asBrowser(get("/"))).Body.String() }
	if text := page(); !strings.Contains(text, "Nobody whom this process knows is refused") {
		t.Errorf("before any attempt:\n%s", text)
	}
	for range 5 {
		_, _ = rule.Guard.Check(t.Context(), core.Attempt{Actor: `ann"<b>&x=1`})
	}
	text := page()
	for _, want := range []string{
		`<bdi>ann&#34;&lt;b&gt;&amp;x=1</bdi>`, "limited for ", // who, and until when
		`href="site/peek?actor=ann%22%3Cb%3E%26x%3D1"`, `href="site/reset?actor=ann%22%3Cb%3E%26x%3D1"`,
		`href="bans/ban?actor=ann%22%3Cb%3E%26x%3D1"`, // the next steps
		"<strong>2</strong> allowed, <strong>3</strong> refused (limited 3)",
		"<dt>who</dt><dd>User(&#34;uid&#34;)</dd>", "<dt>without Redis</dt>", // what the rule takes
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	// The step to a reset asks, with the name filled in, and changes nothing.
	form := d.send(asBrowser(get("/site/reset", `actor=ann"<b>&x=1`))).Body.String()
	if !strings.Contains(form, `name="actor" value="ann&#34;&lt;b&gt;&amp;x=1"`) {
		t.Errorf("the form of reset:\n%s", form)
	}
	if w := d.send(get("/site/peek", `actor=ann"<b>&x=1`)); !strings.Contains(w.Body.String(), `"remaining":0`) {
		t.Errorf("after the question: %s", w.Body)
	}
	d.want(post("/site/reset", `actor=ann"<b>&x=1`), 200, `{"done":true}`)
	if text := page(); strings.Contains(text, "limited for ") {
		t.Errorf("whose limit was reset is shown as limited:\n%s", text)
	}
	denied = "actors"
	if text := page(); strings.Contains(text, "ann&#34;") {
		t.Error("names are shown to an operator who may not see them")
	}
	w := d.send(get("/"))
	if !strings.Contains(w.Body.String(), `"refused":3`) || strings.Contains(w.Body.String(), "ann") {
		t.Errorf("JSON: %s", w.Body)
	}
}

// TestABanThatWasLiftedIsNotShown: the page hears of the real guard's ban and of its end.
func TestABanThatWasLiftedIsNotShown(t *testing.T) {
	b := redistest.Mini(t)
	figures := new(operator.Figures)
	gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithObserver(figures),
		core.WithDeadline(time.Minute))
	shut := bans.New(gate, "bans", bans.Options{})
	d := &desk{T: t, Handler: operator.New(operator.Options{
		Guards: []core.Guard{shut}, Figures: figures,
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
		Audit:     func(context.Context, operator.Event) error { return nil },
	})}
	for _, ask := range []*http.Request{
		post("/bans/ban", "actor=ann", "length=1h"), post("/bans/unban", "actor=ann"),
	} {
		d.want(ask, 200, "")
		_, _ = shut.Check(t.Context(), core.Attempt{Actor: "ann"})
		isBanned := strings.Contains(d.send(asBrowser(get("/"))).Body.String(), "banned for ")
		if isBan := strings.HasSuffix(ask.URL.Path, "/ban"); isBanned != isBan {
			t.Errorf("after %s: shown as banned: %t", ask.URL.Path, isBanned)
		}
	}
	d.want(post("/bans/ban", "actor=bob", "length=1h"), 200, "")
	_, _ = shut.Check(t.Context(), core.Attempt{Actor: "bob"})
	d.want(post("/bans/unban", "actor=bob"), 200, "") // and bob does not ask again
	if text := d.send(asBrowser(get("/"))).Body.String(); strings.Contains(text, "banned for ") {
		t.Errorf("bob's ban was lifted, and is shown:\n%s", text)
	}
}
