//go:build !linux

package redistest

import "syscall"

// sysProcAttr: without a parent-death signal, servers are left behind when the
// test binary is killed. They are stopped in all other cases.
func sysProcAttr() *syscall.SysProcAttr { return nil }
