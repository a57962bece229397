//go:build unix

package semaphore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// processEnv has the address and the prefix for a process of its own, which holds a permit.
const processEnv = "GATEHOUSE_SEMAPHORE_PROCESS"

// process is a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

// startHolder starts a process that holds the permit, and waits until it does.
func startHolder(t *testing.T, b redistest.Backend) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), exe, "-test.run=^TestProcessThatHolds$")}
	p.cmd.Env = append(os.Environ(), processEnv+"="+b.Options().Addrs[0]+" "+b.Prefix)
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
	p.want("held")
	return p
}

// want wants the process to say this next.
func (p *process) want(line string) {
	p.t.Helper()
	if !p.out.Scan() || p.out.Text() != line {
		p.t.Fatalf("the process says %q, %v: want %q", p.out.Text(), p.out.Err(), line)
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// TestProcessThatHolds is the process that startHolder starts.
func TestProcessThatHolds(t *testing.T) {
	var addr, prefix string
	if n, _ := fmt.Sscan(os.Getenv(processEnv), &addr, &prefix); n != 2 {
		return // runs in a process of its own
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	g := New(core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(5*time.Second)), "s",
		Options{Max: 1, Lease: minLease})
	d, err := g.Check(t.Context(), ann)
	if err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	ctx, stop := g.Hold(t.Context(), d)
	defer stop()
	fmt.Println("held")
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), ErrLost) {
		fmt.Println("lost")
	}
}

// wantFreed wants the permit of a process that is dead or stopped to be free a lease later at the latest.
func wantFreed(t *testing.T, g *Guard) core.Decision {
	t.Helper()
	begun := time.Now()
	if s, err := g.Peek(t.Context(), ann); err != nil || len(s.Holders) > 1 ||
		len(s.Holders) == 1 && s.Holders[0].Ends > minLease {
		t.Fatalf("%+v, %v: want one that ends in %v", s, err, minLease)
	}
	var d core.Decision
	redistest.Eventually(t, 20*time.Second, func() bool {
		d = guardtest.Check(t, g, bob)
		return d.Allowed
	}, "the permit is not free")
	t.Logf("free after %v, of a lease of %v", time.Since(begun), minLease)
	return d
}

// TestPermitOfAKilledProcessIsFree when its lease is over: nobody gives it back.
func TestPermitOfAKilledProcessIsFree(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	g := New(guardtest.NewEngine(b), "s", Options{Max: 1, Lease: minLease})
	startHolder(t, b).signal(os.Kill)
	guardtest.Settle(t, g, wantFreed(t, g), true)
}

// TestProcessThatIsStoppedLosesItsPermit: when it wakes, its context has ended, and it takes nothing from
// who has the permit by then.
func TestProcessThatIsStoppedLosesItsPermit(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	g := New(guardtest.NewEngine(b), "s", Options{Max: 1, Lease: minLease})
	stopped := startHolder(t, b)
	stopped.signal(syscall.SIGSTOP)
	d := wantFreed(t, g)
	stopped.signal(syscall.SIGCONT)
	stopped.want("lost")
	wantHeld(t, g, 1)
	guardtest.Settle(t, g, d, true)
}
