package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/warntest"
	"github.com/gatehouse-go/gatehouse/internal/warn"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// logHere returns what goes to slog's default during the test.
func logHere(t *testing.T) *bytes.Buffer {
	t.Helper()
	warntest.Record(t) // nobody has been warned before, and package log is as before when the test has ended
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}

// TestPipelinesLogWhereTheirEnginesDo: the pipeline logs about a rule to the logger of its guard's engine.
func TestPipelinesLogWhereTheirEnginesDo(t *testing.T) {
	elsewhere := logHere(t)
	var log bytes.Buffer
	gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	broken := pipeline.Rule{
		Guard: limit.NewSlidingWindow(gate, "broken", limit.PerHour(9)),
		Who:   func(*keyfuncs.Request) (string, error) { return "", errors.New("no such table") },
	}
	w := httptest.NewRecorder()
	nethttpmw.HTTP(broken)(http.NotFoundHandler()).ServeHTTP(w, blankRequest())
	if w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(log.String(), "guard=broken err=\"who: no such table\"") {
		t.Errorf("%d, log %q", w.Code, log.String())
	}

	twice := nethttpmw.HTTP(ruleOf(limit.NewSlidingWindow(gate, "twice", limit.PerHour(9))))
	twice(twice(http.NotFoundHandler())).ServeHTTP(httptest.NewRecorder(), blankRequest())
	if !strings.Contains(log.String(), "code="+warn.Twice.Code()) {
		t.Errorf("not warned: %q", log.String())
	}
	if said := elsewhere.String(); said != "" {
		t.Errorf("elsewhere: %s", said)
	}
}

// silent is a guard with a logger of its own.
type silent struct {
	fake
	log *slog.Logger
}

func (g *silent) Logger() *slog.Logger { return g.log }
func (g *silent) Check(context.Context, core.Attempt) (core.Decision, error) {
	return core.Decision{}, nil
}

// TestLoggersThatAreNil: a guard of an application's own that has none leaves it to slog's default.
func TestLoggersThatAreNil(t *testing.T) {
	elsewhere := logHere(t)
	rule := ruleOf(&silent{fake: fake{name: "own"}})
	rule.Who = func(*keyfuncs.Request) (string, error) { return "", errors.New("no such table") }
	nethttpmw.HTTP(rule)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), blankRequest())
	if !strings.Contains(elsewhere.String(), "a key function failed") {
		t.Errorf("%q", elsewhere.String())
	}
}
