package gatehouselog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/ops/observe/gatehouselog"
)

// log is a logger and its output.
type log struct {
	bytes.Buffer
	*slog.Logger
}

func newLog() *log {
	l := &log{}
	l.Logger = slog.New(slog.NewJSONHandler(&l.Buffer, nil))
	return l
}

func (l *log) records(t *testing.T) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	l.Reset()
	return all
}

func denied(guard string, reason core.Reason) core.Event {
	return core.Event{Guard: guard, Op: "check", Decision: core.Decision{
		Guard: guard, Reason: reason, Source: core.SourceRedis, Limit: 9, RetryAfter: time.Minute,
		Attempt: core.Attempt{Actor: "203.0.113.7", Resource: "/things"},
	}}
}

func TestDenialsAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		o := gatehouselog.New(l.Logger, gatehouselog.Options{PerSecond: 3})
		flood := func(guard string, reason core.Reason, n int) {
			for range n {
				o.Observe(t.Context(), denied(guard, reason))
			}
		}
		flood("site", core.ReasonLimited, 100)
		flood("site", core.ReasonOverLimit, 1) // the flood does not hide another reason or guard
		flood("login", core.ReasonLimited, 1)
		shadowed := denied("site", core.ReasonLimited)
		shadowed.Decision.Attempt.Shadow = true
		o.Observe(t.Context(), shadowed)
		got := l.records(t)
		if len(got) != 6 {
			t.Fatalf("%d records, want 3 of the flood and 3 others", len(got))
		}
		if r := got[5]; r["msg"] != "gatehouse: would have been denied" || r["source"] != "shadow" {
			t.Errorf("in the shadow: %v", r)
		}
		<-time.After(time.Second)
		flood("site", core.ReasonLimited, 2)
		records := l.records(t)
		if len(records) != 2 || records[0]["not_logged"] != 97.0 || records[1]["not_logged"] != 0.0 {
			t.Errorf("%v, want not_logged 97 in the first record only", records)
		}
	})
}

func TestARecord(t *testing.T) {
	const actor, resource = "203.0.113.7", "/things"
	key := []byte("sixteen bytes or more")
	for name, c := range map[string]struct {
		options gatehouselog.Options
		actor   any
	}{
		"left out": {gatehouselog.Options{}, nil},
		"shown":    {gatehouselog.Options{Show: true}, actor},
		"hashed":   {gatehouselog.Options{HashKey: key}, "09026ec9faf0227b"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog()
			gatehouselog.New(l.Logger, c.options).Observe(t.Context(), denied("site", core.ReasonLimited))
			text := l.String()
			r := l.records(t)[0]
			if r["guard"] != "site" || r["reason"] != "limited" || r["source"] != "redis" || r["limit"] != 9.0 ||
				r["retry_after"] != 6e10 {
				t.Errorf("%v", r)
			}
			if r["actor"] != c.actor || (r["resource"] == nil) != (c.actor == nil) {
				t.Errorf("actor %v, resource %v", r["actor"], r["resource"])
			}
			if !c.options.Show && (strings.Contains(text, actor) || strings.Contains(text, resource)) {
				t.Errorf("personal data: %s", text)
			}
		})
	}
}

func TestOnlyDenialsAreLogged(t *testing.T) {
	l := newLog()
	o := gatehouselog.New(l.Logger, gatehouselog.Options{})
	allowed, failed, peeked := denied("g", core.ReasonOK), denied("g", ""), denied("g", core.ReasonLimited)
	allowed.Decision.Allowed = true
	failed.Err = errors.New("down")
	peeked.Op = "peek"
	for _, e := range []core.Event{allowed, failed, peeked, denied("g", core.ReasonDone),
		{Op: "breaker", Breaker: &script.BreakerChange{}}} {
		o.Observe(t.Context(), e)
	}
	gatehouselog.New(l.Logger, gatehouselog.Options{Level: slog.LevelDebug}).Observe(t.Context(),
		denied("g", core.ReasonLimited))
	if l.Len() != 0 {
		t.Error(l.String())
	}
}

func TestSetUpMistakesPanicWithTheRemedy(t *testing.T) {
	logger := newLog().Logger
	for text, mistake := range map[string]func(){
		"slog.Default()":  func() { gatehouselog.New(nil, gatehouselog.Options{}) },
		"for 5":           func() { gatehouselog.New(logger, gatehouselog.Options{PerSecond: -1}) },
		"16 random bytes": func() { gatehouselog.New(logger, gatehouselog.Options{HashKey: []byte("short")}) },
		"set one of them": func() {
			gatehouselog.New(logger,
				gatehouselog.Options{HashKey: make([]byte, 16), Show: true})
		},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, text) {
					t.Errorf("%q, want %q in it", got, text)
				}
			}()
			mistake()
		}()
	}
}

// TestRefusalsWithoutADecisionAreLogged: a hundred requests without a login left no line.
func TestRefusalsWithoutADecisionAreLogged(t *testing.T) {
	l := newLog()
	o := gatehouselog.New(l.Logger, gatehouselog.Options{PerSecond: 1, Show: true})
	for range 100 {
		o.Observe(t.Context(), core.Event{Guard: "site", Op: "refuse", Key: "who", Function: `User("uid")`,
			Decision: core.Decision{Guard: "site", Reason: "no_key"}})
	}
	o.Observe(t.Context(), core.Event{Guard: "site", Op: "refuse", Key: "id",
		Decision: core.Decision{Guard: "site", Reason: "no_key"}})
	records := l.records(t)
	if len(records) < 2 {
		t.Fatalf("%v, want a record for each key", records)
	}
	if r := records[0]; r["msg"] != "gatehouse: refused" || r["guard"] != "site" || r["reason"] != "no_key" ||
		r["key"] != "who" || r["function"] != `User("uid")` {
		t.Errorf("%v", r)
	}
}
