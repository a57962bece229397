//go:build unix

package leases_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/redistest"
)

// crashEnv has the kind of a guard, the address and the prefix for a process of its own, whose attempts stand
// in line until it dies.
const crashEnv = "GATEHOUSE_LEASES_CRASH"

const (
	crowd = 8                    // attempts of each of two processes that live
	few   = 2                    // of the one that dies: it gets a ninth of the grants
	work  = 3 * time.Millisecond // for which each holds what it has got
	life  = time.Second          // of the process that dies
)

// crowded returns a guard whose attempts stand in line for one claim.
func crowded(e *core.Engine, kind string) core.Guard {
	if kind == "lock" {
		return lock.New(e, "crowded", lock.Options{Lease: time.Second, Wait: time.Minute})
	}
	return semaphore.New(e, "crowded", semaphore.Options{Max: 1, Lease: time.Second, Wait: time.Minute})
}

// stand lets so many attempts take and give back the claim until the context ends.
func stand(ctx context.Context, g core.Guard, many int, working *sync.RWMutex, granted *atomic.Int64) {
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			for ctx.Err() == nil {
				d, err := g.Check(ctx, core.Attempt{Actor: fmt.Sprint("user", i), Resource: "p"})
				if err != nil || !d.Allowed {
					continue
				}
				working.RLock()
				granted.Add(1)
				<-time.After(work)
				_ = g.Settle(context.WithoutCancel(ctx), d, core.Commit) // else its lease ends
				working.RUnlock()
			}
		})
	}
	all.Wait()
}

// TestProcessThatStandsInLine is the process that dies: while it holds nothing, so that no lease has to end.
func TestProcessThatStandsInLine(t *testing.T) {
	var kind, addr, prefix string
	if n, _ := fmt.Sscan(os.Getenv(crashEnv), &kind, &addr, &prefix); n != 3 {
		return // runs in a process of its own
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	var working sync.RWMutex
	time.AfterFunc(life, func() {
		working.Lock()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
	stand(t.Context(), crowded(core.New(rdb, core.WithPrefix(prefix)), kind), few, &working, new(atomic.Int64))
}

// TestACrashLoopStarvesNobody: a process whose attempts stand in line dies once a second, and is started
// again. Its attempts are passed by, so that the others get at least half of what they get without it.
func TestACrashLoopStarvesNobody(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"semaphore", "lock"} {
		t.Run(kind, func(t *testing.T) {
			b := redistest.Single(t)
			ctx, end := context.WithCancel(t.Context())
			var others sync.WaitGroup
			var granted atomic.Int64
			for range 2 {
				g := crowded(guardtest.NewEngine(b), kind)
				others.Go(func() { stand(ctx, g, crowd, new(sync.RWMutex), &granted) })
			}
			defer others.Wait()
			defer end()
			rate := func(during func()) float64 {
				begun, before := time.Now(), granted.Load()
				during()
				return float64(granted.Load()-before) / time.Since(begun).Seconds()
			}
			crash := func() {
				cmd := exec.CommandContext(ctx, exe, "-test.run=^TestProcessThatStandsInLine$")
				cmd.Env = append(os.Environ(), crashEnv+"="+kind+" "+b.Options().Addrs[0]+" "+b.Prefix)
				if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() >= 0 {
					t.Errorf("the process has not died: %v\n%s", err, out)
				}
			}
			without := rate(func() { <-time.After(2 * time.Second) })
			with := rate(func() {
				for range 6 {
					crash()
				}
			})
			t.Logf("the others get %.0f grants per second, and %.1f beside the crash loop", without, with)
			if with < without/2 {
				t.Errorf("%.1f grants per second beside a crash loop: want half of %.0f", with, without)
			}
		})
	}
}
