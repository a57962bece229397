//go:build unix

package lease

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/timed"
)

// leasingEnv tells the test binary that it is a process of these tests: the prefix of its keys, the addresses
// of the servers, and its pause between two checks, with a space between them; for one that is paced, a mean
// pause, and the limit.
const leasingEnv = "GATEHOUSE_LEASING"

// leasesOfProcesses is their limit. They ask for more.
var leasesOfProcesses = limit.Per(400, 400*time.Millisecond).WithResolution(8)

func init() {
	words := strings.Fields(os.Getenv(leasingEnv))
	if len(words) < 3 {
		return
	}
	pause, _ := time.ParseDuration(words[2])
	if process = func() { runLeasing(words[0], words[1], pause) }; len(words) == 4 {
		var of limit.Limit
		_ = of.UnmarshalText([]byte(words[3]))
		process = func() { runPaced(leasingIn(words[0], words[1], of), pause) }
	}
}

// leasingIn makes the guard of a process.
func leasingIn(prefix, addrs string, of limit.Limit) *Guard {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: strings.Split(addrs, ","), IsClusterMode: strings.Contains(addrs, ","),
		ReadTimeout: time.Minute, // a busy machine lets a server stand still
	})
	return New(core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Minute),
		core.WithObserver(guardtest.Ignore{})), "processes", of)
}

// runPaced makes attempts at random moments until it is killed, and writes what became of them.
func runPaced(g *Guard, mean time.Duration) {
	out := bufio.NewWriterSize(os.Stdout, 1<<12)
	for at := time.Now(); ; {
		at = at.Add(time.Duration(rand.ExpFloat64() * float64(mean)))
		if wait := time.Until(at); wait > 0 {
			_ = out.Flush()
			<-time.After(wait)
		} else {
			at = time.Now() // what a busy machine kept back does not come in a burst
		}
		begun := time.Now()
		d, err := g.Check(context.Background(), tenant)
		if err != nil || !d.Allowed {
			_, _ = fmt.Fprintln(out, "error", d.Reason, err)
			continue
		}
		_, _ = fmt.Fprintln(out, begun.UnixMicro(), time.Now().UnixMicro(), d.Source)
	}
}

// runLeasing admits until it is killed, and writes the times at which a check began and had returned for each
// attempt that was allowed.
func runLeasing(prefix, addrs string, pause time.Duration) {
	g := leasingIn(prefix, addrs, leasesOfProcesses)
	out := bufio.NewWriterSize(os.Stdout, 1<<12)
	for {
		begun := time.Now()
		d, err := g.Check(context.Background(), tenant)
		returned := time.Now()
		switch {
		case err != nil:
			_, _ = fmt.Fprintln(out, "error", err)
			_ = out.Flush()
			return
		case d.Allowed:
			_, _ = fmt.Fprintln(out, begun.UnixMicro(), returned.UnixMicro(), d.Source)
			if pause > 0 {
				_ = out.Flush()
				<-time.After(pause)
			}
		default:
			_ = out.Flush()
			<-time.After(min(d.RetryAfter, 10*time.Millisecond))
		}
	}
}

// spans is when checks began and had returned.
type spans struct {
	mu     sync.Mutex
	all    [][2]int64
	leased int
	errs   []string
}

func (s *spans) read(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var begun, returned int64
	var source core.Source
	if n, _ := fmt.Sscan(line, &begun, &returned, &source); n < 3 {
		if strings.HasPrefix(line, "error") {
			s.errs = append(s.errs, line)
		}
		return // or a line that a killed process did not finish
	}
	s.all = append(s.all, [2]int64{begun, returned})
	if source == core.SourceLease {
		s.leased++
	}
}

func (s *spans) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// most returns the most attempts that were certainly admitted within one window.
func (s *spans) most(window time.Duration) (most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.all, func(a, b [2]int64) int { return int(a[1] - b[1]) })
	for last := range s.all {
		// A window that ends when this check had returned. Spans are sorted by their ends, and few are long.
		n, from := 0, s.all[last][1]-window.Microseconds()
		for i := last; i >= 0 && s.all[i][1] > from; i-- {
			if s.all[i][0] > from {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// TestLeasesOfProcesses: processes of their own lend units of one limit. One is stopped again and again
// while it has some in hand, for longer than a window, and goes on; another is killed. By the handlers' own
// times no window has more than Max.
func TestLeasesOfProcesses(t *testing.T) {
	if redistest.Soak() {
		t.Run("1", func(t *testing.T) { leaseInProcesses(t, redistest.Single(t), 1) })
		t.Run("64", func(t *testing.T) { leaseInProcesses(t, redistest.Single(t), 64) })
		t.Run("cluster", func(t *testing.T) { leaseInProcesses(t, redistest.Cluster(t), 4) })
	}
	t.Run("4", func(t *testing.T) { leaseInProcesses(t, redistest.Single(t), 4) })
}

func addrsOf(rdb redis.UniversalClient) []string {
	if c, ok := rdb.(*redis.ClusterClient); ok {
		return c.Options().Addrs
	}
	return []string{rdb.(*redis.Client).Options().Addr}
}

// start starts a process, whose lines are read until it ends.
func (s *spans) start(t testing.TB, readers *sync.WaitGroup, b redistest.Backend, how string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), leasingEnv+"="+b.Prefix+" "+strings.Join(addrsOf(b.Client), ",")+" "+how)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.read(lines.Text())
		}
	})
	return cmd
}

// TestPacedProcessesDecideMostByThemselves: at 90 percent of a large limit, at random moments, nobody is
// refused, and most attempts cost no call. The limits are so large that chance alone does not reach them.
func TestPacedProcessesDecideMostByThemselves(t *testing.T) {
	redistest.LeftToCI(t)
	paced := func(t *testing.T, n int, of limit.Limit, lasts time.Duration, least float64) {
		timed.Test(t, part(of)/2, func(t *timed.T) { pacedInProcesses(t, n, of, lasts, least) })
	}
	if !redistest.Soak() {
		paced(t, 4, limit.Per(10_000, 2*time.Second).WithResolution(parts), 5*time.Second, 0.8)
		return
	}
	for n, least := range map[int]float64{4: 0.98, 16: 0.95, 64: 0.87, 128: 0.76} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			paced(t, n, limit.Per(20_000, 10*time.Second).WithResolution(parts), 25*time.Second, least)
		})
	}
}

func pacedInProcesses(t testing.TB, n int, of limit.Limit, lasts time.Duration, least float64) {
	all, b := &spans{}, redistest.Single(t)
	mean := of.Window * time.Duration(10*n) / time.Duration(9*of.Max)
	var readers sync.WaitGroup
	processes := make([]*exec.Cmd, n)
	for i := range processes {
		processes[i] = all.start(t, &readers, b, mean.String()+" "+of.String())
	}
	until := time.Now().Add(lasts)
	over := func() bool { return time.Now().After(until) }
	redistest.Eventually(t, 2*lasts+30*time.Second, over, "the time passes")
	for _, cmd := range processes {
		_ = cmd.Process.Kill()
	}
	readers.Wait()
	most, share := all.most(of.Window), float64(all.leased)/float64(len(all.all))
	t.Logf("%d processes: %d admitted, %.3f in the process, most/N %.4f", n, len(all.all), share,
		float64(most)/float64(of.Max))
	if int64(most) > of.Max || len(all.errs) > 0 || share < least {
		t.Errorf("%d admitted in a window of %d, %.3f in the process, want %v; %d refused: %.200q", most, of.Max,
			share, least, len(all.errs), all.errs)
	}
}

func leaseInProcesses(t *testing.T, b redistest.Backend, n int) {
	all := &spans{}
	var readers sync.WaitGroup
	processes := make([]*exec.Cmd, n)
	for i := range processes {
		pause := "0"
		if i == 0 { // it is stopped, and uses less than the limit, so that it has some in hand
			pause = "1ms"
		}
		processes[i] = all.start(t, &readers, b, pause)
	}
	signal := func(s syscall.Signal, to ...*exec.Cmd) {
		for _, cmd := range to {
			if err := cmd.Process.Signal(s); err != nil {
				t.Error(err)
			}
		}
	}
	window := leasesOfProcesses.Window
	wait := func(d time.Duration) { // others admit meanwhile, or nobody does
		until := time.Now().Add(d)
		redistest.Eventually(t, time.Minute, func() bool { return time.Now().After(until) }, "the time passes")
	}
	redistest.Eventually(t, time.Minute, func() bool { return all.count() > 100 }, "the processes admit")
	rounds := 1
	if redistest.All() {
		rounds = 3
	}
	for range rounds {
		signal(syscall.SIGSTOP, processes[1:]...)
		wait(window + window/4) // until units of the others have left
		signal(syscall.SIGSTOP, processes[0])
		signal(syscall.SIGCONT, processes[1:]...)
		wait(window + window/4)
		signal(syscall.SIGCONT, processes[0])
	}
	signal(syscall.SIGKILL, processes[n-1])
	wait(window)
	for i := range processes {
		_ = processes[i].Process.Kill()
	}
	readers.Wait()
	most, leased := all.most(window), all.leased
	t.Logf("%d processes: %d admitted, %.3f in the process, most/N %.4f", n, len(all.all),
		float64(leased)/float64(len(all.all)), float64(most)/float64(leasesOfProcesses.Max))
	if int64(most) > leasesOfProcesses.Max || len(all.errs) > 0 || leased == 0 {
		t.Errorf("%d admitted in a window, want %d at most; %d of %d leased; %q",
			most, leasesOfProcesses.Max, leased, len(all.all), all.errs)
	}
}
