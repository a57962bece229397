//go:build !unix

package edge

import "os/exec"

// grouped does nothing: there are no process groups.
func grouped(*exec.Cmd) {}
