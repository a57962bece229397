//go:build !unix

package timed

import "os"

// Signal sends a signal to a process.
func Signal(p *os.Process, s os.Signal) error { return p.Signal(s) }
