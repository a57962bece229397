//go:build unix

package delay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// processEnv has the address and the prefix for a worker that is a process of its own.
const processEnv = "GATEHOUSE_DELAY_PROCESS"

// processOptions are those of the queue that processes share.
var processOptions = delay.Options{Lease: time.Second, MaxTries: 1000}

// TestWorkerProcess is the process that startWorker starts. It prints "run ID fence" as a handler begins, and
// "end ID fence" before it returns. The handler of "stay" stays.
func TestWorkerProcess(t *testing.T) {
	var addr, prefix string
	if n, _ := fmt.Sscan(os.Getenv(processEnv), &addr, &prefix); n != 2 {
		return // runs in a process of its own
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	gate := core.New(rdb, core.WithPrefix(prefix), core.WithDeadline(time.Minute))
	q := delay.New(gate, "tasks", processOptions)
	_ = delay.Work(t.Context(), q, func(ctx context.Context, task delay.Task) error {
		fmt.Println("run", task.ID, task.Fence())
		if task.ID == "stay" {
			<-ctx.Done()
			return ctx.Err()
		}
		fmt.Println("end", task.ID, task.Fence())
		return nil
	}, delay.WorkOptions{Concurrency: 20, Poll: 50 * time.Millisecond})
}

// processOf returns the command that runs a test as a process of its own, until this test ends.
func processOf(t *testing.T, b redistest.Backend, test string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), processEnv+"="+b.Options().Addrs[0]+" "+b.Prefix)
	cmd.Stderr = os.Stderr
	return cmd
}

// startWorker starts a worker, which tells said what it prints. Kill kills it by SIGKILL.
func startWorker(t *testing.T, b redistest.Backend, said func(line string)) (kill func()) {
	t.Helper()
	cmd := processOf(t, b, "TestWorkerProcess")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said(lines.Text())
		}
	}()
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-read
		_ = cmd.Wait() // how it ended is known
	})
	t.Cleanup(kill)
	return kill
}

// TestTasksOfAKilledWorkerAreDeliveredAgain a lease and a second later at the latest.
//
// Promise: The tasks of a killed worker go to an idle worker, a lease and a second later at the latest.
func TestTasksOfAKilledWorkerAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	b := redistest.Single(t)
	q := delay.New(guardtest.NewEngine(b), "tasks", processOptions)
	begun := make(chan string, 10)
	kill := startWorker(t, b, func(line string) { begun <- line })
	schedule(t, q, "stay", time.Time{})
	<-begun
	kill()
	s := wantStatus(t, q, "stay", delay.Running, 1, "")
	killed := time.Now()
	if left := s.Ends.Sub(killed); left > processOptions.Lease {
		t.Errorf("the lease ends in %v", left)
	}
	again := make(chan time.Time, 1)
	working(t, q, delay.WorkOptions{Lease: time.Minute}, func(context.Context, delay.Task) error {
		again <- time.Now()
		return nil
	})
	t.Logf("delivered again %v after the kill, with a lease of %v", (<-again).Sub(killed), processOptions.Lease)
	if s := eventually(t, q, "stay", delay.Done); s.Try != 1 {
		t.Errorf("%+v", s)
	}
}

// TestNoTaskIsLostWhenWorkersAreKilled: workers are killed by SIGKILL at any moment, and the server forgets
// the scripts. Each task is done; the fence of a task grows with each delivery; and after a handler has ended
// whose word arrived, the task does not run again. GATEHOUSE_SOAK has a million tasks.
//
// Promise: No task is lost, and nobody else gets a leased task. A task's fence only grows.
func TestNoTaskIsLostWhenWorkersAreKilled(t *testing.T) {
	t.Parallel()
	all, workers, kills := 1_000, 2, 3
	if redistest.Soak() {
		all, workers, kills = 1_000_000, 4, 100
	}
	b := redistest.Single(t)
	q := delay.New(guardtest.NewEngine(b), "tasks", processOptions)
	book := &deliveries{fences: map[string]int64{}, ended: map[string]int64{}}
	var stops []func()
	for range workers {
		stops = append(stops, startWorker(t, b, book.note))
	}
	scheduled := make(chan error, 8)
	for part := range cap(scheduled) {
		go func() {
			for i := part; i < all; i += cap(scheduled) {
				if _, err := q.Schedule(t.Context(), fmt.Sprint(i), time.Time{}, nil); err != nil {
					scheduled <- err
					return
				}
			}
			scheduled <- nil
		}()
	}
	for i := range kills {
		redistest.Eventually(t, 10*time.Minute, func() bool { return book.size() >= (i+1)*all/(kills+1) },
			"the workers stand still")
		stops[i%workers]()
		wantErr(t, b.Client.ScriptFlush(t.Context()).Err(), nil)
		stops[i%workers] = startWorker(t, b, book.note)
	}
	for range cap(scheduled) {
		wantErr(t, <-scheduled, nil)
	}
	redistest.Eventually(t, 10*time.Minute, func() bool {
		c, err := q.Counts(t.Context())
		return err == nil && c == delay.Counts{}
	}, "tasks are left")
	for _, stop := range stops {
		stop()
	}
	book.check(t, q, all)
}

// deliveries is what workers have printed.
type deliveries struct {
	mu     sync.Mutex
	fences map[string]int64 // of the last delivery
	ended  map[string]int64 // by whom
	more   int              // deliveries after the first
	errs   []error
}

func (d *deliveries) note(line string) {
	var what, id string
	var fence int64
	if n, _ := fmt.Sscan(line, &what, &id, &fence); n != 3 {
		return // of the testing package, or cut off by the kill
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch last := d.fences[id]; {
	case what == "end":
		d.ended[id] = max(d.ended[id], fence)
	case last == fence:
		d.errs = append(d.errs, fmt.Errorf("%s: one claim was delivered twice", line))
	case last != 0:
		d.more++
		fallthrough
	default:
		d.fences[id] = max(last, fence)
	}
}

func (d *deliveries) size() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ended)
}

// check wants each task to be done by its last delivery.
func (d *deliveries) check(t *testing.T, q *delay.Queue, all int) {
	t.Helper()
	for i := range all {
		id := fmt.Sprint(i)
		s, err := q.Find(t.Context(), id)
		if err != nil || s.State != delay.Done || d.ended[id] == 0 || d.ended[id] != d.fences[id] {
			d.errs = append(d.errs, fmt.Errorf("%+v, %w: ended by %d of %d", s, err, d.ended[id], d.fences[id]))
		}
	}
	t.Logf("%d tasks, %d delivered again", all, d.more)
	if err := errors.Join(d.errs[:min(len(d.errs), 10)]...); err != nil {
		t.Error(strings.TrimSpace(err.Error()))
	}
}
