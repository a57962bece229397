package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/core/seckill"
	"github.com/gatehouse-go/gatehouse/core/votes"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// network measures what goes to a replica for each call, and how many connections a process has.
func network(t *testing.T, c config, out *report) error {
	ctx := t.Context()
	primary := redistest.StartServer(t)
	redistest.StartServer(t).ReplicaOf(primary)
	admin := primary.Client(t)
	calls := 128 * max(c.units/4, 1)

	out.line("\n## Bytes to a replica for each call")
	out.head("call", "1 caller", "128 callers")
	gate := networkEngine(t, primary, 160)
	for _, s := range networkSubjects(ctx, gate) {
		cells := []string{s.name}
		for _, callers := range []int{1, 128} {
			before := infoNumber(ctx, admin, "replication", "master_repl_offset")
			if err := callTogether(ctx, s, callers, calls); err != nil {
				return err
			}
			after := infoNumber(ctx, admin, "replication", "master_repl_offset")
			cells = append(cells, fmt.Sprintf("%.0f", (after-before)/float64(calls)))
		}
		out.row(cells...)
	}

	out.line("\n## Connections of a process with 128 callers of each of these calls")
	out.head("PoolSize", "connections")
	for _, pool := range []int{4, 8, 80} {
		before := infoNumber(ctx, admin, "clients", "connected_clients")
		subjects := networkSubjects(ctx, networkEngine(t, primary, pool))
		errs := make([]error, len(subjects))
		var all sync.WaitGroup
		for i := range subjects {
			all.Go(func() { errs[i] = callTogether(ctx, subjects[i], 128, calls) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		after := infoNumber(ctx, admin, "clients", "connected_clients")
		out.row(strconv.Itoa(pool), fmt.Sprintf("%.0f", after-before))
	}
	return nil
}

func networkEngine(t *testing.T, primary *redistest.Server, pool int) *core.Engine {
	t.Helper()
	options := primary.Options()
	options.PoolSize, options.ContextTimeoutEnabled = pool, true
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return core.New(client, core.WithDeadline(30*time.Second), core.WithPrefix(fmt.Sprint("network-", pool)))
}

func networkSubjects(ctx context.Context, gate *core.Engine) []subject {
	rate := limit.PerMinute(momentMost)
	sale := seckill.New(gate, "sale", seckill.Options{})
	must(sale.Open(ctx, "one", seckill.Sale{Stock: manyUnits, Hold: time.Hour}))
	return []subject{
		byGuard("a check of a `SlidingWindow`", 0, limit.NewSlidingWindow(gate, "window", rate)),
		byGuard("of a `FixedWindow`", 0, limit.NewFixedWindow(gate, "fixed", rate)),
		byGuard("of a `TokenBucket`", 0, limit.NewTokenBucket(gate, "bucket", rate)),
		claimed("a reservation of a sale", sale),
		claimed("a vote", votes.New(gate, "vote", votes.Options{})),
	}
}

// callTogether makes calls of 1,000 actors by so many callers.
func callTogether(ctx context.Context, s subject, callers, calls int) error {
	var all sync.WaitGroup
	var made atomic.Int64
	errs := make(chan error, callers)
	for range callers {
		all.Go(func() {
			for n := made.Add(1); n <= int64(calls); n = made.Add(1) {
				if _, err := s.allow(ctx, strconv.FormatInt(n%1000, 10)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

func infoNumber(ctx context.Context, rdb *redis.Client, section, name string) float64 {
	for _, fields := range must(rdb.InfoMap(ctx, section).Result()) {
		if text, ok := fields[name]; ok {
			return must(strconv.ParseFloat(text, 64))
		}
	}
	panic("INFO " + section + " has no " + name)
}
