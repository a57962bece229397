package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
)

// bare is an application's guard that does not describe itself, but has the methods that the operator offers.
type bare struct {
	name  string
	reset []string
}

func (g *bare) Name() string        { return g.name }
func (g *bare) Traits() core.Traits { return core.Traits{} }
func (g *bare) Check(_ context.Context, a core.Attempt) (core.Decision, error) {
	return core.Decision{Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
}
func (g *bare) Settle(context.Context, core.Decision, core.Ending) error { return nil }
func (g *bare) Peek(_ context.Context, a core.Attempt) (core.Decision, error) {
	return core.Decision{Attempt: a, Allowed: true, Reason: core.ReasonOK, Remaining: 7}, nil
}
func (g *bare) Reset(_ context.Context, a core.Attempt) error {
	g.reset = append(g.reset, a.Actor+" at "+a.Resource)
	return nil
}

// gauge is a guard that describes itself.
type gauge struct {
	bare
	level int64
}

func (g *gauge) Describe() kit.Description {
	return kit.Description{Kind: "gauge", Operations: []kit.Operation{
		{Name: "level", Run: func(context.Context, kit.Input) (any,
			error) {
			return map[string]int64{"level": g.level}, nil
		}},
		{
			Name: "set", Changes: true, Fields: []kit.Field{{Name: "level", Kind: kit.FieldNumber, Required: true}},
			Run: func(_ context.Context, in kit.Input) (any, error) {
				switch level := in.Number("level"); {
				case level < 0:
					return nil, kit.NewError("a level below nothing", core.ErrInvalid)
				case level > 100:
					return nil, kit.NewError("it would run over", core.ErrNotNow)
				case level == 66:
					return nil, errors.New("valve 7 at 192.0.2.7 is stuck")
				default:
					g.level = level
					return nil, nil
				}
			},
		},
	}}
}

// TestOperatorReadsWhatGuardsSay: an application's guards get the same pages as the built-in ones.
func TestOperatorReadsWhatGuardsSay(t *testing.T) {
	own, tank := &bare{name: "own"}, &gauge{bare: bare{name: "tank"}}
	d := &desk{T: t, Handler: operator.New(operator.Options{
		Guards:    []core.Guard{own, tank},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
		Audit:     func(context.Context, operator.Event) error { return nil },
	})}
	d.want(get("/"), 200, `{"guards":[{"name":"own","kind":"guard","actions":["peek","reset","let-in-again"]},`+
		`{"name":"tank","kind":"gauge","actions":["level","set"]}]}`)
	d.want(get("/own/peek", "actor=ann"), 200,
		`{"allowed":true,"reason":"ok","limit":0,"remaining":7,"window":"0s","retry_after":"0s"}`)
	d.want(post("/own/reset", "actor=ann", "resource=/a"), 200, `{"done":true}`)
	if fmt.Sprint(own.reset) != "[ann at /a]" {
		t.Errorf("reset %q", own.reset)
	}
	d.want(post("/tank/set", "level=40"), 200, `{"done":true}`)
	d.want(get("/tank/level"), 200, `{"level":40}`)
	d.want(post("/tank/set", "level=-1"), 400,
		`{"title":"Bad Request","status":400,"detail":"a level below nothing"}`)
	d.want(post("/tank/set", "level=101"), 409, `{"title":"Conflict","status":409,"detail":"it would run over"}`)
	d.want(get("/tank/peek", "actor=ann"), 404, "") // it says itself what can be asked
	if w := d.send(post("/tank/set", "level=66")); w.Code != 503 ||
		strings.Contains(w.Body.String(), "192.0.2.7") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// signed is a guard whose change notes who makes it.
type signed struct {
	bare
	by string
}

func (g *signed) Describe() kit.Description {
	return kit.Description{Kind: "signed", Operations: []kit.Operation{{Name: "sign", Changes: true, Reversible: true,
		Fields: []kit.Field{{Name: "who", Required: true, Caller: true}, {Name: "why"}},
		Run: func(_ context.Context, in kit.Input) (any, error) {
			g.by = in.Text("who") + ": " + in.Text("why")
			return nil, nil
		}}}}
}

// TestNobodySignsForOthers: who changes something is whom Authorize has named, whatever the request says.
//
// Promise (Budget): Decisions of operators are audited under the name from the page's Authorize.
func TestNobodySignsForOthers(t *testing.T) {
	book := &signed{bare: bare{name: "book"}}
	d := &desk{T: t, Handler: operator.New(operator.Options{
		Guards:    []core.Guard{book},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
	})}
	for _, fields := range [][]string{{"why=audit"}, {"who=mallory", "why=audit"}} {
		book.by = ""
		d.want(post("/book/sign", fields...), 200, `{"done":true}`)
		if book.by != "eve: audit" {
			t.Errorf("signed %q, want eve", book.by)
		}
	}
	page := get("/")
	page.Header.Set("Accept", "text/html")
	if w := d.send(page); strings.Contains(w.Body.String(), `name="who"`) {
		t.Error("the page asks who it is")
	}
}

// twice describes two operations of one name.
type twice struct{ bare }

func (*twice) Describe() kit.Description {
	return kit.Description{Operations: []kit.Operation{{Name: "look"}, {Name: "look"}}}
}

func TestOperatorTellsOperationsApart(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, `two operations named "look"`) {
			t.Error(text)
		}
	}()
	operator.New(operator.Options{
		Guards:    []core.Guard{&twice{bare{name: "own"}}},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
	})
}

// TestOperatorsSeeQueues: a queue is no guard, and has pages all the same.
func TestOperatorsSeeQueues(t *testing.T) {
	b := redistest.Single(t)
	q := delay.New(guardtest.NewEngine(b), "mails", delay.Options{MaxTries: 1})
	d := &desk{T: t, Handler: operator.New(operator.Options{
		Tools:     []kit.Tool{q},
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "eve", nil },
		Audit:     func(context.Context, operator.Event) error { return nil },
	})}
	for _, id := range []string{"a", "b"} {
		if _, err := q.Schedule(t.Context(), id, time.Time{}, []byte("to ann")); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := q.Claim(t.Context(), 2, 0)
	if err != nil || len(tasks) != 2 {
		t.Fatalf("%v, %v", tasks, err)
	}
	for _, task := range tasks {
		if err := q.Nack(t.Context(), task, "no paper", 0); err != nil {
			t.Fatal(err)
		}
	}
	d.want(get("/"), 200, `{"guards":[{"name":"mails","kind":"queue","actions":["counts","peek","find",`+
		`"contents","cancel","reschedule","retry","discard"]}]}`)
	d.want(get("/mails/counts"), 200, `{"pending":0,"due":0,"running":0,"dead":2}`)
	for _, look := range []*http.Request{get("/mails/peek", "state=dead"), get("/mails/find", "id=a")} {
		if w := d.send(look); w.Code != 200 || !strings.Contains(w.Body.String(), `"reason":"no paper"`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	d.want(post("/mails/retry", "id=a"), 200, `{"done":true}`)
	d.want(post("/mails/reschedule", "id=a", "in=1h"), 200, `{"done":true}`)
	d.want(post("/mails/discard", "id=a"), 409,
		`{"title":"Conflict","status":409,"detail":"core: discard \"mails\": delay: the task is in another state"}`)
	d.want(post("/mails/cancel", "id=a"), 200, `{"done":true}`)
	d.want(post("/mails/discard", "id=b"), 200, `{"done":true}`)
	d.want(get("/mails/find", "id=b"), 404,
		`{"title":"Not Found","status":404,"detail":"core: find \"mails\": delay: there is no such task"}`)
	d.want(get("/mails/peek", "state=odd"), 400, "")
}
