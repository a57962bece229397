package operator_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
)

// TestDeniedActionsDoNotFloodTheLog: a denial was logged for each request, with the names that its sender had
// chosen.
func TestDeniedActionsDoNotFloodTheLog(t *testing.T) {
	logged := new(guardtest.Output)
	d := newDesk(t, redistest.Mini(t), core.WithLogger(slog.New(slog.NewTextHandler(logged, nil))))
	const each = 200
	for i := range each {
		for _, path := range []string{"/limit/peek", "/sale/status", fmt.Sprintf("/chosen-%d/peek", i)} {
			r := get(path, "actor=ann", "item=tv")
			r.SetBasicAuth("mallory", "")
			d.want(r, http.StatusForbidden, "")
		}
	}
	text := logged.String()
	if n := strings.Count(text, "operator action denied"); n != 3 {
		t.Errorf("%d lines for %d denials of three kinds, want 3", n, 3*each)
	}
	for _, one := range []string{"guard=limit action=peek", "guard=sale action=status", `guard="" action=""`} {
		if strings.Count(text, one) != 1 {
			t.Errorf("no line, or several, with %s", one)
		}
	}
	if strings.Contains(text, "chosen-") {
		t.Error("the log has a name that the client chose")
	}
}

// TestOperatorsLogWhereTheEngineDoes: audits, denials and failures went to slog's default logger, whatever
// logger the engine had.
func TestOperatorsLogWhereTheEngineDoes(t *testing.T) {
	logged := new(guardtest.Output)
	b := redistest.Mini(t)
	gate := core.New(b.Client, core.WithPrefix(b.Prefix), core.WithDeadline(time.Minute),
		core.WithLogger(slog.New(slog.NewTextHandler(logged, nil))))
	desk := operator.New(operator.Options{
		Guards: []core.Guard{limit.NewSlidingWindow(gate, "limit", limit.PerHour(2))},
		Authorize: func(_ *keyfuncs.Request, a operator.Action) (string, error) {
			if a.Fields["actor"] == "bob" {
				return "", errors.New("not bob")
			}
			return "eve", nil
		},
	})
	serve := func(r *http.Request, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		if desk.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s %s: %d, want %d", r.Method, r.URL.Path, w.Code, want)
		}
	}
	serve(request(http.MethodPost, "/limit/reset", "actor=ann"), http.StatusOK)
	serve(request(http.MethodPost, "/limit/reset", "actor=bob"), http.StatusForbidden)
	b.Mini.SetError("LOADING Redis is loading the dataset in memory")
	serve(get("/limit/peek", "actor=ann"), http.StatusServiceUnavailable)
	text := logged.String()
	for _, want := range []string{"operator change", "operator action denied", "operator action failed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no line of %q in the engine's log:\n%s", want, text)
		}
	}
}
