package core_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// TestEnginesLogToTheirLogger: the errors of LogErrors, alone or beside other observers, and nothing to
// slog's default logger.
func TestEnginesLogToTheirLogger(t *testing.T) {
	elsewhere := quiet(t)
	fail := func(context.Context, core.Attempt) ([]limit.Limit, error) { return nil, io.ErrUnexpectedEOF }
	for name, options := range map[string][]core.Option{
		"by default": nil,
		"one of two": {core.WithObserver(core.Observers(observerFunc(func(context.Context, core.Event) {}),
			core.LogErrors()))},
	} {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		gate := core.NewMemory(append(options, core.WithLogger(logger))...)
		g := limit.NewSlidingWindowBy(gate, "tiers", fail)
		if _, err := g.Check(t.Context(), core.Attempt{Actor: "ann"}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "guard=tiers op=check") || gate.Logger() != logger ||
			g.Logger() != logger {
			t.Errorf("%s: %q", name, log.String())
		}
	}
	if elsewhere.String() != "" {
		t.Errorf("elsewhere: %s", elsewhere)
	}
}

// TestTheDefaultLoggerIsTheCurrentOne: an application may set it after it has made its engines.
func TestTheDefaultLoggerIsTheCurrentOne(t *testing.T) {
	gate := core.NewMemory()
	quiet(t)
	if gate.Logger() != slog.Default() {
		t.Error("the engine has kept the previous logger")
	}
}
