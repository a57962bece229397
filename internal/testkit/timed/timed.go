// Package timed is for the few tests that measure real time, because time itself is what they test: the
// deadline of a call, a breaker, a failover's own seconds. A machine that stands still fails such a test
// though nothing is wrong. [Test] watches for that, and repeats an attempt that was held up.
//
//	timed.Test(t, 50*time.Millisecond, func(t *timed.T) {
//		... // all of it, with servers and clients of its own or a fresh Prefix
//	})
//
// Most tests need none of this. In this order: move the time that the test depends on (guardtest.WithClock, a
// bubble of testing/synctest); wait for a condition (redistest.Eventually); and only then this.
// docs/testing.md lists the tests that measure real time.
package timed

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// attempts is how often a test is tried at most.
const attempts = 5

// Test runs f, and runs it again, at most five times in all, when it failed and the machine meanwhile held
// it up: when the test's process, or one that descends from it, stood still or waited for a processor for
// bear in all, within twice that time. The output says so. A failure without such a stall fails the test at
// once.
//
// f must make all that it uses anew, since an attempt before it may have left something behind.
func Test(t testing.TB, bear time.Duration, f func(t *T)) {
	t.Helper()
	for n := 1; ; n++ {
		w := watch(bear)
		a := attempt(t, f)
		stall := w.end()
		switch {
		case a.skipped:
			t.Skip(a.text())
		case !a.failed:
			return
		case stall == "":
			t.Fatalf("%s\n(the machine did not stand still)", a.text())
		case n == attempts:
			t.Fatalf("%s\n(the last of %d attempts: %s)", a.text(), attempts, stall)
		}
		t.Logf("attempt %d failed, and %s, so it is made again:\n%s", n, stall, a.text())
	}
}

// T is the testing.TB of one attempt. Its methods may be called concurrently.
type T struct {
	testing.TB

	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	failed   bool
	skipped  bool
	said     []string
	cleanups []func()
}

// attempt runs f on a goroutine of its own, as tests run, and then its cleanups.
func attempt(t testing.TB, f func(t *T)) *T {
	ctx, cancel := context.WithCancel(t.Context())
	a := &T{TB: t, ctx: ctx, cancel: cancel}
	a.do(func() { f(a) })
	cancel()
	for next := a.popCleanup(); next != nil; next = a.popCleanup() {
		a.do(next)
	}
	return a
}

// do runs f until it returns or ends its goroutine.
func (a *T) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (a *T) popCleanup() func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.cleanups)
	if n == 0 {
		return nil
	}
	last := a.cleanups[n-1]
	a.cleanups = a.cleanups[:n-1]
	return last
}

// Cleanup registers a function that is called when the attempt ends.
func (a *T) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

// Context ends just before the attempt's cleanups are called.
func (a *T) Context() context.Context { return a.ctx }

// Fail marks the attempt as failed.
func (a *T) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

// FailNow is Fail, and ends the attempt's goroutine.
func (a *T) FailNow() { a.Fail(); runtime.Goexit() }

// Failed reports whether the attempt has failed.
func (a *T) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// Log keeps a text, which is printed if the attempt fails.
func (a *T) Log(args ...any) { a.say(fmt.Sprintln(args...)) }

// Logf is [T.Log] with a format.
func (a *T) Logf(format string, args ...any) { a.say(fmt.Sprintf(format, args...)) }

// Error is Log and Fail.
func (a *T) Error(args ...any) { a.Log(args...); a.Fail() }

// Errorf is Logf and Fail.
func (a *T) Errorf(format string, args ...any) { a.Logf(format, args...); a.Fail() }

// Fatal is Log and FailNow.
func (a *T) Fatal(args ...any) { a.Log(args...); a.FailNow() }

// Fatalf is Logf and FailNow.
func (a *T) Fatalf(format string, args ...any) { a.Logf(format, args...); a.FailNow() }

// Skip is Log and SkipNow.
func (a *T) Skip(args ...any) { a.Log(args...); a.SkipNow() }

// Skipf is Logf and SkipNow.
func (a *T) Skipf(format string, args ...any) { a.Logf(format, args...); a.SkipNow() }

// SkipNow ends the attempt, and with it the test, as skipped.
func (a *T) SkipNow() {
	a.mu.Lock()
	a.skipped = true
	a.mu.Unlock()
	runtime.Goexit()
}

// Skipped reports whether the attempt was skipped.
func (a *T) Skipped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.skipped
}

// say keeps a text with the place in the test that said it.
func (a *T) say(text string) {
	where := ""
	frames := runtime.CallersFrames(callers())
	for more := true; more; {
		var frame runtime.Frame
		if frame, more = frames.Next(); strings.HasSuffix(frame.File, "_test.go") {
			where = fmt.Sprintf("%s:%d: ", frame.File[strings.LastIndexByte(frame.File, '/')+1:], frame.Line)
			break
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, "    "+where+strings.TrimRight(text, "\n"))
}

func callers() []uintptr {
	pcs := make([]uintptr, 32)
	return pcs[:runtime.Callers(3, pcs)]
}

func (a *T) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.said, "\n")
}

// A delay is how long somebody was held up, as seen at a moment.
type delay struct {
	at    time.Time
	long  time.Duration
	whose string
}

// watcher looks for stalls until it is ended.
type watcher struct {
	bear time.Duration
	quit chan struct{}
	done chan struct{}

	processes processes
	last      time.Time
	recent    []delay // of the last 2*bear
	worst     time.Duration
	whose     string
}

const tick = 10 * time.Millisecond

func watch(bear time.Duration) *watcher {
	w := &watcher{bear: bear, quit: make(chan struct{}), done: make(chan struct{}), last: time.Now()}
	w.processes.look()
	go func() {
		defer close(w.done)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				w.look()
			case <-w.quit:
				w.look() // the stall may have ended a moment ago
				return
			}
		}
	}()
	return w
}

// end returns what held up the test for longer than it can bear, or "".
func (w *watcher) end() string {
	close(w.quit)
	<-w.done
	if w.worst < w.bear {
		return ""
	}
	return fmt.Sprintf("%s stood still for %v", w.whose, w.worst.Round(time.Millisecond))
}

func (w *watcher) look() {
	now := time.Now()
	since := now.Sub(w.last)
	w.last = now
	own, other, whose := w.processes.look()
	own = max(own, since-2*tick)
	if own <= 0 && other <= 0 {
		return
	}
	d := delay{at: now, long: own + other, whose: whose}
	if own >= other {
		d.whose = "the test"
	}
	// What held up for longer than the window began before it: it counts whole.
	w.recent = append(slices.DeleteFunc(w.recent, func(d delay) bool {
		return now.Sub(d.at) > 2*w.bear && now.Sub(d.at) > since
	}), d)
	var sum time.Duration
	for _, r := range w.recent {
		sum += r.long
	}
	if sum > w.worst {
		longest := slices.MaxFunc(w.recent, func(a, b delay) int { return int(a.long - b.long) })
		w.worst, w.whose = sum, longest.whose
	}
}

// stopped has the processes that the test itself has stopped, by their IDs.
var stopped sync.Map
