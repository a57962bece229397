//go:build unix

package timed

import (
	"os"
	"syscall"
)

// Signal sends a signal to a process. That a test stops a process by SIGSTOP, until SIGCONT, is no stall.
func Signal(p *os.Process, s os.Signal) error {
	switch s {
	case syscall.SIGSTOP:
		stopped.Store(p.Pid, true)
	case syscall.SIGCONT:
		stopped.Delete(p.Pid)
	}
	return p.Signal(s)
}
