package timed

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestAStopOfTheTestsOwnIsNoStall, and one of a stranger is.
func TestAStopOfTheTestsOwnIsNoStall(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }() // it has not ended by itself
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !stoodStill(cmd.Process.Pid); {
		if time.Now().After(end) {
			t.Fatal("a process that a stranger has stopped does not stand still")
		}
	}
	stop, taken := Signal(cmd.Process, syscall.SIGSTOP), stoodStill(cmd.Process.Pid)
	if stop != nil || taken {
		t.Errorf("%v: what the test has stopped is taken for a stall: %v", stop, taken)
	}
	err := errors.Join(Signal(cmd.Process, syscall.SIGCONT), cmd.Process.Signal(syscall.SIGSTOP))
	for end := time.Now().Add(time.Minute); err == nil && !stoodStill(cmd.Process.Pid); {
		if time.Now().After(end) {
			err = errors.New("a stall after a stop of the test's own is not seen")
		}
	}
	if err != nil {
		t.Error(err)
	}
}
