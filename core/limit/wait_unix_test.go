//go:build unix

package limit

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// waitsEnv has what a process of its own does: the address, the prefix, its seed, for how many milliseconds
// attempts come, how many a second, and one in how many replies is lost.
const waitsEnv = "GATEHOUSE_WAITS"

// waitsLimit is what the processes share.
var waitsLimit = Per(100, 500*time.Millisecond)

// TestProcessWhoseAttemptsWait is such a process. It says of each attempt when it came, when it was allowed,
// and what it cost.
func TestProcessWhoseAttemptsWait(t *testing.T) {
	var addr, prefix string
	var seed uint64
	var lasts, lose int
	var rate float64
	if n, _ := fmt.Sscan(os.Getenv(waitsEnv), &addr, &prefix, &seed, &lasts, &rate, &lose); n != 6 {
		return // runs in a process of its own
	}
	f := redistest.NewFaults(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	if lose > 0 {
		f.SwallowEvery("evalsha", 1/float64(lose), rand.New(rand.NewPCG(seed, 2)))
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, Dialer: f.Dial, ContextTimeoutEnabled: true})
	e := core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Minute),
		core.WithObserver(guardtest.Ignore{}))
	g := NewSlidingWindow(e, "partner", waitsLimit)
	var all sync.WaitGroup
	begun := time.Now()
	for next := begun; time.Since(begun) < time.Duration(lasts)*time.Millisecond; {
		next = next.Add(time.Duration(rng.ExpFloat64() / rate * float64(time.Second)))
		<-time.After(time.Until(next))
		cost := int64(1)
		if rng.IntN(20) == 0 {
			cost = 10
		}
		all.Go(func() {
			came := time.Now()
			d, err := g.Wait(context.Background(), core.Attempt{Actor: "partner", Cost: cost})
			if err == nil {
				took, _ := core.ClaimOf[*taken](d)
				_, _ = fmt.Println("served", came.UnixMicro(), took.stamp, cost) // in one write
			}
		})
	}
	all.Wait()
}

// waiting is what became of an attempt.
type waited struct{ came, at, cost int64 }

// waitingProcess starts a process whose attempts wait.
func waitingProcess(
	t testing.TB, b redistest.Backend, seed uint64, lasts time.Duration, rate float64, lose int,
) (cmd *exec.Cmd, ended func() []waited) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), exe, "-test.run=^TestProcessWhoseAttemptsWait$")
	cmd.Env = append(os.Environ(), fmt.Sprint(waitsEnv, "=", b.Options().Addrs[0], " ", b.Prefix, " ", seed, " ",
		lasts.Milliseconds(), " ", rate, " ", lose))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var list []waited
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var w waited
			if n, _ := fmt.Sscanf(lines.Text(), "served %d %d %d", &w.came, &w.at, &w.cost); n == 3 {
				list = append(list, w)
			}
		}
	}()
	return cmd, func() []waited {
		<-read
		_ = cmd.Wait() // it may have been killed
		return list
	}
}

// TestProcessesThatWaitAndDie: whatever becomes of processes whose attempts wait, no window has more units
// than the limit says.
//
// Promise: No window has more units than the limit says while processes are killed and stopped, and replies
// are lost.
func TestProcessesThatWaitAndDie(t *testing.T) {
	processes, lasts := 4, time.Second
	if redistest.All() {
		lasts = 2 * time.Second
	}
	if redistest.Soak() {
		processes, lasts = 16, 30*time.Second
	}
	// Where the machine stands still, too few attempts may come to fill half a window: then more do.
	redistest.Eventually(t, 4*lasts+2*time.Minute, func() bool {
		got := fullestWindow(t, processes, lasts)
		if got > waitsLimit.Max {
			t.Fatalf("the fullest window has %d units: want %d at most", got, waitsLimit.Max)
		}
		return got >= waitsLimit.Max/2
	}, "no window is half full")
}

// fullestWindow lets processes wait, and die, and returns how many units the fullest window has.
func fullestWindow(t *testing.T, processes int, lasts time.Duration) int64 {
	t.Helper()
	b := redistest.Single(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	var list []waited
	var all sync.WaitGroup
	until := time.Now().Add(lasts)
	for i := range processes {
		killed, pause := i%4 == 1, lasts/10+time.Duration(rng.Int64N(int64(lasts/3)))
		seeds := []uint64{rng.Uint64(), rng.Uint64()}
		all.Go(func() {
			for life := uint64(0); time.Now().Before(until); life++ {
				lose := 0
				if i%4 == 2 {
					lose = 20
				}
				cmd, ended := waitingProcess(t, b, seeds[0]+life, time.Until(until), 400/float64(processes), lose)
				switch {
				case killed:
					<-time.After(pause)
					_ = cmd.Process.Kill()
				case i%4 == 3:
					<-time.After(pause)
					_ = cmd.Process.Signal(syscall.SIGSTOP)
					<-time.After(pause)
					_ = cmd.Process.Signal(syscall.SIGCONT)
				}
				got := ended()
				mu.Lock()
				list = append(list, got...)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var admitted []atMoment
	for _, w := range list {
		admitted = append(admitted, atMoment{w.at, w.cost})
	}
	got := most(admitted, waitsLimit.Window)
	t.Logf("%d attempts were served; the fullest window has %d units", len(list), got)
	return got
}

// TestWaitersOfAllProcessesAreServed: at nine tenths of the limit nobody waits more than two windows longer
// than in one line for all processes, whatever their cost.
//
// Promise: At nine tenths of a limit, nobody of eight processes waits two windows longer than in one line for
// all of them.
func TestWaitersOfAllProcessesAreServed(t *testing.T) {
	redistest.LeftToCI(t)
	lasts := 3 * time.Second
	if redistest.Soak() {
		lasts = time.Minute
	}
	timed.Test(t, waitsLimit.Window/2, func(t *timed.T) {
		if more := longerThanInOneLine(t, 8, lasts); more > 2*waitsLimit.Window {
			t.Fatalf("somebody waited %v longer than in one line: want two windows at most", more)
		}
	})
}

// longerThanInOneLine lets processes wait for nine tenths of the limit, and returns how much longer somebody
// waited than in one line for all of them.
func longerThanInOneLine(t testing.TB, processes int, lasts time.Duration) time.Duration {
	t.Helper()
	b := redistest.Single(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const meanCost = 0.95 + 0.05*10
	rate := 0.9 * float64(waitsLimit.Max) / waitsLimit.Window.Seconds() / meanCost / float64(processes)
	var list []waited
	var ends []func() []waited
	for i := range processes {
		_, ended := waitingProcess(t, b, seed+uint64(i), lasts, rate, 0)
		ends = append(ends, ended)
	}
	for _, ended := range ends {
		list = append(list, ended()...)
	}
	slices.SortFunc(list, func(a, b waited) int { return int(a.came - b.came) })
	var longest, fair, more int64
	for i, at := range oneLine(list, waitsLimit) {
		longest, fair = max(longest, list[i].at-list[i].came), max(fair, at-list[i].came)
		more = max(more, list[i].at-at)
	}
	t.Logf("%d attempts waited for %d us at most, in one line %d us, one of them %d us longer than there", len(list),
		longest, fair, more)
	return time.Duration(more) * time.Microsecond
}

// oneLine returns when each would be served if all stood in one line, in the order in which they came.
func oneLine(list []waited, l Limit) (at []int64) {
	window, now := l.Window.Microseconds(), int64(0)
	for i, w := range list {
		for now = max(now, w.came); ; {
			sum, next := w.cost, int64(0)
			for k := range i {
				if at[k]+window > now {
					sum += list[k].cost
					if next == 0 || at[k]+window < next {
						next = at[k] + window
					}
				}
			}
			if sum <= l.Max {
				break
			}
			now = next
		}
		at = append(at, now)
	}
	return at
}
