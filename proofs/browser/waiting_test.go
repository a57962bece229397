package browser

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/waitingroom"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// crowded is a shop with one place, which somebody has taken.
type crowded struct {
	*waitingroom.Guard
	home  string
	taken core.Decision
}

func newCrowded(t *testing.T, name string, o waitingroom.Options) *crowded {
	t.Helper()
	b := redistest.Mini(t)
	o.Capacity, o.Poll, o.Secrets = 1, time.Second, [][]byte{[]byte("a secret of sixteen bytes")}
	c := &crowded{Guard: waitingroom.New(core.New(b.Client, core.WithPrefix(b.Prefix),
		core.WithDeadline(time.Minute)), name, o)}
	if o.Opens.IsZero() {
		var err error
		if c.taken, err = c.Check(t.Context(), core.Attempt{Actor: "first"}); err != nil || !c.taken.Allowed {
			t.Fatal(c.taken, err)
		}
	}
	rule := pipeline.Rule{Guard: c.Guard, Who: keyfuncs.Visitor()}
	shop := nethttpmw.HTTP(rule)(static(`<!DOCTYPE html><html lang="en"><head><title>Shop</title></head><body><main>` +
		`<h1>Welcome</h1></main></body></html>`))
	mux := http.NewServeMux()
	mux.Handle("/shop", shop)
	mux.Handle("/away", static(`<!DOCTYPE html><html lang="en"><title>Away</title><main><h1>Away</h1></main></html>`))
	c.home = serve(t, mux)
	return c
}

// free has the one inside leave.
func (c *crowded) free(t *testing.T) {
	t.Helper()
	if err := c.Leave(t.Context(), c.taken); err != nil {
		t.Fatal(err)
	}
}

const heading = `document.querySelector("h1")?.innerText`

// TestAWaitingPageLetsIn: it asks by itself, says its figures to a screen reader, fits a phone, and the visitor is
// inside without a click.
func TestAWaitingPageLetsIn(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, "line", waitingroom.Options{})
	b := open(t, view{width: 360}, c.home+"/shop")
	for _, v := range append([]view{{width: 360}}, views...) {
		b.look(v)
		b.audit(v)
	}
	if got := b.text("h1"); got != "You are in line" {
		t.Fatalf("the heading is %q", got)
	}
	said := eval[string](b, `(e=>e.getAttribute("aria-live")+" "+e.getAttribute("aria-atomic")+" "+e.innerText)`+
		`(document.querySelector("[role=status]"))`)
	if !strings.HasPrefix(said, "polite true Your place in line: ") {
		t.Errorf("a screen reader is told %q", said)
	}
	eval[bool](b, `(window.mark=true)`)
	before := c.asked(b)
	redistest.Eventually(t, patience, func() bool { return c.asked(b) >= before+3 }, "the page asks")
	if !eval[bool](b, `window.mark===true`) || b.text("#position") != "1" || b.text("#ahead") != "0" {
		t.Errorf("the page was loaded again, or has no figures: %q", b.text("main"))
	}
	if eval[bool](b, `document.querySelector("#cookies").checkVisibility()`) {
		t.Error("the page says that there are no cookies")
	}
	c.free(t)
	b.eventually(heading + `==="Welcome"`)
}

// asked is how many requests for the shop the tab has sent.
func (c *crowded) asked(b *tab) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, path := range b.asked {
		if path == "/shop" {
			n++
		}
	}
	return n
}

// TestAWaitingPageWithoutScripts: it loads itself again.
func TestAWaitingPageWithoutScripts(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, "plain", waitingroom.Options{})
	b := open(t, view{width: 390, noJS: true}, c.home+"/shop")
	if got := b.text("main"); !strings.Contains(got, "Your place in line: ") {
		t.Fatalf("without scripts: %q", got)
	}
	redistest.Eventually(t, patience, func() bool { return c.asked(b) >= 3 }, "the page loads itself again")
	c.free(t)
	redistest.Eventually(t, patience, func() bool { return b.text("h1") == "Welcome" }, "inside")
}

// TestTwoTabsAreOneVisitor: they have one place, and both are inside when it is its turn.
func TestTwoTabsAreOneVisitor(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, "tabs", waitingroom.Options{})
	one := open(t, views[0], c.home+"/shop")
	two := open(t, views[0], c.home+"/shop")
	redistest.Eventually(t, patience, func() bool { return c.asked(two) >= 3 && c.asked(one) >= 3 }, "both ask")
	if status, err := c.Peek(t.Context()); err != nil || status.Given != 2 {
		t.Errorf("%+v, %v: want the number of who is inside and one for both tabs", status, err)
	}
	c.free(t)
	one.eventually(heading + `==="Welcome"`)
	two.eventually(heading + `==="Welcome"`)
}

// TestAWaitingPageComesBack: who goes back to the page by the browser's button does not see an old one.
func TestAWaitingPageComesBack(t *testing.T) {
	c := newCrowded(t, "back", waitingroom.Options{})
	b := open(t, views[0], c.home+"/shop")
	b.visit(c.home + "/away")
	c.free(t)
	eval[bool](b, `(history.back(),true)`)
	b.eventually(heading + `==="Welcome"`)
}

// TestAWaitingPageOfAClosedRoom: all who wait are told at their next poll, with the operator's text. The page asked
// no more, though the line may go on: when it does, they are inside.
func TestAWaitingPageOfAClosedRoom(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, "closes", waitingroom.Options{})
	b := open(t, views[0], c.home+"/shop")
	if err := c.Close(t.Context(), "Sold out."); err != nil {
		t.Fatal(err)
	}
	b.eventually(heading + `==="Closed"`)
	b.audit(views[0])
	if got := b.text("main"); !strings.Contains(got, "Sold out.") {
		t.Errorf("the page says %q", got)
	}
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.free(t)
	b.eventually(heading + `==="Welcome"`)
}

// TestALobbyOpens: the page says when, in Chinese if the browser does, and goes on by itself.
func TestALobbyOpens(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, "lobby", waitingroom.Options{Opens: time.Now().Add(time.Hour)})
	b := open(t, views[0], c.home+"/away")
	b.do(func(ctx context.Context, s *chromedp.Target) error {
		_, err := cdp.Call(ctx, s, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{
			Headers: network.Headers{"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}})
		return err
	})
	b.visit(c.home + "/shop")
	if got := b.text("main"); !strings.Contains(got, "您正在排队") || !strings.Contains(got, "开放时间") {
		t.Errorf("the lobby says %q", got)
	}
	b.audit(views[0])

	for lasts := 5 * time.Second; ; lasts *= 2 { // on a slow machine it opens before the page is there
		c := newCrowded(t, "opens", waitingroom.Options{Opens: time.Now().Add(lasts)})
		b := open(t, views[0], c.home+"/shop")
		b.eventually(heading + `==="Welcome"`)
		if c.asked(b) > 1 { // first from the lobby
			break
		}
		if lasts > time.Minute {
			t.Fatal("the lobby was never seen")
		}
	}
}
