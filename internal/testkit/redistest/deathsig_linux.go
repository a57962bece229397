package redistest

import "syscall"

// sysProcAttr makes the kernel kill a server when the thread that started it ends, and so whenever the test
// binary dies. See Spawn.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
