package pipeline_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/nethttpmw"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestABrokenKeyFunctionDoesNotFloodTheLog: each request that a key function of the application failed for
// logged an error.
//
// Promise: Events of requests are logged once per kind and minute, with the number between. Call errors are
// logged once per second, set-up warnings once.
func TestABrokenKeyFunctionDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		site := pipeline.Rule{
			Guard: limit.NewSlidingWindow(gate, "site", limit.PerHour(9)),
			Who:   func(*keyfuncs.Request) (string, error) { return "", errors.New("no such table") },
		}
		list := site
		list.Deny = keyfuncs.NewList(func(*keyfuncs.Request) (string, error) {
			return "", errors.New("no list")
		}, "x")
		one, other := nethttpmw.HTTP(site)(http.NotFoundHandler()), nethttpmw.HTTP(list)(http.NotFoundHandler())
		send := func(app http.Handler, times int) {
			t.Helper()
			for range times {
				w := httptest.NewRecorder()
				if app.ServeHTTP(w, blankRequest()); w.Code != http.StatusServiceUnavailable {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		}
		want := func(texts ...string) {
			t.Helper()
			said := log.String()
			log.Reset()
			if n := strings.Count(said, "level=ERROR"); n != len(texts) {
				t.Fatalf("%d errors, want %d: %s", n, len(texts), said)
			}
			for _, text := range texts {
				if !strings.Contains(said, text) {
					t.Errorf("%q is not in %s", text, said)
				}
			}
		}
		send(one, 100)
		send(other, 100)
		want(`guard=site err="who: no such table" failures_not_logged=0`,
			`guard=site err="deny: no list" failures_not_logged=0`)
		<-time.After(time.Minute) // of the bubble's clock
		send(one, 3)
		want(`guard=site err="who: no such table" failures_not_logged=99`)
	})
}

// TestAnOutageOfAnOwnGuardDoesNotFloodTheLog: when the time to settle was over, each attempt at a guard
// without an engine logged an error.
func TestAnOutageOfAnOwnGuardDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logHere(t)
		guard := &away{fake: fake{name: "away for good"}, until: time.Now().Add(24 * time.Hour)}
		p := pipeline.New(ruleOf(guard))
		for range 50 {
			enter(t, p, httptest.NewRequest(http.MethodPost, "/", nil)).Leave(http.StatusOK)
		}
		<-time.After(time.Hour) // of the bubble's clock
		synctest.Wait()
		if n := strings.Count(log.String(), "gave up settling an attempt"); n != 1 {
			t.Errorf("50 attempts: %d errors, want 1: %.2000s", n, log)
		}
	})
}
