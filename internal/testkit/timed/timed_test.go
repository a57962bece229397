//go:build unix

package timed_test

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// outer stands in for the test around the attempts: it keeps how that ended.
type outer struct {
	testing.TB
	logs []string
	end  string
}

func (o *outer) Logf(format string, args ...any) { o.logs = append(o.logs, format) }
func (o *outer) Fatalf(string, ...any)           { o.end = "failed"; runtime.Goexit() }
func (o *outer) Skip(...any)                     { o.end = "skipped"; runtime.Goexit() }

// ends runs timed.Test with f, and returns how it ended and how many attempts failed before that.
func ends(t *testing.T, bear time.Duration, f func(t *timed.T)) (end string, again int) {
	t.Helper()
	o := &outer{TB: t, end: "passed"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		timed.Test(o, bear, f)
	}()
	<-done
	return o.end, len(o.logs)
}

// TestAnAttemptIsMadeAgainOnlyAfterAStall: a process that a stranger stops is one. The bear of the last case
// is longer than any stall here.
func TestAnAttemptIsMadeAgainOnlyAfterAStall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux says that a process has stopped")
	}
	for _, c := range []struct {
		name      string
		bear      time.Duration
		fails     int
		want      string
		wantAgain int
	}{
		{"after a stall", 50 * time.Millisecond, 2, "passed", 2},
		{"five times at most", 50 * time.Millisecond, 9, "failed", 4},
		{"less than it can bear", time.Minute, 1, "failed", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			attempts := 0
			end, again := ends(t, c.bear, func(t *timed.T) {
				attempts++
				child := waiting(t)
				signal(t, child, syscall.SIGSTOP)
				// The watcher's own clock is what has to pass here: it looks for processes five times a second.
				time.Sleep(400 * time.Millisecond) //nolint:forbidigo // see above
				signal(t, child, syscall.SIGCONT)
				if attempts <= c.fails {
					t.Error("too late")
				}
			})
			if end != c.want || again != c.wantAgain {
				t.Errorf("%s after %d more attempts: want %s after %d", end, again, c.want, c.wantAgain)
			}
		})
	}
}

// waiting starts a process below the test that only waits.
func waiting(t testing.TB) *os.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessThatOnlyWaits$")
	cmd.Env = append(os.Environ(), "TIMED_WAITS=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // it has read its end, or was killed
	})
	return cmd.Process
}

func signal(t testing.TB, p *os.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestProcessThatOnlyWaits is a process of the test above.
func TestProcessThatOnlyWaits(*testing.T) {
	if os.Getenv("TIMED_WAITS") != "" {
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
}

// TestAnAttemptIsATest: what ends a test ends an attempt, its cleanups run in the order of tests, and its
// context has ended by then.
func TestAnAttemptIsATest(t *testing.T) {
	var order []string
	end, _ := ends(t, time.Minute, func(t *timed.T) {
		t.Cleanup(func() { order = append(order, "first") })
		t.Cleanup(func() {
			if t.Context().Err() == nil {
				t.Error("the context has not ended")
			}
			order = append(order, "second")
		})
		t.Fatal("it ends here")
		order = append(order, "went on")
	})
	if end != "failed" || strings.Join(order, " ") != "second first" {
		t.Errorf("%s, %v", end, order)
	}
	if end, _ := ends(t, time.Minute, func(t *timed.T) { t.Skip("no need") }); end != "skipped" {
		t.Errorf("%s: want skipped", end)
	}
	end, _ = ends(t, time.Minute, func(t *timed.T) { t.Cleanup(func() { t.Fatal("late") }) })
	if end != "failed" {
		t.Errorf("%s: want a failure of a cleanup to fail the attempt", end)
	}
}
