package guardtest

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// Process is a test that runs in a process of its own, so that it can be killed and stopped.
type Process struct {
	t   testing.TB
	cmd *exec.Cmd
	out *bufio.Scanner
}

// StartProcess runs one test of the same package in a process of its own, with a further environment
// variable. It ends with the test.
func StartProcess(t testing.TB, test, env string) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$")}
	p.cmd.Env = append(os.Environ(), env)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // how it ended is known
	})
	return p
}

// Line returns the next line that the process says.
func (p *Process) Line() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("the process has ended: %v", p.out.Err())
	}
	return p.out.Text()
}

// Want wants the process to say this next.
func (p *Process) Want(line string) {
	p.t.Helper()
	if got := p.Line(); got != line {
		p.t.Fatalf("the process says %q: want %q", got, line)
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := timed.Signal(p.cmd.Process, s); err != nil {
		p.t.Fatal(err)
	}
}
