package config_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	"github.com/gatehouse-go/gatehouse/ops/config"
	"github.com/gatehouse-go/gatehouse/ops/control"
	"github.com/gatehouse-go/gatehouse/pipeline"
)

// TestAnAdjustmentThatPanics: a function of WithAdjust panicked at a list that was new in the file, which ended the
// process that followed the file. A reload of the same file then said that it was in force.
func TestAnAdjustmentThatPanics(t *testing.T) {
	f := newFile(t, perHour(1))
	gate := core.NewMemory(quiet)
	live := watch(t, gate, f, config.WithAdjust(func(list string, _ *pipeline.Rule) {
		if list == "new" {
			panic("I do not know this list")
		}
	}))
	f.write(t, "guards: {g: {sliding_window: {limits: 5/h}}, h: {sliding_window: {limits: 5/h}}}\n"+
		"rules: {r: [{guard: g, who: ip}], new: [{guard: h, who: ip}]}\n")
	for range 2 {
		err := live.Reload()
		if err == nil || !strings.Contains(err.Error(), "I do not know this list") {
			t.Fatalf("%v", err)
		}
	}
	f.write(t, "guards: {g: {sliding_window: {limits: 5/h}}, h: {sliding_window: {limits: 5/h}}}\n"+
		"rules: {r: [{guard: g, who: ip}, {guard: h, who: ip}]}\n")
	reload(t, live)
}

// TestANotificationThatPanics: it ended the process that followed the file.
func TestANotificationThatPanics(t *testing.T) {
	f := newFile(t, perHour(1))
	var log guardtest.Output
	gate := core.NewMemory(core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	live, err := config.Watch(t.Context(), gate, f.path,
		config.WithInterval(10*time.Millisecond), config.WithNotify(func(config.State) { panic("a slip") }))
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(2) {
		f.write(t, perHour(int(n)+2))
		redistest.Eventually(t, time.Minute, func() bool {
			return live.State().Changes == n+1 && strings.Count(log.String(), "a slip") == int(n)+1
		}, "the file is not followed")
	}
}

// TestAReloadThatWaited: a reload that waited for another one had read the file before, and brought that into force
// while the file was another one already.
func TestAReloadThatWaited(t *testing.T) {
	f := newFile(t, perHour(1))
	told, goOn := make(chan struct{}, 9), make(chan struct{})
	live := watch(t, core.NewMemory(quiet), f, config.WithNotify(func(config.State) {
		told <- struct{}{}
		<-goOn
	}))
	f.write(t, perHour(2))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- live.Reload() }()
	<-told
	f.write(t, perHour(3))
	go func() { second <- live.Reload() }()
	redistest.Eventually(t, time.Minute, func() bool {
		return strings.Contains(stacks(), "sync.(*Mutex).Lock")
	}, "the second reload does not wait")
	f.write(t, perHour(4))
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile(f.path); live.State().Sum != fmt.Sprintf("%x", sha256.Sum256(data)) {
		t.Error("an earlier file is in force")
	}
}

// TestAFileLeavesTheProgramsOwnThings: a program lets operators decide about a list of its own, and the file has one
// of that name. When the file changed, operators decided about the file's, and no longer about the program's.
func TestAFileLeavesTheProgramsOwnThings(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		gate := guardtest.NewEngine(b, quiet)
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		desk := control.New(ctx, gate, "desk")
		own := keyfuncs.NewList(keyfuncs.IP(), "198.51.100.7")
		desk.List("vip", own)
		share := pipeline.Shadow()
		desk.Rollout("r g", share)
		text := "guards: {g: {sliding_window: {limits: 1/h}}}\nlists: {vip: {key: ip}}\n" +
			"rules: {r: [{guard: g, who: ip, allow: vip, rollout: {enforced: 10}}]}\n"
		f := newFile(t, text)
		live := watch(t, gate, f, config.WithDesk(desk))
		for _, next := range []string{text + "# again\n", perHour(1), text} {
			f.write(t, next)
			reload(t, live)
		}
		for kind, x := range map[string][2]string{control.List: {"vip", "in"}, control.Rollout: {"r g", "100 7"}} {
			d := control.Decision{Kind: kind, Name: x[0], Value: x[1]}
			if kind == control.List {
				d.Of = "192.0.2.1"
			}
			if err := desk.Decide(t.Context(), d, "sue", ""); err != nil {
				t.Fatal(err)
			}
		}
		in, err := own.Contains(&keyfuncs.Request{Request: httptest.NewRequest(http.MethodGet, "/", nil)})
		if err != nil || !in {
			t.Errorf("the program's list: %v, %v", in, err)
		}
		if r := share.Report(); r.Enforced != 7 {
			t.Errorf("the program's roll-out: %+v", r)
		}
	})
}

// stacks returns what all goroutines do.
func stacks() string {
	text := make([]byte, 1<<20)
	return string(text[:runtime.Stack(text, true)])
}
