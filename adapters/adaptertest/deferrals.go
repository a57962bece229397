package adaptertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/pipeline/deferred"
)

// refusalsRunLater where a rule says so: the client gets 202 and a page, and the request runs through the
// application once its guard allows it.
func refusalsRunLater(s *scene) {
	var free atomic.Bool
	g := gateOf(&free)
	requests := deferred.New(delay.New(s.gate, "deferred", delay.Options{}), deferred.Options{
		Who:     keyfuncs.User(UserKey),
		Limit:   limit.NewSlidingWindow(s.gate, "stored", limit.PerHour(10)),
		Secrets: [][]byte{make([]byte, 32)},
		Restore: func(r *http.Request, principal string) (*http.Request, error) {
			r.Header.Set(UserHeader, principal)
			return r, nil
		},
	})
	rule := rate(g)
	rule.Defer = requests
	var ran atomic.Int64
	app := onThings(func(c Context) {
		ran.Add(1)
		c.Reply(http.StatusCreated, c.Request().Header.Get("Content-Type"))
	}, rule)
	app.Routes = append(app.Routes, pageOf(requests))
	handler := s.framework.Build(app)
	post := func() *httptest.ResponseRecorder {
		return send(handler, request(http.MethodPost, thing, "Idempotency-Key: k1", "Content-Type: text/csv"))
	}
	w := post()
	location := w.Header().Get("Location")
	if w.Code != http.StatusAccepted || w.Header().Get("Retry-After") != "1" ||
		len(location) != len("/deferred/")+32 {
		s.Fatalf("%d %v %s: want 202", w.Code, w.Header(), w.Body)
	}
	page := func(headers ...string) *httptest.ResponseRecorder {
		return send(handler, request(http.MethodGet, location, headers...))
	}
	if w := page(); w.Code != http.StatusAccepted || w.Header().Get(deferred.StateHeader) != "pending" {
		s.Errorf("the page: %d %v %s", w.Code, w.Header(), w.Body)
	}
	for _, header := range []string{"X-User: bob", "X-User:"} {
		if w := page(header); w.Code != http.StatusNotFound {
			s.Errorf("the page for %q: %d %s", header, w.Code, w.Body)
		}
	}
	defer s.work(requests, handler)()
	free.Store(true)
	redistest.Eventually(s.T, time.Minute, func() bool {
		w = page()
		return w.Header().Get(deferred.StateHeader) == "done"
	}, "the request has run")
	if w.Code != http.StatusCreated || w.Body.String() != "text/csv" {
		s.Errorf("the answer: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := post(); w.Code != http.StatusAccepted || w.Header().Get("Location") != location || ran.Load() != 1 {
		s.Errorf("the same again: %d %v, and ran %d times", w.Code, w.Header(), ran.Load())
	}
}

// gateOf is a guard that refuses for a moment unless it is free.
func gateOf(free *atomic.Bool) *stub {
	g := &stub{name: "gate", traits: core.Traits{KeepsOnFailure: true}}
	g.check = func(a core.Attempt) (core.Decision, error) {
		if free.Load() {
			return core.Decision{Guard: "gate", Attempt: a, Allowed: true, Reason: core.ReasonOK}, nil
		}
		return core.Decision{Guard: "gate", Attempt: a, Reason: core.ReasonLimited,
			RetryAfter: 20 * time.Millisecond}, nil
	}
	return g
}

// pageOf is the route of the page of the answers.
func pageOf(requests *deferred.Requests) Route {
	return Route{Method: http.MethodGet, Path: "/deferred/{id}", Handler: func(c Context) { c.Page(requests) }}
}

// work runs stored requests until the function that it returns is called.
func (s *scene) work(requests *deferred.Requests, app http.Handler) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- requests.Work(ctx, app, delay.WorkOptions{Poll: 20 * time.Millisecond}) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("Work: %v", err)
		}
	}
}
