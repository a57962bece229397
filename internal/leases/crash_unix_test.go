//go:build unix

package leases_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/lock"
	"github.com/gatehouse-go/gatehouse/core/semaphore"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// crashEnv has how a process of its own ends, whose attempts stand in line, the kind of its guard, the
// address and the prefix.
const crashEnv = "GATEHOUSE_LEASES_CRASH"

const (
	crowd = 8                    // attempts of each of two processes that live
	few   = 2                    // of the one that dies
	work  = 3 * time.Millisecond // for which each holds what it has got
	life  = time.Second          // of that one
)

// crowded returns a guard whose attempts stand in line for one claim, and what tells who has it.
func crowded(e *core.Engine, kind string) (g core.Guard, holder func(context.Context) string) {
	if kind == "lock" {
		g := lock.New(e, "crowded", lock.Options{Lease: time.Second, Wait: time.Minute})
		return g, func(ctx context.Context) string {
			s, _ := g.Peek(ctx, "p")
			return s.Owner
		}
	}
	s := semaphore.New(e, "crowded", semaphore.Options{Max: 1, Lease: time.Second, Wait: time.Minute})
	return s, func(ctx context.Context) string {
		s, _ := s.Peek(ctx, core.Attempt{Resource: "p"})
		return fmt.Sprint(s.Holders)
	}
}

// stand lets so many attempts take and give back the claim until the context ends.
func stand(
	ctx context.Context, g core.Guard, actor string, many int, working *sync.RWMutex, granted *atomic.Int64,
) {
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			for ctx.Err() == nil {
				d, err := g.Check(ctx, core.Attempt{Actor: fmt.Sprint(actor, i), Resource: "p"})
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

// TestProcessThatStandsInLine is the process that dies, while it holds nothing, so that no lease has to end.
// Or it ends well: its attempts leave the line.
func TestProcessThatStandsInLine(t *testing.T) {
	var end, kind, addr, prefix string
	if n, _ := fmt.Sscan(os.Getenv(crashEnv), &end, &kind, &addr, &prefix); n != 4 {
		return // runs in a process of its own
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	e := core.New(rdb, core.WithPrefix(prefix))
	g, holder := crowded(e, kind)
	var working sync.RWMutex
	time.AfterFunc(life, func() {
		if end == "well" {
			leave()
			return
		}
		for {
			working.Lock()
			if !strings.Contains(holder(ctx), "mortal") {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			working.Unlock()
		}
	})
	stand(ctx, g, "mortal", few, &working, new(atomic.Int64))
	if err := e.Drain(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
}

// TestACrashLoopStarvesNobody: processes whose attempts stand in line die once a second, and are started
// again. Their attempts are passed by, so that the others get at least half of what they get where these
// processes end well. It is in real time, so the short version has one such process and asks for an eighth: a
// crash loop that starves the others left them a thirtieth. See TestProcessesThatDieStarveNobody.
func TestACrashLoopStarvesNobody(t *testing.T) {
	redistest.LeftToCI(t)
	kinds, lives, part := []string{"semaphore"}, 2, 8.0
	if redistest.Soak() {
		kinds, lives, part = []string{"semaphore", "lock", "semaphore", "lock"}, 4, 2
	}
	for i, kind := range kinds {
		dying := 1 + 2*i
		t.Run(fmt.Sprintf("%s, %d processes", kind, dying), func(t *testing.T) {
			timed.Test(t, life/4, func(t *timed.T) { crashLoop(t, kind, dying, lives, part) })
		})
	}
}

func crashLoop(t testing.TB, kind string, dying, lives int, part float64) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := redistest.Single(t)
	ctx, end := context.WithCancel(t.Context())
	var others sync.WaitGroup
	var granted atomic.Int64
	for range 2 {
		g, _ := crowded(guardtest.NewEngine(b), kind)
		others.Go(func() { stand(ctx, g, "user", crowd, new(sync.RWMutex), &granted) })
	}
	defer others.Wait()
	defer end()
	process := func(end string) {
		cmd := exec.CommandContext(ctx, exe, "-test.run=^TestProcessThatStandsInLine$")
		cmd.Env = append(os.Environ(), crashEnv+"="+end+" "+kind+" "+b.Options().Addrs[0]+" "+b.Prefix)
		out, err := cmd.CombinedOutput()
		if end == "well" && err != nil || end == "dies" && cmd.ProcessState.ExitCode() >= 0 {
			t.Errorf("the process %s: %v\n%s", end, err, out)
		}
	}
	beside := func(end string) float64 { // grants per second, beside processes that end like this
		process(end) // what is left of others counts before
		begun, before := time.Now(), granted.Load()
		var all sync.WaitGroup
		for range dying {
			all.Go(func() {
				for range lives {
					process(end)
				}
			})
		}
		all.Wait()
		return float64(granted.Load()-before) / time.Since(begun).Seconds()
	}
	well, dies := beside("well"), beside("dies")
	t.Logf("grants of the others per second: %.0f beside a process that ends well once a second, %.1f "+
		"beside one that dies", well, dies)
	if dies < well/part {
		t.Errorf("%.1f grants per second beside a crash loop: want a %.0fth of %.0f", dies, part, well)
	}
}
