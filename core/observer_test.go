package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/period"
	"github.com/gatehouse-go/gatehouse/core/quota"
	"github.com/gatehouse-go/gatehouse/core/redpacket"
	"github.com/gatehouse-go/gatehouse/core/script"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/everyguard"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// opCalls finds the ops that source reports to observers.
var opCalls = regexp.MustCompile(`(?:Observe|Decide|Call|giveBack|q\.tell|[gl]\.end|g\.set|g\.observeVerify|kit\.Look)\(ctx, (?:&[gq]\.Base, )?"(\w+)"|Op: +"(\w+)"`)

// opsOf returns the ops that the sources of a folder report to observers.
func opsOf(t *testing.T, folder string) map[string]bool {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %q, %v", folder, files, err)
	}
	ops := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for imported, folder := range map[string]string{ // they report for the guard
			"gatehouse/internal/leases\"": "../internal/leases", "gatehouse/core/limit\"": "limit",
		} {
			if strings.Contains(string(text), imported) {
				maps.Copy(ops, opsOf(t, folder))
			}
		}
		for _, m := range opCalls.FindAllStringSubmatch(string(text), -1) {
			ops[m[1]+m[2]] = true
		}
	}
	return ops
}

// TestEveryOpIsListed: the author of an observer finds all ops in one place, and each guard describes its
// own.
func TestEveryOpIsListed(t *testing.T) {
	source, err := os.ReadFile("observer.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(source), "// Op is the operation.")
	list, _, _ = strings.Cut(list, "Op string")
	listed := func(op string) bool { return regexp.MustCompile(`\b` + op + `\b`).MatchString(list) }
	for op := range opsOf(t, "kit") {
		if !listed(op) {
			t.Errorf("%q is not in the list of Event.Op", op)
		}
	}
	describers := map[string]any{}
	for folder, g := range everyguard.Kinds() {
		describers[folder] = g
	}
	for folder, tool := range everyguard.Tools() {
		describers[folder] = tool
	}
	for folder, g := range describers {
		described, found := kit.DescriptionOf(g).Ops, opsOf(t, folder)
		for _, op := range described {
			if !listed(op) {
				t.Errorf("%s: %q is not in the list of Event.Op", folder, op)
			}
			if !found[op] {
				t.Errorf("%s describes the op %q, but its source does not report it", folder, op)
			}
		}
		for op := range found {
			if !slices.Contains(described, op) {
				t.Errorf("%s reports the op %q, but does not describe it", folder, op)
			}
		}
	}
}

func TestObserversCallsAllInOrder(t *testing.T) {
	var told []string
	note := func(name string) core.Observer {
		return observerFunc(func(_ context.Context, e core.Event) { told = append(told, name+" "+e.Op) })
	}
	all := []core.Observer{note("a"), note("b")}
	o := core.Observers(all...)
	all[0] = note("c") // Observers has copied the list
	o.Observe(t.Context(), core.Event{Op: "check"})
	o.Observe(t.Context(), core.Event{Op: "settle"})
	if got := strings.Join(told, ", "); got != "a check, b check, a settle, b settle" {
		t.Error(got)
	}
}

func TestNearLimit(t *testing.T) {
	allowed := func(limit, remaining int64) core.Decision {
		return core.Decision{Allowed: true, Reason: core.ReasonOK, Limit: limit, Remaining: remaining,
			Window: time.Minute}
	}
	changed := func(change func(*core.Event)) core.Event {
		e := core.Event{Op: "check", Decision: allowed(100, 0)}
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		event core.Event
		want  bool
	}{
		"none left":   {changed(func(*core.Event) {}), true},
		"19 of 100":   {core.Event{Op: "check", Decision: allowed(100, 19)}, true},
		"20 of 100":   {core.Event{Op: "check", Decision: allowed(100, 20)}, false},
		"1 of 5":      {core.Event{Op: "check", Decision: allowed(5, 1)}, false},
		"0 of 1":      {core.Event{Op: "check", Decision: allowed(1, 0)}, true},
		"the largest": {core.Event{Op: "check", Decision: allowed(core.MaxAmount, core.MaxAmount)}, false},
		"inside":      {changed(func(e *core.Event) { e.Op = "check_local" }), true},
		"refused": {changed(func(e *core.Event) {
			e.Decision.Allowed, e.Decision.Reason = false,
				core.ReasonLimited
		}), false},
		"an error":      {changed(func(e *core.Event) { e.Err = io.EOF }), false},
		"a look":        {changed(func(e *core.Event) { e.Op = "peek" }), false},
		"in the shadow": {changed(func(e *core.Event) { e.Decision.Attempt.Shadow = true }), false},
		"an item again": {changed(func(e *core.Event) { e.Decision.Reason = core.ReasonAgain }), false},
		"a vote":        {changed(func(e *core.Event) { e.Decision.Window = 0 }), false},
		"nothing is known": {core.Event{Op: "check", Decision: core.Decision{Allowed: true, Reason: core.ReasonOK}},
			false},
	} {
		if got := c.event.NearLimit(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSourceOfEvents(t *testing.T) {
	for want, e := range map[string]core.Event{
		"redis": {Op: "check", Decision: core.Decision{Source: core.SourceRedis}},
		"none":  {Op: "check", Decision: core.Decision{Reason: core.ReasonOverLimit}},
		"shadow": {Op: "check_local",
			Decision: core.Decision{Source: core.SourceLocal, Attempt: core.Attempt{Shadow: true}}},
	} {
		if got := e.Source(); got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
	settled := core.Event{Op: "settle", Decision: core.Decision{Attempt: core.Attempt{Shadow: true}}}
	if got := settled.Source(); got != "none" {
		t.Errorf("the refund of a shadowed attempt: %q, want none", got)
	}
}

// TestNearLimitOfGuards: after eight of ten units a fifth is left, after the ninth less.
func TestNearLimitOfGuards(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		var h guardtest.Recorder
		e := guardtest.NewEngine(b, core.WithObserver(&h))
		quota := quota.New(e, "q", quota.Options{Items: 10, Period: period.Every(time.Hour)})
		for _, g := range []core.Guard{limit.NewSlidingWindow(e, "w", limit.PerHour(10)),
			limit.NewFixedWindow(e, "f", limit.PerHour(10)), quota} {
			h.Events = nil
			for i := range 11 {
				guardtest.Check(t, g, core.Attempt{Actor: "ann", Item: fmt.Sprint(i)})
			}
			var near []int
			for i, event := range h.Events {
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
		"":        {nil},
		"invalid": {core.ErrInvalid},
		"rejected": {seckill.ErrNoSale, redpacket.ErrNoPacket, redpacket.ErrPacketOpen, seckill.ErrTooFewLeft,
			votes.ErrNoPoll},
		"gone":         {core.ErrGone},
		"breaker_open": {core.ErrBreakerOpen},
		"timeout":      {context.DeadlineExceeded, &net.DNSError{IsTimeout: true}},
		"connection":   {net.ErrClosed, &net.DNSError{}},
		"other":        {errors.New("find poll: no such table"), core.ErrNoRedis},
	} {
		for _, err := range errs {
			if err != nil {
				err = fmt.Errorf("check: %w", err)
			}
			if got := (core.Event{Err: err}).ErrorKind(); got != kind {
				t.Errorf("%v: %q, want %q", err, got, kind)
			}
		}
	}
}

func TestBreakersAreNotLoggedTwice(t *testing.T) {
	log := quiet(t)
	core.LogErrors().Observe(t.Context(),
		core.Event{Op: "breaker", Err: io.EOF, Breaker: &script.BreakerChange{Open: true}})
	if log.String() != "" {
		t.Error(log)
	}
}

// panicking is an observer that panics.
type panicking struct{}

func (panicking) Observe(_ context.Context, e core.Event) { panic("of the test, at " + e.Op) }

// TestAnObserverThatPanics is told to the logger, once of many times. The caller hears of what it was
// allowed, and can give it back.
//
// Promise: An observer that panics ends neither the process nor the request.
func TestAnObserverThatPanics(t *testing.T) {
	var log bytes.Buffer
	e := guardtest.NewEngine(redistest.Single(t), core.WithObserver(panicking{}),
		core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for name, g := range everyguard.On(e) {
		for range 3 {
			d, err := g.Check(t.Context(), core.Attempt{Actor: "ann", Resource: "p", Item: "i", ID: "one"})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			guardtest.Settle(t, g, d, core.Rollback)
		}
	}
	if err := e.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if said := log.String(); strings.Count(said, `msg="gatehouse: an observer panicked" op=check `) != 1 ||
		!strings.Contains(said, `panic="of the test, at check" stack="goroutine `) {
		t.Error(said)
	}
}
