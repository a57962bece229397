//go:build unix

package edge

import (
	"os/exec"
	"syscall"
)

// grouped gives a command a process group of its own. So Ctrl-C in a terminal, which is for the follower,
// does not end it, and all that it has started is killed with it.
func grouped(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
