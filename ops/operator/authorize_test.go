package operator_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/operator"
)

// TestNobodyChangesThingsWithoutAName: an Authorize that returned no name and no error changed things in
// nobody's name, and nothing was logged.
//
// Promise: Nobody changes anything without a name, and viewers read no contents of tasks.
func TestNobodyChangesThingsWithoutAName(t *testing.T) {
	var log bytes.Buffer
	gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	g := limit.NewSlidingWindow(gate, "api", limit.PerHour(1))
	handler := operator.New(operator.Options{
		Guards: []core.Guard{g}, Figures: new(operator.Figures),
		Authorize: func(*keyfuncs.Request, operator.Action) (string, error) { return "", nil },
		Audit: func(_ context.Context, e operator.Event) error {
			t.Errorf("%+v", e)
			return nil
		},
	})
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodPost, "/ops/api/reset", strings.NewReader(`{"actor": "ann"}`)),
		httptest.NewRequest(http.MethodGet, "/ops/api/peek?actor=ann", nil),
		httptest.NewRequest(http.MethodGet, "/ops/", nil),
	} {
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
		}
	}
	if !strings.Contains(log.String(), "Authorize returned no name") {
		t.Errorf("logged %q", log.String())
	}
}

// TestViewersReadNoContentsOfTasks: whoever may only look read the payloads of tasks, which are whole
// requests where these are deferred.
func TestViewersReadNoContentsOfTasks(t *testing.T) {
	b := redistest.Mini(t)
	q := delay.New(guardtest.NewEngine(b), "mail", delay.Options{})
	at := time.Now().Add(time.Hour)
	if _, err := q.Schedule(t.Context(), "7", at, []byte("a private letter")); err != nil {
		t.Fatal(err)
	}
	var events []operator.Event
	handler := operator.New(operator.Options{Tools: []kit.Tool{q},
		Authorize: func(r *keyfuncs.Request, a operator.Action) (string, error) {
			if a.Changes && r.Header.Get("X-User") != "root" {
				return "", errors.New("a viewer")
			}
			return r.Header.Get("X-User"), nil
		},
		Audit: func(_ context.Context, e operator.Event) error {
			events = append(events, e)
			return nil
		}})
	ask := func(user, method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		if method == http.MethodPost {
			r = httptest.NewRequest(method, path, strings.NewReader("id=7"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{"/", "/mail/counts", "/mail/peek?state=pending", "/mail/find?id=7"} {
		w := ask("viewer", http.MethodGet, "/ops"+path)
		if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "letter") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	w := ask("viewer", http.MethodPost, "/ops/mail/contents")
	if w.Code != http.StatusForbidden || len(events) > 0 {
		t.Errorf("a viewer: %d %s, %v", w.Code, w.Body, events)
	}
	if w := ask("root", http.MethodGet, "/ops/mail/contents?id=7"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("by a link: %d %s", w.Code, w.Body)
	}
	w = ask("root", http.MethodPost, "/ops/mail/contents")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "a private letter") || len(events) != 2 ||
		events[0].Operator != "root" {
		t.Errorf("root: %d %s, %v", w.Code, w.Body, events)
	}
}
