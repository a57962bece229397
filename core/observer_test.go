package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// TestEveryOpIsListed: whoever writes an observer finds all that he may hear of in one place.
func TestEveryOpIsListed(t *testing.T) {
	source, err := os.ReadFile("observer.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(source), "// Op is what was called.")
	list, _, _ = strings.Cut(list, "Op string")
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:observe|giveBack|g\.end)\(ctx, "(\w+)"|Op: +"(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			found++
			if op := m[1] + m[2]; !regexp.MustCompile(`\b` + op + `\b`).MatchString(list) {
				t.Errorf("%s: %q is not in the list of Event.Op", file, op)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d were found", found)
	}
}

func TestObserversTellsAllInOrder(t *testing.T) {
	var told []string
	note := func(name string) Observer {
		return observerFunc(func(_ context.Context, e Event) { told = append(told, name+" "+e.Op) })
	}
	all := []Observer{note("a"), note("b")}
	o := Observers(all...)
	all[0] = note("c") // the list is Observers' own
	o.Observe(t.Context(), Event{Op: "check"})
	o.Observe(t.Context(), Event{Op: "settle"})
	if got := strings.Join(told, ", "); got != "a check, b check, a settle, b settle" {
		t.Error(got)
	}
}

func TestNearLimit(t *testing.T) {
	allowed := func(limit, remaining int64) Decision {
		return Decision{Allowed: true, Reason: ReasonOK, Limit: limit, Remaining: remaining, Window: time.Minute}
	}
	changed := func(change func(*Event)) Event {
		e := Event{Op: "check", Decision: allowed(100, 0)}
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		event Event
		want  bool
	}{
		"none left":        {changed(func(*Event) {}), true},
		"19 of 100":        {Event{Op: "check", Decision: allowed(100, 19)}, true},
		"20 of 100":        {Event{Op: "check", Decision: allowed(100, 20)}, false},
		"1 of 5":           {Event{Op: "check", Decision: allowed(5, 1)}, false},
		"0 of 1":           {Event{Op: "check", Decision: allowed(1, 0)}, true},
		"the largest":      {Event{Op: "check", Decision: allowed(MaxAmount, MaxAmount)}, false},
		"inside":           {changed(func(e *Event) { e.Op = "check_local" }), true},
		"refused":          {changed(func(e *Event) { e.Decision.Allowed, e.Decision.Reason = false, ReasonLimited }), false},
		"an error":         {changed(func(e *Event) { e.Err = io.EOF }), false},
		"a look":           {changed(func(e *Event) { e.Op = "peek" }), false},
		"in the shadow":    {changed(func(e *Event) { e.Decision.Attempt.Shadow = true }), false},
		"an item again":    {changed(func(e *Event) { e.Decision.Reason = ReasonAgain }), false},
		"a vote":           {changed(func(e *Event) { e.Decision.Window = 0 }), false},
		"nothing is known": {Event{Op: "check", Decision: Decision{Allowed: true, Reason: ReasonOK}}, false},
	} {
		if got := c.event.NearLimit(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSourceOfEvents(t *testing.T) {
	for want, e := range map[string]Event{
		"redis":  {Op: "check", Decision: Decision{Source: SourceRedis}},
		"none":   {Op: "check", Decision: Decision{Reason: ReasonOverLimit}},
		"shadow": {Op: "check_local", Decision: Decision{Source: SourceLocal, Attempt: Attempt{Shadow: true}}},
	} {
		if got := e.Source(); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
	settled := Event{Op: "settle", Decision: Decision{Attempt: Attempt{Shadow: true}}}
	if got := settled.Source(); got != "none" {
		t.Errorf("what a shadowed attempt took and is given back: %q, want none", got)
	}
}

// TestNearLimitOfGuards: eight of ten units leave a fifth, the ninth leaves less.
func TestNearLimitOfGuards(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		var h heard
		e := newEngine(b, WithObserver(&h))
		quota := e.Quota("q", QuotaOptions{Items: 10, Period: Every(time.Hour)})
		for _, g := range []Guard{e.SlidingWindow("w", PerHour(10)), e.FixedWindow("f", PerHour(10)), quota} {
			h.events = nil
			for i := range 11 {
				check(t, g, Attempt{Actor: "ann", Item: fmt.Sprint(i)})
			}
			var near []int
			for i, event := range h.events {
				if event.NearLimit() {
					near = append(near, i+1)
				}
			}
			if fmt.Sprint(near) != "[9 10]" {
				t.Errorf("%s: near the limit are attempts %v", g.Name(), near)
			}
		}
	})
}

func TestErrorKinds(t *testing.T) { // see TestWhatOpensABreaker, too
	for kind, errs := range map[string][]error{
		"":             {nil},
		"invalid":      {ErrInvalidAttempt},
		"rejected":     {ErrNoSale, ErrNoPacket, ErrPacketOpen, ErrTooFewLeft, ErrNoPoll},
		"gone":         {ErrGone},
		"breaker_open": {ErrBreakerOpen},
		"timeout":      {context.DeadlineExceeded, &net.DNSError{IsTimeout: true}},
		"connection":   {net.ErrClosed, &net.DNSError{}},
		"other":        {errors.New("find poll: no such table"), ErrNoRedis},
	} {
		for _, err := range errs {
			if err != nil {
				err = fmt.Errorf("check: %w", err)
			}
			if got := (Event{Err: err}).ErrorKind(); got != kind {
				t.Errorf("%v: %q, want %q", err, got, kind)
			}
		}
	}
}

func TestBreakersAreNotLoggedTwice(t *testing.T) {
	log := quiet(t)
	LogErrors().Observe(t.Context(), Event{Op: "breaker", Err: io.EOF, Breaker: &BreakerChange{Open: true}})
	if log.Len() != 0 {
		t.Error(log)
	}
}
