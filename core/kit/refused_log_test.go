package kit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
)

// TestRefusalsWithoutALoginAreLogged: 100 requests that nobody could be counted for got 400, and with the
// default observer the log was empty.
//
// Promise (Requests and answers): A refusal without a decision (400, 403) is counted and logged by guard, key
// function and reason.
func TestRefusalsWithoutALoginAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		site := limit.NewSlidingWindow(gate, "site", limit.PerHour(9))
		refuse := func(reason core.Reason, function string) {
			kit.Refused(t.Context(), site, core.Decision{Guard: "site", Reason: reason,
				Attempt: core.Attempt{Actor: "mallory"}}, "who", function)
		}
		want := func(texts ...string) {
			t.Helper()
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			log.Reset()
			if len(lines) != len(texts) {
				t.Fatalf("%d lines, want %d: %q", len(lines), len(texts), lines)
			}
			for i, text := range texts {
				if !strings.Contains(lines[i], "level=INFO") || !strings.Contains(lines[i], text) {
					t.Errorf("%q, want %q in it", lines[i], text)
				}
			}
		}
		for range 100 {
			refuse("no_key", "User")
		}
		refuse("malformed", "User")
		refuse("no_key", "Cookie")
		want("guard=site reason=no_key key=who function=User shadow=false refusals_not_logged=0",
			"reason=malformed", "function=Cookie")
		<-time.After(time.Minute - 1) // of the bubble's clock
		refuse("no_key", "User")
		<-time.After(1)
		refuse("no_key", "User")
		refuse("no_key", "User")
		refuse("malformed", "User")
		want("function=User shadow=false refusals_not_logged=100", "reason=malformed")
	})
}

// TestKindsOfRefusalsAreBounded: guards that make up names fill neither the memory nor the log.
func TestKindsOfRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := 0
		counting := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			lines++
			return len(b), nil
		}), nil))
		gate := core.NewMemory(core.WithLogger(counting))
		site := limit.NewSlidingWindow(gate, "site", limit.PerHour(9))
		for i := range 3000 {
			kit.Refused(context.Background(), site, core.Decision{Guard: fmt.Sprint(i)}, "who", "")
		}
		if lines != 1001 {
			t.Errorf("%d lines, want 1,000 and one of the others", lines)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
