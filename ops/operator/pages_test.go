package operator_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// asBrowser makes a request accept pages.
func asBrowser(r *http.Request) *http.Request {
	r.Header.Set("Accept", "text/html")
	return r
}

// TestPagesAskBeforeWhatCannotBeTakenBack: one click on the list closed a sale for good.
func TestPagesAskBeforeWhatCannotBeTakenBack(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	full := func() bool {
		return !must[core.Decision](t)(d.limit.Peek(t.Context(), core.Attempt{Actor: "<b>ann"})).Allowed
	}
	for range 2 {
		must[core.Decision](t)(d.limit.Check(t.Context(), core.Attempt{Actor: "<b>ann"}))
	}
	w := d.send(asBrowser(post("/limit/reset", "actor=<b>ann")))
	if body := w.Body.String(); w.Code != 200 || !full() || len(d.events) != 0 ||
		!strings.Contains(body, `<form class="change" method="post" action="reset?confirmed=yes">`) ||
		!strings.Contains(body, `<input type="hidden" name="actor" value="&lt;b&gt;ann">`) ||
		strings.Contains(body, "<b>") {
		t.Errorf("%d, reset: %t, %v\n%s", w.Code, !full(), d.events, body)
	}
	d.want(asBrowser(post("/limit/reset", "resource=/a")), 400, "") // a mistake is found before
	r := asBrowser(post("/limit/reset?confirmed=yes", "actor=<b>ann"))
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if d.want(r, 403, ""); !full() {
		t.Error("another site has confirmed the change")
	}
	d.want(asBrowser(post("/limit/reset?confirmed=yes", "actor=<b>ann")), 200, "")
	if full() || len(d.events) != 2 {
		t.Errorf("confirmed, but not reset; recorded %v", d.events)
	}
	d.want(asBrowser(post("/limit/switch", "on=false")), 200, "") // can be taken back
	if d.rollout.Report().On {
		t.Error("the switch waits for a confirmation")
	}
	for range 2 {
		must[core.Decision](t)(d.limit.Check(t.Context(), core.Attempt{Actor: "<b>ann"}))
	}
	if d.want(post("/limit/reset", "actor=<b>ann"), 200, `{"done":true}`); full() {
		t.Error("a client of JSON was asked for a confirmation")
	}
}

// TestTheListShowsTheStateAtAGlance: it had forms only.
func TestTheListShowsTheStateAtAGlance(t *testing.T) {
	b, faults := redistest.Mini(t), redistest.NewFaults(t)
	b.Client = b.NewClientWith(t, faults)
	gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
		core.WithObserver(ignore{}), core.WithBreaker(1, time.Minute))
	sale := seckill.New(gate, "sale", seckill.Options{})
	permits := semaphore.New(gate, "exports", semaphore.Options{Max: 5})
	opens := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	must[bool](t)(sale.Open(t.Context(), "tv", seckill.Sale{Stock: 5, Opens: opens, Hold: 3 * time.Minute}))
	hidden := ""
	d := &desk{T: t, Handler: operator.New(operator.Options{
		Guards: []core.Guard{sale, permits},
		Shown: []operator.Action{
			{Guard: "sale", Name: "status", Fields: map[string]string{"item": "tv"}},
			{Guard: "exports", Name: "peek"},
		},
		Authorize: func(_ *keyfuncs.Request, a operator.Action) (string, error) {
			if a.Guard == hidden && hidden != "" {
				return "", fmt.Errorf("not %s", a.Guard)
			}
			return "eve", nil
		},
	})}
	list := func() string { return d.send(asBrowser(get("/"))).Body.String() }
	for _, want := range []string{
		"<h4>status tv</h4>", "<dt>left</dt><dd>5</dd>", "<dt>state</dt><dd>opens later</dd>",
		"<dt>opens</dt><dd>" + opens.Format(time.RFC3339) + "</dd>", "<dt>hold</dt><dd>3m0s</dd>",
		"<h4>peek</h4>", "<dt>permits</dt><dd>5</dd>", "no breaker is open",
	} {
		if page := list(); !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	hidden = "sale"
	if page := list(); strings.Contains(page, "status tv") || !strings.Contains(page, "<h4>peek</h4>") {
		t.Errorf("what an operator may not see, or not what they may:\n%s", page)
	}
	hidden = ""
	faults.Refuse(true)
	faults.CutAll()
	redistest.Eventually(t, time.Minute, func() bool {
		_, err := sale.Status(t.Context(), "tv")
		return err != nil && len(gate.OpenBreakers()) == 1
	}, "an open breaker")
	page := list()
	for _, want := range []string{"does not answer: its breaker is open", "open for ", "The action failed"} {
		if !strings.Contains(page, want) {
			t.Errorf("in an outage, no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, b.Mini.Addr()) {
		t.Error("the page has the cause of an error")
	}
}

// TestTheStateOfASale: by its opening and closing times, and by what is left.
func TestTheStateOfASale(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	now := time.Now()
	for item, s := range map[string]seckill.Sale{
		"opens later": {Stock: 1, Opens: now.Add(time.Hour)},
		"open":        {Stock: 1, Closes: now.Add(time.Hour)},
		"sold out":    {Stock: 1},
		"closed":      {Stock: 1},
	} {
		must[bool](t)(d.sale.Open(t.Context(), item, s))
	}
	must[core.Decision](t)(d.sale.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "sold out"}))
	if err := d.sale.Close(t.Context(), "closed"); err != nil {
		t.Fatal(err)
	}
	for item, want := range map[string]string{
		"opens later": "opens later", "open": "open", "sold out": "sold out", "closed": "closed",
	} {
		body := d.send(get("/sale/status", "item="+item)).Body.String()
		if !strings.Contains(body, `"state":"`+want+`"`) {
			t.Errorf("%s: %s", item, body)
		}
	}
}

// TestPagesCannotBeFramed, and allow their own script and style sheet only.
func TestPagesCannotBeFramed(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	w := d.send(asBrowser(get("/")))
	policy := w.Header().Get("Content-Security-Policy")
	if w.Header().Get("X-Frame-Options") != "DENY" || !strings.Contains(policy, "frame-ancestors 'none'") ||
		strings.Contains(policy, "unsafe") {
		t.Errorf("%v", w.Header())
	}
	for element, text := range map[string]string{"style": "<style>(?s)(.*)</style>",
		"script": `<script type="module">(?s)(.*)</script>`} {
		found := regexp.MustCompile(text).FindStringSubmatch(w.Body.String())
		if found == nil {
			t.Fatalf("no %s", element)
		}
		sum := sha256.Sum256([]byte(found[1]))
		want := element + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		if !strings.Contains(policy, want) {
			t.Errorf("%s lacks %s", policy, want)
		}
	}
}

// TestEachFieldHasAHint: nobody has to guess what a text field wants.
func TestEachFieldHasAHint(t *testing.T) {
	d := newDesk(t, redistest.Mini(t))
	page := d.send(asBrowser(get("/"))).Body.String()
	inputs := regexp.MustCompile(`<input[^>]*>`).FindAllString(page, -1)
	for _, input := range inputs {
		found := regexp.MustCompile(`aria-describedby="([^"]+)"`).FindStringSubmatch(input)
		if found == nil || strings.Count(page, `id="`+found[1]+`"`) != 1 {
			t.Errorf("no hint for %s", input)
		}
	}
	if len(inputs) < 30 {
		t.Errorf("%d fields", len(inputs))
	}
}

func TestWhatIsShownMustBeThere(t *testing.T) {
	gate := core.NewMemory()
	permits := semaphore.New(gate, "exports", semaphore.Options{Max: 5})
	for want, a := range map[string]operator.Action{
		"there is no such action": {Guard: "exports", Name: "look"},
		"it changes something":    {Guard: "exports", Name: "evict-all"},
		"there is no field":       {Guard: "exports", Name: "peek", Fields: map[string]string{"actor": "ann"}},
	} {
		func() {
			defer func() {
				text := fmt.Sprint(recover())
				if !strings.Contains(text, "Options.Shown") || !strings.Contains(text, want) {
					t.Errorf("%s, want %s", text, want)
				}
			}()
			operator.New(operator.Options{
				Rules: []pipeline.Rule{{Guard: permits}}, Shown: []operator.Action{a},
				Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
				Audit:     func(context.Context, operator.Event) error { return nil },
			})
		}()
	}
}
