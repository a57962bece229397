package delay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// each runs a test with a queue on each backend, under a clock that the test moves.
func each(t *testing.T, o delay.Options, f func(t *testing.T, q *delay.Queue, clock *guardtest.Clock)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		clock := guardtest.NewClock()
		f(t, delay.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "tasks", o), clock)
	})
}

// schedule schedules a task that must be new.
func schedule(t *testing.T, q *delay.Queue, id string, at time.Time) {
	t.Helper()
	if created, err := q.Schedule(t.Context(), id, at, []byte("payload of "+id)); err != nil || !created {
		t.Fatalf("Schedule(%q): %v, %v", id, created, err)
	}
}

// claim claims, and wants these tasks.
func claim(t *testing.T, q *delay.Queue, n int, want ...string) []delay.Task {
	t.Helper()
	tasks, err := q.Claim(t.Context(), n, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(tasks); !slices.Equal(got, want) {
		t.Fatalf("claimed %q, want %q", got, want)
	}
	for _, task := range tasks {
		if string(task.Payload) != "payload of "+task.ID {
			t.Errorf("%+v: want the payload that was scheduled", task)
		}
	}
	return tasks
}

func ids(tasks []delay.Task) (all []string) {
	for _, task := range tasks {
		all = append(all, task.ID)
	}
	return all
}

func wantStatus(
	t *testing.T, q *delay.Queue, id string, want delay.State, try int, reason string,
) delay.Status {
	t.Helper()
	s, err := q.Find(t.Context(), id)
	if err != nil || s.ID != id || s.State != want || s.Try != try || s.Reason != reason {
		t.Fatalf("%+v, %v: want %s, try %d, reason %q", s, err, want, try, reason)
	}
	return s
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// Promise: Due tasks are claimed in the order of their moments, then IDs, and none early. With Spread this
// holds in each slot, and no slot waits.
func TestTasksAreClaimedInTheirOrderWhenTheyAreDue(t *testing.T) {
	each(t, delay.Options{}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		now := clock.Now()
		schedule(t, q, "c", now.Add(2*time.Second))
		schedule(t, q, "b", now.Add(time.Second))
		schedule(t, q, "a", now.Add(time.Second))
		schedule(t, q, "past", now.Add(-time.Hour))
		schedule(t, q, "at once", time.Time{})
		claim(t, q, 10, "past", "at once")
		clock.Advance(time.Second - time.Millisecond)
		claim(t, q, 10)
		clock.Advance(time.Millisecond)
		claim(t, q, 1, "a")
		clock.Advance(time.Second)
		tasks := claim(t, q, 10, "b", "c")
		if task := tasks[1]; task.Try != 1 || !task.At.Equal(now.Add(2*time.Second)) ||
			!task.Deadline.Equal(clock.Now().Add(30*time.Second-31*time.Millisecond)) {
			t.Errorf("%+v", task)
		}
		claim(t, q, 10)
	})
}

// Promise: A task is scheduled once per ID while it is known: pending, running, dead, or done for Keep.
func TestATaskIsScheduledOncePerID(t *testing.T) {
	each(t, delay.Options{Keep: time.Minute}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		ctx := t.Context()
		again := func(want bool) {
			t.Helper()
			created, err := q.Schedule(ctx, "a", clock.Now().Add(time.Hour), []byte("payload of a"))
			if err != nil || created != want {
				t.Fatalf("%v, %v: want %v", created, err, want)
			}
		}
		schedule(t, q, "a", clock.Now())
		again(false)
		task := claim(t, q, 1, "a")[0]
		again(false)
		if err := q.Ack(ctx, task, []byte("42")); err != nil {
			t.Fatal(err)
		}
		again(false)
		s := wantStatus(t, q, "a", delay.Done, 1, "")
		if string(s.Result) != "42" || s.Payload != nil || !s.Ends.Equal(clock.Now().Add(time.Minute)) {
			t.Errorf("%+v", s)
		}
		clock.Advance(time.Minute)
		_, err := q.Find(ctx, "a")
		wantErr(t, err, delay.ErrNoTask)
		again(true)
		claim(t, q, 1)
		wantErr(t, q.Cancel(ctx, "a"), nil)
		again(true)
	})
}

// Promise: A claim's word counts until it is taken back, even after the lease. Then it gets `ErrLost`.
func TestATaskWhoseLeaseIsOverIsDeliveredAgain(t *testing.T) {
	o := delay.Options{Lease: time.Second, MaxTries: 2}
	each(t, o, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		ctx := t.Context()
		schedule(t, q, "a", clock.Now())
		first := claim(t, q, 1, "a")[0]
		clock.Advance(time.Second - time.Millisecond)
		claim(t, q, 1)
		clock.Advance(time.Millisecond)
		second := claim(t, q, 1, "a")[0]
		if second.Try != 1 || !second.Suspect || second.Fence() <= first.Fence() {
			t.Errorf("%+v after %+v: want a suspect, its first try again, with a greater fence", second, first)
		}
		wantErr(t, q.Ack(ctx, first, nil), delay.ErrLost)
		wantErr(t, q.Nack(ctx, first, "late", 0), delay.ErrLost)
		_, err := q.Extend(ctx, first, 0)
		wantErr(t, err, delay.ErrLost)
		wantErr(t, err, core.ErrGone)
		second, err = q.Extend(ctx, second, 3*time.Second)
		if err != nil || !second.Deadline.Equal(clock.Now().Add(3*time.Second-4*time.Millisecond)) {
			t.Fatalf("%+v, %v", second, err)
		}
		clock.Advance(3 * time.Second)
		claim(t, q, 1)
		wantErr(t, q.Ack(ctx, second, nil), delay.ErrLost)
		wantStatus(t, q, "a", delay.Pending, 1, "the lease was over")
		clock.Advance(time.Second)
		second = claim(t, q, 1, "a")[0]
		clock.Advance(time.Second)
		claim(t, q, 1) // it has had its tries
		s := wantStatus(t, q, "a", delay.Dead, 2, "the lease was over")
		if string(s.Payload) != "payload of a" {
			t.Errorf("%+v", s)
		}
		wantErr(t, q.Ack(ctx, second, nil), delay.ErrLost)
	})
}

// TestAnAckCountsUntilTheTaskIsTakenBack: what was done is done, if nobody else has begun it.
func TestAnAckCountsUntilTheTaskIsTakenBack(t *testing.T) {
	each(t, delay.Options{Lease: time.Second}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		schedule(t, q, "a", clock.Now())
		task := claim(t, q, 1, "a")[0]
		clock.Advance(time.Minute)
		for range 2 {
			wantErr(t, q.Ack(t.Context(), task, nil), nil)
		}
		claim(t, q, 1)
		wantErr(t, q.Nack(t.Context(), task, "", 0), delay.ErrLost)
	})
}

// Promise: A task that fails for the last time is dead, with the reason. An operator retries or discards it.
func TestAFailedTaskIsTriedAgainAndThenDead(t *testing.T) {
	each(t, delay.Options{MaxTries: 2}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		ctx := t.Context()
		schedule(t, q, "a", clock.Now())
		task := claim(t, q, 1, "a")[0]
		wantErr(t, q.Nack(ctx, task, "no paper", time.Minute), nil)
		wantErr(t, q.Nack(ctx, task, "no paper", time.Minute), nil)
		wantErr(t, q.Ack(ctx, task, nil), delay.ErrLost)
		s := wantStatus(t, q, "a", delay.Pending, 1, "no paper")
		if !s.At.Equal(clock.Now().Add(time.Minute)) {
			t.Errorf("%+v", s)
		}
		claim(t, q, 1)
		clock.Advance(time.Minute)
		task = claim(t, q, 1, "a")[0]
		long := strings.Repeat("é", 600)
		wantErr(t, q.Nack(ctx, task, long, time.Minute), nil)
		wantErr(t, q.Nack(ctx, task, long, time.Minute), nil)
		wantStatus(t, q, "a", delay.Dead, 2, long[:1000])
		clock.Advance(time.Hour)
		claim(t, q, 1)

		wantErr(t, q.Cancel(ctx, "a"), delay.ErrOtherState)
		wantErr(t, q.Retry(ctx, "a"), nil)
		wantErr(t, q.Retry(ctx, "a"), delay.ErrOtherState)
		task = claim(t, q, 1, "a")[0]
		if task.Try != 1 {
			t.Errorf("%+v: want all tries again", task)
		}
		wantErr(t, q.Discard(ctx, "a"), delay.ErrOtherState)
		wantErr(t, q.Nack(ctx, task, "", 0), nil)
		task = claim(t, q, 1, "a")[0]
		wantErr(t, q.Nack(ctx, task, "out of ink", 0), nil)
		wantErr(t, q.Discard(ctx, "a"), nil)
		wantErr(t, q.Discard(ctx, "a"), delay.ErrNoTask)
		_, err := q.Find(ctx, "a")
		wantErr(t, err, delay.ErrNoTask)
	})
}

func TestTasksAreCancelledAndRescheduledWhileTheyArePending(t *testing.T) {
	each(t, delay.Options{}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		ctx, now := t.Context(), clock.Now()
		for _, f := range []func() error{
			func() error { return q.Cancel(ctx, "a") },
			func() error { return q.Reschedule(ctx, "a", now) },
			func() error { return q.Retry(ctx, "a") },
			func() error { return q.Discard(ctx, "a") },
		} {
			wantErr(t, f(), delay.ErrNoTask)
			wantErr(t, f(), core.ErrNotFound)
		}
		schedule(t, q, "a", now)
		wantErr(t, q.Reschedule(ctx, "a", now.Add(time.Minute)), nil)
		claim(t, q, 1)
		clock.Advance(time.Minute)
		task := claim(t, q, 1, "a")[0]
		wantErr(t, q.Cancel(ctx, "a"), delay.ErrOtherState)
		wantErr(t, q.Reschedule(ctx, "a", now), core.ErrNotNow)
		wantErr(t, q.Ack(ctx, task, nil), nil)
		wantErr(t, q.Cancel(ctx, "a"), core.ErrNotNow)
		schedule(t, q, "b", now)
		wantErr(t, q.Cancel(ctx, "b"), nil)
		claim(t, q, 1)
	})
}

func TestPeekAndCountsOfAllSlots(t *testing.T) {
	o := delay.Options{Spread: 5, MaxTries: 1}
	each(t, o, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		ctx := t.Context()
		for i := range 40 {
			schedule(t, q, fmt.Sprintf("task %02d", i), clock.Now().Add(time.Duration(i/20)*time.Minute))
		}
		tasks, err := q.Claim(ctx, 10, 0)
		if err != nil || len(tasks) != 10 {
			t.Fatalf("%d tasks, %v", len(tasks), err)
		}
		for _, task := range tasks[:3] {
			wantErr(t, q.Nack(ctx, task, "no", 0), nil)
		}
		wantErr(t, q.Ack(ctx, tasks[3], nil), nil)
		if c, err := q.Counts(ctx); err != nil || c != (delay.Counts{Pending: 30, Due: 10, Running: 6, Dead: 3}) {
			t.Errorf("%+v, %v", c, err)
		}
		for state, want := range map[delay.State]int{delay.Pending: 25, delay.Running: 6, delay.Dead: 3} {
			found, err := q.Peek(ctx, state, 25)
			if err != nil || len(found) != want || found[0].State != state {
				t.Errorf("%+v, %v: want %d %s", found, err, want, state)
			}
			for i := range len(found) - 1 {
				if a, b := found[i], found[i+1]; a.At.After(b.At) && state == delay.Pending {
					t.Errorf("%+v comes before %+v", a, b)
				}
			}
		}
		_, err = q.Peek(ctx, delay.Done, 1)
		wantErr(t, err, core.ErrInvalid)
	})
}

// TestClaimOfTenThousandTasks in the order in which they are due, in runs of a script that are short.
func TestClaimOfTenThousandTasks(t *testing.T) {
	for _, spread := range []int{1, 8} {
		t.Run(fmt.Sprint(spread), func(t *testing.T) {
			t.Parallel()
			b := redistest.Single(t)
			q := delay.New(guardtest.NewEngine(b), "tasks", delay.Options{Spread: spread})
			all := delay.MaxClaim
			if !redistest.All() {
				all = 1500
			}
			begun := time.Now()
			at := begun.Add(-time.Minute)
			scheduled := make(chan error, 8)
			for part := range cap(scheduled) {
				go func() {
					for i := part; i < all; i += cap(scheduled) {
						if _, err := q.Schedule(t.Context(), fmt.Sprintf("%05d", i), at, nil); err != nil {
							scheduled <- err
							return
						}
					}
					scheduled <- nil
				}()
			}
			for range cap(scheduled) {
				wantErr(t, <-scheduled, nil)
			}
			took := time.Since(begun)
			begun = time.Now()
			tasks, err := q.Claim(t.Context(), all, 0)
			t.Logf("scheduled in %v, claimed in %v", took, time.Since(begun))
			if err != nil || len(tasks) != all {
				t.Fatalf("%d tasks, %v", len(tasks), err)
			}
			got := ids(tasks)
			if spread == 1 && !slices.IsSorted(got) {
				t.Error("the tasks are not in their order")
			}
			slices.Sort(got)
			if len(slices.Compact(got)) != all {
				t.Error("a task was claimed twice")
			}
		})
	}
}

// TestAClaimAsksAllSlots: tasks of one slot do not keep those of another waiting.
func TestAClaimAsksAllSlots(t *testing.T) {
	each(t, delay.Options{Spread: 4}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		for i := range 400 {
			schedule(t, q, fmt.Sprint(i), clock.Now())
		}
		tasks, err := q.Claim(t.Context(), 40, 0)
		if err != nil || len(tasks) != 40 {
			t.Fatalf("%d tasks, %v", len(tasks), err)
		}
		slots := map[uint32]int{}
		for _, task := range tasks {
			hash := fnv.New32a()
			hash.Write([]byte(task.ID))
			slots[hash.Sum32()%4]++
		}
		for slot, n := range slots {
			if n != 10 {
				t.Errorf("slot %d gave %d of 40 tasks, want 10", slot, n)
			}
		}
	})
}

func TestInvalidCallsOfAQueue(t *testing.T) {
	b := redistest.Mini(t)
	q := delay.New(guardtest.NewEngine(b), "tasks", delay.Options{MaxPayload: 4})
	ctx, now := t.Context(), time.Now()
	schedule := func(id string, at time.Time, payload string) error {
		_, err := q.Schedule(ctx, id, at, []byte(payload))
		return err
	}
	claim := func(n int, lease time.Duration) error { _, err := q.Claim(ctx, n, lease); return err }
	for what, err := range map[string]error{
		"no ID":               schedule("", now, ""),
		"a long ID":           schedule(strings.Repeat("x", delay.MaxID+1), now, ""),
		"a long payload":      schedule("a", now, "12345"),
		"a time far away":     schedule("a", time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC), ""),
		"no tasks":            claim(0, 0),
		"too many tasks":      claim(delay.MaxClaim+1, 0),
		"a short lease":       claim(1, time.Millisecond),
		"a long lease":        claim(1, 25*time.Hour),
		"a long result":       q.Ack(ctx, delay.Task{ID: "a"}, []byte("12345")),
		"a cancel without":    q.Cancel(ctx, ""),
		"nobody's reschedule": q.Reschedule(ctx, "", now),
	} {
		if !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for text, o := range map[string]delay.Options{
		"Lease": {Lease: time.Millisecond}, "MaxTries": {MaxTries: 1001}, "MaxPayload": {MaxPayload: 1<<20 + 1},
		"Spread": {Spread: 65}, "Keep": {Keep: time.Second},
	} {
		guardtest.WantPanic(t, text, func() { delay.New(guardtest.NewEngine(b), "tasks", o) })
	}
	guardtest.WantPanic(t, "core.New", func() { delay.New(core.NewMemory(), "tasks", delay.Options{}) })
}

func TestIDsAndPayloadsOfATaskAreAnyBytes(t *testing.T) {
	each(t, delay.Options{}, func(t *testing.T, q *delay.Queue, clock *guardtest.Clock) {
		known := map[string]bool{}
		payload := bytes.Repeat([]byte{0, 0xff, '\n', ' '}, 1000)
		for _, id := range guardtest.Hostile {
			if len(id) > delay.MaxID {
				continue
			}
			if created, err := q.Schedule(t.Context(), id, clock.Now(), payload); err != nil || !created {
				t.Fatalf("%q: %v, %v", id, created, err)
			}
			known[id] = true
		}
		tasks, err := q.Claim(t.Context(), 100, 0)
		if err != nil || len(tasks) != len(known) {
			t.Fatalf("%q, %v: want %d", ids(tasks), err, len(known))
		}
		for _, task := range tasks {
			if !known[task.ID] || !bytes.Equal(task.Payload, payload) {
				t.Errorf("%+v", task)
			}
			wantErr(t, q.Nack(t.Context(), task, "a \n\x00 b", 0), nil)
			wantStatus(t, q, task.ID, delay.Pending, 1, "a \n\x00 b")
		}
	})
}

// TestAClaimOfLongPayloadsIsAnsweredInParts, each of which is short.
func TestAClaimOfLongPayloadsIsAnsweredInParts(t *testing.T) {
	q := delay.New(guardtest.NewEngine(redistest.Single(t)), "tasks", delay.Options{MaxPayload: 1 << 20})
	for i := range 10 {
		if _, err := q.Schedule(t.Context(), fmt.Sprint(i), time.Time{}, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := q.Claim(t.Context(), 100, 0)
	if err != nil || len(tasks) != 10 {
		t.Fatalf("%d tasks, %v", len(tasks), err)
	}
	if tasks[0].Fence() == tasks[9].Fence() {
		t.Error("10 MiB came in one reply")
	}
}

// TestAQueueIsKeptUntilItsTasksAreDue and 30 days more: all keys of a slot expire at one moment.
func TestAQueueIsKeptUntilItsTasksAreDue(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ctx := context.Background()
		q := delay.New(guardtest.NewEngine(b), "tasks", delay.Options{MaxTries: 1})
		const year, month = 365 * 24 * time.Hour, 30 * 24 * time.Hour
		want := func(least time.Duration, keys int) {
			t.Helper()
			var found []string
			err := b.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
				all, err := c.Keys(ctx, b.Prefix+":*").Result()
				found = append(found, all...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			lives := map[string]time.Duration{}
			for _, key := range found {
				if strings.Contains(key, ":claim|") || strings.Contains(key, ":op|") {
					continue
				}
				lives[key] = b.Client.PTTL(ctx, key).Val()
			}
			first := time.Duration(0)
			for key, ttl := range lives {
				if first == 0 {
					first = ttl
				}
				if ttl < least || ttl > least+25*time.Hour || (ttl-first).Abs() > time.Minute {
					t.Errorf("%s lives for %v, want %v to a day more, as all", key, ttl, least)
				}
			}
			if len(lives) != keys {
				t.Errorf("%v: want %d keys", lives, keys)
			}
		}
		now := time.Now()
		schedule(t, q, "soon", now)
		want(month+23*time.Hour, 4)
		schedule(t, q, "in a year", now.Add(year))
		schedule(t, q, "also soon", now)
		want(year+month-time.Minute, 4)
		tasks, err := q.Claim(t.Context(), 10, 0)
		if err != nil || len(tasks) != 2 {
			t.Fatalf("%q, %v", ids(tasks), err)
		}
		want(year+month-time.Minute, 5)
		wantErr(t, q.Ack(t.Context(), tasks[0], nil), nil)
		wantErr(t, q.Nack(t.Context(), tasks[1], "no", 0), nil)
		want(year+month-time.Minute, 6) // nothing runs
	})
}

// TestWhatIsOverIsForgotten: calls of a queue that is used delete what is not remembered any more.
func TestWhatIsOverIsForgotten(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		clock := guardtest.NewClock()
		q := delay.New(guardtest.NewEngine(b, guardtest.WithClock(clock)), "tasks",
			delay.Options{Keep: time.Minute, MaxTries: 1})
		for i := range 20 {
			schedule(t, q, fmt.Sprint("old ", i), clock.Now())
		}
		tasks, err := q.Claim(t.Context(), 20, 0)
		wantErr(t, err, nil)
		for i, task := range tasks {
			if i%2 == 0 {
				err = q.Ack(t.Context(), task, []byte("42"))
			} else {
				err = q.Nack(t.Context(), task, "no", 0)
			}
			wantErr(t, err, nil)
		}
		clock.Advance(8 * 24 * time.Hour)
		for i := range 5 {
			schedule(t, q, fmt.Sprint("new ", i), clock.Now().Add(time.Hour))
		}
		claim(t, q, 1)
		size := func(field string) int64 {
			return b.Client.HLen(t.Context(), b.Prefix+":delay:tasks:{tasks|0}:"+field).Val()
		}
		for range 5 {
			claim(t, q, 1)
		}
		if size("tasks") != 5 || size("bodies") != 5 {
			t.Errorf("%d tasks, %d bodies are left, want 5", size("tasks"), size("bodies"))
		}
	})
}
