//go:build unix

package semaphore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// processEnv has the address and the prefix for a process of its own, which holds a permit.
const processEnv = "GATEHOUSE_SEMAPHORE_PROCESS"

// startHolder starts a process that holds the permit, and waits until it does.
func startHolder(t *testing.T, b redistest.Backend) *guardtest.Process {
	t.Helper()
	p := guardtest.StartProcess(t, "TestProcessThatHolds", processEnv+"="+b.Options().Addrs[0]+" "+b.Prefix)
	p.Want("held")
	return p
}

// TestProcessThatHolds is the process that startHolder starts.
func TestProcessThatHolds(t *testing.T) {
	var addr, prefix string
	if n, _ := fmt.Sscan(os.Getenv(processEnv), &addr, &prefix); n != 2 {
		return // runs in a process of its own
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	g := New(core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Minute)), "s",
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
	redistest.Eventually(t, time.Minute, func() bool {
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
	startHolder(t, b).Signal(os.Kill)
	guardtest.Settle(t, g, wantFreed(t, g), core.Commit)
}

// TestProcessThatIsStoppedLosesItsPermit: when it wakes, its context has ended, and it takes nothing from
// who has the permit by then.
func TestProcessThatIsStoppedLosesItsPermit(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	g := New(guardtest.NewEngine(b), "s", Options{Max: 1, Lease: time.Hour}) // it must not be lost here
	stopped := startHolder(t, b)
	stopped.Signal(syscall.SIGSTOP)
	d := wantFreed(t, g)
	stopped.Signal(syscall.SIGCONT)
	stopped.Want("lost")
	wantHeld(t, g, 1)
	guardtest.Settle(t, g, d, core.Commit)
}
