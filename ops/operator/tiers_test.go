package operator_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/operator"
)

// TestPeekOfALimitWithTiersAsksForTheTier: the page had no field for the tier, so a pro user with 28 of 30
// left was shown as limited, with limit 1 and none left.
func TestPeekOfALimitWithTiersAsksForTheTier(t *testing.T) {
	b := redistest.Mini(t)
	gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithObserver(ignore{}),
		core.WithDeadline(time.Minute))
	file := `
guards:
  api: {sliding_window: {tiers: {by: {header: X-Plan}, of: {pro: 30/min, staff: unlimited}, others: 1/min}}}
rules:
  api: [{guard: api, who: {header: X-User}}]
`
	cfg, err := config.Parse("rules.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	set, err := cfg.Build(gate)
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t, Handler: operator.New(operator.Options{
		Rules:     set.Rules("api"),
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
	})}
	app := nethttpmw.HTTP(set.Rules("api")...)(http.NotFoundHandler())
	for range 2 {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-User", "ann")
		r.Header.Set("X-Plan", "pro")
		app.ServeHTTP(httptest.NewRecorder(), r)
	}
	d.want(get("/api/peek", "actor=ann", "item=pro"), 200,
		`{"allowed":true,"reason":"ok","limit":30,"remaining":28,"window":"1m0s","retry_after":"0s"}`)
	d.want(get("/api/peek", "actor=ann"), 400,
		`{"title":"Bad Request","status":400,"detail":"item is missing"}`)
	page := d.send(asBrowser(get("/"))).Body.String()
	for _, want := range []string{`<option value="pro">pro</option><option value="staff">staff</option>` +
		`<option value="*">* (all others)</option>`,
		"<dt>pro</dt><dd>30/1m</dd>", "<dt>staff</dt><dd>unlimited</dd>", "<dt>*</dt><dd>1/1m</dd>"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
}

// TestPeekOfALimitByAFunctionAsksForTheItem, by which such a function may choose.
func TestPeekOfALimitByAFunctionAsksForTheItem(t *testing.T) {
	api := limit.NewSlidingWindowBy(core.NewMemory(), "api",
		func(_ context.Context, a core.Attempt) ([]limit.Limit, error) {
			if a.Item == "gold" {
				return []limit.Limit{limit.PerHour(9)}, nil
			}
			return []limit.Limit{limit.PerHour(1)}, nil
		})
	d := &desk{T: t, Handler: operator.New(operator.Options{
		Guards:    []core.Guard{api},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
	})}
	for item, left := range map[string]string{"gold": "9", "": "1"} {
		w := d.send(get("/api/peek", "actor=ann", "item="+item))
		if !strings.Contains(w.Body.String(), `"remaining":`+left) {
			t.Errorf("%q: %s, want %s left", item, w.Body, left)
		}
	}
}
