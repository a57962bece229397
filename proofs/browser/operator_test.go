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
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// office is an application with the operators' pages below /ops/.
type office struct {
	home   string
	limit  *limit.SlidingWindow
	sale   *seckill.Guard
	faults *redistest.Faults
}

func newOffice(t *testing.T) *office {
	t.Helper()
	b, faults := redistest.Mini(t), redistest.NewFaults(t)
	b.Client = b.NewClientWith(t, faults)
	figures := new(operator.Figures)
	gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
		core.WithBreaker(1, time.Minute), core.WithObserver(figures))
	o := &office{
		limit: limit.NewSlidingWindow(gate, "site", limit.PerHour(10), limit.PerDay(100)),
		sale:  seckill.New(gate, "sale", seckill.Options{}), faults: faults,
	}
	queue := delay.New(gate, "mails", delay.Options{})
	if _, err := queue.Schedule(t.Context(), "to ann", time.Now().Add(time.Hour), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := o.sale.Open(t.Context(), "tv", seckill.Sale{Stock: 100}); err != nil {
		t.Fatal(err)
	}
	ops := operator.New(operator.Options{
		Rules: []pipeline.Rule{{
			Guard: o.limit, Who: keyfuncs.IP(), Bans: bans.New(gate, "bans", bans.Options{}),
			Rollout: pipeline.Shadow(),
		}},
		Guards: []core.Guard{
			o.sale, semaphore.New(gate, "exports", semaphore.Options{Max: 5}),
			lock.New(gate, "account", lock.Options{}),
		},
		Tools:   []kit.Tool{queue},
		Figures: figures,
		Shown: []operator.Action{
			{Guard: "sale", Name: "status", Fields: map[string]string{"item": "tv"}}, {Guard: "exports", Name: "peek"},
		},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
		Audit:     func(context.Context, operator.Event) error { return nil },
	})
	mux := http.NewServeMux()
	mux.Handle("/ops/", ops)
	o.home = serve(t, mux) + "/ops/"
	return o
}

// attempts makes attempts at the limit until each of the actors is limited.
func (o *office) attempts(t *testing.T, actors ...string) {
	t.Helper()
	for i, actor := range actors {
		for range 12 + 9*i {
			if _, err := o.limit.Check(t.Context(), core.Attempt{Actor: actor}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const openForms = `(document.querySelectorAll("details").forEach(d=>d.open=true),true)`

func TestOperatorPages(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.attempts(t, "ann", "203.0.113.7", "<b>bob</b> \u202e", strings.Repeat("long", 60))
	for _, v := range views {
		b := open(t, v, o.home)
		if n := eval[int](b, `document.querySelectorAll("#limited-now tbody tr").length`); n != 4 {
			t.Errorf("%d are shown as limited, want 4", n)
		}
		b.audit(v)
		eval[bool](b, openForms)
		b.audit(v)
		b.visit(o.home + "site/peek?actor=ann")
		b.audit(v)
		b.visit(o.home + "site/peek") // an error
		b.audit(v)
	}
}

// TestAnOperatorConfirmsWhatCannotBeTakenBack goes the whole way, with and without scripts: the form of the
// list, the page that asks, the result, and back to the list.
func TestAnOperatorConfirmsWhatCannotBeTakenBack(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	for _, v := range []view{{width: 390}, {width: 1280, noJS: true}} {
		attempt := core.Attempt{Actor: "ann"}
		for range 10 {
			if _, err := o.limit.Check(t.Context(), attempt); err != nil {
				t.Fatal(err)
			}
		}
		left := func() int64 {
			d, err := o.limit.Peek(t.Context(), attempt)
			if err != nil {
				t.Fatal(err)
			}
			return d.Remaining
		}
		b := open(t, v, o.home)
		eval[bool](b, openForms)
		form := `form[action="site/reset"] `
		b.act(chromedp.SendKeys(form+"input[name=actor]", "ann"))
		b.follow(chromedp.Click(form + "button"))
		if n := left(); n == 10 || b.text("h2") != "site: reset" {
			t.Fatalf("%q, and %d are left", b.text("main"), n)
		}
		b.audit(v)
		b.follow(chromedp.Click("form button"))
		if n := left(); n != 10 {
			t.Errorf("confirmed: %q, and %d are left", b.text("main"), n)
		}
		b.follow(chromedp.Click(`a[href="../"]`))
		if at := eval[string](b, `location.pathname`); at != "/ops/" {
			t.Errorf("back at %s", at)
		}
	}
}

// TestTheListIsLive: the figures follow, and a text that an operator is typing stays.
func TestTheListIsLive(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.attempts(t, "bob")
	b := open(t, views[2], o.home)
	eval[bool](b, openForms)
	b.act(chromedp.SendKeys(`form[action="sale/close"] input`, "half a na"))
	const attempts = `document.querySelector('#limited-now [data-name="Attempts"]').textContent`
	before := eval[string](b, attempts)
	const field = `document.querySelector('form[action="sale/close"] input')`
	const left = `[...document.querySelectorAll("dt")].find(e=>e.textContent==="left").nextSibling.textContent`
	if got := eval[string](b, left); got != "100" {
		t.Fatalf("%s are left", got)
	}
	o.attempts(t, "bob")
	if _, err := o.sale.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "tv"}); err != nil {
		t.Fatal(err)
	}
	b.eventually(left + `==="99"`)
	b.eventually(attempts + "!==" + strconv.Quote(before))
	if !eval[bool](b, `document.querySelector("#limited-now details").open`) {
		t.Error("what a row has more is closed")
	}
	if got := eval[string](b, field+".value"); got != "half a na" {
		t.Errorf("the field has %q", got)
	}
	if !eval[bool](b, field+".checkVisibility()") {
		t.Error("the forms are closed")
	}
	o.faults.Refuse(true)
	o.faults.CutAll()
	b.eventually(`document.querySelector("#down").innerText.includes("does not answer")`)
	b.audit(views[2])
	b.act(chromedp.Click("#bar button"))
	if got := b.text("#bar button"); got != "Go on" {
		t.Errorf("the button says %q", got)
	}
}
