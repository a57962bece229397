package operator_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/bans"
	"github.com/gatehouse-go/gatehouse/core/budget"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/gatehousetest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/ops/operator"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestAClientIsLetInAgainInOneStep: unban said done, and the limit went on to refuse them for an hour.
func TestAClientIsLetInAgainInOneStep(t *testing.T) {
	for _, at := range []string{"site", "bans"} {
		gate := gatehousetest.New(t)
		rule := pipeline.Rule{
			Guard: limit.NewSlidingWindow(gate.Engine, "site", limit.PerHour(2)), Who: keyfuncs.IP(),
			Bans: bans.New(gate.Engine, "bans", bans.Options{Refusals: 1, First: time.Minute}),
		}
		app := nethttpmw.HTTP(rule)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		changes := 0
		pages := operator.New(operator.Options{
			Rules:     []pipeline.Rule{rule},
			Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
			Audit:     func(context.Context, operator.Event) error { changes++; return nil },
		})
		from := func() *http.Request {
			r := request(http.MethodGet, "/")
			r.RemoteAddr = "203.0.113.7:1"
			return r
		}
		gate.Allows(app, 2, from)
		gate.Refuses(app, http.StatusTooManyRequests, time.Hour, from)
		for range 2 { // a ban
			app.ServeHTTP(httptest.NewRecorder(), from())
		}
		d := &desk{T: t, Handler: pages}
		w := d.send(post("/"+at+"/let-in-again", "actor=203.0.113.7"))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `{"name":"bans","value":"unban"}`) ||
			!strings.Contains(w.Body.String(), `{"name":"site","value":"reset"}`) || changes != 2 {
			t.Errorf("%s: %d %s, %d records", at, w.Code, w.Body, changes)
		}
		gate.Allows(app, 2, from)
	}
}

// TestPeopleReadAPathAndProgramsGetTheActor: "acme / bob" on the page, and in JSON the actor, by which an action
// finds them.
func TestPeopleReadAPathAndProgramsGetTheActor(t *testing.T) {
	figures := new(operator.Figures)
	gate := gatehousetest.New(t, core.WithObserver(figures))
	plan := budget.New(gate.Engine, "plan", budget.Options{Levels: []string{"org", "user"},
		Find: func([]string) ([]budget.Limit, error) { return []budget.Limit{{Max: 1, Window: time.Hour}}, nil }})
	bob := core.Attempt{Actor: budget.Path("acme", "bob")}
	for range 2 {
		if _, err := plan.Check(t.Context(), bob); err != nil {
			t.Fatal(err)
		}
	}
	pages := operator.New(operator.Options{Guards: []core.Guard{plan}, Figures: figures,
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
		Audit:     func(context.Context, operator.Event) error { return nil }})
	d := &desk{T: t, Handler: pages}
	actor, err := json.Marshal(bob.Actor)
	if err != nil {
		t.Fatal(err)
	}
	if w := d.send(get("/")); !strings.Contains(w.Body.String(), `"actor":`+string(actor)+",") {
		t.Errorf("JSON has no %s: %s", actor, w.Body)
	}
	page := get("/")
	page.Header.Set("Accept", "text/html")
	if w := d.send(page); !strings.Contains(w.Body.String(), "<bdi>acme / bob</bdi>") {
		t.Errorf("the page has no acme / bob: %s", w.Body)
	}
	if w := d.send(get("/plan/usage", "actor="+bob.Actor)); !strings.Contains(w.Body.String(), `"acme","bob"`) {
		t.Errorf("by that actor an action finds %d %s", w.Code, w.Body)
	}
}
