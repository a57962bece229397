package redistest

import (
	"testing"
	"time"
)

const pollInterval = 5 * time.Millisecond

// Eventually waits until cond reports true, polling every few milliseconds, and fails the test when it does
// not within the timeout; what names the condition. It is the one place where tests may sleep. Like
// t.FailNow, it must be called from the test's own goroutine.
func Eventually(t testing.TB, timeout time.Duration, cond func() bool, what string) {
	t.Helper()
	if !poll(timeout, cond) {
		t.Fatalf("redistest: after %v still waiting: %s", timeout, what)
	}
}

// poll reports whether cond became true within the timeout.
func poll(timeout time.Duration, cond func() bool) bool {
	for deadline := time.Now().Add(timeout); ; time.Sleep(pollInterval) {
		if cond() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
