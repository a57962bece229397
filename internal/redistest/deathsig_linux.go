package redistest

import "syscall"

// sysProcAttr makes the kernel kill a server when the thread that started it
// ends, thus when the test binary dies in whatever way. See spawn.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
