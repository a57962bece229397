package delay_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// lapse makes suspects of tasks: they are claimed, and their lease is over.
func lapse(t *testing.T, q *delay.Queue, clock *guardtest.Clock, ids ...string) {
	t.Helper()
	for _, id := range ids {
		schedule(t, q, id, clock.Now())
	}
	if tasks, err := q.Claim(t.Context(), len(ids), 0); err != nil || len(tasks) != len(ids) {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	clock.Advance(30 * time.Second)
}

// claimSuspect claims, and wants this suspect alone.
func claimSuspect(t *testing.T, q *delay.Queue, id string, try int) delay.Task {
	t.Helper()
	task := claim(t, q, 10, id)[0]
	if !task.Suspect || task.Try != try {
		t.Fatalf("%+v: want a suspect in its try %d", task, try)
	}
	return task
}

// TestSuspectsComeInHalves, before other tasks and without them. A lease that was over counts as a try only
// where the suspect was alone, and then the suspect waits before the next one, for longer each time.
func TestSuspectsComeInHalves(t *testing.T) {
	each(t, delay.Options{MaxTries: 3}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		lapse(t, q, clock, "a", "b", "c")
		schedule(t, q, "d", clock.Now())
		half := claim(t, q, 10, "a", "b")
		if !half[0].Suspect || !half[1].Suspect || half[0].Try != 1 {
			t.Errorf("%+v: want suspects in their first try", half)
		}
		wantErr(t, q.Ack(t.Context(), half[0], nil), nil)
		wantErr(t, q.Nack(t.Context(), half[1], "no", 0), nil)
		claimSuspect(t, q, "c", 1)
		if tasks := claim(t, q, 10, "b", "d"); tasks[0].Suspect || tasks[0].Try != 2 { // b has ended once
			t.Errorf("%+v", tasks)
		}
		clock.Advance(30 * time.Second)
		wantErr(t, q.Ack(t.Context(), claimSuspect(t, q, "b", 2), nil), nil)
		wantErr(t, q.Ack(t.Context(), claimSuspect(t, q, "d", 1), nil), nil)
		for try, wait := range []time.Duration{time.Second, 2 * time.Second} {
			clock.Advance(wait - time.Millisecond)
			claim(t, q, 10)
			clock.Advance(time.Millisecond)
			claimSuspect(t, q, "c", try+2)
			clock.Advance(30 * time.Second)
			claim(t, q, 10)
		}
		wantStatus(t, q, "c", delay.Dead, 3, "the lease was over")
		wantErr(t, q.Retry(t.Context(), "c"), nil) // by an operator
		claimSuspect(t, q, "c", 1)
	})
}

// TestTheTasksOfAKilledProcessComeAgainInTwoRounds: they do not come one by one, as long as none of them kills
// its process.
func TestTheTasksOfAKilledProcessComeAgainInTwoRounds(t *testing.T) {
	each(t, delay.Options{}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		const all = 25
		var killed []string
		for i := range all {
			killed = append(killed, fmt.Sprintf("%02d", i))
		}
		lapse(t, q, clock, killed...)
		for _, want := range [][]string{killed[:13], killed[13:]} {
			for _, task := range claim(t, q, all, want...) {
				wantErr(t, q.Ack(t.Context(), task, nil), nil)
			}
		}
		lapse(t, q, clock, "x 0", "x 1", "x 2", "x 3", "x 4", "x 5")
		for _, want := range [][]string{{"x 0", "x 1"}, {"x 2", "x 3"}, {"x 4", "x 5"}} { // by a small process
			for _, task := range claim(t, q, 2, want...) {
				wantErr(t, q.Ack(t.Context(), task, nil), nil)
			}
		}
	})
}

// TestOnePoisonCostsLogarithmicallyManyDeaths: among n tasks of a dead process, the one that kills each process
// that runs it is alone after log2 n further deaths. All others are done by then, in their first try.
//
// Promise: Tasks that were taken back run apart from others, and in halves after each death. A task that
// kills its process among n is alone after log2 n further deaths.
func TestOnePoisonCostsLogarithmicallyManyDeaths(t *testing.T) {
	each(t, delay.Options{}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		for _, n := range []int{1, 2, 10, 32, 33} {
			for _, poison := range slices.Compact([]int{0, n / 3, n - 1}) {
				name := func(i int) string { return fmt.Sprintf("%d %d %02d", n, poison, i) }
				var all []string
				for i := range n {
					all = append(all, name(i))
				}
				lapse(t, q, clock, all...)
				deaths, done := 0, 0
				for {
					tasks, err := q.Claim(t.Context(), n, 0)
					wantErr(t, err, nil)
					if len(tasks) == 0 {
						t.Fatalf("%d of %d: nothing is due, %d are done", poison, n, done)
					}
					killer := slices.IndexFunc(tasks, func(task delay.Task) bool { return task.ID == name(poison) })
					if killer >= 0 && len(tasks) == 1 {
						wantErr(t, q.Ack(t.Context(), tasks[0], nil), nil)
						break
					}
					if killer >= 0 {
						deaths++
						clock.Advance(30 * time.Second)
						continue
					}
					for _, task := range tasks {
						if done++; task.Try != 1 || !task.Suspect {
							t.Errorf("%+v: want a suspect in its first try", task)
						}
						wantErr(t, q.Ack(t.Context(), task, nil), nil)
					}
				}
				for rest := claim; done < n-1; done++ { // what was never beside the poison again
					id := ""
					found, err := q.Peek(t.Context(), delay.Pending, 1)
					if wantErr(t, err, nil); len(found) == 1 {
						id = found[0].ID
					}
					wantErr(t, q.Ack(t.Context(), rest(t, q, 1, id)[0], nil), nil)
				}
				if most := bits.Len(uint(n)); deaths > most {
					t.Errorf("task %d of %d was alone after %d deaths, want at most %d", poison, n, deaths, most)
				}
			}
		}
	})
}

// TestSuspectsArePending: they are counted, listed, moved and cancelled as such.
func TestSuspectsArePending(t *testing.T) {
	each(t, delay.Options{}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		ctx := t.Context()
		lapse(t, q, clock, "a", "b", "c")
		a := claim(t, q, 1, "a")[0]
		wantStatus(t, q, "a", delay.Running, 1, "the lease was over")
		schedule(t, q, "d", clock.Now().Add(time.Hour))
		schedule(t, q, "e", clock.Now().Add(-time.Hour))
		want := delay.Counts{Pending: 4, Due: 3, Running: 1}
		if c, err := q.Counts(ctx); err != nil || c != want {
			t.Errorf("%+v, %v: want %+v", c, err, want)
		}
		found, err := q.Peek(ctx, delay.Pending, 3)
		var got []string
		for _, s := range found {
			got = append(got, s.ID)
		}
		if err != nil || !slices.Equal(got, []string{"e", "b", "c"}) || !found[1].At.Equal(clock.Now()) {
			t.Errorf("%+v, %v", found, err)
		}
		wantErr(t, q.Reschedule(ctx, "b", clock.Now().Add(time.Minute)), nil)
		wantErr(t, q.Cancel(ctx, "c"), nil)
		wantErr(t, q.Ack(ctx, a, nil), nil)
		claim(t, q, 10, "e")
		clock.Advance(time.Minute)
		claimSuspect(t, q, "e", 1) // its lease was over before b was due
		claimSuspect(t, q, "b", 1)
	})
}

// TestAClaimOfASuspectWhoseReplyIsLost is heard again, or given back; the task stays suspect.
func TestAClaimOfASuspectWhoseReplyIsLost(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, b redistest.Backend) {
		faults, clock := redistest.NewFaults(t), guardtest.NewClock()
		options := b.Options()
		options.Dialer, options.MaxRetries, options.MaxRedirects = faults.Dial, -1, -1
		options.ReadTimeout = time.Minute
		once := redis.NewUniversalClient(options)
		t.Cleanup(func() { _ = once.Close() })
		again := delay.New(guardtest.NewEngineOver(b, b.NewClientWith(t, faults), guardtest.WithClock(clock)),
			"tasks", delay.Options{})
		q := delay.New(guardtest.NewEngineOver(b, once, guardtest.WithClock(clock)), "tasks", delay.Options{})
		wantErr(t, q.Engine().Preload(t.Context()), nil)
		lapse(t, q, clock, "a")

		faults.SwallowReply("evalsha")
		if tasks, err := q.Claim(t.Context(), 1, 0); err == nil {
			t.Fatalf("%+v, want an error", tasks)
		}
		wantErr(t, q.Engine().Drain(t.Context()), nil)
		faults.SwallowReply("evalsha")
		task := claimSuspect(t, again, "a", 1)
		_, err := q.Extend(t.Context(), task, time.Minute)
		wantErr(t, err, nil)
		wantErr(t, q.Ack(t.Context(), task, nil), nil)
		if n := faults.Swallowed(); n != 2 {
			t.Errorf("%d replies were lost", n)
		}
	})
}

// company is what runs in a process.
type company struct {
	t    *testing.T
	mu   sync.Mutex
	runs []delay.Task
	ran  map[string]int
}

// enter notes that a task runs, and leaves it to the caller to end that. A suspect has to be alone, but for
// those of its claim.
func (c *company) enter(task delay.Task) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ran == nil {
		c.ran = map[string]int{}
	}
	c.ran[task.ID]++
	c.runs = append(c.runs, task)
	for _, other := range c.runs {
		if (other.Suspect || task.Suspect) && other.Fence() != task.Fence() {
			c.t.Errorf("%s runs beside the suspect %s: %q", task.ID, other.ID, ids(c.runs))
		}
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs = slices.DeleteFunc(c.runs, func(other delay.Task) bool { return other.ID == task.ID })
	}
}

// TestSuspectsRunApart from each other and from all that the workers of the process run, also those of
// another queue, and in all slots. The others go on between them.
func TestSuspectsRunApart(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		clock := guardtest.NewClock()
		gate := guardtest.NewEngine(b, guardtest.WithClock(clock))
		queues := []*delay.Queue{delay.New(gate, "one", delay.Options{Spread: 3}),
			delay.New(gate, "two", delay.Options{})}
		const suspects, others = 4, 60
		for i, q := range queues {
			var all []string
			for n := range suspects {
				all = append(all, fmt.Sprint("suspect ", i, " ", n))
			}
			lapse(t, q, clock, all...)
			for n := range others {
				schedule(t, q, fmt.Sprint("other ", i, " ", n), time.Time{})
			}
		}
		here := &company{t: t}
		for _, q := range queues {
			working(t, q, delay.WorkOptions{Concurrency: 5, Poll: 10 * time.Millisecond},
				func(_ context.Context, task delay.Task) error {
					defer here.enter(task)()
					<-time.After(2 * time.Millisecond)
					if here.times(task.ID) == 1 && task.Suspect { // it has not run: it stays suspect
						return delay.Later(errors.New("no room"), time.Millisecond)
					}
					return nil
				})
		}
		redistest.Eventually(t, time.Minute, func() bool {
			clock.Advance(time.Millisecond)
			one, err := queues[0].Counts(t.Context())
			wantErr(t, err, nil)
			two, err := queues[1].Counts(t.Context())
			wantErr(t, err, nil)
			return one == delay.Counts{} && two == delay.Counts{}
		}, "tasks are left")
		for i, q := range queues {
			for n := range suspects {
				id := fmt.Sprint("suspect ", i, " ", n)
				wantStatus(t, q, id, delay.Done, 1, "")
				if here.times(id) != 2 {
					t.Errorf("%s ran %d times", id, here.times(id))
				}
			}
		}
	})
}

func (c *company) times(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ran[id]
}

// TestTasksThatRunForLongHoldUpNobody: a suspect waits for what runs, and what is due for a suspect, for the
// length of a lease at most.
func TestTasksThatRunForLongHoldUpNobody(t *testing.T) {
	t.Parallel()
	clock := guardtest.NewClock()
	q := delay.New(guardtest.NewEngine(redistest.Single(t), guardtest.WithClock(clock)), "tasks",
		delay.Options{Lease: time.Second})
	schedule(t, q, "suspect", time.Time{})
	claim(t, q, 1, "suspect") // by a process that dies
	clock.Advance(time.Second / 2)
	begun := make(chan delay.Task, 3)
	leave := make(chan struct{})
	working(t, q, delay.WorkOptions{Concurrency: 2}, func(_ context.Context, task delay.Task) error {
		begun <- task
		<-leave
		return nil
	})
	schedule(t, q, "before", time.Time{})
	if task := <-begun; task.ID != "before" {
		t.Errorf("%+v", task)
	}
	clock.Advance(time.Second / 2) // the lease of the suspect is over, and that of the other is not
	if task := <-begun; task.ID != "suspect" || !task.Suspect {
		t.Errorf("%+v", task)
	}
	schedule(t, q, "after", time.Time{})
	close(leave)
	eventually(t, q, "after", delay.Done)
	eventually(t, q, "suspect", delay.Done)
}

// TestAStoppedSuspectStaysOne: it has not ended, and the try does not count.
func TestAStoppedSuspectStaysOne(t *testing.T) {
	clock := guardtest.NewClock()
	bubble(t, delay.Options{}, func(t *testing.T, q, calm *delay.Queue, _ *still) {
		lapse(t, calm, clock, "a")
		begun := make(chan struct{})
		stop := working(t, q, delay.WorkOptions{Stop: -1}, func(ctx context.Context, _ delay.Task) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		})
		<-begun
		wantErr(t, stop(), nil)
		claimSuspect(t, calm, "a", 1)
	}, guardtest.WithClock(clock))
}

// TestAFullRedisLetsSuspectsRun: they are taken back, claimed and buried.
func TestAFullRedisLetsSuspectsRun(t *testing.T) {
	server, clock := redistest.StartServer(t), guardtest.NewClock()
	rdb := server.Client(t)
	q := delay.New(core.New(rdb, core.WithDeadline(time.Minute), guardtest.WithClock(clock)), "tasks",
		delay.Options{MaxTries: 1})
	wantErr(t, q.Engine().Preload(t.Context()), nil)
	lapse(t, q, clock, "a", "b")
	wantErr(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(), nil)
	claimSuspect(t, q, "a", 1)
	wantErr(t, q.Ack(t.Context(), claimSuspect(t, q, "b", 1), nil), nil)
	clock.Advance(30 * time.Second)
	claim(t, q, 1)
	wantStatus(t, q, "a", delay.Dead, 1, "the lease was over")
}
