//go:build unix

package semaphore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// waitingEnv tells the test binary that it is a process that waits for the permit: the address of the server
// and the prefix of the keys.
const waitingEnv = "GATEHOUSE_SEMAPHORE_WAITING"

// one permit, for which attempts wait.
var oneAtATime = semaphore.Options{Max: 1, Wait: time.Minute, Lease: 30 * time.Second}

// TestProcessThatWaits is the process. It has the permit until its input ends.
func TestProcessThatWaits(t *testing.T) {
	var addr, prefix string
	if n, _ := fmt.Sscan(os.Getenv(waitingEnv), &addr, &prefix); n != 2 {
		return // runs in a process of its own
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	e := core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Minute), core.WithoutBreaker())
	g := semaphore.New(e, "s", oneAtATime)
	d, err := g.Check(t.Context(), core.Attempt{Actor: "process"})
	if err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	fmt.Println("served")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := g.Settle(t.Context(), d, core.Commit); err != nil {
		t.Fatal(err)
	}
}

// wantLine waits until as many attempts wait.
func wantLine(t *testing.T, g *semaphore.Guard, want int64) {
	t.Helper()
	redistest.Eventually(t, time.Minute, func() bool {
		s, err := g.Peek(t.Context(), core.Attempt{})
		return err == nil && s.Waiting == want
	}, fmt.Sprintf("%d attempts wait", want))
}

// behindAProcess lets a process that has the first place in line get a signal, and wants who stands behind it
// to be served. It returns their decision, and the process.
func behindAProcess(
	t *testing.T, g *semaphore.Guard, b redistest.Backend, s syscall.Signal,
) (d core.Decision, cmd *exec.Cmd, out *bufio.Scanner, in io.Closer) {
	t.Helper()
	held := guardtest.Check(t, g, core.Attempt{Actor: "ann"})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), exe, "-test.run=^TestProcessThatWaits$", "-test.timeout=0")
	cmd.Env, cmd.Stderr = append(os.Environ(), waitingEnv+"="+b.Options().Addrs[0]+" "+b.Prefix), os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // how it ended is known
	})
	wantLine(t, g, 1)
	behind := make(chan core.Decision, 1)
	go func() {
		d, err := g.Check(context.WithoutCancel(t.Context()), core.Attempt{Actor: "bob"})
		if err != nil {
			t.Errorf("behind the process: %v", err)
		}
		behind <- d
	}()
	wantLine(t, g, 2)
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if s == syscall.SIGSTOP { // until it has stopped it could be served, and have the permit for a lease
		var status syscall.WaitStatus
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err != nil || !status.Stopped() {
			t.Fatalf("the process has not stopped: %v, %v", status, err)
		}
	}
	guardtest.Settle(t, g, held, core.Commit)
	begun := time.Now()
	select {
	case d = <-behind:
	case <-time.After(time.Minute): // ten times as long as a process is taken to be alive
		t.Fatal("who stands behind the process is not served")
	}
	guardtest.WantReason(t, d, core.ReasonOK)
	t.Logf("served after %v", time.Since(begun))
	return d, cmd, bufio.NewScanner(stdout), stdin
}

// TestAProcessThatIsKilledWhileItWaitsBlocksNobody for longer than it is taken to be alive.
func TestAProcessThatIsKilledWhileItWaitsBlocksNobody(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	g := semaphore.New(guardtest.NewEngine(b, core.WithoutBreaker()), "s", oneAtATime)
	d, _, _, _ := behindAProcess(t, g, b, syscall.SIGKILL)
	wantLine(t, g, 0)
	guardtest.Settle(t, g, d, core.Commit)
}

// TestAProcessThatIsStoppedWhileItWaitsBlocksNobody: those behind it overtake it. When it goes on it takes no
// permit from them, is in line again, and is served in its turn.
func TestAProcessThatIsStoppedWhileItWaitsBlocksNobody(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	g := semaphore.New(guardtest.NewEngine(b, core.WithoutBreaker()), "s", oneAtATime)
	d, cmd, out, in := behindAProcess(t, g, b, syscall.SIGSTOP)
	wantLine(t, g, 0)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wantLine(t, g, 1)
	if s, err := g.Peek(t.Context(), core.Attempt{}); err != nil || s.Held != 1 || s.Holders[0].Actor != "bob" {
		t.Errorf("%+v, %v: want that bob has the permit", s, err)
	}
	guardtest.Settle(t, g, d, core.Commit)
	if !out.Scan() || out.Text() != "served" {
		t.Fatalf("the process says %q, %v", out.Text(), out.Err())
	}
	if err := in.Close(); err != nil { // it gives the permit back
		t.Fatal(err)
	}
	redistest.Eventually(t, time.Minute, func() bool {
		s, err := g.Peek(t.Context(), core.Attempt{})
		return err == nil && s.Held == 0
	}, "the process gives its permit back")
}
