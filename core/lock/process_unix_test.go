//go:build unix

package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/leases"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// processEnv has the address and the prefix for a process of its own, which holds the lock.
const processEnv = "GATEHOUSE_LOCK_PROCESS"

// TestProcessThatHolds is the process that startHolder starts. It says its fence, and again what it would
// write when its context has ended.
func TestProcessThatHolds(t *testing.T) {
	var addr, prefix string
	if n, _ := fmt.Sscan(os.Getenv(processEnv), &addr, &prefix); n != 2 {
		return // runs in a process of its own
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	g := New(core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Minute)), "l",
		Options{Lease: leases.MinLease})
	err := g.Do(t.Context(), "ann", "p", func(ctx context.Context, fence int64) error {
		fmt.Println("held", fence)
		<-ctx.Done()
		fmt.Println("writes", fence, errors.Is(context.Cause(ctx), ErrLost))
		return nil
	})
	fmt.Println("lost", errors.Is(err, ErrLost))
}

// startHolder starts a process that holds the lock, and returns its fence.
func startHolder(t *testing.T, b redistest.Backend) (p *guardtest.Process, fence int64) {
	t.Helper()
	p = guardtest.StartProcess(t, "TestProcessThatHolds", processEnv+"="+b.Options().Addrs[0]+" "+b.Prefix)
	fence, err := strconv.ParseInt(strings.TrimPrefix(p.Line(), "held "), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return p, fence
}

// wantFree wants the lock of a process that is dead or stopped to be free a lease later at the latest, and
// takes it.
func wantFree(t *testing.T, g *Guard) (d core.Decision, fence int64) {
	t.Helper()
	if s, err := g.Peek(t.Context(), "p"); err != nil || s.Ends > leases.MinLease {
		t.Fatalf("%+v, %v: want that it ends in %v", s, err, leases.MinLease)
	}
	redistest.Eventually(t, time.Minute, func() bool {
		d = guardtest.Check(t, g, bob)
		return d.Allowed
	}, "the lock is not free")
	fence, _ = g.Fence(d)
	return d, fence
}

// TestLockOfAKilledProcessIsFree when its lease is over: nobody gives it back.
func TestLockOfAKilledProcessIsFree(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	g := New(guardtest.NewEngine(b), "l", Options{Lease: leases.MinLease})
	p, fence := startHolder(t, b)
	p.Signal(os.Kill)
	d, greater := wantFree(t, g)
	if greater <= fence {
		t.Errorf("the fence %d after %d", greater, fence)
	}
	guardtest.Settle(t, g, d, core.Commit)
}

// TestLateWriteOfAPausedHolderIsTurnedAway: its lease ran out while it was stopped, another took over and has
// written, and then it writes.
//
// Promise: A holder paused while another took over finds its context ended and takes nothing back. Its late
// write has the smaller fence.
func TestLateWriteOfAPausedHolderIsTurnedAway(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	g := New(guardtest.NewEngine(b), "l", Options{Lease: time.Hour}) // it must not be lost here
	row := struct {                                                  // of a table
		fence int64
		text  string
	}{}
	update := func(text string, fence int64) bool { // SET text = ..., fence = $1 WHERE fence < $1
		if row.fence < fence {
			row.fence, row.text = fence, text
			return true
		}
		return false
	}
	paused, older := startHolder(t, b)
	paused.Signal(syscall.SIGSTOP)
	d, fence := wantFree(t, g)
	if !update("bob's", fence) {
		t.Errorf("the fence %d after %d is turned away", fence, older)
	}
	paused.Signal(syscall.SIGCONT)
	paused.Want(fmt.Sprint("writes ", older, " true"))
	if update("ann's", older) {
		t.Errorf("%q was written with the fence %d after %d", row.text, older, fence)
	}
	paused.Want("lost true")
	wantHeld(t, g, "bob")
	guardtest.Settle(t, g, d, core.Commit)
}
