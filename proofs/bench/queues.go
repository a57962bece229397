package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/delay"
)

const (
	queuePayload   = 100 // bytes
	queueScheduler = 16  // callers that schedule
	queueKeep      = 24 * time.Hour
)

// queueWorkers are the numbers of handlers that run at a time.
var queueWorkers = []int{10, 100}

// queueOf is a queue with unique IDs whose finished tasks are remembered for a day.
type queueOf struct {
	name     string
	schedule func(ctx context.Context, id string, payload []byte) error
	// work runs the tasks until the context ends, and calls ran after each.
	work func(ctx context.Context, workers int, ran func()) error
}

func queuesOn(rdb *redis.Client) []queueOf {
	ours := func(spread int) queueOf {
		gate := core.New(rdb, core.WithDeadline(30*time.Second), core.WithPrefix(fmt.Sprint("queue-", spread)))
		q := delay.New(gate, "tasks", delay.Options{Keep: queueKeep, Spread: spread})
		return queueOf{name: fmt.Sprintf("delay, Spread %d", spread),
			schedule: func(ctx context.Context, id string, payload []byte) error {
				_, err := q.Schedule(ctx, id, time.Time{}, payload)
				return err
			},
			work: func(ctx context.Context, workers int, ran func()) error {
				return delay.Work(ctx, q, func(context.Context, delay.Task) error {
					ran()
					return nil
				}, delay.WorkOptions{Concurrency: workers})
			}}
	}
	client := asynq.NewClientFromRedisClient(rdb)
	return []queueOf{ours(1), ours(8), {name: "asynq",
		schedule: func(ctx context.Context, id string, payload []byte) error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("task", payload), asynq.TaskID(id),
				asynq.Retention(queueKeep))
			return err
		},
		work: func(ctx context.Context, workers int, ran func()) error {
			server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: workers,
				LogLevel: asynq.FatalLevel})
			err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				ran()
				return nil
			}))
			if err != nil {
				return err
			}
			<-ctx.Done()
			server.Shutdown()
			return nil
		}}}
}

// queueCost is what one task costs, in microseconds: wall time, CPU time of the callers' process, and of the
// server.
type queueCost struct{ wall, own, server []float64 }

func (c *queueCost) add(begun time.Time, before, after cost, tasks int) {
	c.wall = append(c.wall, float64(time.Since(begun).Nanoseconds())/1e3/float64(tasks))
	c.own = append(c.own, (after.own-before.own)/float64(tasks))
	c.server = append(c.server, (after.cpu-before.cpu)/float64(tasks))
}

// queues measures what it costs to schedule a task that is due at once, and to run it: in each round all
// queues, in random order.
func queues(ctx context.Context, rdb *redis.Client, c config, out *report) error {
	all, rng := queuesOn(rdb), rand.New(rand.NewPCG(c.seed, 9))
	scheduled := make([]queueCost, len(all))
	run := make([][]queueCost, len(all))
	for i := range run {
		run[i] = make([]queueCost, len(queueWorkers))
	}
	tasks := c.crowd
	for round := range c.rounds {
		for _, i := range rng.Perm(len(all)) {
			for k, workers := range queueWorkers {
				name := fmt.Sprintf("round-%d-%d-", round, workers)
				turn := queueTurn{all[i], rdb, tasks}
				if err := turn.schedule(ctx, name, &scheduled[i]); err != nil {
					return fmt.Errorf("%s: %w", all[i].name, err)
				}
				if err := turn.run(ctx, workers, &run[i][k]); err != nil {
					return fmt.Errorf("%s: %w", all[i].name, err)
				}
			}
			if err := rdb.FlushDB(ctx).Err(); err != nil { // not at the cost of the next one
				return err
			}
		}
	}
	out.line("\n## Delay queues\n\nMicroseconds per task with a payload of %d bytes, %d tasks per turn. "+
		"Finished tasks are remembered for a day.", queuePayload, tasks)
	out.head("queue", "", "tasks per second", "wall µs", "CPU µs of the process", "CPU µs of redis-server")
	write := func(name, what string, c queueCost) {
		out.row(name, what, fmt.Sprintf("%.0f", 1e6/median(c.wall)), fmt.Sprintf("%.1f", median(c.wall)),
			fmt.Sprintf("%.1f", median(c.own)), fmt.Sprintf("%.1f", median(c.server)))
	}
	for i, q := range all {
		write(q.name, "schedule, "+strconv.Itoa(queueScheduler)+" callers", scheduled[i])
	}
	for k, workers := range queueWorkers {
		for i, q := range all {
			write(q.name, fmt.Sprintf("run, %d at a time", workers), run[i][k])
		}
	}
	return nil
}

// queueTurn is one turn of a queue, with so many tasks.
type queueTurn struct {
	of    queueOf
	rdb   *redis.Client
	tasks int
}

func (q queueTurn) schedule(ctx context.Context, name string, sum *queueCost) error {
	before, err := costs(ctx, q.rdb)
	if err != nil {
		return err
	}
	begun, payload := time.Now(), make([]byte, queuePayload)
	ended := make(chan error, queueScheduler)
	for part := range queueScheduler {
		go func() {
			for i := part; i < q.tasks; i += queueScheduler {
				if err := q.of.schedule(ctx, name+strconv.Itoa(i), payload); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range queueScheduler {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return err
	}
	after, err := costs(ctx, q.rdb)
	sum.add(begun, before, after, q.tasks)
	return err
}

func (q queueTurn) run(ctx context.Context, workers int, sum *queueCost) error {
	before, err := costs(ctx, q.rdb)
	if err != nil {
		return err
	}
	begun := time.Now()
	working, stop := context.WithCancel(ctx)
	defer stop()
	var ran atomic.Int64
	all, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- q.of.work(working, workers, func() {
			if ran.Add(1) == int64(q.tasks) {
				close(all)
			}
		})
	}()
	select {
	case <-all:
	case err := <-ended:
		return fmt.Errorf("it has run %d of %d tasks: %w", ran.Load(), q.tasks, err)
	}
	after, err := costs(ctx, q.rdb)
	sum.add(begun, before, after, q.tasks)
	stop()
	return errors.Join(err, <-ended)
}
