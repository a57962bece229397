// Package warntest shows tests which warnings were logged.
package warntest

import (
	"bytes"
	"encoding/json"
	"log"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/warn"
)

// Log is what slog's default logger received while a test ran.
type Log struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

// Record captures the output of slog's default logger until the test ends, and forgets all warnings before
// and after. Tests that use it cannot run in parallel.
func Record(t testing.TB) *Log {
	t.Helper()
	l := &Log{}
	before, writer, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewJSONHandler(l, nil)))
	forget()
	t.Cleanup(func() {
		forget()
		slog.SetDefault(before)
		log.SetOutput(writer) // SetDefault has changed it, and does not change it back
		log.SetFlags(flags)
	})
	return l
}

func forget() {
	for _, w := range warn.All() {
		w.Forget()
	}
}

// Write receives the handler's lines.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(line)
}

// String returns the lines that were logged since the last call of Warnings or Want, as JSON.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// Warnings returns the attributes of the warnings logged since the last call, with the message as "msg".
func (l *Log) Warnings(t testing.TB) []map[string]string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var warnings []map[string]string
	for line := range strings.Lines(l.lines.String()) {
		attrs := map[string]any{}
		if err := json.Unmarshal([]byte(line), &attrs); err != nil {
			t.Fatal(err)
		}
		if attrs["code"] == nil {
			continue // no warning
		}
		texts := map[string]string{}
		for name, value := range attrs {
			text, ok := value.(string)
			if !ok {
				t.Errorf("%s is %v, want a text", name, value)
			}
			texts[name] = text
		}
		warnings = append(warnings, texts)
	}
	l.lines.Reset()
	return warnings
}

// Want wants the warnings of these codes, in this order, and no others since the last call of Want or
// Warnings. It returns them.
func (l *Log) Want(t testing.TB, codes ...string) []map[string]string {
	t.Helper()
	warnings := l.Warnings(t)
	var got []string
	for _, w := range warnings {
		got = append(got, w["code"])
	}
	if !slices.Equal(got, codes) {
		t.Fatalf("warned of %q, want %q: %v", got, codes, warnings)
	}
	return warnings
}
