//go:build unix

package redistest

import (
	"os"
	"syscall"

	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
func suspend(p *os.Process) error   { return timed.Signal(p, syscall.SIGSTOP) }
func resume(p *os.Process) error    { return timed.Signal(p, syscall.SIGCONT) }
